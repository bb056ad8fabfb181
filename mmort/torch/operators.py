"""The operators that ONNX has as custom operators of torch: ``torch.ops.mmort.<name>``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike, NDArray

import mmort
from mmort import schemas
from mmort.torch.definition import define
from mmort.torch.gradients import GRADIENTS, register


def _nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    iou_threshold: float,
    offset: int = 0,
    score_threshold: float = 0,
    max_num: int = -1,
    idxs: ArrayLike | None = None,
) -> NDArray[Any]:
    return mmort.nms(boxes, scores, iou_threshold, offset, score_threshold, max_num, idxs)[1]


def _nms_rotated(
    dets: ArrayLike, scores: ArrayLike, iou_threshold: float, labels: ArrayLike | None = None, clockwise: bool = True
) -> NDArray[Any]:
    return mmort.nms_rotated(dets, scores, iou_threshold, labels, clockwise)[1]


_FUNCTIONS: dict[str, Callable[..., Any]] = {"nms": _nms, "nms_rotated": _nms_rotated}
"""Where the ONNX operator gives less than the numpy function; for all others it is the numpy function."""

OPERATORS: dict[str, Callable[..., Any]] = {
    one.kernel: define(f"mmort::{one.kernel}", _FUNCTIONS.get(one.kernel, getattr(mmort, one.kernel)), one)
    for one in {one.kernel: one for one in reversed(schemas.operators())}.values()
}
"""By the name of the kernel."""

for _name, _gradient in GRADIENTS.items():
    register(OPERATORS[_name], _gradient)
