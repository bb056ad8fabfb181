"""Noise in the outputs of heads: errors after the heads differ although the image shows nothing."""

import onnx
import pytest
import torch

from mmort.detect.export.crowd import VIEWS, crowd
from mmort.detect.export.head_outputs import WithHeads
from tests.detect.small_exports import SmallExport, small_cases
from tests.tools.mutants import with_many_detections


@pytest.fixture(scope="module")
def blind(tmp_path_factory):
    """Return the export of an FCOS that detects nothing, and the report of its proof."""
    model, fill = small_cases()["FCOS"]
    model = {**model, "test_cfg": {**model["test_cfg"], "max_per_img": 100}}

    def fill_blind(detector):
        fill(detector)
        detector.bbox_head.conv_cls.bias.data -= 10
        detector.bbox_head.conv_reg.bias.data += 15  # boxes that overlap

    small = SmallExport(model, fill_blind, tmp_path_factory.mktemp("blind") / "detector.onnx")
    return small, small.write()


def test_the_scene_is_crowded(blind):
    _, report = blind
    seen, crowded = (
        [row for row in report.rows if hasattr(row, "matched") and row.inputs.endswith(tuple(VIEWS)) == noisy]
        for noisy in (False, True)
    )
    assert report.ok
    assert not any(row.detections for row in seen)
    assert [row.matched >= 50 for row in crowded] == [True, True]


@pytest.mark.parametrize(("attribute", "change"), [("iou_threshold", -0.4), ("score_threshold", 0.3)])
def test_an_error_after_the_heads_differs(blind, tmp_path, attribute, change):
    small, _ = blind
    model = onnx.load(small.path)
    (value,) = (
        each
        for node in model.graph.node
        for each in node.attribute
        if node.op_type == "MultiClassNMS" and each.name == attribute
    )
    value.f += change
    wrong = tmp_path / "wrong.onnx"
    onnx.save(model, wrong)
    report = small.prove(wrong)
    assert not report.ok
    problems = [row.problem for row in report.rows if row.problem and not row.inputs.endswith(tuple(VIEWS))]
    assert len(problems) < len([row for row in report.rows if row.problem])
    assert problems == [f"MultiClassNMS dets has another {attribute} than torch's calls"]
    assert list(tmp_path.iterdir()) == [wrong]


def test_a_file_that_takes_images_for_as_large_as_its_input_differs(blind, tmp_path):
    small, _ = blind
    model = onnx.load(small.path)
    (node,) = (node for node in model.graph.node if node.op_type == "Greater" and "img_shape_of_each" in node.input)
    node.op_type = "Less"
    onnx.save(model, tmp_path / "wrong.onnx")
    assert not small.prove(tmp_path / "wrong.onnx").ok


@pytest.mark.parametrize("name", ["CrowdDet", "Cascade RPN alone"])
def test_stages_are_crowded_that_read_what_others_find(name, tmp_path):
    """How large the outputs of a second stage are shows only where the first one's have noise; anchors move in two."""
    model, fill = small_cases()[name]
    small = SmallExport(with_many_detections(model), fill, tmp_path / "detector.onnx")
    module = WithHeads(small.proof().module, small.detector)
    for seed, shown in enumerate(VIEWS.values()):
        _, share = crowd(module, small.detector, small.inputs[0], seed, shown.scenes)
        assert share >= 0.5


def test_noise_is_that_of_the_first_run(blind):
    small, _ = blind
    module, args = small._export.module, small.inputs[0]
    noisy, share = crowd(module, small.detector, args, 0)
    with torch.no_grad():
        first, second, without = noisy(*args), noisy(*args), module(*args)
    assert all(map(torch.equal, first, second))
    assert (without[1] < 0).all()
    assert float((first[1] >= 0).float().mean()) == share >= 0.5
