"""Box coders: they decode the numbers that a network regresses into boxes x1, y1, x2, y2.

A coder decodes any number of boxes at once: priors, regressed numbers and limits only need to broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema
from mmort.detect.parts.boxes import YXYX, clip


@dataclass(frozen=True, kw_only=True)
class CoderEntries(Schema):
    """The entries of ``bbox_coder`` that every coder has."""

    clip_border: bool = True

    ignored: ClassVar = {"use_box_type": "a wrapper of MMDetection 3 around the same numbers"}


class BoxCoder(nn.Module):
    """Base of the coders."""

    def __init__(self, entries: CoderEntries) -> None:
        super().__init__()
        self.clip_border = entries.clip_border

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor) -> Tensor:
        """Return the boxes [..., 4] of regressed numbers [..., 4] at priors, clipped to `limits` [..., 4]."""
        boxes = self.boxes(priors, regressed)
        return clip(boxes, limits) if self.clip_border else boxes

    def boxes(self, priors: Tensor, regressed: Tensor) -> Tensor:
        """Return the boxes [..., 4] before they are clipped."""
        raise NotImplementedError


@PARTS.register("box coder", "DeltaXYWHBBoxCoder", "DeltaXYWHHBBoxCoder", "DeltaXYWHQBBoxCoder")
class DeltaXYWHBBoxCoder(BoxCoder):
    """Shift of the centre in units of the prior's size, and logarithm of the growth; MMDetection's coder."""

    means: Tensor
    stds: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Entries(CoderEntries):
        target_means: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
        target_stds: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
        add_ctr_clamp: bool = False
        ctr_clamp: int = 32

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.register_buffer("means", torch.tensor(entries.target_means, dtype=torch.float32), persistent=False)
        self.register_buffer("stds", torch.tensor(entries.target_stds, dtype=torch.float32), persistent=False)
        self.max_shift = entries.ctr_clamp if entries.add_ctr_clamp else None

    def boxes(self, priors: Tensor, regressed: Tensor, max_growth: float = abs(math.log(16 / 1000))) -> Tensor:
        """Return `priors` [..., 4] moved by `regressed` [..., 4]: dx, dy, dw, dh, the last two at most `max_growth`."""
        regressed = regressed * self.stds + self.means
        size = self.sizes(priors)
        shift = size * regressed[..., :2]
        growth = regressed[..., 2:]
        if self.max_shift is None:
            growth = growth.clamp(-max_growth, max_growth)
        else:
            shift = shift.clamp(-self.max_shift, self.max_shift)
            growth = growth.clamp(max=max_growth)
        centre = (priors[..., :2] + priors[..., 2:]) * 0.5 + shift
        half = size * growth.exp() * 0.5
        return torch.cat([centre - half, centre + half], -1)

    def sizes(self, priors: Tensor) -> Tensor:
        """Return the widths and heights of priors, [..., 2]."""
        return priors[..., 2:] - priors[..., :2]


@PARTS.register("box coder", "YXYXDeltaXYWHBBoxCoder")
class YXYXDeltaXYWHBBoxCoder(DeltaXYWHBBoxCoder):
    """The coder of `YXYXAnchorGenerator`'s anchors, in MMDetection's EfficientDet: it decodes dy, dx, dh, dw."""

    def boxes(self, priors: Tensor, regressed: Tensor, max_growth: float = abs(math.log(16 / 1000))) -> Tensor:
        """Return priors [..., 4] (y1, x1, y2, x2) moved by `regressed` [..., 4], as x1, y1, x2, y2."""
        return super().boxes(priors, regressed, max_growth)[..., YXYX]


@PARTS.register("box coder", "LegacyDeltaXYWHBBoxCoder")
class LegacyDeltaXYWHBBoxCoder(DeltaXYWHBBoxCoder):
    """The coder of models that were trained with MMDetection 1, where boxes end with their last pixel."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        target_means: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
        target_stds: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)

        ignored: ClassVar = CoderEntries.ignored

    def __init__(self, entries: Entries) -> None:
        super().__init__(DeltaXYWHBBoxCoder.Entries(target_means=entries.target_means, target_stds=entries.target_stds))

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor) -> Tensor:
        """Return boxes [..., 4] clipped to the last pixel."""
        return clip(self.boxes(priors, regressed), limits - 1)

    def sizes(self, priors: Tensor) -> Tensor:
        """Return the widths and heights of priors, [..., 2], their last pixel included."""
        return super().sizes(priors) + 1


@PARTS.register("box coder", "DeltaXYWHBBoxCoderForGLIP")
class DeltaXYWHBBoxCoderForGLIP(DeltaXYWHBBoxCoder):
    """The coder of GLIP, whose priors end after their last pixel and whose boxes end with it."""

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor) -> Tensor:
        """Return boxes [..., 4] clipped to the last pixel."""
        first, last = self.boxes(priors, regressed).chunk(2, -1)
        boxes = torch.cat([first, last - 1], -1)
        return clip(boxes, limits - 1) if self.clip_border else boxes


@PARTS.register("box coder", "TBLRBBoxCoder")
class TBLRBBoxCoder(BoxCoder):
    """Distances of the sides from the prior's centre, in units of its size; MMDetection's coder."""

    normalizer: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Entries(CoderEntries):
        normalizer: float | Sequence[float] = 4.0

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.register_buffer("normalizer", torch.tensor(entries.normalizer, dtype=torch.float32), persistent=False)

    def boxes(self, priors: Tensor, regressed: Tensor) -> Tensor:
        """Return boxes by their distances [..., 4] (top, bottom, left, right) from the centre of `priors` [..., 4]."""
        distances = regressed * self.normalizer
        centre = (priors[..., :2] + priors[..., 2:]) / 2
        size = priors[..., 2:] - priors[..., :2]
        first = centre - size * distances[..., [2, 0]]
        last = centre + size * distances[..., [3, 1]]
        return torch.cat([first, last], -1)


@PARTS.register("box coder", "DistancePointBBoxCoder")
class DistancePointBBoxCoder(BoxCoder):
    """Distances of the sides from a point, in pixels; MMDetection's coder."""

    Entries = CoderEntries

    def boxes(self, priors: Tensor, regressed: Tensor) -> Tensor:
        """Return boxes by their distances [..., 4] (left, top, right, bottom) from points [..., 2]."""
        return torch.cat([priors - regressed[..., :2], priors + regressed[..., 2:]], -1)
