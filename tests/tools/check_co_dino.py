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
from collections.abc import Callable
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


def record(model: dict[str, Any]) -> dict[str, Any]:
    """Return the keys and shapes of a detector's weights, and what the project finds in the tests' batch."""
    from mmdet.structures import DetDataSample

    from tests.originals.original import Original

    theirs = Original(
        {"model": model, "default_scope": "mmdet", "test_dataloader": {"dataset": {"pipeline": []}}}
    ).model
    shapes = {key: [*value.shape] for key, value in theirs.state_dict().items()}
    theirs.load_state_dict(co_dino_cases.weights(shapes))
    batch, _ = query_cases.batch()
    canvas = tuple(batch.shape[2:])
    samples = [
        DetDataSample(metainfo={"batch_input_shape": canvas, "img_shape": shape}) for shape in query_cases.SHAPES
    ]
    detections = [sample.pred_instances for sample in theirs.predict(batch, samples, rescale=False)]
    dets = [torch.cat([image.bboxes, image.scores[:, None]], 1).tolist() for image in detections]
    return {
        "shapes": shapes,
        "dets": [[[float(f"{value:.6g}") for value in row] for row in rows] for rows in dets],
        "labels": [image.labels.tolist() for image in detections],
    }


def main(folder: str, *arguments: str) -> int:
    """Check the detectors."""
    from tests.originals.original import Original

    torch.set_grad_enabled(False)
    sys.path.insert(0, folder)
    import_module("codetr")  # registers itself
    failures = 0
    for name, model in co_dino_cases.MODELS.items():
        case = Case({**copy.deepcopy(model), "data_preprocessor": PREPROCESSOR}, SPREAD, classes=1)
        with tempfile.TemporaryDirectory() as directory:
            problem = difference(case, Path(directory), Original)
        failures += bool(problem)
        print(f"{name}: {problem or 'equal'}", flush=True)
    if "--record" in arguments:
        write_record(RECORD, {name: record(model) for name, model in co_dino_cases.MODELS.items()})
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
