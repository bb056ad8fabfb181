"""Files with one error each are caught by the proof: a sample, another one for each MUTANTS_SEED.

More of them: ``python -m tests.tools.mutants``.
"""

import os
import random

import onnx
import pytest

from tests.tools.mutants import mutations, verdict, with_many_detections
from tests.tools.small_cases import small_cases
from tests.tools.small_exports import SmallExport

SEED = int(os.environ.get("MUTANTS_SEED", "0"))
COUNT = 6


@pytest.mark.parametrize("name", ["ATSSHead", "YOLOv3"])
def test_each_is_caught_or_no_error(name, tmp_path):
    model, fill = small_cases()[name]
    small = SmallExport(with_many_detections(model), fill, tmp_path / "right.onnx")
    assert small.write().ok
    sample = random.Random(SEED).sample(list(mutations(onnx.load(small.path))), COUNT)
    verdicts = {(mutation.kind, mutation.where): verdict(small, mutation, tmp_path) for mutation in sample}
    assert "caught" in verdicts.values()
    assert not [where for where, outcome in verdicts.items() if outcome == "MISSED"], verdicts
