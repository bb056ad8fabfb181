"""Compare detectors with their projects' own code.  Run by hand, as these are in no package that CI installs.

    python -m tests.tools.check_projects NAME FOLDER [--record]
    python -m tests.tools.check_projects NAME FOLDER --mutations [ARGUMENT ...]

NAME is one of `PROJECTS`.  FOLDER is MMDetection's repository, with its ``projects``, and for ``h2rbox_v2``
onedl-mmrotate's, of which a head and its loss are imported; `.ci/run originals` shows what else must be installed.

Torch modules and exported files detect in images, alone and in a batch.  Prints a line for each detector and exits
with 1 if one differs.  With ``--record``, writes ``tests/data/detect/NAME.json``, which the tests expect.  With
``--mutations``, changes one entry of a config at a time instead; ARGUMENTs are those of `tests.originals.mutations`.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from mmort.detect.export import ExportOptions, export
from tests.detect import (
    co_dino_cases,
    dino_projects_cases,
    efficientdet_cases,
    rotated_1_cases,
    sparseinst_cases,
    vitdet_cases,
)
from tests.originals.candidate import Candidate
from tests.originals.cases import query, rotated, two_stage
from tests.originals.cases.case import PACK, PREPROCESSOR, Case, Config
from tests.originals.compare import batches_of, filled, save, write_record
from tests.originals.comparison import differences, require_substance
from tests.originals.images import image_files
from tests.originals.weights import Spread

RECORDS = Path(__file__).parents[1] / "data" / "detect"


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


def _cases(
    models: Mapping[str, Config], spread: Spread = query.SPREAD, classes: int = 1, **entries: Any
) -> dict[str, Case]:
    """Return cases of models, with further entries beside the usual preprocessing."""
    return {
        name: Case({**copy.deepcopy(model), "data_preprocessor": PREPROCESSOR, **entries}, spread, classes=classes)
        for name, model in models.items()
    }


def _odd(case: Case, **sizes: Any) -> Case:
    """Return a case of images whose sides are not padded to multiples of the strides."""
    pipeline: list[Config] = [{"type": "LoadImageFromFile"}, {"type": "Resize", **sizes}, PACK]
    model = {**case.model, "data_preprocessor": {**PREPROCESSOR, "pad_size_divisor": 1}}
    return replace(case, model=model, pipeline=pipeline)


PADS_MASKS = {"data_preprocessor": {**PREPROCESSOR, "pad_mask": True}}
OF_TOWERS: Spread = {r"cls_header\.pointwise_conv$": (-1.0, 0.6), r"reg_header\.pointwise_conv$": (0.0, 0.5)}
OF_ACTIVATION_MAPS: Spread = {
    r"iam_conv$": (-20.0, 50.0),
    r"cls_score$": (0.0, 4.0),
    r"objectness$": (1.0, 2.0),
    r"projection$": (0.0, 2.0),
}
EFFICIENTDETS = _cases(efficientdet_cases.MODELS, OF_TOWERS)
EFFICIENTDETS["efficientdet_odd"] = _odd(EFFICIENTDETS["efficientdet_odd"], scale=(126, 121), keep_ratio=False)
EFFICIENTDETS["same_padding"] = _odd(EFFICIENTDETS["same_padding"], scale=(121, 93), keep_ratio=True)


@dataclass(frozen=True)
class Project:
    """What is compared with a project."""

    modules: Sequence[str]
    """What registers its classes: paths in the folder, the last part of which is imported."""
    cases: Mapping[str, Case]
    results: Callable[[Any, str, Config], Any]
    """From `tests.originals.records`, a case's name and its model to what is recorded."""
    with_pipeline: bool = True
    """Whether entries of the first case's pipeline are changed, too."""


PROJECTS = {
    "co_dino": Project(
        ["projects/CO-DETR/codetr"],
        _cases(co_dino_cases.MODELS),
        lambda records, name, model: records.with_weights(model, co_dino_cases.weights),
    ),
    "dino_projects": Project(
        ["projects.AlignDETR.align_detr", "projects.HDINO"],
        _cases(dino_projects_cases.MODELS),
        lambda records, name, model: records.with_weights(model, co_dino_cases.weights),
    ),
    "efficientdet": Project(
        ["projects.EfficientDet.efficientdet"],
        EFFICIENTDETS,
        lambda records, name, model: records.with_weights(
            model, efficientdet_cases.weights, efficientdet_cases.SHAPES[name]
        ),
    ),
    "h2rbox_v2": Project(
        [f"mmrotate/models/{name}" for name in ("losses/h2rbox_v2_consistency_loss", "dense_heads/h2rbox_v2_head")],
        {name: rotated.case(name) for name in rotated_1_cases.FORKS},
        lambda records, name, model: records.rotated(name),
        with_pipeline=False,
    ),
    "sparseinst": Project(
        ["projects.SparseInst.sparseinst"],
        _cases(sparseinst_cases.MODELS, OF_ACTIVATION_MAPS, **PADS_MASKS),
        lambda records, name, model: records.masks_with_weights(model, sparseinst_cases.weights),
    ),
    "vitdet": Project(
        ["projects/ViTDet/vitdet"],
        _cases(vitdet_cases.MODELS, two_stage.SPREAD, classes=2, **PADS_MASKS, train_cfg=None),
        lambda records, name, model: records.with_weights(model, vitdet_cases.weights),
    ),
}


def main(name: str, folder: str, *arguments: str) -> int:
    """Check the detectors of a project."""
    # These need MMDetection 3, which those who import this module may not have.
    from tests.originals import mutations, records
    from tests.originals.version_3 import VERSION

    torch.set_grad_enabled(False)
    project = PROJECTS[name]
    for module in project.modules:
        path = Path(folder, module)
        sys.path.insert(0, str(path.parent))
        import_module(path.name)
    if "--mutations" in arguments:
        sys.argv[1:] = [argument for argument in arguments if argument != "--mutations"]
        of_pipeline = tuple(project.cases)[: project.with_pipeline]
        version = replace(VERSION, cases=project.cases, cases_of_pipeline=of_pipeline)
        return mutations.main(version, "tests.originals")
    failures = compare(project.cases, VERSION.build)
    if "--record" in arguments:
        results = {key: project.results(records, key, case.model) for key, case in project.cases.items()}
        write_record(RECORDS / f"{name}.json", results)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
