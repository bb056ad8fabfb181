"""The operators as functions of tensors, with the arguments of those in ``mmcv.ops``.

Each computes what the numpy function of its name in `mmort` computes, whose docstring is the contract, and is traced as
one node by torch.compile, torch.export and the exporters to ONNX.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from mmort.torch.operators import OPERATORS

Pair = int | tuple[int, int]
Suppressed = tuple[Tensor, Tensor]


def _pair(value: Pair) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


def nms(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float,
    offset: int = 0,
    score_threshold: float = 0,
    max_num: int = -1,
) -> Suppressed:
    """Keep the best of boxes that overlap; as `mmort.nms`, and ``mmcv.ops.nms``.

    Returns
    -------
    dets : Tensor, [K, 5]
        The boxes that are kept with their scores, by descending score.
    inds : Tensor of int64, [K]
        Their places in `boxes`.

    Examples
    --------
    >>> import torch, mmort.torch
    >>> boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]])
    >>> mmort.torch.nms(boxes, torch.tensor([0.8, 0.9, 0.7]), 0.5)[1]
    tensor([1, 2])
    """
    kept = OPERATORS["nms"](boxes, scores, iou_threshold, offset, score_threshold, max_num)
    return _detections(boxes, scores, kept), kept


def soft_nms(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float = 0.3,
    sigma: float = 0.5,
    min_score: float = 1e-3,
    method: Literal["naive", "linear", "gaussian"] = "linear",
    offset: int = 0,
) -> Suppressed:
    """Lower the scores of boxes that overlap a better one; as `mmort.soft_nms`, and ``mmcv.ops.soft_nms``.

    Returns
    -------
    dets : Tensor, [K, 5]
        The boxes left with their new scores, in the order in which they were chosen.
    inds : Tensor of int64, [K]
        Their places in `boxes`.
    """
    return OPERATORS["soft_nms"](boxes, scores, iou_threshold, sigma, min_score, method, offset)  # type: ignore[no-any-return]


def multiclass_nms(
    boxes: Tensor,
    scores: Tensor,
    score_threshold: float = 0.05,
    iou_threshold: float = 0.5,
    max_per_image: int = 100,
    nms_pre: int = -1,
    class_agnostic: bool = False,
    method: Literal["nms", "soft_nms_naive", "soft_nms_linear", "soft_nms_gaussian"] = "nms",
    sigma: float = 0.5,
    min_score: float = 1e-3,
    offset: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Turn the boxes and class scores of a batch into detections; as `mmort.multiclass_nms`.

    Returns
    -------
    dets : Tensor, [B, K, 5]
    labels, indices : Tensor of int64, [B, K]
    """
    return OPERATORS["multiclass_nms"](  # type: ignore[no-any-return]
        boxes,
        scores,
        score_threshold,
        iou_threshold,
        max_per_image,
        nms_pre,
        class_agnostic,
        method,
        sigma,
        min_score,
        offset,
    )


def roi_align(
    input: Tensor,
    rois: Tensor,
    output_size: Pair,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    pool_mode: Literal["avg", "max"] = "avg",
    aligned: bool = True,
) -> Tensor:
    """Pool regions of interest, [K, C, output height, output width]; as `mmort.roi_align`."""
    arguments = _pair(output_size), spatial_scale, sampling_ratio, pool_mode, aligned
    return OPERATORS["roi_align"](input, rois, *arguments)  # type: ignore[no-any-return]


def corner_pool(input: Tensor, mode: Literal["top", "bottom", "left", "right"]) -> Tensor:
    """Take running maxima towards one side, [N, C, H, W]; as `mmort.corner_pool`."""
    return OPERATORS["corner_pool"](input, mode)  # type: ignore[no-any-return]


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: Literal["bilinear", "nearest", "bicubic"] = "bilinear",
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """Sample feature maps at the points of a grid, [N, C, OH, OW]; as `mmort.grid_sample`."""
    return OPERATORS["grid_sample"](input, grid, mode, padding_mode, align_corners)  # type: ignore[no-any-return]


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    deform_groups: int = 1,
) -> Tensor:
    """Convolve at displaced points, [N, O, OH, OW]; as `mmort.deform_conv2d`."""
    arguments = _pair(stride), _pair(padding), _pair(dilation), groups, deform_groups
    return OPERATORS["deform_conv2d"](input, offset, weight, *arguments)  # type: ignore[no-any-return]


def modulated_deform_conv2d(
    input: Tensor,
    offset: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    deform_groups: int = 1,
) -> Tensor:
    """Convolve at displaced and weighted points, [N, O, OH, OW]; as `mmort.modulated_deform_conv2d`."""
    arguments = _pair(stride), _pair(padding), _pair(dilation), groups, deform_groups
    return OPERATORS["modulated_deform_conv2d"](input, offset, mask, weight, bias, *arguments)  # type: ignore[no-any-return]


def _detections(boxes: Tensor, scores: Tensor, kept: Tensor) -> Tensor:
    return torch.cat([boxes[kept], scores[kept, None]], dim=1)
