"""Compare SparseInst with MMDetection's own ``projects/SparseInst``.  Run by hand, as that is in no package.

    python -m tests.tools.check_sparseinst FOLDER [--record]
    python -m tests.tools.check_sparseinst FOLDER --mutations [ARGUMENT ...]

FOLDER is that of MMDetection's repository; `.ci/run originals` shows what else must be installed.  Torch modules and
exported files detect in images, alone and in a batch.  Prints a line for each detector and exits with 1 if one
differs.  With ``--record``, writes what `tests/detect/test_sparseinst.py` expects.  With ``--mutations``, changes one
entry of a config at a time instead; ARGUMENTs are those of `tests.originals.mutations`.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

from tests.detect import sparseinst_cases
from tests.originals import records
from tests.originals.cases.case import PREPROCESSOR, Case
from tests.tools.check_vitdet import check

RECORD = Path(__file__).parents[1] / "data" / "detect" / "sparseinst.json"
SPREAD = {
    r"iam_conv$": (-20.0, 50.0),
    r"cls_score$": (0.0, 4.0),
    r"objectness$": (1.0, 2.0),
    r"projection$": (0.0, 2.0),
}


def main(*arguments: str) -> int:
    """Check the detectors."""
    preprocessor = {**PREPROCESSOR, "pad_mask": True}
    cases = {
        name: Case({**copy.deepcopy(model), "data_preprocessor": preprocessor}, SPREAD, classes=1)
        for name, model in sparseinst_cases.MODELS.items()
    }

    def results(name: str) -> Any:
        return records.masks_with_weights(cases[name].model, sparseinst_cases.weights)

    return check("projects.SparseInst.sparseinst", cases, RECORD, results, *arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
