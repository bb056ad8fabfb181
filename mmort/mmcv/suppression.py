"""Suppression of boxes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

import mmort
import mmort.torch
from mmort.mmcv.quadrilaterals import overlaps

__all__ = ["nms", "nms_match", "nms_quadri", "nms_rotated", "softnms"]

SOFT_NMS_METHODS: tuple[Literal["naive"], Literal["linear"], Literal["gaussian"]] = ("naive", "linear", "gaussian")


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of the boxes that are kept, by descending score."""
    return mmort.torch.nms(boxes, scores, iou_threshold, offset).indices


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
    """Return for each kept box its index and those of the boxes that it suppresses.

    Unlike `mmort.torch.nms_match`, it is traced: in functions with a translation of their own into ONNX.
    """
    return [group.tolist() for group in mmort.nms_match(dets.detach().numpy(), iou_threshold)]


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

    As in MMCV, boxes of different classes suppress each other: with `multi_label` the sixth column of `dets` is the
    class, which is not read.
    """
    return mmort.torch.nms_rotated(dets[:, :5], scores, iou_threshold).indices


def nms_quadri(
    dets: Tensor, scores: Tensor, order: Tensor, dets_sorted: Tensor, iou_threshold: float, multi_label: int
) -> Tensor:
    """Return the indices of the quadrilaterals that are kept, by descending score; classes are not read, as in MMCV."""
    dets = dets.flatten(1)
    candidates = scores.argsort(descending=True, stable=True)
    kept = []
    while len(candidates):
        best, candidates = candidates[0], candidates[1:]
        kept.append(best)
        shared = overlaps(dets[best, :8].expand(len(candidates), -1), dets[candidates, :8])
        candidates = candidates[shared < iou_threshold]
    return torch.stack(kept) if kept else order[:0]
