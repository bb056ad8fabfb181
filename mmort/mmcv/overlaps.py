"""Overlaps of boxes and polygons."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

import mmort.torch

__all__ = ["bbox_overlaps", "box_iou_rotated", "min_area_polygons", "points_in_polygons_forward"]

MODES: tuple[Literal["iou"], Literal["iof"]] = ("iou", "iof")


def bbox_overlaps(bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode: int, aligned: bool, offset: int) -> None:
    """Write the overlaps of upright boxes into `ious`."""
    ious.copy_(mmort.torch.bbox_overlaps(bboxes1, bboxes2, MODES[mode], aligned, offset))


def box_iou_rotated(bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode_flag: int, aligned: bool) -> None:
    """Write the overlaps of rotated boxes into `ious`, which is flat."""
    ious.copy_(mmort.torch.box_iou_rotated(bboxes1.detach(), bboxes2.detach(), MODES[mode_flag], aligned).flatten())


def min_area_polygons(pointsets: Tensor, polygons: Tensor) -> None:
    """Write the smallest rectangles around sets of points into `polygons`."""
    polygons.copy_(mmort.torch.min_area_polygons(pointsets))


def points_in_polygons_forward(points: Tensor, polygons: Tensor, output: Tensor) -> None:
    """Write 1 into `output` for the points inside each quadrilateral, and 0 for others."""
    output.copy_(mmort.torch.points_in_polygons(points, polygons))
