"""Compare Co-DINO with MMDetection's own ``projects/CO-DETR``.  Run by hand, as that is in no package.

    python -m tests.tools.check_co_dino FOLDER [--record]
    python -m tests.tools.check_co_dino FOLDER --mutations [ARGUMENT ...]

FOLDER is ``projects/CO-DETR`` of MMDetection's repository; `.ci/run originals` shows what else must be installed.
Torch modules and exported files detect in images, alone and in a batch.  Prints a line for each detector and exits
with 1 if one differs.  With ``--record``, writes what `tests/detect/test_co_dino.py` expects.  With ``--mutations``,
changes one entry of a config at a time instead; ARGUMENTs are those of `tests.originals.mutations`.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from mmort.detect.export import ExportOptions, export
from tests.detect import co_dino_cases, query_cases
from tests.originals.candidate import Candidate
from tests.originals.cases.case import PREPROCESSOR, Case, Config
from tests.originals.cases.query import SPREAD
from tests.originals.compare import batches_of, filled, save, write_record
from tests.originals.comparison import differences, require_substance
from tests.originals.images import image_files
from tests.originals.weights import Spread

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


def cases_of(models: Mapping[str, Config], spread: Spread = SPREAD, **entries: Any) -> dict[str, Case]:
    """Return cases of models, with further entries beside the usual preprocessing."""
    return {
        name: Case({**copy.deepcopy(model), "data_preprocessor": PREPROCESSOR, **entries}, spread, classes=1)
        for name, model in models.items()
    }


def check(
    projects: Sequence[str],
    cases: Mapping[str, Case],
    record: Path,
    folder: str,
    *arguments: str,
    weights: Callable[[dict[str, Any]], dict[str, torch.Tensor]] = co_dino_cases.weights,
    shapes: Mapping[str, Sequence[tuple[int, int]]] | None = None,
) -> int:
    """Do what the command line of a tool asks for, and return the exit code.

    The projects are in a folder.  What is recorded has these `weights`, and images of these `shapes`, by case.
    """
    # These need MMDetection 3, which those who import this module may not have.
    from tests.originals import mutations, records
    from tests.originals.version_3 import VERSION

    torch.set_grad_enabled(False)
    sys.path.insert(0, folder)
    for project in projects:
        import_module(project)  # registers itself
    if "--mutations" in arguments:
        sys.argv[1:] = [argument for argument in arguments if argument != "--mutations"]
        return mutations.main(replace(VERSION, cases=cases, cases_of_pipeline=(next(iter(cases)),)), "tests.originals")
    failures = compare(cases, VERSION.build)
    if "--record" in arguments:
        detected = {
            name: records.with_weights(case.model, weights, (shapes or {}).get(name, query_cases.SHAPES))
            for name, case in cases.items()
        }
        write_record(record, detected)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(check(["codetr"], cases_of(co_dino_cases.MODELS), RECORD, *sys.argv[1:]))
