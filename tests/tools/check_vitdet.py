"""Compare ViTDet with MMDetection's own ``projects/ViTDet``.  Run by hand, as that is in no package.

    python -m tests.tools.check_vitdet FOLDER [--record]
    python -m tests.tools.check_vitdet FOLDER --mutations [ARGUMENT ...]

FOLDER is ``projects/ViTDet`` of MMDetection's repository; `.ci/run originals` shows what else must be installed.
Torch modules and exported files detect in images, alone and in a batch.  Prints a line for each detector and exits
with 1 if one differs.  With ``--record``, writes what `tests/detect/test_vitdet.py` expects.  With ``--mutations``,
changes one entry of a config at a time instead; ARGUMENTs are those of `tests.originals.mutations`.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import torch

from tests.detect import vitdet_cases
from tests.originals import mutations, records
from tests.originals.cases.case import PREPROCESSOR, Case
from tests.originals.cases.two_stage import SPREAD
from tests.originals.compare import write_record
from tests.originals.version_3 import VERSION
from tests.tools.check_co_dino import compare

RECORD = Path(__file__).parents[1] / "data" / "detect" / "vitdet.json"


def main(folder: str, *arguments: str) -> int:
    """Check the detectors."""
    torch.set_grad_enabled(False)
    sys.path.insert(0, folder)
    import_module("vitdet")  # registers itself
    preprocessor = {**PREPROCESSOR, "pad_mask": True}
    cases = {
        name: Case({**copy.deepcopy(model), "data_preprocessor": preprocessor, "train_cfg": None}, SPREAD)
        for name, model in vitdet_cases.MODELS.items()
    }
    if "--mutations" in arguments:
        sys.argv[1:] = [argument for argument in arguments if argument != "--mutations"]
        return mutations.main(replace(VERSION, cases=cases, cases_of_pipeline=("vitdet",)), "tests.originals")
    failures = compare(cases, VERSION.build)
    if "--record" in arguments:
        models = vitdet_cases.MODELS.items()
        write_record(RECORD, {name: records.with_weights(model, vitdet_cases.weights) for name, model in models})
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
