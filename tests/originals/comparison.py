"""Whether two results are equal: inputs, detections as sets, masks, segments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.originals.results import BatchResult, ImageResult

TOLERANCE = {"float32": 1e-4, "float64": 1e-6}
"""Of scores, and of boxes by 100 pixels.

The networks sum a few hundred products of numbers near 1, in some twenty layers, in another order than the other side:
in float32 that makes some 1e-5.  `mmort.Predictor` returns float32 whatever the network computes in, hence 1e-6.
"""

MASK_PIXELS = 0.005
"""Of a mask's pixels, those at its edge that rounding may move, besides two."""


def differences(actual: BatchResult, expected: BatchResult, precision: str = "float32") -> list[str]:
    """Return what differs, a line each; none if the results are equal."""
    lines = []
    if actual.input.shape != expected.input.shape:
        lines.append(f"inputs: shape {actual.input.shape} instead of {expected.input.shape}")
    else:
        far = float(np.abs(actual.input.astype(np.float64) - expected.input).max())
        if not far <= 1e-5 * max(1.0, float(np.abs(expected.input).max())):
            lines.append(f"inputs: differ by up to {far:.2g}")
    if len(actual.images) != len(expected.images):
        return [*lines, f"{len(actual.images)} images instead of {len(expected.images)}"]
    for index, pair in enumerate(zip(actual.images, expected.images, strict=True)):
        lines += [f"image {index}: {line}" for line in image_differences(*pair, precision)]
    return lines


def image_differences(actual: ImageResult, expected: ImageResult, precision: str = "float32") -> list[str]:
    """Return what differs in an image; none if the results are equal."""
    if (actual.panoptic is None) != (expected.panoptic is None) or (actual.masks is None) != (expected.masks is None):
        return ["one side has masks or segments, the other has none"]
    if expected.panoptic is not None:
        if actual.panoptic.shape != expected.panoptic.shape:
            return [f"segments: shape {actual.panoptic.shape} instead of {expected.panoptic.shape}"]
        count = int((actual.panoptic != expected.panoptic).sum())
        return [f"segments: {count} pixels differ"] if count > MASK_PIXELS * expected.panoptic.size else []
    actual, expected = actual.detected, expected.detected
    if len(actual.boxes) != len(expected.boxes):
        return [f"{len(actual.boxes)} detections instead of {len(expected.boxes)}"]
    if not len(expected.boxes):
        return []
    if actual.masks is not None and actual.masks.shape != expected.masks.shape:
        return [f"masks: shape {actual.masks.shape} instead of {expected.masks.shape}"]
    return _unmatched(actual, expected, TOLERANCE[precision])


def _unmatched(actual: ImageResult, expected: ImageResult, tolerance: float) -> list[str]:
    """Match each detection with another one of the same label; return the worst one that has none."""
    for name, side in (("mmort", actual), ("MMDetection", expected)):
        if not (np.isfinite(side.boxes).all() and np.isfinite(side.scores).all()):
            return [f"a box or a score of {name} is not finite"]
    if actual.boxes.shape != expected.boxes.shape:
        return [f"boxes: shape {actual.boxes.shape} instead of {expected.boxes.shape}"]
    limits = tolerance * np.maximum(np.abs(expected.boxes).max(1), 100)[:, None]
    boxes = _distances(expected.boxes.astype(np.float64), actual.boxes.astype(np.float64)) / limits
    scores = np.abs(expected.scores[:, None].astype(np.float64) - actual.scores[None]) / tolerance
    if expected.masks is not None and not expected.boxes.any():
        boxes[:] = 0  # MMDetection's SOLO has zeros where mmort has the masks' boxes
    apart = np.maximum(boxes, scores)
    apart[expected.labels[:, None] != actual.labels[None]] = np.inf
    if expected.masks is not None:
        masks = [side.masks.reshape(len(side.masks), -1).astype(np.float32) for side in (expected, actual)]
        areas = [mask.sum(1) for mask in masks]
        pixels = areas[0][:, None] + areas[1][None] - 2 * (masks[0] @ masks[1].T)
        pixels = pixels / (MASK_PIXELS * np.maximum(areas[0], 1)[:, None] + 2)
        # MMDetection's masks of boxes without area depend on the device: on a CPU it pastes a row, on CUDA others too.
        pixels[_are_without_area(expected.boxes)] = 0
        apart = np.maximum(apart, pixels)
    pairs = _assignment(apart <= 1)
    if len(pairs) == len(expected.boxes):
        return []
    missing = [index for index in range(len(expected.boxes)) if index not in pairs]
    worst = missing[0]
    nearest = int(apart[worst].argmin())
    return [
        f"{len(missing)} of {len(expected.boxes)} detections differ, such as "
        f"{_text(expected, worst)}, where there is {_text(actual, nearest)}"
    ]


