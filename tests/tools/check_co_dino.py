"""Compare Co-DINO with MMDetection's own ``projects/CO-DETR``.  Run by hand, as that is in no package.

    python -m tests.tools.check_co_dino FOLDER [--record]

FOLDER is ``projects/CO-DETR`` of MMDetection's repository; `.ci/run originals` shows what else must be installed.
Torch modules and exported files detect in images, alone and in a batch.  Prints a line for each detector and exits
with 1 if one differs.  With ``--record``, writes what `tests/detect/test_co_dino.py` expects.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from mmort.detect.export import ExportOptions, export
from tests.detect import co_dino_cases
from tests.originals.candidate import Candidate
from tests.originals.cases.case import PREPROCESSOR, Case, Config
from tests.originals.cases.query import SPREAD
from tests.originals.compare import batches_of, filled, save, write_record
from tests.originals.comparison import differences, require_substance
from tests.originals.images import image_files

RECORD = Path(__file__).parents[1] / "data" / "detect" / "co_dino.json"


def difference(case: Case, folder: Path, build: Callable[[Config], Any]) -> str:
    """Return how torch or the file differ from the original that `build` makes, "" if they do not."""
    original, _ = filled(build, case, case.config())
    checkpoint, settings, file = save(original, folder), folder / "config.json", folder / "detector.onnx"
    settings.write_text(json.dumps(case.config()))
    options = ExportOptions(input_img=image_files()[0], dynamic_export=True)
    export(settings, checkpoint, file, options, progress=lambda line: None)
    candidates = {
        "torch": Candidate(case.config(), checkpoint),
        "file": Candidate(case.config(), checkpoint, str(file)),
    }
    batches = batches_of(case)
    expected = [original.run(batch) for batch in batches]
    require_substance(expected, case.classes)
    actual = [
        f"{name}: {difference}"
        for name, candidate in candidates.items()
        for batch, result in zip(batches, expected, strict=True)
        for difference in differences(candidate.run(batch), result)
    ]
    return "; ".join(actual)


def compare(cases: Mapping[str, Case], build: Callable[[Config], Any]) -> int:
    """Print how each case differs from the original that `build` makes, and return how many do."""
    failures = 0
    for name, case in cases.items():
        with tempfile.TemporaryDirectory() as directory:
            problem = difference(case, Path(directory), build)
        failures += bool(problem)
        print(f"{name}: {problem or 'equal'}", flush=True)
    return failures


def check(projects: Sequence[str], models: Mapping[str, Config], record: Path, folder: str, *arguments: str) -> int:
    """Compare detectors of projects in a folder, and record what these detect; return the exit code."""
    from tests.originals import records  # needs MMDetection 3, which those who import this module may not have
    from tests.originals.original import Original

    torch.set_grad_enabled(False)
    sys.path.insert(0, folder)
    for project in projects:
        import_module(project)  # registers itself
    cases = {
        name: Case({**copy.deepcopy(model), "data_preprocessor": PREPROCESSOR}, SPREAD, classes=1)
        for name, model in models.items()
    }
    failures = compare(cases, Original)
    if "--record" in arguments:
        write_record(
            record, {name: records.with_weights(model, co_dino_cases.weights) for name, model in models.items()}
        )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(check(["codetr"], co_dino_cases.MODELS, RECORD, *sys.argv[1:]))
