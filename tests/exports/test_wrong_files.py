"""Files with one error each are caught by the proof: a sample, another one for each MUTANTS_SEED.

More of them: ``python -m tests.tools.mutants``.
"""

import os
import random

import onnx
import pytest

from tests.detect.small_exports import SmallExport, small_cases
from tests.tools.mutants import Judge, mutations, with_many_detections

SEED = int(os.environ.get("MUTANTS_SEED", "0"))
COUNT = 6


def test_limits_that_no_box_reaches_inside_of_the_image(tmp_path):
    model, fill = small_cases()["RPN"]
    small = SmallExport(with_many_detections(model), fill, tmp_path / "right.onnx")
    assert small.write().ok
    limits_of_growth = [
        mutation for mutation in mutations(onnx.load(small.path)) if mutation.kind == "constant of Clip 0.2 % larger"
    ]
    assert len(limits_of_growth) >= 2  # how far a box shrinks, and how far it grows
    judge = Judge(small, count=0)
    assert {judge(mutation, tmp_path) for mutation in limits_of_growth} == {"caught"}


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
