"""The operators as functions of tensors, with the arguments of those in ``mmcv.ops``.

Each computes what the numpy function of its name in `mmort` computes, whose docstring is the contract, and is traced as
one node by torch.compile, torch.export and the exporters to ONNX.  The few that are not say so, and refuse an export.
Tensors are on the CPU, of float16, float32 or float64; ``docs/torch.md`` tells which operators have gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

import mmort
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
    idxs: Tensor | None = None,
) -> Suppressed:
    """Keep the best of boxes that overlap; as `mmort.nms`, and ``mmcv.ops.nms``, which has no `idxs`.

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
    kept = OPERATORS["nms"](boxes, scores, iou_threshold, offset, score_threshold, max_num, idxs)
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


def batched_nms(
    boxes: Tensor,
    scores: Tensor,
    idxs: Tensor,
    nms_cfg: Mapping[str, Any] | None,
    class_agnostic: bool = False,
) -> Suppressed:
    """Suppress boxes within each class only; as `mmort.batched_nms`, and ``mmcv.ops.batched_nms``.

    Parameters
    ----------
    boxes : Tensor, [N, 4] or [N, 5]
        Five columns are rotated boxes, with the type "nms_rotated".
    scores : Tensor, [N]
    idxs : Tensor of integers, [N]
        The class of each box.
    nms_cfg : mapping or None
        ``type``: "nms" (the default), "soft_nms" or "nms_rotated"; the rest are that function's arguments.
        ``class_agnostic`` here is the same as the argument; ``split_thr`` is accepted and not needed.  None suppresses
        nothing and only sorts.
    class_agnostic : bool, default False
        Let boxes of different classes suppress each other.

    Returns
    -------
    dets : Tensor, [K, 5] or [K, 6]
        The boxes that are kept with their scores, by descending score over all classes.
    keep : Tensor of int64, [K]
        Their places in `boxes`.

    Raises
    ------
    ValueError
        If ``type`` is another word.
    RuntimeError
        If "soft_nms" by classes is exported: it is no operator of ONNX.  `multiclass_nms` is.

    Notes
    -----
    Classes are compared, and boxes are not shifted as MMCV does, here and in ONNX: large coordinates cost no precision.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 9]])
    >>> scores, classes = torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0, 1, 0])
    >>> mmort.torch.batched_nms(boxes, scores, classes, dict(type="nms", iou_threshold=0.5))[1]
    tensor([0, 1])
    """
    if nms_cfg is None:
        return nms(boxes, scores, 1.0)
    settings = dict(nms_cfg)
    settings.pop("split_thr", None)
    kind = settings.pop("type", "nms")
    agnostic = settings.pop("class_agnostic", class_agnostic)
    if kind == "nms":
        return nms(boxes, scores, idxs=None if agnostic else idxs, **settings)
    if kind == "nms_rotated":
        return nms_rotated(boxes, scores, labels=None if agnostic else idxs, **settings)
    if kind != "soft_nms":
        raise ValueError(f"batched_nms: nms_cfg['type'] must be 'nms', 'soft_nms' or 'nms_rotated', got {kind!r}")
    if agnostic:
        most = settings.pop("max_num", -1)
        dets, keep = soft_nms(boxes, scores, **settings)
        order = keep.argsort()  # of equal scores the lower place comes first
        order = order[dets[order, 4].sort(descending=True, stable=True).indices]
        if most > 0:  # a mask and no slice: torch 2.9 does not export slices of sizes that only the run knows
            order = order[torch.arange(len(order)) < most]
        return dets[order], keep[order]
    _refuse_export("batched_nms: type 'soft_nms' must not be exported unless class_agnostic, multiclass_nms can be")
    detections, kept = mmort.batched_nms(
        boxes.detach().numpy(), scores.detach().numpy(), idxs.detach().numpy(), nms_cfg
    )
    return torch.from_numpy(detections), torch.from_numpy(kept)


