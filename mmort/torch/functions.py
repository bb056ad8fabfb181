"""The operators as functions of tensors, with the arguments of their namesakes in ``mmcv.ops``.

A function computes what its namesake in `mmort` computes on arrays.  Unless its docstring states otherwise, it is
traced as one node by torch.compile, torch.export and the exporters to ONNX.  Tensors are on the CPU and of dtype
float16, float32 or float64; ``docs/torch.md`` lists the functions that have gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false

import mmort
from mmort.ops._suppression import check_settings, suppression_settings
from mmort.torch.dtypes import as_floating, check_floating, in_dtype, under_autocast
from mmort.torch.operators import OPERATORS, KeptBoxes, mirrors, on_tensors, require_tensor
from mmort.torch.torch_only import aligned_iou_rotated, class_soft_nms, pairwise_iou_rotated

__all__ = [
    "batched_nms",
    "bbox_overlaps",
    "box_iou_rotated",
    "carafe",
    "corner_pool",
    "deform_conv2d",
    "filter_scores",
    "grid_sample",
    "modulated_deform_conv2d",
    "multi_scale_deformable_attention",
    "multiclass_nms",
    "nms",
    "nms_match",
    "nms_rotated",
    "point_sample",
    "rel_roi_point_to_rel_img_point",
    "roi_align",
    "roi_align_rotated",
    "rotated_feature_align",
    "soft_nms",
]

carafe = on_tensors(mmort.carafe)
corner_pool = on_tensors(mmort.corner_pool)
deform_conv2d = on_tensors(mmort.deform_conv2d)
filter_scores = on_tensors(mmort.filter_scores)
grid_sample = on_tensors(mmort.grid_sample)
modulated_deform_conv2d = on_tensors(mmort.modulated_deform_conv2d)
multi_scale_deformable_attention = on_tensors(mmort.multi_scale_deformable_attention)
multiclass_nms = on_tensors(mmort.multiclass_nms)
roi_align = on_tensors(mmort.roi_align)
roi_align_rotated = on_tensors(mmort.roi_align_rotated)
rotated_feature_align = on_tensors(mmort.rotated_feature_align)
soft_nms = on_tensors(mmort.soft_nms)


@mirrors(mmort.nms)
def nms(boxes: Tensor, scores: Tensor, *args: Any, **kwargs: Any) -> KeptBoxes:
    """Perform greedy non-maximum suppression.

    The arguments and errors are those of `mmort.nms`, on tensors.

    Returns
    -------
    dets : Tensor of shape (K, 5)
        The kept boxes with their scores, by descending score.  Gradients flow to `boxes` and `scores`.
    indices : Tensor of int64, shape (K,)
        Their indices in `boxes`.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]])
    >>> mmort.torch.nms(boxes, torch.tensor([0.8, 0.9, 0.7]), 0.5).indices
    tensor([1, 2])
    """
    kept = OPERATORS["nms"](boxes, scores, *args, **kwargs)
    return KeptBoxes(_gather(boxes, scores, kept), kept)


@mirrors(mmort.nms_rotated)
def nms_rotated(dets: Tensor, scores: Tensor, *args: Any, **kwargs: Any) -> KeptBoxes:
    """Perform greedy non-maximum suppression of rotated boxes.

    The arguments and errors are those of `mmort.nms_rotated`, on tensors.

    Returns
    -------
    dets : Tensor of shape (K, 6)
        The kept boxes with their scores, by descending score.  Gradients flow to `dets` and `scores`.
    indices : Tensor of int64, shape (K,)
        Their indices in `dets`.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> boxes = torch.tensor([[5.0, 5, 10, 4, 0.0], [5, 5, 10, 4, 0.1], [5, 5, 10, 4, 1.5]])
    >>> mmort.torch.nms_rotated(boxes, torch.tensor([0.8, 0.9, 0.7]), 0.5).indices
    tensor([1, 2])
    """
    kept = OPERATORS["nms_rotated"](dets, scores, *args, **kwargs)
    return KeptBoxes(_gather(dets, scores, kept), kept)


def batched_nms(
    boxes: Tensor,
    scores: Tensor,
    idxs: Tensor,
    nms_cfg: Mapping[str, Any] | float | None,
    class_agnostic: bool = False,
) -> KeptBoxes:
    """Perform non-maximum suppression separately for each class; as ``mmcv.ops.batched_nms``.

    Parameters
    ----------
    boxes : Tensor of shape (N, 4) or (N, 5)
        Corners (x1, y1, x2, y2); rotated boxes (cx, cy, w, h, angle) with the type "nms_rotated".
    scores : Tensor of shape (N,)
    idxs : Tensor of integers, shape (N,)
        The class of each box; whole numbers of a floating dtype are accepted, as in MMCV.
    nms_cfg : mapping, float or None
        ``type``: "nms" (the default), "soft_nms" or "nms_rotated"; the other entries are that function's arguments.
        ``class_agnostic`` here overrides the argument; ``split_thr`` is accepted and ignored.  A number is the
        ``iou_threshold`` of "nms", as in torchvision.  None suppresses nothing and only sorts.
    class_agnostic : bool, default False
        Whether boxes of different classes suppress each other.

    Returns
    -------
    dets : Tensor of shape (K, 5) or (K, 6)
        The kept boxes with their scores, by descending score over all classes.
    indices : Tensor of int64, shape (K,)
        Their indices in `boxes`.

    Raises
    ------
    ValueError
        If ``type`` is not one of the three words above.
    RuntimeError
        If "soft_nms" within classes is exported, for which ONNX has no operator; `multiclass_nms` exports.

    Notes
    -----
    Here and in ONNX, classes are compared; boxes are never shifted as in MMCV, so large coordinates cost no precision.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 9]])
    >>> scores, classes = torch.tensor([0.9, 0.8, 0.7]), torch.tensor([0, 1, 0])
    >>> mmort.torch.batched_nms(boxes, scores, classes, dict(type="nms", iou_threshold=0.5)).indices
    tensor([0, 1])
    """
    _check_tensors("batched_nms", boxes=boxes, scores=scores, idxs=idxs)
    if nms_cfg is None:
        return nms(boxes, scores, 1.0)
    if isinstance(idxs, Tensor) and idxs.is_floating_point():
        idxs = _whole_numbers(idxs)
    settings = suppression_settings(nms_cfg)
    settings.pop("split_thr", None)
    kind = settings.pop("type", "nms")
    agnostic = settings.pop("class_agnostic", class_agnostic)
    if kind in ("nms", "soft_nms"):
        check_settings(kind, settings)
    if kind == "nms":
        return nms(boxes, scores, idxs=None if agnostic else idxs, **settings)
    if kind == "nms_rotated":
        return nms_rotated(boxes, scores, labels=None if agnostic else idxs, **settings)
    if kind != "soft_nms":
        raise ValueError(f"batched_nms: nms_cfg['type'] must be 'nms', 'soft_nms' or 'nms_rotated', got {kind!r}")
    if agnostic:
        max_num = settings.pop("max_num", -1)
        dets, indices = soft_nms(boxes, scores, **settings)
        order = indices.argsort()  # ties go to the lower index
        order = order[dets[order, 4].neg().sort(stable=True).indices]  # a descending sort would put NaN first
        if max_num > 0:  # a mask: torch 2.9 does not export slices of dimensions that depend on the data
            order = order[torch.arange(len(order)) < max_num]
        return KeptBoxes(dets[order], indices[order])
    _refuse_export("batched_nms: type 'soft_nms' cannot be exported unless class_agnostic; use multiclass_nms")
    return KeptBoxes(*class_soft_nms(boxes, scores, idxs, **settings))


def nms_match(dets: Tensor, iou_threshold: float) -> list[Tensor]:
    """Group boxes by the kept box that suppresses them; as `mmort.nms_match`.

    It cannot be exported, as its result is a list; ``torch.ops.mmort.nms_match_pairs`` can.

    Parameters
    ----------
    dets : Tensor of shape (N, 5)
        Corners and score (x1, y1, x2, y2, score).
    iou_threshold : float
        A box belongs to a kept box of higher score if their intersection over union is at least this.

    Returns
    -------
    list of Tensor of int64
        For each kept box its index in `dets`, then the indices of the boxes that it suppresses.

    Raises
    ------
    RuntimeError
        If it is exported.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> dets = torch.tensor([[0, 0, 10, 10, 0.8], [0, 0, 10, 9, 0.9], [20, 20, 30, 30, 0.7]])
    >>> mmort.torch.nms_match(dets, 0.5)
    [tensor([1, 0]), tensor([2])]
    """
    _refuse_export("nms_match: cannot be exported: an ONNX node cannot return a list")
    _check_tensors("nms_match", dets=dets)
    dets = under_autocast(dets)
    check_floating("nms_match", "dets", dets)
    groups = mmort.nms_match(dets.detach().numpy(), iou_threshold)
    return [torch.from_numpy(group.copy()) for group in groups]


@mirrors(mmort.box_iou_rotated)
def box_iou_rotated(
    bboxes1: Tensor, bboxes2: Tensor, mode: str = "iou", aligned: bool = False, clockwise: bool = True
) -> Tensor:
    """Compute the overlaps of rotated boxes.

    The arguments, results and errors are those of `mmort.box_iou_rotated`, on tensors.  It cannot be exported:
    ONNX has no such operator.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> box = torch.tensor([[5.0, 5, 4, 2, 0.0]])
    >>> mmort.torch.box_iou_rotated(box, torch.tensor([[5.0, 5, 2, 2, 0]]))
    tensor([[0.5000]])
    """
    _refuse_export("box_iou_rotated: cannot be exported: ONNX has no such operator")
    overlaps: Tensor = (aligned_iou_rotated if aligned else pairwise_iou_rotated)(bboxes1, bboxes2, mode, clockwise)
    return overlaps


def bbox_overlaps(
    bboxes1: Tensor,
    bboxes2: Tensor,
    mode: Literal["iou", "iof"] = "iou",
    aligned: bool = False,
    offset: int = 0,
) -> Tensor:
    """Compute the overlaps of boxes; as `mmort.box_iou`, and ``mmcv.ops.bbox_overlaps``.

    It is written with torch's own operators: it has gradients, runs on any device, and exports to standard ONNX.

    Parameters
    ----------
    bboxes1 : Tensor of shape (..., N, 4)
        Corners (x1, y1, x2, y2), in any number of batches.
    bboxes2 : Tensor of shape (..., M, 4)
        In the same batches.  With `aligned`, M is N.
    mode : {"iou", "iof"}, default "iou"
        Whether intersections are divided by unions, or by the areas of `bboxes1`.
    aligned : bool, default False
        Whether row i is compared with row i only.
    offset : int, default 0
        Added to widths and heights.

    Returns
    -------
    Tensor of shape (..., N, M), or (..., N) with `aligned`
        NaN where the divisor is zero.  Where a box is not finite, values may differ from those of `mmort.box_iou`.

    Raises
    ------
    ValueError
        If a shape does not match, or `mode` is neither "iou" nor "iof".
    TypeError
        If the boxes are not of a floating dtype, or bfloat16 outside of autocast.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> mmort.torch.bbox_overlaps(torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[0.0, 0, 2, 1]]))
    tensor([[0.5000]])
    """
    _check_tensors("bbox_overlaps", bboxes1=bboxes1, bboxes2=bboxes2)
    if mode not in ("iou", "iof"):
        raise ValueError(f"bbox_overlaps: mode must be 'iou' or 'iof', got {mode!r}")
    _check_boxes(bboxes1, bboxes2, aligned)
    (bboxes1, bboxes2), dtype = as_floating("bbox_overlaps", bboxes1=bboxes1, bboxes2=bboxes2)
    if not aligned:
        bboxes1, bboxes2 = bboxes1[..., :, None, :], bboxes2[..., None, :, :]
    area1, area2 = ((boxes[..., 2:] - boxes[..., :2] + offset).prod(-1) for boxes in (bboxes1, bboxes2))
    top_left = torch.maximum(bboxes1[..., :2], bboxes2[..., :2])
    bottom_right = torch.minimum(bboxes1[..., 2:], bboxes2[..., 2:])
    intersection = (bottom_right - top_left + offset).clamp(min=0).prod(-1)
    return in_dtype(intersection / (area1 + area2 - intersection if mode == "iou" else area1), dtype)


def point_sample(input: Tensor, points: Tensor, align_corners: bool = False, **kwargs: Any) -> Tensor:
    """Sample feature maps at points in relative coordinates; as `mmort.point_sample`, and ``mmcv.ops.point_sample``.

    Parameters
    ----------
    input : Tensor of shape (N, C, H, W)
    points : Tensor of shape (N, P, 2) or (N, OH, OW, 2)
        x and y, from 0 (left, top) to 1 (right, bottom).
    align_corners : bool, default False
        Whether 0 and 1 are the centres of the outermost pixels, instead of their outer edges.
    **kwargs
        ``mode`` and ``padding_mode`` of `grid_sample`.

    Returns
    -------
    Tensor of shape (N, C, P) or (N, C, OH, OW)

    Raises
    ------
    ValueError
        If a shape does not match, or a mode is unknown.
    TypeError
        If an argument is not of a floating dtype, or bfloat16 outside of autocast.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> mmort.torch.point_sample(torch.tensor([[[[0.0, 1.0]]]]), torch.tensor([[[0.5, 0.5]]]))
    tensor([[[0.5000]]])
    """
    _check_tensors("point_sample", input=input, points=points)
    if points.dim() not in (3, 4) or points.shape[-1] != 2:
        raise ValueError(f"point_sample: points must be [N, P, 2] or [N, OH, OW, 2], got {[*points.shape]}")
    (input, points), dtype = as_floating("point_sample", input=input, points=points)
    flat = points.dim() == 3
    grid = 2 * (points[:, :, None] if flat else points) - 1
    output = in_dtype(grid_sample(input, grid, align_corners=align_corners, **kwargs), dtype)
    return output.squeeze(3) if flat else output


def rel_roi_point_to_rel_img_point(
    rois: Tensor, rel_roi_points: Tensor, img: Tensor | tuple[int, int], spatial_scale: float = 1.0
) -> Tensor:
    """Convert points relative to regions into points relative to the map, for `point_sample`; as in ``mmcv.ops``.

    Parameters
    ----------
    rois : Tensor of shape (K, 4) or (K, 5)
        Corners (x1, y1, x2, y2), with a batch index before them or without.
    rel_roi_points : Tensor of shape (K, P, 2) or (1, P, 2)
        x and y, from 0 to 1 over the region.
    img : Tensor of shape (N, C, H, W) or (int, int)
        The feature map, or its height and width.
    spatial_scale : float, default 1.0
        The size of the map divided by that of the image that `rois` refer to.

    Returns
    -------
    Tensor of shape (K, P, 2)
        x and y, from 0 to 1 over the map.

    Raises
    ------
    ValueError
        If a shape does not match.
    TypeError
        If regions or points are not of a floating dtype, or bfloat16 outside of autocast.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> rois, centre = torch.tensor([[0.0, 4, 4, 12, 8]]), torch.tensor([[[0.5, 0.5]]])
    >>> mmort.torch.rel_roi_point_to_rel_img_point(rois, centre, (16, 32))
    tensor([[[0.2500, 0.3750]]])
    """
    function = "rel_roi_point_to_rel_img_point"
    _check_tensors(function, rois=rois, rel_roi_points=rel_roi_points)
    if rois.dim() != 2 or rois.shape[1] not in (4, 5):
        raise ValueError(f"{function}: rois must be [K, 4] or [K, 5], got {[*rois.shape]}")
    count, regions = rel_roi_points.shape[0], rois.shape[0]
    # Numbers of regions that an export does not know are left to broadcasting.
    other = guard_or_false(count != 1) and guard_or_false(count != regions)
    if rel_roi_points.dim() != 3 or rel_roi_points.shape[2] != 2 or other:
        raise ValueError(
            f"{function}: rel_roi_points must be [K, P, 2] with K = {regions}, or [1, P, 2], "
            f"got {[*rel_roi_points.shape]}"
        )
    (rois, rel_roi_points), dtype = as_floating(function, rois=rois, rel_roi_points=rel_roi_points)
    corners = rois[:, -4:]
    top_left, bottom_right = corners[:, None, :2], corners[:, None, 2:]
    height, width = img.shape[2:] if isinstance(img, Tensor) else img
    positions = (rel_roi_points * (bottom_right - top_left) + top_left) * spatial_scale
    return in_dtype(torch.stack([positions[..., 0] / width, positions[..., 1] / height], dim=2), dtype)


def _gather(boxes: Tensor, scores: Tensor, kept: Tensor) -> Tensor:
    """Return the kept boxes with their scores as the last column."""
    return torch.cat([under_autocast(boxes)[kept], under_autocast(scores)[kept, None]], dim=1)


def _check_boxes(bboxes1: Tensor, bboxes2: Tensor, aligned: bool) -> None:
    """Raise ValueError if the shapes of the boxes of `bbox_overlaps` do not match."""
    for name, boxes in (("bboxes1", bboxes1), ("bboxes2", bboxes2)):
        if boxes.dim() < 2 or boxes.shape[-1] != 4:
            raise ValueError(f"bbox_overlaps: {name} must be [..., N, 4], got {[*boxes.shape]}")
    end = -1 if aligned else -2
    if bboxes1.shape[:end] != bboxes2.shape[:end]:
        raise ValueError(
            f"bbox_overlaps: bboxes2 must be {[*bboxes1.shape]}, as bboxes1 is, got {[*bboxes2.shape]}"
            if aligned
            else f"bbox_overlaps: bboxes2 must have the batches of bboxes1, {[*bboxes1.shape[:-2]]}, "
            f"got {[*bboxes2.shape]}"
        )


def _check_tensors(function: str, /, **tensors: Tensor) -> None:
    """Raise TypeError if an argument is no tensor; torch itself checks those of its operators."""
    for name, tensor in tensors.items():
        require_tensor(function, name, tensor)


def _whole_numbers(idxs: Tensor) -> Tensor:
    """Return classes of a floating dtype as integers; raise ValueError if they are none, which tracing cannot see."""
    integers = idxs.to(torch.int64)
    if not _is_traced() and not torch.equal(integers.to(idxs.dtype), idxs):
        raise ValueError("batched_nms: idxs must be whole numbers, got others")
    return integers


def _is_traced() -> bool:
    """Return whether the caller is compiled, exported or traced."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]


def _refuse_export(message: str) -> None:
    """Raise RuntimeError if a model is being exported or traced."""
    if torch.compiler.is_exporting() or torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
        raise RuntimeError(message)
