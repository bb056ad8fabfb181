"""Rotated boxes as points: x, y of the centre, width, height, and an angle in radians, clockwise on screen."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


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
