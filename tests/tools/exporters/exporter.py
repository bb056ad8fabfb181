"""`Exporter`: how a detector's file is made, and what its own library detects; images, and how detections differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch

from mmort import Detections

SIZES = (480, 640), (333, 641), (640, 300), (101, 97)
SIDE = 320
"""Width and height of most files' inputs."""

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Boxes, or rotated ones, scores and labels."""

HALF = 2.0**-10
"""The share of a number that rounding to float16 changes at most."""


class Exporter(NamedTuple):
    """How a file is made, what else `adopt` is told, and what the exporter's own library detects in an image."""

    make: Callable[[Path], Path]
    detect: Callable[[Path, np.ndarray], Rows]
    config: bool = False
    """Whether the file's folder has transformers' config."""
    layout: dict[str, Any] | None = None
    """Entries of the layout that the file does not say."""
    preset: str | None = None
    """The preset that the file needs, if it asks for one."""
    is_half: bool = False
    """Whether the network computes in float16, whose rounding moves boxes by parts of a pixel."""
    iou_threshold: float | None = None
    """Where suppression decides: boxes whose IoU is almost this may be left out by one of two and not by the other."""


def images() -> list[np.ndarray]:
    """Return smooth images with noise, and a page with lines of text, a picture and a table."""
    rng = np.random.default_rng(3)
    made = []
    for height, width in SIZES:
        smooth = cv2.resize(rng.integers(0, 256, (12, 16, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
        made.append(np.clip(smooth.astype(int) + rng.integers(-20, 20, smooth.shape), 0, 255).astype(np.uint8))
    page = np.full((1100, 850, 3), 255, np.uint8)
    for top, left, lines, scale in ((80, 150, 1, 1.1), (150, 60, 18, 0.5), (150, 440, 34, 0.5)):
        for line in range(lines):
            text = "".join(map(chr, rng.choice([32, *range(97, 123)], 30)))
            origin = left, top + 18 * line
            cv2.putText(page, text, origin, cv2.FONT_HERSHEY_SIMPLEX, scale, (0, 0, 0), 1, cv2.LINE_AA)
    page[500:800, 60:390] = cv2.resize(made[0], (330, 300))
    for offset in range(6):
        cv2.line(page, (60, 840 + 30 * offset), (390, 840 + 30 * offset), (0, 0, 0))
        cv2.line(page, (60 + 66 * offset, 840), (60 + 66 * offset, 990), (0, 0, 0))
    return [*made, page]


def photos() -> list[np.ndarray]:
    """Return photos that scikit-image and scikit-learn ship, in colour and of several proportions."""
    import skimage
    import sklearn

    folders = Path(skimage.__file__).parent / "data", Path(sklearn.__file__).parent / "datasets" / "images"
    names = "astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "china.jpg", "flower.jpg"
    found = [cv2.imread(str(path)) for name in names for folder in folders if (path := folder / name).exists()]
    assert len(found) == len(names)
    return [*found, np.ascontiguousarray(found[4][:, 150:400])]


def normalized(
    network: torch.nn.Module, run: Callable[[torch.Tensor], Any], scene: Callable[[], list[np.ndarray]] = images
) -> None:
    """Set the means and variances of a network's batch normalization to those of images, red first and from 0 to 1."""
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    batch = np.stack([cv2.resize(image, (SIDE, SIDE)).transpose(2, 0, 1) for image in scene()[:4]])
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    with torch.no_grad():
        run(torch.from_numpy(batch[:, ::-1].astype(np.float32) / 255))
    network.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def difference(
    detections: Detections,
    expected: Rows,
    exporter: Exporter | None = None,
    candidates: Callable[[], Detections] | None = None,
) -> str:
    """Return how detections differ from an exporter's own, in any order, or an empty string.

    Detections may differ where rounding decides: those whose score is that of the last one, and, of upright boxes,
    those whose IoU with a better one is almost the exporter's threshold; `candidates` returns all boxes, as they are
    before suppression and before they are clipped.
    """
    boxes, scores, labels = (np.asarray(values) for values in expected)
    mine = detections.boxes if detections.rotated_boxes is None else detections.rotated_boxes
    is_half = exporter is not None and exporter.is_half
    side = max(detections.image_size)
    box_limit, score_limit = (4 * HALF * side, 2 * HALF) if is_half else (0.01, 1e-4)
    free, left = np.ones(len(scores), bool), np.ones(len(detections), bool)
    for limit in (min(score_limit, 1e-6), score_limit):  # clipped boxes of like scores may be the same
        for index in np.flatnonzero(left):
            near = np.abs(boxes - mine[index]).max(axis=1) <= box_limit if len(boxes) else np.zeros(0, bool)
            near &= (np.abs(scores - detections.scores[index]) <= limit) & (labels == detections.labels[index])
            matches = np.flatnonzero(near & free)
            free[matches[:1]] = False
            left[index] = not len(matches)
    last = min(scores.min(initial=1), detections.scores.min(initial=1))
    is_decided = exporter is None or exporter.iou_threshold is None or detections.rotated_boxes is not None
    boxes_before = None if is_decided or candidates is None or not (free.any() or left.any()) else candidates()
    for unmatched, values, kinds in (free, scores, labels), (left, detections.scores, detections.labels):
        for index in np.flatnonzero(unmatched):
            is_last = values[index] <= last + score_limit
            is_tie = boxes_before is not None and is_at_threshold(boxes_before, values[index], kinds[index], exporter)
            unmatched[index] = not is_last and not is_tie
    if len(scores) != len(detections) and (free.any() or left.any()):
        return f"{len(detections)} of {len(scores)} detections, {int(free.sum())} missing"
    return f"{int(free.sum())} of {len(scores)} differ" if free.any() or left.any() else ""


def is_at_threshold(candidates: Detections, score: float, label: int, exporter: Exporter) -> bool:
    """Return whether the box of a class with some score has almost the IoU with a better one that suppresses it."""
    boxes = candidates.boxes[candidates.labels == label].astype(float)
    scores = candidates.scores[candidates.labels == label]
    return any(
        (np.abs(overlaps(boxes[index], boxes[scores >= scores[index]]) - exporter.iou_threshold) < 1e-4).any()
        for index in np.flatnonzero(np.abs(scores - score) <= 1e-6)
    )


def overlaps(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return the IoUs of a box with boxes, x1, y1, x2, y2."""
    sides = np.minimum(box[2:4], boxes[:, 2:4]) - np.maximum(box[:2], boxes[:, :2])
    inner = np.prod(np.maximum(sides, 0), 1)
    areas = np.prod(boxes[:, 2:4] - boxes[:, :2], 1) + np.prod(box[2:4] - box[:2])
    return inner / np.maximum(areas - inner, 1e-9)


def names(count: int) -> list[str]:
    """Return names of classes, which a file does not have."""
    return [f"class {number}" for number in range(count)]
