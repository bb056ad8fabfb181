"""Box coders: they decode the numbers that a network regresses into rotated boxes (see `geometry`).

A coder decodes any number of boxes at once: priors, regressed numbers and limits only need to broadcast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mmort.detect.entries import PARTS, Schema, only
from mmort.detect.parts.coders import BoxCoder, CoderEntries
from mmort.detect.parts.rotated.geometry import (
    AngleVersion,
    angle_version,
    boxes_of_points,
    normalized,
    with_longer_width,
)

_MAX_GROWTH = abs(math.log(16 / 1000))


@dataclass(frozen=True, kw_only=True)
class RotatedCoderEntries(Schema):
    """The entries of ``bbox_coder`` that every coder of rotated boxes has."""

    angle_range: str | None = None
    angle_version: str | None = None  # its name in MMRotate 1

    ignored: ClassVar = {"use_box_type": "a wrapper of MMDetection 3 around the same numbers"}


class RotatedBoxCoder(BoxCoder):
    """Base of the coders.

    Attributes
    ----------
    version : AngleVersion
        That of the boxes.
    numbers : int
        Regressed numbers of a box.
    """

    numbers: ClassVar[int] = 5

    def __init__(self, entries: RotatedCoderEntries) -> None:
        super().__init__(CoderEntries())
        self.version: AngleVersion = angle_version("bbox_coder", entries.angle_range, entries.angle_version)

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor | None) -> Tensor:
        """Return the boxes [..., 5] of regressed numbers [..., numbers] at priors.

        Some coders clip centres to the images, whose widths and heights are the first of `limits` [..., 4]; None: none.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class DeltaEntries(RotatedCoderEntries):
    """The entries of ``bbox_coder`` that both coders of deltas have."""

    target_means: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)
    target_stds: tuple[float, float, float, float, float] = (1.0, 1.0, 1.0, 1.0, 1.0)
    norm_factor: float | None = None
    edge_swap: bool = False
    add_ctr_clamp: bool = False
    ctr_clamp: float = 32


class _DeltaCoder(RotatedBoxCoder):
    """Shift of the centre in units of the prior's size, logarithm of the growth, and the turn."""

    means: Tensor
    stds: Tensor

    def __init__(self, entries: DeltaEntries) -> None:
        super().__init__(entries)
        self.register_buffer("means", torch.tensor(entries.target_means, dtype=torch.float32), persistent=False)
        self.register_buffer("stds", torch.tensor(entries.target_stds, dtype=torch.float32), persistent=False)
        self.turn = entries.norm_factor * math.pi if entries.norm_factor else 1.0
        self.edge_swap = entries.edge_swap
        self.max_shift = entries.ctr_clamp if entries.add_ctr_clamp else math.inf
        self.min_growth = -math.inf if entries.add_ctr_clamp else -_MAX_GROWTH

    def moved(self, size: Tensor, regressed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return shift and new size [..., 2] of priors whose size is [..., 2], and how far they turn [..., 1]."""
        regressed = regressed * self.stds + self.means
        shift, growth = size * regressed[..., :2], regressed[..., 2:4].clamp(self.min_growth, _MAX_GROWTH)
        if self.max_shift < math.inf:
            shift = shift.clamp(-self.max_shift, self.max_shift)
        return shift, size * growth.exp(), regressed[..., 4:] * self.turn

    def box(self, centre: Tensor, size: Tensor, angle: Tensor) -> Tensor:
        """Return boxes of angles that are not in the version's range yet."""
        boxes = torch.cat([centre, size, normalized(angle, self.version)], -1)
        return with_longer_width(boxes, self.version) if self.edge_swap else boxes


@PARTS.register("rotated box coder", "DeltaXYWHAOBBoxCoder", "DeltaXYWHTRBBoxCoder")
class DeltaXYWHAOBBoxCoder(_DeltaCoder):
    """Deltas of rotated priors; MMRotate's coder of this name."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(DeltaEntries):
        proj_xy: bool = False

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.proj_xy = entries.proj_xy
        if self.proj_xy:
            self.max_shift = math.inf  # MMRotate does not limit shifts along the sides of turned priors

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor | None) -> Tensor:
        """Return the boxes [..., 5] at rotated priors [..., 5]; centres are clipped to the last pixel."""
        shift, size, turn = self.moved(priors[..., 2:4], regressed)
        angle = priors[..., 4:]
        if self.proj_xy:
            across, along, cos, sin = shift[..., :1], shift[..., 1:], angle.cos(), angle.sin()
            shift = torch.cat([across * cos - along * sin, across * sin + along * cos], -1)
        centre = priors[..., :2] + shift
        if limits is not None:
            centre = centre.clamp(min=0).minimum(limits[..., :2] - 1)
        return self.box(centre, size, angle + turn)


@PARTS.register("rotated box coder", "DeltaXYWHAHBBoxCoder", "DeltaXYWHTHBBoxCoder")
class DeltaXYWHAHBBoxCoder(_DeltaCoder):
    """Deltas of upright priors; MMRotate's coder of this name."""

    Entries = DeltaEntries

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor | None) -> Tensor:
        """Return the boxes [..., 5] at upright priors [..., 4]; they are not clipped."""
        shift, size, turn = self.moved(priors[..., 2:] - priors[..., :2], regressed)
        return self.box((priors[..., :2] + priors[..., 2:]) * 0.5 + shift, size, turn)


