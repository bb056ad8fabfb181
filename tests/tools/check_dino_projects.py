"""Compare Align-DETR and H-DINO with MMDetection's own ``projects``.  Run by hand, as these are in no package.

    python -m tests.tools.check_dino_projects FOLDER [--record]

FOLDER is that of MMDetection's repository; `.ci/run originals` shows what else must be installed.  Torch modules and
exported files detect in images, alone and in a batch.  Prints a line for each detector and exits with 1 if one
differs.  With ``--record``, writes what `tests/detect/test_dino_projects.py` expects.
"""

from __future__ import annotations

import copy
import sys
from importlib import import_module
from pathlib import Path

import torch

from tests.detect import co_dino_cases, dino_projects_cases
from tests.originals import records
from tests.originals.cases.case import PREPROCESSOR, Case
from tests.originals.cases.query import SPREAD
from tests.originals.compare import write_record
from tests.originals.original import Original
from tests.tools.check_co_dino import compare

RECORD = Path(__file__).parents[1] / "data" / "detect" / "dino_projects.json"


def main(folder: str, *arguments: str) -> int:
    """Check the detectors."""
    torch.set_grad_enabled(False)
    sys.path.insert(0, folder)
    for project in ("projects.AlignDETR.align_detr", "projects.HDINO"):
        import_module(project)  # registers itself
    models = dino_projects_cases.MODELS
    cases = {
        name: Case({**copy.deepcopy(model), "data_preprocessor": PREPROCESSOR}, SPREAD, classes=1)
        for name, model in models.items()
    }
    failures = compare(cases, Original)
    if "--record" in arguments:
        recorded = {name: records.with_weights(model, co_dino_cases.weights) for name, model in models.items()}
        write_record(RECORD, recorded)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