def nms_rotated(
    dets: Tensor, scores: Tensor, iou_threshold: float, labels: Tensor | None = None, clockwise: bool = True
) -> Suppressed:
    """Keep the best of rotated boxes that overlap; as `mmort.nms_rotated`, and ``mmcv.ops.nms_rotated``.

    Returns
    -------
    dets : Tensor, [K, 6]
        The boxes that are kept with their scores, by descending score.
    keep : Tensor of int64, [K]
        Their places in `dets`.
    """
    kept = OPERATORS["nms_rotated"](dets, scores, iou_threshold, labels, clockwise)
    return _detections(dets, scores, kept), kept


def nms_match(dets: Tensor, iou_threshold: float) -> list[Tensor]:
    """Tell which boxes suppression groups; as `mmort.nms_match`, and ``mmcv.ops.nms_match``.

    A list cannot be exported; ``torch.ops.mmort.nms_match_pairs`` can.

    Returns
    -------
    list of Tensor of int64
        For each kept box its place in `dets`, [N, 5], then the places of the boxes it suppressed.
    """
    _refuse_export("nms_match: must not be exported, a list is no result in ONNX")
    return [torch.from_numpy(one.copy()) for one in mmort.nms_match(dets.detach().numpy(), iou_threshold)]


def box_iou_rotated(
    bboxes1: Tensor,
    bboxes2: Tensor,
    mode: Literal["iou", "iof"] = "iou",
    aligned: bool = False,
    clockwise: bool = True,
) -> Tensor:
    """Compute overlaps of rotated boxes; as `mmort.box_iou_rotated`, and ``mmcv.ops.box_iou_rotated``.

    It is no operator of ONNX and cannot be exported.

    Returns
    -------
    Tensor, [N, M], or [N] with `aligned`
    """
    _refuse_export("box_iou_rotated: must not be exported, it is no operator of ONNX")
    first, second = bboxes1.detach().numpy(), bboxes2.detach().numpy()
    return torch.from_numpy(mmort.box_iou_rotated(first, second, mode, aligned, clockwise))


def bbox_overlaps(
    bboxes1: Tensor,
    bboxes2: Tensor,
    mode: Literal["iou", "iof"] = "iou",
    aligned: bool = False,
    offset: int = 0,
) -> Tensor:
    """Compute overlaps of boxes; as `mmort.box_iou`, and ``mmcv.ops.bbox_overlaps``.

    It is made of torch's own operators: it has gradients, works on any device, and becomes standard ONNX operators.

    Parameters
    ----------
    bboxes1 : Tensor, [N, 4]
    bboxes2 : Tensor, [M, 4]
        With `aligned` M is N.
    mode : {"iou", "iof"}, default "iou"
        Divide by the union, or by the box of `bboxes1`.
    aligned : bool, default False
        Compare row i with row i only.
    offset : int, default 0
        Added to widths and heights.

    Returns
    -------
    Tensor, [N, M], or [N] with `aligned`
        NaN where the divisor is zero; other than those of `mmort.box_iou` where a box is not finite.

    Raises
    ------
    ValueError
        If `mode` is another word.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> mmort.torch.bbox_overlaps(torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[0.0, 0, 2, 1]]))
    tensor([[0.5000]])
    """
    if mode not in ("iou", "iof"):
        raise ValueError(f"bbox_overlaps: mode must be 'iou' or 'iof', got {mode!r}")
    if not aligned:
        bboxes1, bboxes2 = bboxes1[:, None], bboxes2[None]
    areas = [(one[..., 2:] - one[..., :2] + offset).prod(-1) for one in (bboxes1, bboxes2)]
    first = torch.maximum(bboxes1[..., :2], bboxes2[..., :2])
    last = torch.minimum(bboxes1[..., 2:], bboxes2[..., 2:])
    shared = (last - first + offset).clamp(min=0).prod(-1)
    return shared / (areas[0] + areas[1] - shared if mode == "iou" else areas[0])


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


