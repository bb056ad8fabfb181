"""MMRotate 1.0.0rc1 beside MMDetection 3.3, which it was never released for: imported for its registries."""

from __future__ import annotations

import collections
import collections.abc
import warnings
from typing import Any

import cv2
import mmdet
import numpy as np

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


class _OpenCV:
    """What MMRotate calls of OpenCV, for boxes in float64 too."""

    @staticmethod
    def minAreaRect(points: Any) -> Any:
        return cv2.minAreaRect(points.astype(np.float32))


box_converters.cv2 = _OpenCV

__all__ = ["MODELS", "TASK_UTILS", "TRANSFORMS"]
