"""Rotated priors, in the order of `mmort.detect.parts.priors`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mmort.detect.entries import Schema
from mmort.detect.parts.priors import AnchorGenerator, Points


class RotatedAnchorGenerator(AnchorGenerator):
    """Upright anchors as rotated boxes, whose angle is 0 whichever side is longer; MMRotate's generator."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(AnchorGenerator.Entries):
        """The entries of ``anchor_generator``."""

        ignored: ClassVar = {**AnchorGenerator.Entries.ignored, "angle_version": "their angle is 0 in every version"}

    def level(self, index: int, map: Tensor) -> Tensor:
        """Return the anchors of a level, float32, [h*w*A, 5]."""
        boxes = super().level(index, map)
        corner, opposite = boxes[:, :2], boxes[:, 2:]
        return torch.cat([(opposite + corner) / 2, opposite - corner, torch.zeros_like(boxes[:, :1])], 1)


class PseudoAnchorGenerator(Points):
    """The strides of a head whose priors are the boxes of the head before it; MMRotate's generator."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``anchor_generator``."""

        strides: Sequence[Any]

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries.strides)