def _distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return how far each box is from each other one in pixels: the farthest side, or the farthest corner.

    A rotated box can be described in four ways, between which rounding may choose: by any of its corners first.
    """
    if first.shape[1] == 4:
        return np.abs(first[:, None] - second[None]).max(2)
    corners = _corners(first)[:, None]
    turned = (np.roll(_corners(second), turn, 1)[None] for turn in range(4))
    return np.min([np.hypot(*np.moveaxis(corners - other, 3, 0)).max(2) for other in turned], 0)


def _corners(boxes: np.ndarray) -> np.ndarray:
    """Return the corners (N, 4, 2) of rotated boxes, clockwise on the screen."""
    cosine, sine = np.cos(boxes[:, 4]), np.sin(boxes[:, 4])
    along = np.stack([cosine, sine], 1) * boxes[:, 2:3] / 2
    across = np.stack([-sine, cosine], 1) * boxes[:, 3:4] / 2
    signs = (-1, -1), (1, -1), (1, 1), (-1, 1)
    return np.stack([boxes[:, :2] + x * along + y * across for x, y in signs], 1)


def _are_without_area(boxes: np.ndarray) -> np.ndarray:
    """Return which boxes (N, 4) have equal sides; none if all are zeros, as SOLO's."""
    return (boxes[:, :2] == boxes[:, 2:]).any(1) & boxes.any()


def _assignment(fits: np.ndarray) -> dict[int, int]:
    """Return a largest matching of rows with columns that fit, by augmenting paths."""
    row_of: dict[int, int] = {}

    def assign(row: int, seen: set[int]) -> bool:
        for column in np.flatnonzero(fits[row]).tolist():
            if column not in seen:
                seen.add(column)
                if column not in row_of or assign(row_of[column], seen):
                    row_of[column] = row
                    return True
        return False

    for row in range(len(fits)):
        assign(row, set())
    return {row: column for column, row in row_of.items()}


def _text(result: ImageResult, index: int) -> str:
    """Return a detection as text."""
    box = ", ".join(f"{side:.3f}" for side in result.boxes[index])
    mask = "" if result.masks is None else f", mask of {int(result.masks[index].sum())} pixels"
    return f"({box}) {result.scores[index]:.5f} of class {result.labels[index]}{mask}"


def require_substance(results: Sequence[BatchResult], classes: int) -> None:
    """Refuse results that could hide a difference: hardly any detections, equal scores or boxes, full or empty masks.

    Raises
    ------
    AssertionError
        With what is missing.
    """
    images = [image for result in results for image in result.images]
    if images[0].panoptic is not None:
        segments = [len(np.unique(image.panoptic)) for image in images]
        assert max(segments) >= 3, f"segments per image: {segments}"
        return
    counts = [len(image.boxes) for image in images]
    assert min(counts) >= 1, f"detections per image: {counts}"
    assert sum(counts) >= 8, f"detections per image: {counts}"
    scores = np.concatenate([image.scores for image in images])
    assert len(np.unique(scores.round(4))) >= len(scores) / 3, "scores are equal"
    assert scores.std() > 1e-3, f"scores hardly vary: {scores.std():.2g}"
    boxes = np.concatenate([image.boxes for image in images])
    masks = [mask for image in images if image.masks is not None for mask in image.masks]
    if not masks:
        assert len(np.unique(boxes.round(2), axis=0)) >= len(boxes) / 3, "boxes are equal"
    labels = np.concatenate([image.labels for image in images])
    assert len(np.unique(labels)) >= classes, f"labels: {np.unique(labels)}"
    if masks:
        shares = np.array([mask.mean() for mask in masks])
        assert ((shares > 0.002) & (shares < 0.98)).sum() >= 8, f"masks are empty or full: {shares.round(3)}"
