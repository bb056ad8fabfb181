"""Compare small detectors with masks of the image with MMDetection's own, from the image to the masks.  Run by hand.

    python -m tests.tools.check_masks FOLDER [NAME ...]     # FOLDER as for tests.tools.check_parts

Both sides are built from the configs of tests/detect/mask_cases.py with the same weights, and detect in a batch of two
images of different sizes.  Prints a line for each detector and frame.  Exit code 1 if detections differ.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np
import torch

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from tests.detect import mask_cases, part_cases
from tests.tools.check_detectors import Found, compare, detect, run_torch
from tests.tools.check_parts import mmdetection

INPUT = 96, 128
METAS = [
    {"img_shape": (96, 120), "ori_shape": (144, 180), "scale_factor": (120 / 180, 96 / 144)},
    {"img_shape": (80, 128), "ori_shape": (60, 96), "scale_factor": (128 / 96, 80 / 60)},
]


def theirs(model: Any, batch: torch.Tensor, rescale: bool) -> list[Found]:
    """Return the instances that MMDetection finds, by descending score."""
    from mmdet.structures import DetDataSample

    samples = [DetDataSample(metainfo={**meta, "batch_input_shape": INPUT, "pad_shape": INPUT}) for meta in METAS]
    with torch.inference_mode():
        samples = model.predict(batch, samples, rescale=rescale)
    found = []
    for sample in samples:
        instances = sample.pred_instances
        order = np.argsort(-instances.scores.numpy(), kind="stable")
        dets = np.column_stack([instances.bboxes.numpy(), instances.scores.numpy()])[order]
        found.append(Found(dets, instances.labels.numpy()[order], instances.masks.numpy()[order].astype(bool)))
    return found


def main(folder: str, *names: str) -> int:
    registry, problems = mmdetection(folder), 0
    from mmengine.config import ConfigDict

    for name in names or mask_cases.MODELS:
        config = mask_cases.config(name)
        model = registry.build(ConfigDict(copy.deepcopy(mask_cases.MODELS[name])))
        model.eval()
        mask_cases.fill(model)
        detector = build(config)
        load_weights(detector, model.state_dict())
        batch = part_cases.numbers(2, 3, *INPUT)
        metas = [{**meta, "scale_factor": np.tile(np.float32(meta["scale_factor"]), 2)} for meta in METAS]
        for rescale in (False, True):
            ours = detect(run_torch(detector), detector.mask_format, batch.numpy(), metas, rescale)
            for index, (found, expected) in enumerate(zip(ours, theirs(model, batch, rescale), strict=True)):
                difference = compare(found, expected, 2e-2, 1e-4, 2e-3)
                problems += not difference.equal
                frame = "original" if rescale else "network"
                print(
                    f"{name}, image {index}, {frame} frame: {difference.theirs} detections, "
                    f"{len(difference.unmatched)} differ; box {difference.box:.1e}, score {difference.score:.1e}, "
                    f"mask IoU {difference.mask:.4f}",
                    *difference.unmatched[:5],
                    sep="\n    ",
                )
    return problems > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
