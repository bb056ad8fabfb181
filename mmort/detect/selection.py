"""From scored boxes to detections, for a batch: the steps that dense heads, RPN and RoI heads share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mmort.torch import multiclass_nms


def take(map: Tensor, places: Tensor, channels: int, count: int | None = None) -> Tensor:
    """Return what a head says of some priors.

    Parameters
    ----------
    map : Tensor, [N, A * channels, h, w]
        A head's output for one level.
    places : Tensor of int64, [N, K]
        Priors, counted by row, column and anchor.
    channels : int
        How many numbers belong to a prior.
    count : int, optional
        Take only the first so many of them.

    Returns
    -------
    Tensor, [N, K, channels]
    """
    anchors = map.shape[1] // channels
    area = map.shape[2] * map.shape[3]
    first = (places % anchors) * channels * area + places // anchors  # [N, K]
    steps = torch.arange(channels if count is None else count, device=map.device) * area
    indices = first[..., None] + steps  # [N, K, channels]
    return torch.unflatten(map.flatten(1).gather(1, indices.flatten(1)), 1, (-1, steps.shape[0]))


def best_places(scores: Tensor, count: int) -> Tensor:
    """Return the places [N, K] of an image's `count` best scores [N, P], or of all if it is 0 or less, in their order.

    So the place decides among scores that are equal later, as in MMDetection, whatever the order of topk is.
    """
    most = scores.shape[1] if count <= 0 else min(count, scores.shape[1])
    return scores.topk(most).indices.sort().values


def larger(boxes: Tensor, size: float) -> Tensor:
    """Tell which boxes [N, P, 4] are wider and higher than a size, [N, P, 1]."""
    return (boxes[..., 2:] - boxes[..., :2] > size).all(-1, keepdim=True)


def best_priors(map: Tensor, classes: int, nms_pre: int, softmax: bool = False) -> tuple[Tensor, Tensor]:
    """Choose the priors of one level that have its best pairs of prior and class.

    Only they need boxes, and probabilities.  The best `nms_pre` pairs belong to as many priors at most, those with the
    best maxima.

    Parameters
    ----------
    map : Tensor, [N, A * classes, h, w]
        Logits; with `softmax` of one class more, the background, which is the last.
    classes : int
    nms_pre : int
        So many priors at most; 0 or less: all.
    softmax : bool
        Probabilities are the softmax over the classes, not the sigmoid.

    Returns
    -------
    scores : Tensor, [N, K, classes]
        Probabilities.
    places : Tensor of int64, [N, K]
        The priors, counted by row, column and anchor, in this order.
    """
    channels = classes + softmax
    if softmax:
        map = torch.unflatten(map, 1, (-1, channels)).softmax(2).flatten(1, 2)
    best = torch.unflatten(map, 1, (-1, channels))[:, :, :classes].amax(2)  # [N, A, h, w]
    best = best.permute(0, 2, 3, 1).flatten(1)  # [N, P]
    places = best_places(best, nms_pre)
    scores = take(map, places, channels, classes)
    return scores if softmax else scores.sigmoid(), places


def best_pairs(scores: Tensor, score_threshold: float, nms_pre: int) -> Tensor:
    """Return `scores` [N, P, C] with 0 for all but the `nms_pre` best of an image that are above the threshold.

    More stay if they are equal to the last of these; all that are above, if `nms_pre` is 0 or less.
    """
    keep = scores > score_threshold
    if nms_pre > 0:
        flat = scores.flatten(1)  # [N, P*C]
        keep = keep & (scores >= flat.topk(min(nms_pre, flat.shape[1])).values[:, -1:, None])
    return torch.where(keep, scores, 0)


def detections(boxes: Tensor, scores: Tensor, test_cfg: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Suppress boxes within their classes, and keep the best of all.

    Parameters
    ----------
    boxes : Tensor, [N, P, 4] or [N, P, C, 4]
    scores : Tensor, [N, P, C]
        Those of 0 take no part.
    test_cfg : dict
        With ``nms`` and ``max_per_img``; ``deploy_nms_pre`` and ``nms.max_output_boxes_per_class`` limit what goes into
        the suppression, and what of one class comes out of it.

    Returns
    -------
    dets, labels : Tensor, [N, K, 5], [N, K]
        As a detector's.
    """
    nms = dict(test_cfg["nms"])
    count: int = test_cfg["max_per_img"]
    by_class: int = nms.pop("max_output_boxes_per_class", 0)
    before: int = test_cfg.get("deploy_nms_pre", 0)
    if before > 0:
        places = best_places(scores.amax(2), before)[..., None]  # [N, P', 1]
        scores = scores.gather(1, places.expand(-1, -1, scores.shape[2]))
        flat = boxes.flatten(2)
        boxes = torch.unflatten(flat.gather(1, places.expand(-1, -1, flat.shape[2])), 2, boxes.shape[2:])
    if not 0 < by_class < count:
        return multiclass_nms(boxes, scores, 0.0, max_per_image=count, **nms_arguments(nms))[:2]
    # As many images as classes, so that the limit is that of an image.
    classes = scores.shape[2]
    boxes = boxes[:, None].expand(-1, classes, -1, -1) if boxes.ndim == 3 else boxes.transpose(1, 2)
    dets, labels, _ = multiclass_nms(
        boxes.flatten(0, 1),
        scores.transpose(1, 2).flatten(0, 1)[..., None],
        0.0,
        max_per_image=by_class,
        **nms_arguments(nms),
    )
    own = torch.arange(classes, device=labels.device)[:, None]
    dets = torch.unflatten(dets, 0, (-1, classes)).flatten(1, 2)  # [N, C * by_class, 5]
    labels = torch.where(torch.unflatten(labels, 0, (-1, classes)) < 0, -1, own).flatten(1)
    best = dets[..., 4].topk(min(count, classes * by_class)).indices  # [N, K]
    return dets.gather(1, best[..., None].expand(-1, -1, 5)), labels.gather(1, best)


def check_test_cfg(test_cfg: dict[str, Any]) -> dict[str, Any]:
    """Return ``test_cfg`` of what gives the detections; an entry that it must have, or cannot, is refused now."""
    missing = [name for name in ("score_thr", "nms", "max_per_img") if name not in test_cfg]
    if missing:
        raise ValueError(f"detect.build: test_cfg must have {', '.join(missing)}")
    nms = dict(test_cfg["nms"])
    if nms.pop("max_output_boxes_per_class", 0) and nms.get("class_agnostic"):
        raise ValueError("detect.build: nms cannot have both 'class_agnostic' and 'max_output_boxes_per_class'")
    nms_arguments(nms)
    return test_cfg


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
    arguments: dict[str, Any] = {
        name: nms[name] for name in ("class_agnostic", "sigma", "min_score", "offset") if name in nms
    }
    default = 0.5 if kind == "nms" else 0.3
    arguments["iou_threshold"] = nms.get("iou_threshold", nms.get("iou_thr", default))
    arguments["method"] = "nms" if kind == "nms" else f"soft_nms_{nms.get('method', 'linear')}"
    return arguments
