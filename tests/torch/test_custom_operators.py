"""The custom operators of torch: the bits of numpy, fake implementations, opcheck, refused tensors."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import mmort.torch
from mmort.torch.gradients import GRADIENTS
from mmort.torch.operators import OPERATORS
from tests import front_ends
from tests.compare import assert_same
from tests.torch.calls import CASES, arguments_of, flat, nonempty, tensors_of, to_numpy

BOXES, SCORES = torch.zeros(3, 4), torch.zeros(3)


def test_every_row_is_an_operator():
    assert set(OPERATORS) == {row["kernel"] for row in front_ends.ROWS}
    assert len(CASES) > 500


@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_and_fake_results(case):
    """The bits of numpy, and a fake implementation that predicts dtypes, ranks and all sizes that are known."""
    arguments = arguments_of(case)
    results = flat(OPERATORS[case.operator](**arguments))
    expected = front_ends.run_numpy(case.operator, case.arrays, case.attributes)
    assert_same(to_numpy(results), front_ends.node_outputs(case.operator, expected), str(case))
    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True) as mode:
        fake_arguments = {
            name: mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value
            for name, value in arguments.items()
        }
        fakes = flat(OPERATORS[case.operator](**fake_arguments))
    for fake, real in zip(fakes, results, strict=True):
        assert fake.dtype == real.dtype
        assert fake.dim() == real.dim()
        sizes = zip(fake.shape, real.shape, strict=True)
        assert all(known == size for known, size in sizes if isinstance(known, int)), (fake.shape, real.shape)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_same_bits_as_numpy_in_other_dtypes(operator, dtype):
    case = nonempty(operator)
    results = to_numpy(OPERATORS[operator](**arguments_of(case, dtype)))
    arrays = [tensor.numpy() for tensor in tensors_of(case.arrays, dtype)]
    expected = front_ends.run_numpy(operator, arrays, case.attributes)
    assert_same(results, front_ends.node_outputs(operator, expected), str(case))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # raised by torch 2.15 itself
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_opcheck(operator):
    arguments = arguments_of(nonempty(operator))
    for name in GRADIENTS[operator].inputs if operator in GRADIENTS else ():
        if name in arguments:
            arguments[name].requires_grad_()
    torch.library.opcheck(OPERATORS[operator], (), arguments)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool])
def test_dtypes_are_refused_by_name(dtype):
    with pytest.raises(TypeError, match=rf"^nms: boxes must be float16, float32 or float64, got {dtype}$"):
        mmort.torch.nms(BOXES.to(dtype), SCORES, 0.5)


def test_other_devices_are_refused():
    with (
        FakeTensorMode(),
        pytest.raises(ValueError, match=r"^nms: scores must be on the CPU, got a tensor on cuda:0$"),
    ):
        OPERATORS["nms"](torch.empty(3, 4), torch.empty(3, device="cuda:0"), 0.5)


def test_shapes_are_refused_in_calls_and_in_traces():
    text = r"nms: boxes must be \[N, 4\], got \[4\]"
    with pytest.raises(ValueError, match=text):
        OPERATORS["nms"](BOXES[0], SCORES, 0.5)
    with FakeTensorMode(shape_env=ShapeEnv()), pytest.raises(ValueError, match=text):
        OPERATORS["nms"](torch.empty(4), torch.empty(3), 0.5)
