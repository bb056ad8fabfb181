"""Compare Align-DETR and H-DINO with MMDetection's own ``projects``.  Run by hand, as these are in no package.

    python -m tests.tools.check_dino_projects FOLDER [--record]
    python -m tests.tools.check_dino_projects FOLDER --mutations [ARGUMENT ...]

FOLDER is that of MMDetection's repository; `.ci/run originals` shows what else must be installed.  Torch modules and
exported files detect in images, alone and in a batch.  Prints a line for each detector and exits with 1 if one
differs.  With ``--record``, writes what `tests/detect/test_dino_projects.py` expects.  With ``--mutations``, changes
one entry of a config at a time instead; ARGUMENTs are those of `tests.originals.mutations`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.detect import dino_projects_cases
from tests.tools.check_co_dino import cases_of, check

PROJECTS = "projects.AlignDETR.align_detr", "projects.HDINO"
RECORD = Path(__file__).parents[1] / "data" / "detect" / "dino_projects.json"

if __name__ == "__main__":
    sys.exit(check(PROJECTS, cases_of(dino_projects_cases.MODELS), RECORD, *sys.argv[1:]))
