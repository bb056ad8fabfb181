"""Boxes as points, and how far they are apart.

Upright boxes are x1, y1, x2, y2, rotated ones x, y of the centre, width, height, and an angle in radians, clockwise on
screen; a score may follow.  Rotated boxes are compared by their corners: an angle that differs by half a turn, or width
and height that are exchanged with a quarter of a turn, make no difference.  More than half a turn does, as a detector's
angles are within half a turn of each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS = 5, 6
"""The numbers of columns of detections: of upright and of rotated boxes."""

MAX_TURN = 1.01 * np.pi
"""How far angles of one box may be apart: half a turn, and rounding."""


def corners(boxes: NDArray[Any]) -> NDArray[Any]:
    """Return the corners (..., 4, 2) of boxes (..., 5), clockwise on screen; without a turn the upper left is first."""
    cos, sin = np.cos(boxes[..., 4]), np.sin(boxes[..., 4])
    across = boxes[..., 2, None] / 2 * np.stack([cos, sin], -1)
    along = boxes[..., 3, None] / 2 * np.stack([-sin, cos], -1)
    centre = boxes[..., :2]
    points: NDArray[Any] = np.stack(
        [centre - across - along, centre + across - along, centre + across + along, centre - across + along], -2
    )
    return points


def bounding_boxes(boxes: NDArray[Any]) -> NDArray[Any]:
    """Return the upright boxes x1, y1, x2, y2 (..., 4) around boxes (..., 5)."""
    points = corners(boxes)
    return np.concatenate([points.min(-2), points.max(-2)], -1)


def distances(dets: NDArray[Any], target: NDArray[Any]) -> NDArray[Any]:
    """Return the largest difference of a corner's coordinate of each box (K, 5 or 6) from that of `target`, (K,).

    `target` is a box for all, (5 or 6), or one for each, (K, 5 or 6).  The difference is infinite where angles are more
    than half a turn apart.
    """
    distance: NDArray[Any]
    if dets.shape[1] == COLUMNS[0]:
        distance = _differences(dets[:, :4], target[..., :4]).max(1, initial=0)
        return distance
    points, target_points = corners(dets[:, :5]), corners(target[..., :5])
    turns = [_differences(points, np.roll(target_points, turn, -2)).max((1, 2), initial=0) for turn in range(4)]
    distance = np.where(_differences(dets[:, 4], target[..., 4]) > MAX_TURN, np.inf, np.min(turns, 0))
    return distance


def _differences(numbers: NDArray[Any], target: NDArray[Any]) -> NDArray[Any]:
    """Return the absolute differences of all numbers, 0 for equal infinities."""
    with np.errstate(invalid="ignore"):
        return np.where(numbers == target, 0, np.abs(numbers - target))


def reach(dets: NDArray[Any]) -> NDArray[Any]:
    """Return the largest coordinate of each box's corners that is finite, (K,)."""
    points = dets[:, :4] if dets.shape[1] == COLUMNS[0] else corners(dets[:, :5]).reshape(len(dets), 8)
    coordinate: NDArray[Any] = np.abs(points).max(1, initial=0, where=np.isfinite(points))
    return coordinate
