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
import tempfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from tests.detect import query_cases, vitdet_cases
from tests.originals import mutations
from tests.originals.cases.case import PREPROCESSOR, Case
from tests.originals.cases.two_stage import SPREAD
from tests.originals.compare import write_record
from tests.originals.version_3 import VERSION
from tests.tools.check_co_dino import difference

RECORD = Path(__file__).parents[1] / "data" / "detect" / "vitdet.json"


def record(model: dict[str, Any]) -> dict[str, Any]:
    """Return the keys and shapes of a detector's weights, and what the project finds in the tests' batch."""
    from mmdet.structures import DetDataSample

    original = VERSION.build(
        {"model": model, "default_scope": "mmdet", "test_dataloader": {"dataset": {"pipeline": []}}}
    )
    shapes = {key: [*value.shape] for key, value in original.model.state_dict().items()}
    original.model.load_state_dict(vitdet_cases.weights(shapes))
    batch, _ = query_cases.batch()
    canvas = tuple(batch.shape[2:])
    samples = [
        DetDataSample(
            metainfo={"batch_input_shape": canvas, "img_shape": shape, "ori_shape": shape, "scale_factor": (1, 1)}
        )
        for shape in query_cases.SHAPES
    ]
    detections = [sample.pred_instances for sample in original.model.predict(batch, samples, rescale=False)]
    dets = [torch.cat([image.bboxes, image.scores[:, None]], 1).tolist() for image in detections]
    return {
        "shapes": shapes,
        "dets": [[[float(f"{value:.6g}") for value in row] for row in rows] for rows in dets],
        "labels": [image.labels.tolist() for image in detections],
    }


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
    failures = 0
    for name, case in cases.items():
        with tempfile.TemporaryDirectory() as directory:
            problem = difference(case, Path(directory), VERSION.build)
        failures += bool(problem)
        print(f"{name}: {problem or 'equal'}", flush=True)
    if "--record" in arguments:
        write_record(RECORD, {name: record(model) for name, model in vitdet_cases.MODELS.items()})
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