@PARTS.register("rotated box coder", "MidpointOffsetCoder")
class MidpointOffsetCoder(RotatedBoxCoder):
    """An upright box, and where its upper and its right side are touched; MMRotate's coder of this name.

    Source: X. Xie et al., "Oriented R-CNN for Object Detection", ICCV 2021.
    """

    numbers: ClassVar[int] = 6
    means: Tensor
    stds: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedCoderEntries):
        target_means: tuple[float, float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        target_stds: tuple[float, float, float, float, float, float] = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
        # Otherwise MMRotate takes centres and sizes of the proposals for corners.
        use_box_type: bool = only(True)

        ignored: ClassVar = {}

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.register_buffer("means", torch.tensor(entries.target_means, dtype=torch.float32), persistent=False)
        self.register_buffer("stds", torch.tensor(entries.target_stds, dtype=torch.float32), persistent=False)

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor | None) -> Tensor:
        """Return the boxes [..., 5] at upright priors [..., 4]; they are not clipped."""
        regressed = regressed * self.stds + self.means
        prior_size = priors[..., 2:] - priors[..., :2]
        centre = (priors[..., :2] + priors[..., 2:]) * 0.5 + prior_size * regressed[..., :2]
        size = prior_size * regressed[..., 2:4].clamp(-_MAX_GROWTH, _MAX_GROWTH).exp()
        half, slide = size * 0.5, regressed[..., 4:].clamp(-0.5, 0.5) * size
        # From the centre: the point on the upper side, that on the right side, and their opposites.
        top = torch.stack([slide[..., 0], -half[..., 1]], -1)
        right = torch.stack([half[..., 0], slide[..., 1]], -1)
        corners = torch.stack([top, right, -top, -right], -2)  # [..., 4, 2]
        lengths = corners.square().sum(-1, keepdim=True).sqrt()
        # Diagonals of equal length make the parallelogram a rectangle.
        corners = corners * (lengths.amax(-2, keepdim=True) / lengths)
        return boxes_of_points(centre[..., None, :] + corners, self.version)


@PARTS.register("rotated box coder", "DistanceAnglePointCoder")
class DistanceAnglePointCoder(RotatedBoxCoder):
    """Distances of the sides from a point, in the box's own directions, and its angle; MMRotate's coder."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedCoderEntries):
        ignored: ClassVar = {**RotatedCoderEntries.ignored, "clip_border": "MMRotate clips no such boxes"}

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor | None) -> Tensor:
        """Return the boxes [..., 5] of distances (left, top, right, bottom) and angle [..., 5] at points [..., 2]."""
        before, after, angle = regressed[..., :2], regressed[..., 2:4], regressed[..., 4:]
        shift, cos, sin = (after - before) / 2, angle.cos(), angle.sin()
        across, along = shift[..., :1], shift[..., 1:]
        centre = priors + torch.cat([across * cos - along * sin, across * sin + along * cos], -1)
        return torch.cat([centre, before + after, normalized(angle, self.version)], -1)
