"""Compare the panoptic maps of small detectors with MMDetection's own, from the image to the map.  Run by hand.

    python -m tests.tools.check_panoptic FOLDER [NAME ...]     # compare; with --record, write what the tests expect
    python -m tests.tools.check_panoptic export [NAME ...]     # export each for all sizes, with its map

FOLDER is that of tests.tools.check_parts.  Both sides are built from the configs of tests/detect/panoptic_cases.py with
the same weights, and segment a batch of two images of different sizes, in the sizes of the original images.  Prints a
line for each image.  Exit code 1 if a segment differs, or an export fails.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from tests.detect import panoptic_cases
from tests.tools.check_masks import exported
from tests.tools.check_parts import mmdetection

RECORD = Path(__file__).parents[1] / "data" / "detect" / "panoptic.json"


def theirs(model: Any, batch: torch.Tensor, metas: list[dict[str, Any]]) -> list[NDArray[np.int32]]:
    """Return the maps that MMDetection makes."""
    from mmdet.structures import DetDataSample

    size = tuple(batch.shape[2:])
    samples = [DetDataSample(metainfo={**meta, "batch_input_shape": size, "pad_shape": size}) for meta in metas]
    with torch.inference_mode():
        samples = model.predict(batch, samples, rescale=True)
    return [sample.pred_panoptic_seg.sem_seg[0].numpy() for sample in samples]


def ours(detector: Any, batch: torch.Tensor, metas: list[dict[str, Any]]) -> list[NDArray[np.int32]]:
    """Return the maps that mmort makes."""
    maps = [detections.panoptic_map for detections in panoptic_cases.predicted(detector, batch, metas)]
    return [map for map in maps if map is not None]


def compare(registry: Any, name: str, record: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield a line for each image, and whether the maps are equal."""
    from mmengine.config import ConfigDict

    model = registry.build(ConfigDict(copy.deepcopy(panoptic_cases.MODELS[name])))
    model.eval()
    panoptic_cases.fill(name, model)
    detector = build(panoptic_cases.config(name))
    load_weights(detector, model.state_dict())
    batch, metas = panoptic_cases.batch(name)
    expected = theirs(model, batch, metas)
    record[name] = [panoptic_cases.summary(map) for map in expected]
    for index, (map, wanted) in enumerate(zip(ours(detector, batch, metas), expected, strict=True)):
        different = int((map != wanted).sum())
        yield (
            f"{name}, image {index}: {len(np.unique(wanted))} segments, {different} of {wanted.size} pixels differ",
            different <= wanted.size * 0.002 and set(np.unique(map)) == set(np.unique(wanted)),
        )


def main(folder: str, *arguments: str) -> int:
    """Check the detectors of the command line, by default all."""
    names = [argument for argument in arguments if argument != "--record"] or list(panoptic_cases.MODELS)
    record: dict[str, Any] = {}
    registry, problems = None if folder == "export" else mmdetection(folder), 0
    for name in names:
        if registry is None:
            problem = exported(panoptic_cases.config(name), partial(panoptic_cases.fill, name), paste_masks=True)
            print(f"{name}: {problem or 'exported'}", flush=True)
            problems += bool(problem)
            continue
        for line, equal in compare(registry, name, record):
            print(line, flush=True)
            problems += not equal
    if "--record" in arguments:
        RECORD.write_text(json.dumps(record).replace(']]], "', ']]],\n"') + "\n")
    return problems > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
