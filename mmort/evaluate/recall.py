"""Recall of boxes whatever their class, as MMDetection's VOC data sets measure it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import mmort


def recalls(
    objects: Sequence[NDArray[np.float32]],
    boxes: Sequence[NDArray[np.float32]],
    numbers: Sequence[int],
    iou_thresholds: Sequence[float],
) -> NDArray[np.float64]:
    """Compute the share of objects that the best detections of their image find.

    Each object is matched with a detection of its own: the pair that overlaps most first.

    Parameters
    ----------
    objects : sequence of ndarray, (M, 4)
        For each image; x1, y1, x2, y2, both corners inside the box.
    boxes : sequence of ndarray, (N, 4)
        For each image, by descending score.
    numbers : sequence of int
        How many of an image's detections to look at.
    iou_thresholds : sequence of float

    Returns
    -------
    ndarray, (len(numbers), len(iou_thresholds))
        -1 if there are no objects.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.evaluate.recall import recalls
    >>> objects = np.array([[0, 0, 9, 9], [20, 0, 29, 9]], np.float32)
    >>> recalls([objects], [objects + 1], [1, 2], [0.5, 0.75])
    array([[0.5, 0. ],
           [1. , 0. ]])
    """
    if not sum(map(len, objects)):
        return np.full((len(numbers), len(iou_thresholds)), -1.0)
    overlaps = [
        np.nan_to_num(mmort.box_iou(of_image.astype(np.float64), detected, offset=1), nan=0.0)
        for of_image, detected in zip(objects, boxes, strict=True)
    ]
    rows = []
    for number in numbers:
        best = np.concatenate([_matched(of_image[:, :number]) for of_image in overlaps])
        rows.append((best[:, None] >= np.array(iou_thresholds)).mean(axis=0))
    return np.array(rows)


def _matched(overlaps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the overlap of each object's match; 0 of objects without one."""
    remaining, matched = overlaps.copy(), np.zeros(len(overlaps))
    for _ in range(min(remaining.shape)):
        row, column = np.unravel_index(remaining.argmax(), remaining.shape)
        matched[row] = remaining[row, column]
        remaining[row, :] = remaining[:, column] = -1
    return matched
