"""Rotated priors, in the order of `mmort.detect.parts.priors`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mmort.detect.entries import PARTS, Schema
from mmort.detect.parts.priors import AnchorGenerator, Points
from mmort.detect.parts.rotated.geometry import AngleVersion, angle_version, upright_boxes, with_longer_width


@PARTS.register("prior generator", "RotatedAnchorGenerator")
class RotatedAnchorGenerator(AnchorGenerator):
    """Upright anchors as rotated boxes, whose angle is 0 whichever side is longer; MMRotate's generator."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(AnchorGenerator.Entries):
        ignored: ClassVar = {**AnchorGenerator.Entries.ignored, "angle_version": "their angle is 0 in every version"}

    def level(self, index: int, map: Tensor) -> Tensor:
        """Return the anchors of a level, float32, [h*w*A, 5]."""
        return upright_boxes(super().level(index, map))


@PARTS.register("prior generator", "FakeRotatedAnchorGenerator")
class FakeRotatedAnchorGenerator(RotatedAnchorGenerator):
    """Upright anchors as the rotated boxes that a version of angles makes of them; MMRotate 1's generator."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(AnchorGenerator.Entries):
        angle_version: str | None = None

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        version = entries.angle_version
        self.version: AngleVersion | None = None if version is None else angle_version("anchor_generator", version)

    def level(self, index: int, map: Tensor) -> Tensor:
        """Return the anchors of a level, float32, [h*w*A, 5]; without a version their angle is 0."""
        boxes = super().level(index, map)
        if self.version is None:
            return boxes
        if self.version == "oc":  # as MMRotate 1 does it: a quarter turn back, whichever side is longer
            quarter = torch.full_like(boxes[:, :1], -math.pi / 2)
            return torch.cat([boxes[:, :2], boxes[:, 2:4].flip(-1), quarter], 1)
        return with_longer_width(boxes, self.version)


@PARTS.register("prior generator", "PseudoAnchorGenerator", "PseudoRotatedAnchorGenerator")
class PseudoAnchorGenerator(Points):
    """The strides of a head whose priors are the boxes of the head before it; MMRotate's generator."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        strides: Sequence[Any]

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries.strides)
