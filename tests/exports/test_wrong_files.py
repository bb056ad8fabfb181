"""Files with one error each are caught by the proof: a sample, another one for each MUTANTS_SEED.

More of them: ``python -m tests.tools.mutants``.
"""

import os
import random

import onnx
import pytest

from tests.detect.small_exports import SmallExport, small_cases
from tests.tools.mutants import Judge, chosen, mutations, with_many_detections

SEED = int(os.environ.get("MUTANTS_SEED", "0"))
COUNT = 6


def test_limits_that_no_box_reaches_inside_of_the_image(tmp_path):
    model, fill = small_cases()["RPN"]
    small = SmallExport(with_many_detections(model), fill, tmp_path / "right.onnx")
    assert small.write().ok
    limits_of_growth = [
        mutation for mutation in mutations(onnx.load(small.path)) if mutation.kind == "constant of Clip off by 1e-06"
    ]
    assert len(limits_of_growth) >= 2  # how far a box shrinks, and how far it grows
    judge = Judge(small, count=0)
    assert {judge(mutation, tmp_path) for mutation in limits_of_growth} == {"caught"}


def test_constants_that_images_hardly_show(tmp_path):
    model, fill = small_cases()["Mask Scoring R-CNN"]
    small = SmallExport(with_many_detections(model), fill, tmp_path / "right.onnx")
    assert small.write().ok
    kinds = (  # a cell of anchors, a convolution with the normalization after it, layers as they are, an index's limit
        "a number of a constant of GatherND",
        "a number of a constant of Conv",
        "constant of ConvTranspose off by 0.001",
        "a number of a constant of Gemm",
        "integer of Clip plus 1",
    )
    some = [mutation for mutation in chosen(onnx.load(small.path), per_kind=3) if mutation.kind in kinds]
    assert {mutation.kind for mutation in some} == {*kinds}
    for mutation in some:
        wrong = onnx.load(small.path)
        mutation.change(wrong)
        onnx.save(wrong, tmp_path / "wrong.onnx")
        assert not small.prove(tmp_path / "wrong.onnx").ok, mutation


def test_angles_that_leave_their_range(tmp_path):
    model, fill = small_cases()["Oriented R-CNN"]
    small = SmallExport(with_many_detections(model), fill, tmp_path / "right.onnx")
    assert small.write().ok
    right = onnx.load(small.path)
    floors = {node.output[0] for node in right.graph.node if node.op_type == "Floor"}
    turns = [
        f"Mul {index}"
        for index, node in enumerate(right.graph.node)
        if node.op_type == "Mul" and floors.intersection(node.input)
    ]
    wrong = [mutation for mutation in mutations(right) if mutation.kind == "no Mul" and mutation.where in turns]
    judge = Judge(small, count=0)
    assert wrong
    assert {judge(mutation, tmp_path) for mutation in wrong} == {"caught"}


def test_detections_by_ascending_score(tmp_path):
    model, fill = small_cases()["dino"]
    small = SmallExport(with_many_detections(model), fill, tmp_path / "right.onnx")
    assert small.write().ok
    *_, wrong = (mutation for mutation in mutations(onnx.load(small.path)) if mutation.kind == "largest of TopK")
    assert Judge(small, count=0)(wrong, tmp_path) == "caught"


@pytest.mark.parametrize("name", ["ATSSHead", "YOLOv3"])
def test_each_is_caught_or_no_error(name, tmp_path):
    model, fill = small_cases()[name]
    small = SmallExport(with_many_detections(model), fill, tmp_path / "right.onnx")
    assert small.write().ok
    sample = random.Random(SEED).sample(list(mutations(onnx.load(small.path))), COUNT)
    judge = Judge(small)
    verdicts = {(mutation.kind, mutation.where): judge(mutation, tmp_path) for mutation in sample}
    assert "caught" in verdicts.values()
    assert not [where for where, outcome in verdicts.items() if outcome == "MISSED"], verdicts
