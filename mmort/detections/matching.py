"""Matching of detections: those of an image with the expected ones, each within how far it may be off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmort.detections import boxes
from mmort.detections.mask_overlap import Overlaps
from mmort.tolerances import Tolerances

MIN_REACH = 0.2
"""Share of the median of the largest coordinates of an image's boxes that the tolerance of each is computed for at
least."""

Rows = list[NDArray[Any]]
"""Boxes with scores (K, 5 or 6), labels (K,), and perhaps masks (K, h, w), of the detections in an image."""


class Limits(NamedTuple):
    """How far each expected detection may be off."""

    box: NDArray[Any]
    """The corners, in pixels."""
    score: NDArray[Any]


def match_detections(
    dets: NDArray[Any],
    labels: NDArray[Any],
    expected_dets: NDArray[Any],
    expected_labels: NDArray[Any],
    *,
    box_tolerance: ArrayLike,
    score_tolerance: ArrayLike,
    overlaps: Overlaps | None = None,
    is_equal: Callable[[int], NDArray[np.bool_]] | None = None,
) -> NDArray[np.int64]:
    """Match the expected detections of an image with the detections found, label by label.

    By descending score, each expected detection takes an unmatched box of its label within the tolerances: the one with
    the most similar mask, or without masks the nearest.

    Parameters
    ----------
    dets, expected_dets : ndarray
        Boxes with scores, (K, 5) and (L, 5), or (K, 6) and (L, 6) if they are rotated.
    labels, expected_labels : ndarray
        (K,) and (L,).
    box_tolerance, score_tolerance : float or array of shape (L,)
        The largest difference of a corner's coordinate, in pixels, and of the score.
    overlaps : callable, optional
        Returns the overlaps of the masks of some detections found, by their indices, with that of an expected one.
    is_equal : callable, optional
        Returns which of the detections found may match an expected one, for what neither boxes nor scores say.

    Returns
    -------
    ndarray of int64, shape (L,)
        For each expected detection the index of its match in `dets`, or -1.
    """
    box_tolerance = np.broadcast_to(box_tolerance, len(expected_dets))
    score_tolerance = np.broadcast_to(score_tolerance, len(expected_dets))
    matches = np.full(len(expected_dets), -1)
    free = np.ones(len(dets), bool)
    for index in np.argsort(-expected_dets[:, -1], kind="stable"):
        alike = free & (labels == expected_labels[index])
        alike &= np.abs(dets[:, -1] - expected_dets[index, -1]) <= score_tolerance[index]
        if is_equal is not None:
            alike &= is_equal(int(index))
        candidates = np.flatnonzero(alike)  # of thousands a few: corners of rotated boxes take long
        distance = boxes.distances(dets[candidates], expected_dets[index])
        near = distance <= box_tolerance[index]
        if near.any():
            nearest = candidates[near][distance[near].argsort(kind="stable")]
            if overlaps is not None and len(nearest) > 1:
                nearest = nearest[[overlaps(nearest, int(index)).argmax()]]
            matches[index] = nearest[0]
            free[matches[index]] = False
    return matches


def usual_limits(expected_dets: NDArray[Any], tolerances: Tolerances) -> Limits:
    """Return the tolerances of the largest coordinates of some detections, and of their scores."""
    reach = boxes.reach(expected_dets)
    # A box at the origin is a difference of larger numbers; a huge box makes no other one uncertain.
    least = MIN_REACH * np.median(reach) if len(reach) else 0
    return Limits(tolerances.of(np.maximum(reach, least or 1.0)), tolerances.of(expected_dets[:, -1]))


def used_rows(outputs: Sequence[NDArray[Any]], image: int) -> Rows:
    """Return the rows of an image that hold a detection, boxes and scores as float64."""
    used = outputs[1][image] >= 0
    dets, *values = (array[image][used] for array in outputs)
    return [dets.astype(np.float64), *values]
