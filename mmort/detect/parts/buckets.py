"""Boxes whose sides are first found among buckets, then moved within their bucket.

Source: J. Wang et al., "Side-Aware Boundary Localization for More Precise Object Detection", ECCV 2020; MMDetection's
``BucketingBBoxCoder``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mmort.detect.entries import training_only
from mmort.detect.parts.coders import BoxCoder, CoderEntries


class BucketingBBoxCoder(BoxCoder):
    """Buckets of each side, from the sides of a scaled prior inwards; MMDetection's coder.

    A prior has ``8 * side_count`` numbers: by side (left, right, top, bottom) the logits of its buckets, then likewise
    the shifts within them.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(CoderEntries):
        num_buckets: int
        scale_factor: float

        ignored: ClassVar = {
            **CoderEntries.ignored,
            **training_only("offset_topk", "offset_upperbound", "cls_ignore_neighbor"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.count, self.scale_factor = entries.num_buckets, entries.scale_factor
        self.side_count = (entries.num_buckets + 1) // 2

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor) -> Tensor:
        """Return the boxes [..., 4] of numbers [..., 8 * side_count], whose last coordinates are the last pixel's."""
        return super().decode(priors, regressed, limits - 1)

    def boxes(self, priors: Tensor, regressed: Tensor) -> Tensor:
        """Return the boxes [..., 4] before they are clipped."""
        return self.moved(priors, self.steps(regressed))

    def confidence(self, regressed: Tensor) -> Tensor:
        """Return the mean probability of the sides' buckets, each with that of the second best if it is beside it."""
        probabilities = self._numbers(regressed)[0].softmax(-1)
        best = probabilities.topk(2)  # [..., 4, 2]
        beside = (best.indices[..., 0] - best.indices[..., 1]).abs() == 1
        return (best.values[..., 0] + best.values[..., 1] * beside).mean(-1, keepdim=True)

    def steps(self, regressed: Tensor) -> Tensor:
        """Return how far the sides (left, right, top, bottom) are inside the scaled prior, in buckets, [..., 4]."""
        logits, shifts = self._numbers(regressed)
        bucket = logits.topk(1).indices
        shift = shifts.gather(-1, bucket)[..., 0]
        inward = torch.tensor([-1.0, 1.0, -1.0, 1.0], device=shift.device)  # the shift goes left, and up
        return 0.5 + bucket[..., 0] + shift * inward

    def moved(self, priors: Tensor, steps: Tensor) -> Tensor:
        """Return the boxes [..., 4] of priors [..., 4] and what `steps` returned."""
        centre, half = (priors[..., :2] + priors[..., 2:]) / 2, (priors[..., 2:] - priors[..., :2]) / 2
        half = half * self.scale_factor
        bucket = 2 * half / self.count
        first = centre - half + steps[..., [0, 2]] * bucket
        last = centre + half - steps[..., [1, 3]] * bucket
        return torch.cat([first, last], -1)

    def _numbers(self, regressed: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of buckets and shifts of numbers [..., 8 * side_count], each [..., 4, side_count]."""
        both = torch.unflatten(regressed, -1, (2, 4, self.side_count))
        return both[..., 0, :, :], both[..., 1, :, :]
