"""Overlaps of boxes and polygons."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

import mmort.torch
from mmort.mmcv.memory import write
from mmort.mmcv.polygons import Polygon, hull, quadrilateral, shared_area
from mmort.mmcv.quadrilaterals import overlaps
from mmort.torch.torch_only import aligned_iou_rotated, pairwise_iou_rotated

__all__ = [
    "bbox_overlaps",
    "box_iou_quadri",
    "box_iou_rotated",
    "convex_giou",
    "convex_iou",
    "diff_iou_rotated_sort_vertices_forward",
    "min_area_polygons",
    "points_in_polygons_forward",
]

MODES: tuple[Literal["iou"], Literal["iof"]] = ("iou", "iof")
PAIRS_AT_ONCE = 1 << 16  # of polygons; a pair takes about 2 kB


def bbox_overlaps(bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode: int, aligned: bool, offset: int) -> None:
    """Write the overlaps of upright boxes into `ious`."""
    write(ious, mmort.torch.bbox_overlaps(bboxes1, bboxes2, MODES[mode], aligned, offset))


def box_iou_rotated(bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode_flag: int, aligned: bool) -> None:
    """Write the overlaps of rotated boxes into `ious`, which is flat; further columns, such as scores, are not read.

    Unlike `mmort.torch.box_iou_rotated`, it is traced: in functions with a translation of their own into ONNX.
    """
    iou = aligned_iou_rotated if aligned else pairwise_iou_rotated
    write(ious, iou(bboxes1.detach()[:, :5], bboxes2.detach()[:, :5], MODES[mode_flag]))


def box_iou_quadri(bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode_flag: int, aligned: bool) -> None:
    """Write the overlaps of quadrilaterals into `ious`, which is flat; further columns are not read."""
    bboxes1, bboxes2 = (boxes.flatten(1)[:, :8] for boxes in (bboxes1, bboxes2))
    if not aligned:
        rows, columns = torch.cartesian_prod(torch.arange(len(bboxes1)), torch.arange(len(bboxes2))).unbind(1)
        bboxes1, bboxes2 = bboxes1[rows], bboxes2[columns]
    write(ious, overlaps(bboxes1, bboxes2, over_first=MODES[mode_flag] == "iof"))


def convex_iou(pointsets: Tensor, polygons: Tensor, ious: Tensor) -> None:
    """Write the overlaps of the convex hulls of 9 points and of quadrilaterals into `ious`."""
    result = pointsets.new_zeros(len(pointsets), len(polygons))
    hulls = hull(pointsets.double().reshape(-1, 9, 2))
    targets = quadrilateral(polygons.double().reshape(-1, 8))
    chunk = max(PAIRS_AT_ONCE // max(len(polygons), 1), 1)
    for begin in range(0, len(pointsets), chunk):
        part = Polygon(*(tensor[begin : begin + chunk, None] for tensor in hulls))
        shared = shared_area(part, targets)
        result[begin : begin + chunk] = shared / (part.area() + targets.area() - shared)
    write(ious, result)


def convex_giou(pointsets: Tensor, polygons: Tensor, output: Tensor) -> None:
    """Write the gradient of each row's generalised IoU by its 9 points, and the value itself, into `output`."""
    pointsets, polygons = pointsets.reshape(-1, 18), polygons.reshape(-1, 8)
    result = pointsets.new_zeros(len(pointsets), 19)
    for begin in range(0, len(pointsets), PAIRS_AT_ONCE):
        rows = slice(begin, begin + PAIRS_AT_ONCE)
        with torch.enable_grad():
            points = pointsets[rows].detach().double().requires_grad_()
            corners = torch.unflatten(points, 1, (9, 2))
            first, second = hull(corners), quadrilateral(polygons[rows].detach().double())
            shared = shared_area(first, second)
            union = first.area() + second.area() - shared
            around = hull(torch.cat([corners, second.starts], 1)).area()
            value = shared / union - (around - union) / around
            (gradient,) = torch.autograd.grad(value.sum(), points)
        result[rows, :18], result[rows, 18] = gradient.to(result.dtype), value.detach().to(result.dtype)
    write(output, result)


def diff_iou_rotated_sort_vertices_forward(vertices: Tensor, mask: Tensor, num_valid: Tensor) -> Tensor:
    """Return the indices (B, N, 9) of valid vertices around the origin, by angle; the first again; then an invalid one.

    Vertices (B, N, 24, 2) are 8 corners and 16 crossings of sides; fewer than three make no polygon.
    """
    angle = torch.atan2(vertices[..., 1], vertices[..., 0])
    angle = torch.where(angle < 0, angle + 2 * torch.pi, angle).masked_fill(~mask, torch.inf)
    order = angle.argsort(dim=-1, stable=True)[..., :9]
    invalid = 8 + mask[..., 8:].int().argmin(-1, keepdim=True)
    number, count = torch.arange(9), num_valid[..., None]
    indices = torch.where(number < count, order, torch.where(number == count, order[..., :1], invalid))
    return torch.where(count < 3, invalid, indices).int()


def min_area_polygons(pointsets: Tensor, polygons: Tensor) -> None:
    """Write the smallest rectangles around sets of points into `polygons`."""
    write(polygons, mmort.torch.min_area_polygons(pointsets.reshape(-1, 18)))


def points_in_polygons_forward(points: Tensor, polygons: Tensor, output: Tensor) -> None:
    """Write 1 into `output` for the points inside each quadrilateral, and 0 for others."""
    write(output, mmort.torch.points_in_polygons(points.reshape(-1, 2), polygons.reshape(-1, 8)))
