"""Operators of torch for numpy functions that ONNX has no operator for: torch.compile traces them as one node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

import mmort
from mmort import schemas
from mmort.ops.nms import KeptBoxes
from mmort.schemas import Attribute, Operator
from mmort.torch.definition import define
from mmort.torch.operators import mirrors, refuse_gradient

Mode = Literal["iou", "iof"]


def soft_nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    idxs: ArrayLike,
    iou_threshold: float = 0.3,
    sigma: float = 0.5,
    min_score: float = 1e-3,
    method: Literal["naive", "linear", "gaussian"] = "linear",
    offset: int = 0,
    max_num: int = -1,
) -> KeptBoxes:
    """Perform Soft-NMS within each class."""
    settings = {
        "type": "soft_nms",
        "iou_threshold": iou_threshold,
        "sigma": sigma,
        "min_score": min_score,
        "method": method,
        "offset": offset,
        "max_num": max_num,
    }
    return mmort.batched_nms(boxes, scores, idxs, settings)


def _pairwise_iou_rotated(
    bboxes1: ArrayLike, bboxes2: ArrayLike, mode: Mode = "iou", clockwise: bool = True
) -> NDArray[Any]:
    """Compute the overlaps of all pairs of rotated boxes."""
    return mmort.box_iou_rotated(bboxes1, bboxes2, mode, False, clockwise)


def _aligned_iou_rotated(
    bboxes1: ArrayLike, bboxes2: ArrayLike, mode: Mode = "iou", clockwise: bool = True
) -> NDArray[Any]:
    """Compute the overlaps of rotated boxes row by row."""
    return mmort.box_iou_rotated(bboxes1, bboxes2, mode, True, clockwise)


_nms, _soft_nms, _iou = (schemas.kernels()[name] for name in ("nms", "soft_nms", "box_iou_rotated"))
_pairwise = replace(_iou, attributes=tuple(part for part in _iou.attributes if part.name != "aligned"))
_aligned = replace(_pairwise, outputs=(replace(_iou.outputs[0], shape="[N]"),))
_class_wise = Operator(
    domain="",
    type="",
    kernel="batched_nms",
    inputs=tuple(replace(tensor, optional=False) for tensor in _nms.inputs),
    outputs=_soft_nms.outputs,
    attributes=(*_soft_nms.attributes, Attribute("max_num", "INT", -1)),
)

_class_soft_nms = define("mmort::class_soft_nms", soft_nms, _class_wise)
class_soft_nms = mirrors(soft_nms)(_class_soft_nms)
pairwise_iou_rotated = define("mmort::pairwise_iou_rotated", _pairwise_iou_rotated, _pairwise)
aligned_iou_rotated = define("mmort::aligned_iou_rotated", _aligned_iou_rotated, _aligned)

refuse_gradient("batched_nms", _class_soft_nms)
refuse_gradient("box_iou_rotated", pairwise_iou_rotated)
refuse_gradient("box_iou_rotated", aligned_iou_rotated)
