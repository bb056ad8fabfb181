"""Panoptic maps for graphs: what `mmort.detections.panoptic` does in an image's size, in the input's, for batches.

A test asserts that both agree.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mmort.contract import MaskFormat
from mmort.detect.export.graph_masks import paste_masks
from mmort.detections import PanopticFormat
from mmort.detections.panoptic import INSTANCE_OFFSET

CHUNK = 10
"""Masks that are enlarged at the same time, for less memory."""


def panoptic_map(mask_format: MaskFormat, outputs: tuple[Tensor, ...], img_shape: Tensor, input: Tensor) -> Tensor:
    """Return the ids [N, H, W] of the pixels' segments, of int32, from a detector's outputs.

    Pixels outside the images, whose heights and widths are `img_shape` [N, 2], have the number of classes.
    """
    panoptic = mask_format.panoptic
    assert panoptic is not None
    dets, labels, masks = outputs[:3]
    height, width = img_shape[:, 0, None, None], img_shape[:, 1, None, None]
    rows, columns = (torch.arange(side, device=input.device) for side in input.shape[2:])
    inside = (rows[:, None] < height) & (columns < width)  # [N, H, W]
    if panoptic.source == "queries":
        ids = _of_queries(panoptic, dets[..., 4], labels, masks, inside)
    else:
        pasted = paste_masks(mask_format, masks, dets, input.shape[2], input.shape[3])
        ids = _of_instances(panoptic, labels, pasted > 0, outputs[3], inside)
    return torch.where(inside, ids, panoptic.classes).to(torch.int32)


def _of_queries(panoptic: PanopticFormat, scores: Tensor, labels: Tensor, masks: Tensor, inside: Tensor) -> Tensor:
    """Return the map that queries make which compete for pixels; see `PanopticFormat.of_queries`."""
    queries = masks.shape[1]
    best = torch.full_like(inside, -1, dtype=masks.dtype)
    owner = torch.full_like(inside, queries, dtype=torch.int64)  # the number of queries: none
    in_own_mask, areas = torch.zeros_like(inside), []
    for start in range(0, queries, CHUNK):
        chunk = slice(start, start + CHUNK)
        logits = functional.interpolate(masks[:, chunk], inside.shape[1:], mode="bilinear")
        within = (logits >= 0) & inside[:, None]
        areas.append(within.sum((2, 3)))
        used = (labels[:, chunk] >= 0)[..., None, None]
        probabilities, query = torch.where(used, scores[:, chunk, None, None] * logits.sigmoid(), -1).max(1)
        better = (probabilities > best) & inside
        best = torch.where(better, probabilities, best)
        owner = torch.where(better, query + start, owner)
        # ONNX Runtime has no Where of bool.
        in_own_mask = (better & within.gather(1, query[:, None])[:, 0]) | (~better & in_own_mask)
    area, owned = torch.cat(areas, 1), _counts(owner, queries)
    kept = (labels >= 0) & (owned > 0) & (area > 0) & (owned / area.clamp(min=1) >= panoptic.min_visible)
    ids = _look_up(_ids(panoptic, labels, kept), owner, panoptic.classes)
    return torch.where(in_own_mask, ids, panoptic.classes) if panoptic.inside_only else ids


def _of_instances(panoptic: PanopticFormat, labels: Tensor, masks: Tensor, semantic: Tensor, inside: Tensor) -> Tensor:
    """Return the map of instances [N, K, H, W], by descending score, laid on stuff; see `PanopticFormat`."""
    instances = masks.shape[1]
    owner = torch.full_like(inside, instances, dtype=torch.int64)  # the number of instances: none
    visible = []
    for index in range(instances):
        mask, free = masks[:, index] & inside, owner == instances
        area, covered = mask.sum((1, 2)), (mask & ~free).sum((1, 2))
        accepted = (labels[:, index] >= 0) & (area > 0) & (covered / (area + 1e-5) <= panoptic.max_overlap)
        new = mask & free & accepted[:, None, None]
        owner = torch.where(new, index, owner)
        visible.append(new.any(2).any(1))
    things = _look_up(_ids(panoptic, labels, torch.stack(visible, 1)), owner, panoptic.classes)
    logits = functional.interpolate(semantic, inside.shape[1:], mode="bilinear")
    kind = torch.where(inside & (owner == instances), logits.argmax(1), semantic.shape[1])
    areas = _counts(kind, semantic.shape[1])
    stuff = torch.arange(panoptic.things, panoptic.classes + 1, device=labels.device)
    ids = torch.where(areas >= panoptic.min_stuff_area, stuff, panoptic.classes)
    return torch.where(owner < instances, things, _look_up(ids, kind, panoptic.classes))


def _counts(index: Tensor, number: int) -> Tensor:
    """Return how often each index below a number occurs in each map of [N, H, W], as [N, number]."""
    flat = index.flatten(1)
    counts = torch.zeros_like(flat[:, :1]).repeat(1, number + 1).scatter_add(1, flat, torch.ones_like(flat))
    return counts[:, :number]


def _ids(panoptic: PanopticFormat, labels: Tensor, kept: Tensor) -> Tensor:
    """Return the ids [N, K] of the segments of masks with labels [N, K], those that are kept."""
    things = kept & (labels < panoptic.things)
    ids = torch.where(things, labels + INSTANCE_OFFSET * things.to(torch.int64).cumsum(1), labels)
    return torch.where(kept, ids, panoptic.classes)


def _look_up(ids: Tensor, index: Tensor, last: int) -> Tensor:
    """Return the ids [N, K] by their indices [N, H, W], of which K stands for another id."""
    table = functional.pad(ids, (0, 1), value=last)
    return torch.unflatten(table.gather(1, index.flatten(1)), 1, index.shape[1:])
