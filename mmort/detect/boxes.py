"""Box coders: from what a network regresses to boxes x1, y1, x2, y2.

All decode any number of boxes at once: a prior, what was regressed, and the limits only need to broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmort.detect.detector import construct


def clip(boxes: Tensor, limits: Tensor) -> Tensor:
    """Return boxes [..., 4] with coordinates between 0 and `limits`, [..., 4]: width, height, width, height."""
    return boxes.clamp(min=0).minimum(limits)


class DeltaXYWHBBoxCoder(nn.Module):
    """Shift of the centre in units of the prior's size, and logarithm of the growth; MMDetection's of that name."""

    means: Tensor
    stds: Tensor

    def __init__(
        self,
        target_means: Sequence[float] = (0.0, 0.0, 0.0, 0.0),
        target_stds: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
        clip_border: bool = True,
        add_ctr_clamp: bool = False,
        ctr_clamp: int = 32,
    ) -> None:
        super().__init__()
        self.register_buffer("means", torch.tensor(target_means, dtype=torch.float32), persistent=False)
        self.register_buffer("stds", torch.tensor(target_stds, dtype=torch.float32), persistent=False)
        self.clip_border = clip_border
        self.centre_limit = ctr_clamp if add_ctr_clamp else None

    def decode(self, boxes: Tensor, deltas: Tensor, limits: Tensor) -> Tensor:
        """Move `boxes` [..., 4] by `deltas` [..., 4] (dx, dy, dw, dh), and clip them to `limits` [..., 4]."""
        deltas = deltas * self.stds + self.means
        size = boxes[..., 2:] - boxes[..., :2]
        shift = size * deltas[..., :2]
        growth = deltas[..., 2:]
        largest = abs(math.log(16 / 1000))
        if self.centre_limit is None:
            growth = growth.clamp(-largest, largest)
        else:
            shift = shift.clamp(-self.centre_limit, self.centre_limit)
            growth = growth.clamp(max=largest)
        centre = (boxes[..., :2] + boxes[..., 2:]) * 0.5 + shift
        half = size * growth.exp() * 0.5
        moved = torch.cat([centre - half, centre + half], -1)
        return clip(moved, limits) if self.clip_border else moved


class TBLRBBoxCoder(nn.Module):
    """Distances of the sides from the prior's centre, in units of its size; MMDetection's of that name."""

    normalizer: Tensor

    def __init__(self, normalizer: float | Sequence[float] = 4.0, clip_border: bool = True) -> None:
        super().__init__()
        self.register_buffer("normalizer", torch.tensor(normalizer, dtype=torch.float32), persistent=False)
        self.clip_border = clip_border

    def decode(self, boxes: Tensor, distances: Tensor, limits: Tensor) -> Tensor:
        """Return boxes by their `distances` [..., 4] (top, bottom, left, right) from the centre of `boxes` [..., 4]."""
        distances = distances * self.normalizer
        centre = (boxes[..., :2] + boxes[..., 2:]) / 2
        size = boxes[..., 2:] - boxes[..., :2]
        first = centre - size * distances[..., [2, 0]]
        last = centre + size * distances[..., [3, 1]]
        found = torch.cat([first, last], -1)
        return clip(found, limits) if self.clip_border else found


class DistancePointBBoxCoder(nn.Module):
    """Distances of the sides from a point, in pixels; MMDetection's of that name."""

    def __init__(self, clip_border: bool = True) -> None:
        super().__init__()
        self.clip_border = clip_border

    def decode(self, points: Tensor, distances: Tensor, limits: Tensor) -> Tensor:
        """Return boxes by their `distances` [..., 4] (left, top, right, bottom) from `points` [..., 2]."""
        found = torch.cat([points - distances[..., :2], points + distances[..., 2:]], -1)
        return clip(found, limits) if self.clip_border else found


_CODERS: dict[str, Any] = {
    "DeltaXYWHBBoxCoder": DeltaXYWHBBoxCoder,
    "TBLRBBoxCoder": TBLRBBoxCoder,
    "DistancePointBBoxCoder": DistancePointBBoxCoder,
}


def build_box_coder(config: dict[str, Any]) -> Any:
    """Build ``bbox_coder``: a module with ``decode(priors, predictions, limits)``."""
    return construct("box coder", config, _CODERS)
