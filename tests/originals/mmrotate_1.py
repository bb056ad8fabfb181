"""MMRotate 1.0.0rc1 beside MMDetection 3.3, which it was never released for: imported for its registries."""

from __future__ import annotations

import collections
import collections.abc
import warnings
from typing import Any

import cv2
import mmdet
import numpy as np
import torch

from tests.originals.plain_rotated_kernels import min_area_polygons

_NEWEST = "3.1.0"
"""The newest version of MMDetection that MMRotate accepts; what it uses of MMDetection is in 3.3 as well."""

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for _alias in (int, float):  # e2cnn needs them; numpy 2 has them no longer
        setattr(np, _alias.__name__, _alias)
    collections.Sequence = collections.abc.Sequence  # type: ignore[attr-defined]  # MMRotate's AlignConv, too
    _version, mmdet.__version__ = mmdet.__version__, _NEWEST
    try:
        from mmrotate.registry import MODELS, TASK_UTILS, TRANSFORMS
        from mmrotate.utils import register_all_modules
    finally:
        mmdet.__version__ = _version
    from mmrotate.structures.bbox import box_converters

    register_all_modules(init_default_scope=False)


class OpenCV:
    """What MMRotate calls of OpenCV, which has it in float32 only."""

    @staticmethod
    def minAreaRect(points: Any) -> Any:
        """Return the smallest rectangle around points, in float64 if they are: its centre, sides and angle in degrees.

        In float32, sides of boxes some ten million pixels away are rounded to 2 or 4 pixels.
        """
        if points.dtype == np.float32:
            return cv2.minAreaRect(points)
        distinct = np.unique(points, axis=0)
        if len(distinct) <= 2:  # a line, whose height is exactly 0
            centre, width, height = distinct.mean(0), distinct[-1] - distinct[0], np.zeros(2)
        else:
            polygon = torch.zeros(1, 8, dtype=torch.float64)
            min_area_polygons(torch.from_numpy(points).flatten()[None], polygon)
            corners = polygon.numpy().reshape(4, 2)
            centre, width, height = corners.mean(0), corners[0] - corners[1], corners[3] - corners[0]
        sides = np.hypot(*width), np.hypot(*height)
        # The angle of the longer side, as the other may be a point.
        angle = np.arctan2(*width[::-1]) if sides[0] >= sides[1] else np.arctan2(*height[::-1]) - np.pi / 2
        return centre, sides, np.degrees(angle)


box_converters.cv2 = OpenCV

__all__ = ["MODELS", "TASK_UTILS", "TRANSFORMS", "OpenCV"]
