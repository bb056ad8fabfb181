"""Select detections among scored rotated boxes, for a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from mmort.detect.parts.rotated.test_cfg import RotatedSelectionEntries
from mmort.torch import nms_rotated


def rotated_detections(boxes: Tensor, scores: Tensor, test_cfg: RotatedSelectionEntries) -> tuple[Tensor, Tensor]:
    """Suppress rotated boxes within their classes, and keep the best of all.

    As in MMRotate on a CPU, an overlap equal to the threshold suppresses, and classes are kept apart by a shift of
    their boxes, which boxes with negative centres may cross.

    Parameters
    ----------
    boxes : Tensor, [N, P, 5] or [N, P, C, 5]
    scores : Tensor, [N, P, C]
        Pairs with a score of 0 take no part.
    test_cfg : RotatedSelectionEntries

    Returns
    -------
    dets, labels : Tensor, [N, K, 6], [N, K]
        As a detector returns them.
    """
    images, priors, classes = scores.shape
    valid = scores > 0
    image, prior, label = torch.nonzero(valid).unbind(1)  # [R]
    row = image * priors + prior
    pair = row * classes + label
    chosen = boxes.flatten(0, -2).index_select(0, pair if boxes.ndim == 4 else row)  # [R, 5]
    pair_scores = scores.flatten().index_select(0, pair)
    shift = label.to(boxes.dtype) * _extent(boxes, valid).index_select(0, image)
    apart = torch.cat([chosen[:, :2] + shift[:, None], chosen[:, 2:]], 1)
    kept = nms_rotated(apart, pair_scores, test_cfg.nms.threshold, image).indices  # by descending score
    dets = torch.cat([chosen, pair_scores[:, None]], 1).index_select(0, kept)
    return _to_rows(dets, label.index_select(0, kept), image.index_select(0, kept), images, test_cfg.max_per_img)


def _extent(boxes: Tensor, valid: Tensor) -> Tensor:
    """Return how far the boxes of neighbouring classes are shifted apart, [N]: past centres and sides of all."""
    of_pairs = valid if boxes.ndim == 4 else valid.any(2)  # [N, P, C] or [N, P]
    centres, sides = (
        torch.where(of_pairs, boxes[..., part].amax(-1), -torch.inf).flatten(1).amax(1)
        for part in (slice(0, 2), slice(2, 4))
    )
    return centres + sides + 1


def _to_rows(dets: Tensor, labels: Tensor, image: Tensor, images: int, count: int) -> tuple[Tensor, Tensor]:
    """Return detections [R, 6] as [N, count, 6], the first `count` of each image, and their labels [R] likewise."""
    is_of_image = (image[:, None] == torch.arange(images, device=image.device)).to(torch.int64)  # [R, N]
    rank = (is_of_image.cumsum(0) * is_of_image).sum(1) - 1
    row = image * (count + 1) + rank.clamp(max=count)  # the row after the last takes what is too much
    rows = dets.new_zeros(images * (count + 1), 6).scatter(0, row[:, None].expand(-1, 6), dets)
    row_labels = labels.new_full((images * (count + 1),), -1).scatter(0, row, labels)
    return (
        torch.unflatten(rows, 0, (-1, count + 1))[:, :count],
        torch.unflatten(row_labels, 0, (-1, count + 1))[:, :count],
    )
