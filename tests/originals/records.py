"""What MMDetection's own parts and detectors return, which tests/detect expects without it: files of tests/data/detect.

``python -m tests.originals.records`` writes them again, where a case of tests/detect is new.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmdet.registry import MODELS
from mmdet.structures import DetDataSample
from torch import Tensor

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.parts.rotated.geometry import with_longer_width
from tests.detect import mask_cases, panoptic_cases, part_cases, query_cases, rotated_1_cases
from tests.originals.compare import write_record
from tests.originals.original import Original

FOLDER = Path(__file__).parents[1] / "data" / "detect"
PARTS = {f"{kind} {name}": (kind, name, config) for kind, name, config in part_cases.CASES}


def _detector(model: dict[str, Any], scope: str = "mmdet") -> Any:
    config = {"model": model, "default_scope": scope, "test_dataloader": {"dataset": {"pipeline": []}}}
    return Original(config).model


def _part(key: str) -> dict[str, Any]:
    """Return a digest of a part's weights and a summary of its outputs."""
    kind, name, config = PARTS[key]
    part = MODELS.build(copy.deepcopy(config))
    part.eval()  # some of them return None
    part_cases.fill(part)
    return {"names": part_cases.names(part), "outputs": part_cases.summary(part(part_cases.inputs(kind, name)))}


Shapes = Sequence[tuple[int, int]]
Weights = Callable[[dict[str, Any]], dict[str, Tensor]]


def with_weights(model: dict[str, Any], weights: Weights, images: Shapes = query_cases.SHAPES) -> dict[str, Any]:
    """Return the keys and shapes of a detector's weights, and what it finds with those that `weights` makes of them.

    `images` are the shapes of the images.
    """
    detector, shapes = _loaded(model, weights)
    return {"shapes": shapes, **_detections(detector, images=images)}


def masks_with_weights(model: dict[str, Any], weights: Weights) -> dict[str, Any]:
    """Return what `with_weights` does of a detector of masks: of what it finds, what `mask_cases.summary` does."""
    detector, shapes = _loaded(model, weights)
    return {"shapes": shapes, "images": _summaries(detector, *mask_cases.batch(""))}


def _loaded(model: dict[str, Any], weights: Weights) -> tuple[Any, dict[str, list[int]]]:
    """Return a detector with the weights that `weights` makes of their keys and shapes, and these."""
    detector = _detector(model)
    shapes = {key: [*value.shape] for key, value in detector.state_dict().items()}
    detector.load_state_dict(weights(shapes))
    return detector, shapes


def _detections(
    detector: Any, canonical: Callable[[Tensor], Tensor] = lambda boxes: boxes, images: Shapes = query_cases.SHAPES
) -> dict[str, Any]:
    """Return boxes with scores, and labels, of images of these shapes that tests/detect/query_cases.py makes."""
    batch, _ = query_cases.batch(images)
    canvas = tuple(batch.shape[2:])
    metas = [
        {"batch_input_shape": canvas, "img_shape": shape, "ori_shape": shape, "scale_factor": (1, 1)}
        for shape in images
    ]
    samples = detector.predict(batch, [DetDataSample(metainfo=meta) for meta in metas], rescale=False)
    record: dict[str, Any] = {"dets": [], "labels": []}
    for instances in (sample.pred_instances for sample in samples):
        boxes = canonical(getattr(instances.bboxes, "tensor", instances.bboxes))
        rows = torch.cat([boxes, instances.scores[:, None]], 1).tolist()
        record["dets"].append([[float(f"{value:.6g}") for value in row] for row in rows])
        record["labels"].append(instances.labels.tolist())
    return record


def _queries(name: str) -> dict[str, Any]:
    detector = _detector(query_cases.MODELS[name])
    query_cases.fill(detector)
    return {"names": part_cases.names(detector), **_detections(detector)}


def rotated(name: str) -> dict[str, Any]:
    """Return what a detector of rotated boxes finds."""
    config = rotated_1_cases.config_of(name)
    theirs, ours = _detector(config["model"], "mmrotate"), build(config)
    # mmort's detector is filled, and MMRotate's gets the same weights, by the names that loading takes them from.
    weights = theirs.state_dict()
    numbered = {
        key: torch.full_like(value, index) if value.is_floating_point() else value
        for index, (key, value) in enumerate(weights.items())
    }
    load_weights(ours, numbered)
    origins = {key: int(value.flatten()[0]) for key, value in ours.state_dict().items() if value.is_floating_point()}
    rotated_1_cases.fill(ours)
    filled = ours.state_dict()
    theirs.train()  # e2cnn computes its filters when training ends
    theirs.load_state_dict({list(weights)[index]: filled[key] for key, index in origins.items()}, strict=False)
    theirs.eval()
    # Of the descriptions of a box, one with the longer side as width; OpenCV's depend on its version.
    return _detections(theirs, partial(with_longer_width, version="le90"))


def _masks(name: str) -> list[Any]:
    detector = _detector(mask_cases.MODELS[name])
    mask_cases.fill(detector)
    return _summaries(detector, *mask_cases.batch(name))


def _summaries(detector: Any, batch: Tensor, metas: list[dict[str, Any]]) -> list[Any]:
    """Return `mask_cases.summary` of each image in the network's frame, by descending score."""
    samples = [DetDataSample(metainfo={**meta, "batch_input_shape": mask_cases.INPUT}) for meta in metas]
    result = []
    for instances in (sample.pred_instances for sample in detector.predict(batch, samples, rescale=False)):
        order = np.argsort(-instances.scores.numpy(), kind="stable")
        dets = np.column_stack([instances.bboxes.numpy(), instances.scores.numpy()])[order]
        masks = instances.masks.numpy()[order].astype(bool)
        masks = masks.reshape(-1, *masks.shape[-2:])  # SparseInst's of an input have a dimension more
        result.append(mask_cases.summary(dets, instances.labels.numpy()[order], masks))
    return result


def _panoptic(name: str) -> list[Any]:
    """Return `panoptic_cases.summary` of each image's map."""
    detector = _detector(panoptic_cases.MODELS[name])
    panoptic_cases.fill(name, detector)
    batch, metas = panoptic_cases.batch(name)
    size = tuple(batch.shape[2:])
    samples = [DetDataSample(metainfo={**meta, "batch_input_shape": size, "pad_shape": size}) for meta in metas]
    maps = [sample.pred_panoptic_seg.sem_seg[0].numpy() for sample in detector.predict(batch, samples, rescale=True)]
    return [panoptic_cases.summary(map) for map in maps]


class Record(NamedTuple):
    """The names in a file of `FOLDER`, and what returns MMDetection's results for one of them."""

    names: Iterable[str]
    results: Callable[[str], Any]


RECORDS = {
    "parts": Record(PARTS, _part),
    "query_detectors": Record(query_cases.MODELS, _queries),
    "rotated_1": Record(rotated_1_cases.CASES, rotated),
    "mask_detectors": Record(mask_cases.MODELS, _masks),
    "panoptic": Record(panoptic_cases.MODELS, _panoptic),
}


def results(file: str, name: str) -> Any:
    """Return MMDetection's results for a name as they are in a file."""
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MMDetection's
        return json.loads(json.dumps(RECORDS[file].results(name)))


if __name__ == "__main__":
    for file, record in RECORDS.items():
        write_record(FOLDER / f"{file}.json", {name: results(file, name) for name in record.names})
