"""Suppression of boxes."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

import mmort.torch

__all__ = ["nms", "nms_match", "nms_rotated", "softnms"]

SOFT_NMS_METHODS: tuple[Literal["naive"], Literal["linear"], Literal["gaussian"]] = ("naive", "linear", "gaussian")


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of the boxes that are kept, by descending score."""
    return mmort.torch.nms(boxes, scores, iou_threshold, offset)[1]


def softnms(
    boxes: Tensor,
    scores: Tensor,
    dets: Tensor,
    iou_threshold: float,
    sigma: float,
    min_score: float,
    method: int,
    offset: int,
) -> Tensor:
    """Write the kept boxes with their decayed scores into the first rows of `dets`, and return their indices."""
    kept, indices = mmort.torch.soft_nms(
        boxes, scores, iou_threshold, sigma, min_score, SOFT_NMS_METHODS[method], offset
    )
    dets[: len(kept)] = kept
    return indices


def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    """Return for each kept box its index and those of the boxes that it suppresses."""
    return [group.tolist() for group in mmort.torch.nms_match(dets, iou_threshold)]


def nms_rotated(
    dets: Tensor,
    scores: Tensor,
    order: Tensor,
    dets_sorted: Tensor,
    labels: Tensor,
    iou_threshold: float,
    multi_label: int,
) -> Tensor:
    """Return the indices of the rotated boxes that are kept, by descending score.

    With `multi_label`, the sixth column of `dets` is the class, as MMCV passes it.
    """
    classes = dets[:, 5].long() if multi_label else None
    return mmort.torch.nms_rotated(dets[:, :5], scores, iou_threshold, classes)[1]
