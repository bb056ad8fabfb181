"""From scored boxes to detections, for a batch: the steps that dense heads, RPN and RoI heads share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mmort.torch import multiclass_nms


def best_pairs(scores: Tensor, score_threshold: float, nms_pre: int) -> tuple[Tensor, Tensor, Tensor]:
    """Choose the best (box, class) pairs of one feature level.

    Parameters
    ----------
    scores : Tensor, [N, P, C]
    score_threshold : float
        Only scores above it count.
    nms_pre : int
        So many pairs at most; 0 or less: all.

    Returns
    -------
    scores : Tensor, [N, K]
        By descending score; 0 where the score is not above the threshold.
    boxes, labels : Tensor of int64, [N, K]
        Places in P and C.
    """
    classes = scores.shape[2]
    flat = scores.flatten(1)  # [N, P*C]
    count = flat.shape[1] if nms_pre <= 0 else min(nms_pre, flat.shape[1])
    values, places = flat.topk(count)
    return torch.where(values > score_threshold, values, 0), places // classes, places % classes


def suppress(
    boxes: Tensor, scores: Tensor, labels: Tensor, classes: int, nms: dict[str, Any], max_per_image: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Suppress boxes within their class, and keep the best of all.

    Parameters
    ----------
    boxes : Tensor, [N, K, 4]
    scores : Tensor, [N, K]
        Pairs with a score of 0 take no part.
    labels : Tensor of int64, [N, K]
    classes : int
    nms : dict
        The config's ``nms``.
    max_per_image : int

    Returns
    -------
    dets, labels, indices : Tensor
        As `multiclass_nms` does.
    """
    by_class = scores[..., None] * (labels[..., None] == torch.arange(classes, device=labels.device))  # [N, K, C]
    return multiclass_nms(boxes, by_class, 0.0, max_per_image=max_per_image, **nms_arguments(nms))


def nms_arguments(nms: dict[str, Any]) -> dict[str, Any]:
    """Return a config's ``nms`` as arguments of `multiclass_nms`."""
    known = {
        "iou_threshold",
        "iou_thr",
        "class_agnostic",
        "split_thr",
        "type",
        "sigma",
        "min_score",
        "method",
        "offset",
    }
    if unknown := set(nms) - known:
        raise ValueError(f"detect.build: nms must have no entries but {sorted(known)}, got {sorted(unknown)}")
    kind = nms.get("type", "nms")
    if kind not in ("nms", "soft_nms"):
        raise ValueError(f"detect.build: nms.type must be 'nms' or 'soft_nms', got {kind!r}")
    arguments = {name: nms[name] for name in ("class_agnostic", "sigma", "min_score", "offset") if name in nms}
    default = 0.5 if kind == "nms" else 0.3
    arguments["iou_threshold"] = nms.get("iou_threshold", nms.get("iou_thr", default))
    arguments["method"] = "nms" if kind == "nms" else f"soft_nms_{nms.get('method', 'linear')}"
    return arguments
