"""Angles as classes: the coder of circular smooth labels.

Source: X. Yang and J. Yan, "Arbitrary-Oriented Object Detection with Circular Smooth Label", ECCV 2020; MMRotate's
``CSLCoder``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mmort.detect.entries import Schema
from mmort.detect.parts.rotated.geometry import angle_version

_LOWEST_DEGREES = {"oc": 0, "le90": -90, "le135": -45}


class CSLCoder:
    """Decodes the logits of equal ranges of angles."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``angle_coder``."""

        angle_version: str
        omega: float = 1

        ignored: ClassVar = dict.fromkeys(("radius", "window"), "training only")

    def __init__(self, entries: Entries) -> None:
        version = angle_version("angle_coder", entries.angle_version)
        self.lowest, self.step = _LOWEST_DEGREES[version], entries.omega
        self.degrees = 90 if version == "oc" else 180
        self.classes = int(self.degrees // entries.omega)

    def decode(self, logits: Tensor, dim: int) -> Tensor:
        """Return the middle of the best range of each angle in radians; `dim` has the ranges, and is kept."""
        best = logits.argmax(dim, keepdim=True).to(logits.dtype)
        degrees = (best + 0.5) * self.step
        degrees = degrees - (degrees / self.degrees).floor() * self.degrees + self.lowest
        return degrees * (math.pi / 180)
