"""The smallest rectangles in float64 that stand in for OpenCV's are OpenCV's where float32 suffices."""

import cv2
import numpy as np
import pytest

from tests.originals.original import mmrotate_1  # which installs the kernels that it needs

RANDOM = np.random.default_rng(0)
POINTS = {f"quadrilateral {index}": RANDOM.uniform(-50, 50, (4, 2)) for index in range(8)} | {
    "upright": np.array([[10.0, 4], [10, 9], [2, 9], [2, 4]]),
    "turned": cv2.boxPoints(((30.0, 20.0), (12.0, 5.0), 33.0)).astype(np.float64),
    "line": np.array([[3.0, 4], [9, 12], [9, 12], [3, 4]]),
    "point": np.full((4, 2), 7.0),
}


def _corners(rectangle):
    """Return the corners of a centre, sides and an angle in degrees, in an order that does not depend on these."""
    (x, y), (width, height), angle = rectangle
    along = np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
    across = np.array([-along[1], along[0]])
    corners = [[x, y] + a * width / 2 * along + b * height / 2 * across for a in (-1, 1) for b in (-1, 1)]
    return np.array(sorted(np.round(corners, 3).tolist()))


@pytest.mark.parametrize("name", POINTS)
def test_equal_to_opencv(name):
    points = POINTS[name]
    expected = cv2.minAreaRect(points.astype(np.float32))
    np.testing.assert_allclose(_corners(mmrotate_1.OpenCV.minAreaRect(points)), _corners(expected), atol=0.01)


def test_is_not_rounded_far_away():
    points = POINTS["upright"] + 5e7
    _, sides, _ = mmrotate_1.OpenCV.minAreaRect(points)
    assert sorted(sides) == pytest.approx([5, 8], abs=1e-6)
    _, rounded, _ = cv2.minAreaRect(points.astype(np.float32))
    assert sorted(rounded) != pytest.approx([5, 8], abs=0.1)
