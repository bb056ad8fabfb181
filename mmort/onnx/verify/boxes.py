"""How far boxes are apart: upright ones, x1, y1, x2, y2, score, and rotated ones, x, y, width, height, angle, score.

Rotated boxes are compared by their corners.  So an angle that differs by half a turn, or width and height that are
exchanged with a quarter of a turn, make no difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort import _rotated

COLUMNS = 5, 6
"""The numbers of columns of detections: of upright and of rotated boxes."""


def distances(dets: NDArray[Any], target: NDArray[Any]) -> NDArray[Any]:
    """Return the largest difference of a corner's coordinate of each box (K, 5 or 6) from that of `target`, (K,)."""
    distance: NDArray[Any]
    if dets.shape[1] == COLUMNS[0]:
        distance = np.abs(dets[:, :4] - target[:4]).max(1, initial=0)
        return distance
    points, target_points = _rotated.corners(dets[:, :5]), _rotated.corners(target[:5])
    turns = [np.abs(points - np.roll(target_points, turn, 0)).max((1, 2), initial=0) for turn in range(4)]
    distance = np.min(turns, 0)
    return distance


def reach(dets: NDArray[Any]) -> NDArray[Any]:
    """Return the largest coordinate of each box's corners, (K,)."""
    points = dets[:, :4] if dets.shape[1] == COLUMNS[0] else _rotated.corners(dets[:, :5]).reshape(len(dets), 8)
    coordinate: NDArray[Any] = np.abs(points).max(1, initial=0)
    return coordinate
