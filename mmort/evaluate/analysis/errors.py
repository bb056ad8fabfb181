"""Errors in the detections of an image: each is right or an error of a kind, objects are found or missed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from mmort.evaluate.image_objects import ImageObjects
from mmort.evaluate.results import ImageResult

MIN_OVERLAP = 0.1
"""IoU from which a detection is about an object, and below which it is of the background; TIDE's (ECCV 2020)."""


class Kind(IntEnum):
    """The kind of a detection; errors in the order in which TIDE tests them."""

    RIGHT = 0
    """It found an object of its class."""
    IGNORED = 1
    """It lies on a crowd or a difficult object of its class, or is of a class by which the image is not judged."""
    BOX = 2
    """It overlaps an object of its class, but less than the threshold."""
    CLASS = 3
    """It overlaps an object of another class by the threshold."""
    DUPLICATE = 4
    """A detection with a higher score found the same object."""
    BACKGROUND = 5
    """It overlaps no object."""
    CLASS_AND_BOX = 6
    """It overlaps an object of another class, but less than the threshold."""

    @property
    def label(self) -> str:
        """The name in reports."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, eq=False)
class ImageErrors:
    """The detections in an image compared with its objects.

    Attributes
    ----------
    kinds : ndarray of int64, (N,)
        The `Kind` of each detection.
    matches : ndarray of int64, (N,)
        The object that each right detection found; -1 for others.
    overlaps : ndarray of float64, (N, M)
        IoU of detections and objects.
    """

    kinds: NDArray[np.int64]
    matches: NDArray[np.int64]
    overlaps: NDArray[np.float64]


def image_errors(result: ImageResult, objects: ImageObjects, iou_threshold: float) -> ImageErrors:
    """Match detections with objects as COCO does, and say what those are that found none.

    By descending score, a detection takes the object of its class that it overlaps most among those not taken, if their
    IoU reaches the threshold.
    """
    overlaps = objects.overlaps(result.boxes, result.rotated_boxes)
    counted = ~objects.ignored
    of_class = result.labels[:, None] == objects.labels
    matches = np.full(len(result.labels), -1)
    free = counted.copy()
    reaching = of_class & counted & (overlaps >= iou_threshold)
    for index in np.argsort(-result.scores, kind="stable"):
        if (candidates := reaching[index] & free).any():
            matches[index] = np.where(candidates, overlaps[index], -1).argmax()
            free[matches[index]] = False
    ignored = (of_class & ~counted & (overlaps >= iou_threshold)).any(axis=1)
    if objects.judged is not None:
        ignored |= ~np.isin(result.labels, list(objects.judged))
    same, other = (_largest(overlaps, mask & counted) for mask in (of_class, ~of_class))
    conditions = {
        Kind.RIGHT: matches >= 0,
        Kind.IGNORED: ignored,
        Kind.BOX: (same >= MIN_OVERLAP) & (same < iou_threshold),
        Kind.CLASS: other >= iou_threshold,
        Kind.DUPLICATE: same >= iou_threshold,
        Kind.BACKGROUND: other < MIN_OVERLAP,
    }
    kinds = np.select(list(conditions.values()), [int(kind) for kind in conditions], int(Kind.CLASS_AND_BOX))
    return ImageErrors(kinds, matches, overlaps)


def _largest(overlaps: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the largest overlap of each detection with the objects of a mask, (N,); 0 if there are none."""
    largest: NDArray[np.float64] = np.where(mask, overlaps, 0).max(axis=1, initial=0)
    return largest
