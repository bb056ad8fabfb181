"""Every function of ``mmcv._ext`` with tensors as MMCV's kernels take them: strided, in other shapes, and empty."""

import pytest
import torch

from mmort.mmcv import build_information, ext_module
from tests.mmcv.calls import calls, run, strided

CALLS = calls()


def same(actual, expected):
    """Assert what is returned, and that the numbers written are the same in the same order."""
    (returned, written), (wanted, wanted_tensors) = actual, expected
    assert returned == wanted
    for name, tensor in wanted_tensors.items():
        torch.testing.assert_close(written[name].flatten(), tensor.flatten(), equal_nan=True, msg=name)


def test_every_function_has_a_call():
    assert set(CALLS) == set(ext_module.IMPLEMENTED) - set(build_information.__all__)


@pytest.mark.parametrize("name", CALLS)
def test_strided_tensors(name):
    call = CALLS[name]
    expected = run(name, call.inputs, call.outputs, call.settings)
    assert not call.outputs or any(not torch.equal(expected[1][key], call.outputs[key]) for key in call.outputs)
    inputs, outputs = ({key: strided(value) for key, value in part.items()} for part in (call.inputs, call.outputs))
    same(run(name, inputs, outputs, call.settings), expected)
    same(run(name, inputs, call.outputs, call.settings), expected)


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.flat])
def test_other_shapes(name):
    """The kernels count from the first number, by sizes that they have from other arguments."""
    call = CALLS[name]
    inputs, outputs = (
        {key: value.reshape(call.flat.get(key, value.shape)) for key, value in part.items()}
        for part in (call.inputs, call.outputs)
    )
    expected = run(name, call.inputs, call.outputs, call.settings)
    same(run(name, inputs, outputs, call.settings), expected)


@pytest.mark.parametrize("name", ["box_iou_rotated", "box_iou_quadri", "nms_rotated", "nms_quadri"])
def test_rows_may_go_on(name):
    """MMRotate's metric hands over boxes with their scores; the kernels for the CPU take each row's beginning."""
    call = CALLS[name]
    boxes = {"bboxes1", "bboxes2", "dets", "dets_sorted"} & set(call.inputs)
    longer = {key: torch.nn.functional.pad(call.inputs[key], (0, 1), value=0.5) for key in boxes}
    expected = run(name, call.inputs, call.outputs, call.settings)
    same(run(name, call.inputs | longer, call.outputs, call.settings), expected)


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call.empty])
def test_nothing_in_gives_nothing(name):
    call = CALLS[name]
    inputs, outputs = (
        {key: value[:0] if key in call.empty else value for key, value in part.items()}
        for part in (call.inputs, call.outputs)
    )
    if name in ("box_iou_rotated", "box_iou_quadri"):
        outputs = {"ious": torch.zeros(0)}
    returned, written = run(name, inputs, outputs, call.settings | call.of_empty)
    assert returned in (None, [])
    for key, tensor in written.items():
        assert torch.equal(tensor, outputs[key]), key
