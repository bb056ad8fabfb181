"""Boxes of a dense head as the priors of the next one: one for each location."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.single_stage import DenseHead


def first_boxes(head: DenseHead, maps: Sequence[Tensor]) -> list[Tensor]:
    """Return the boxes of a head by level, [N, h * w, 5]: at each location that of the anchor with the best class.

    Their centres are not clipped.
    """
    coder, levels = head.coder, len(head.priors.strides)
    assert isinstance(coder, RotatedBoxCoder)
    boxes = []
    for level in range(levels):
        logits, regressed = maps[level], maps[levels + level]
        numbers = torch.unflatten(regressed, 1, (-1, head.box_channels))  # [N, A, 5, h, w]
        priors = torch.unflatten(head.priors.level(level, logits), 0, (-1, numbers.shape[1]))  # [h * w, A, 5]
        numbers = numbers.flatten(3).permute(0, 3, 1, 2)  # [N, h * w, A, 5]
        if head.priors.num_base_priors[level] == 1:
            boxes.append(coder.decode(priors[:, 0], numbers[:, :, 0], None))
            continue
        best = torch.unflatten(logits, 1, (-1, head.classes)).amax(2).flatten(2).argmax(1)[..., None, None]
        best = best.expand(-1, -1, 1, head.box_channels)  # [N, h * w, 1, 5]
        priors = priors.expand_as(numbers).gather(2, best)[:, :, 0]
        boxes.append(coder.decode(priors, numbers.gather(2, best)[:, :, 0], None))
    return boxes


def refined_boxes(head: DenseHead, maps: Sequence[Tensor], boxes: Sequence[Tensor]) -> list[Tensor]:
    """Return the boxes of a head with one prior in a location, [N, h * w, 5] by level, whose priors are `boxes`."""
    coder = head.coder
    assert isinstance(coder, RotatedBoxCoder)
    regressed = (map.flatten(2).transpose(1, 2) for map in maps[len(boxes) :])  # [N, h * w, 5]
    return [coder.decode(own, numbers, None) for own, numbers in zip(boxes, regressed, strict=True)]
