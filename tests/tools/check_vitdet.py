"""Compare ViTDet with MMDetection's own ``projects/ViTDet``.  Run by hand, as that is in no package.

    python -m tests.tools.check_vitdet FOLDER [--record]
    python -m tests.tools.check_vitdet FOLDER --mutations [ARGUMENT ...]

FOLDER is ``projects/ViTDet`` of MMDetection's repository; `.ci/run originals` shows what else must be installed.
Torch modules and exported files detect in images, alone and in a batch.  Prints a line for each detector and exits
with 1 if one differs.  With ``--record``, writes what `tests/detect/test_vitdet.py` expects.  With ``--mutations``,
changes one entry of a config at a time instead; ARGUMENTs are those of `tests.originals.mutations`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.detect import vitdet_cases
from tests.originals.cases.case import PREPROCESSOR
from tests.originals.cases.two_stage import SPREAD
from tests.tools.check_co_dino import cases_of, check

RECORD = Path(__file__).parents[1] / "data" / "detect" / "vitdet.json"
CASES = cases_of(vitdet_cases.MODELS, SPREAD, data_preprocessor={**PREPROCESSOR, "pad_mask": True}, train_cfg=None)

if __name__ == "__main__":
    sys.exit(check(["vitdet"], CASES, RECORD, *sys.argv[1:], weights=vitdet_cases.weights))