def roi_align_rotated(
    input: Tensor,
    rois: Tensor,
    output_size: Pair,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    aligned: bool = True,
    clockwise: bool = False,
) -> Tensor:
    """Pool rotated regions, [K, C, output height, output width]; as `mmort.roi_align_rotated`."""
    arguments = _pair(output_size), spatial_scale, sampling_ratio, aligned, clockwise
    return OPERATORS["roi_align_rotated"](input, rois, *arguments)  # type: ignore[no-any-return]


def rotated_feature_align(
    features: Tensor, best_rbboxes: Tensor, spatial_scale: float = 1 / 8, points: int = 1
) -> Tensor:
    """Add the features at the boxes' centres and corners, [N, C, H, W]; as `mmort.rotated_feature_align`."""
    return OPERATORS["rotated_feature_align"](features, best_rbboxes, spatial_scale, points)  # type: ignore[no-any-return]


def multi_scale_deformable_attention(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """Sum weighted samples of several maps, [B, Q, M * D]; as `mmort.multi_scale_deformable_attention`."""
    return OPERATORS["multi_scale_deformable_attention"](  # type: ignore[no-any-return]
        value, spatial_shapes, level_start_index, sampling_locations, attention_weights
    )


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


def point_sample(input: Tensor, points: Tensor, align_corners: bool = False, **kwargs: Any) -> Tensor:
    """Sample feature maps at points in relative coordinates; as `mmort.point_sample`, and ``mmcv.ops.point_sample``.

    Parameters
    ----------
    input : Tensor, [N, C, H, W]
    points : Tensor, [N, P, 2] or [N, OH, OW, 2]
        x and y, from 0 (left, top) to 1 (right, bottom).
    align_corners : bool, default False
        Whether 0 and 1 are the centres of the outermost pixels.
    **kwargs
        ``mode`` and ``padding_mode`` of `grid_sample`.

    Returns
    -------
    Tensor, [N, C, P] or [N, C, OH, OW]
    """
    flat = points.dim() == 3
    output = grid_sample(input, 2 * (points[:, :, None] if flat else points) - 1, align_corners=align_corners, **kwargs)
    return output.squeeze(3) if flat else output


def rel_roi_point_to_rel_img_point(
    rois: Tensor, rel_roi_points: Tensor, img: Tensor | tuple[int, int], spatial_scale: float = 1.0
) -> Tensor:
    """Turn points relative to regions into points relative to the map, for `point_sample`; as in ``mmcv.ops``.

    Parameters
    ----------
    rois : Tensor, [K, 4] or [K, 5]
        Corners, after an image index or without one.
    rel_roi_points : Tensor, [K, P, 2]
        x and y, from 0 to 1 over the region.
    img : Tensor, [N, C, H, W], or (H, W)
        The map.
    spatial_scale : float, default 1.0
        The map's size over that of the image that `rois` refer to.

    Returns
    -------
    Tensor, [K, P, 2]
        x and y, from 0 to 1 over the map.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> rois, centre = torch.tensor([[0.0, 4, 4, 12, 8]]), torch.tensor([[[0.5, 0.5]]])
    >>> mmort.torch.rel_roi_point_to_rel_img_point(rois, centre, (16, 32))
    tensor([[[0.2500, 0.3750]]])
    """
    corners = rois[:, -4:]
    first, last = corners[:, None, :2], corners[:, None, 2:]
    height, width = img.shape[2:] if isinstance(img, Tensor) else img
    places = (rel_roi_points * (last - first) + first) * spatial_scale
    return torch.stack([places[..., 0] / width, places[..., 1] / height], dim=2)


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


def _refuse_export(text: str) -> None:
    if torch.compiler.is_exporting() or torch.jit.is_tracing():  # type: ignore[no-untyped-call,attr-defined]
        raise RuntimeError(text)
