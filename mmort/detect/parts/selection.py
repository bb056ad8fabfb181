"""Select detections among scored boxes, for a batch: the steps that dense heads, RPN and RoI heads share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor

from mmort.detect.parts.test_cfg import SelectionEntries
from mmort.torch import multiclass_nms


def take(map: Tensor, indices: Tensor, channels: int, count: int | None = None) -> Tensor:
    """Return a head's output for some priors.

    Parameters
    ----------
    map : Tensor, [N, A * channels, h, w]
        A head's output for one level.
    indices : Tensor of int64, [N, K]
        Priors, counted by row, column and anchor.
    channels : int
        Numbers for each prior.
    count : int, optional
        Take only the first `count` of them.

    Returns
    -------
    Tensor, [N, K, channels]
    """
    anchors = map.shape[1] // channels
    area = map.shape[2] * map.shape[3]
    first = (indices % anchors) * channels * area + indices // anchors  # [N, K]
    steps = torch.arange(channels if count is None else count, device=map.device) * area
    sources = first[..., None] + steps  # [N, K, channels]
    return torch.unflatten(map.flatten(1).gather(1, sources.flatten(1)), 1, (-1, steps.shape[0]))


def take_rows(values: Tensor, indices: Tensor) -> Tensor:
    """Return the rows [N, K, C] of values [N, P, C] by their indices [N, K]."""
    return values.gather(1, indices[..., None].expand(-1, -1, values.shape[2]))


def of_all_levels(choose: Callable[..., tuple[Tensor, ...]], maps: Sequence[Tensor], levels: int) -> tuple[Tensor, ...]:
    """Return the choices on all levels, one level after another.

    Parameters
    ----------
    choose : callable
        Called with the number of a level and the maps of this level, one of each kind; returns tensors [N, K, ...],
        a row for each prior that it chooses.
    maps : sequence of Tensor
        A head's, by kind and level.
    levels : int

    Returns
    -------
    tuple of Tensor
        [N, P, ...], as many as `choose` returns.
    """
    chosen = [choose(level, *maps[level::levels]) for level in range(levels)]
    return tuple(torch.cat(tensors, 1) for tensors in zip(*chosen, strict=True))


def best_indices(scores: Tensor, count: int) -> Tensor:
    """Return the indices [N, K] of the `count` best of an image's scores [N, P], of all if it is 0 or less, ascending.

    Ascending, so that the lower index wins among equal scores later, as in MMDetection; topk's order is unspecified.
    """
    limit = scores.shape[1] if count <= 0 else min(count, scores.shape[1])
    return scores.topk(limit, sorted=False).indices.sort().values


Activation = Literal["sigmoid", "softmax", "none"]
"""How a class map becomes probabilities; "softmax" has one class more, the background, which is the last."""

MAX_PRESELECTED = 10_000
"""From this many priors on, their selection takes longer than it saves."""


def best_priors(map: Tensor, classes: int, nms_pre: int, activation: Activation = "sigmoid") -> tuple[Tensor, Tensor]:
    """Choose the priors that have the best pairs of prior and class of one level.

    Only these need boxes and probabilities.  The best `nms_pre` pairs belong to at most `nms_pre` priors, those with
    the best maxima.

    Parameters
    ----------
    map : Tensor, [N, A * classes, h, w]
        Logits, or probabilities if `activation` is "none".
    classes : int
    nms_pre : int
        Maximum number of priors; 0 or less: all.
    activation : {"sigmoid", "softmax", "none"}, default "sigmoid"

    Returns
    -------
    scores : Tensor, [N, K, classes]
        Probabilities.
    indices : Tensor of int64, [N, K]
        The priors, counted by row, column and anchor, in this order.
    """
    channels = classes + (activation == "softmax")
    if activation == "softmax":
        map = torch.unflatten(map, 1, (-1, channels)).softmax(2).flatten(1, 2)
    by_anchor = torch.unflatten(map, 1, (-1, channels))[:, :, :classes]  # [N, A, classes, h, w]
    if 0 < nms_pre < MAX_PRESELECTED:
        indices = best_indices(by_anchor.amax(2).permute(0, 2, 3, 1).flatten(1), nms_pre)
        scores = take(map, indices, channels, classes)
    else:
        scores = by_anchor.permute(0, 3, 4, 1, 2).flatten(1, 3)
        indices = torch.arange(scores.shape[1], device=map.device).expand(scores.shape[0], -1)
    return scores.sigmoid() if activation == "sigmoid" else scores, indices


def detections(boxes: Tensor, scores: Tensor, test_cfg: SelectionEntries) -> tuple[Tensor, Tensor]:
    """Return the first two results of `indexed_detections`."""
    return indexed_detections(boxes, scores, test_cfg)[:2]


def indexed_detections(boxes: Tensor, scores: Tensor, test_cfg: SelectionEntries) -> tuple[Tensor, Tensor, Tensor]:
    """Suppress boxes within their classes, and keep the best of all.

    Parameters
    ----------
    boxes : Tensor, [N, P, 4] or [N, P, C, 4]
    scores : Tensor, [N, P, C]
        Pairs with a score of 0 take no part.
    test_cfg : SelectionEntries
        ``deploy_nms_pre`` and ``nms.max_output_boxes_per_class`` limit the boxes that go into the suppression, and
        those of one class that come out of it.

    Returns
    -------
    dets, labels : Tensor, [N, K, 5], [N, K]
        As a detector returns them.
    indices : Tensor of int64, [N, K]
        Their indices in the second dimension of `boxes`; -1 in unused rows.
    """
    max_per_image, max_per_class = test_cfg.max_per_img, test_cfg.nms.max_output_boxes_per_class
    if test_cfg.deploy_nms_pre > 0:
        chosen = best_indices(scores.amax(2), test_cfg.deploy_nms_pre)  # [N, P']
        flat = boxes.flatten(2)
        boxes = torch.unflatten(take_rows(flat, chosen), 2, boxes.shape[2:])
        limitless = replace(test_cfg, deploy_nms_pre=0)
        dets, labels, indices = indexed_detections(boxes, take_rows(scores, chosen), limitless)
        return dets, labels, torch.where(labels < 0, -1, chosen.gather(1, indices.clamp(min=0)))
    if not 0 < max_per_class < max_per_image:
        return multiclass_nms(boxes, scores, 0.0, max_per_image=max_per_image, **test_cfg.nms.arguments)
    # Every class becomes an image of its own, so that the limit of an image is that of a class.
    classes = scores.shape[2]
    boxes = boxes[:, None].expand(-1, classes, -1, -1) if boxes.ndim == 3 else boxes.transpose(1, 2)
    dets, labels, indices = multiclass_nms(
        boxes.flatten(0, 1),
        scores.transpose(1, 2).flatten(0, 1)[..., None],
        0.0,
        max_per_image=max_per_class,
        **test_cfg.nms.arguments,
    )
    classes_of_rows = torch.arange(classes, device=labels.device)[:, None]
    dets = torch.unflatten(dets, 0, (-1, classes)).flatten(1, 2)  # [N, C * max_per_class, 5]
    labels = torch.where(torch.unflatten(labels, 0, (-1, classes)) < 0, -1, classes_of_rows).flatten(1)
    best = dets[..., 4].topk(min(max_per_image, classes * max_per_class)).indices  # [N, K]
    indices = torch.unflatten(indices, 0, (-1, classes)).flatten(1)
    return take_rows(dets, best), labels.gather(1, best), indices.gather(1, best)


def merged(chunks: Sequence[tuple[Tensor, Tensor, int]]) -> tuple[Tensor, Tensor]:
    """Return the detections of several chunks of classes, by descending score.

    Parameters
    ----------
    chunks : sequence of (Tensor, Tensor, int)
        Of each its detections [N, K, 5], their labels [N, K], which are -1 in unused rows, and how many classes it has.
    """
    if len(chunks) == 1:
        return chunks[0][:2]
    first = accumulate((classes for _, _, classes in chunks), initial=0)
    dets = torch.cat([chunk[0] for chunk in chunks], 1)
    shifted = (
        torch.where(labels < 0, -1, labels + start) for (_, labels, _), start in zip(chunks, first, strict=False)
    )
    order = dets[..., 4].argsort(dim=1, descending=True, stable=True)
    return take_rows(dets, order), torch.cat(list(shifted), 1).gather(1, order)
