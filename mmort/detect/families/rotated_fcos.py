"""Rotated FCOS: FCOS that also regresses an angle, for the distances along the sides of a turned box.

Source: MMRotate's ``RotatedFCOSHead``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import part
from mmort.detect.families.fcos import FCOSHead
from mmort.detect.parts.layers import Scale
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.dense import RotatedDenseDetector


class RotatedFCOSHead(FCOSHead):
    """FCOS's head with an angle for each box."""

    box_channels = 5

    @dataclass(frozen=True, kw_only=True)
    class Entries(FCOSHead.Entries):
        """The entries of ``bbox_head``."""

        scale_angle: bool = True
        bbox_coder: RotatedBoxCoder = part("rotated box coder", default={"type": "DistanceAnglePointCoder"})

        ignored: ClassVar = {
            **FCOSHead.Entries.ignored,
            "separate_angle": "training only",
            "h_bbox_coder": "training only",
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.conv_angle = nn.Conv2d(entries.feat_channels, 1, 3, padding=1)
        self.scale_angle: nn.Module = Scale() if entries.scale_angle else nn.Identity()

    def regressed(self, for_boxes: Tensor, scale: nn.Module, stride: int) -> Tensor:
        """Return the distances, with the angle in radians as fifth channel."""
        return torch.cat([super().regressed(for_boxes, scale, stride), self.angle(for_boxes)], 1)

    def angle(self, for_boxes: Tensor) -> Tensor:
        """Return angles in radians, [N, 1, h, w]."""
        angle: Tensor = self.scale_angle(self.conv_angle(for_boxes))
        return angle


class RotatedFCOS(RotatedDenseDetector):
    """Rotated FCOS."""

    family = "Rotated FCOS"
    head = RotatedFCOSHead
