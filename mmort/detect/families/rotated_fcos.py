"""Rotated FCOS: FCOS that also regresses an angle, for the distances along the sides of a turned box.

Source: MMRotate's ``RotatedFCOSHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
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

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return logits, distances with the angle in radians as fifth channel, and centerness, each by level."""
        logits, boxes, centerness = [], [], []
        for x, scale, stride in zip(features, self.scales, self.strides, strict=True):  # [N, C, h, w]
            for_classes, for_boxes = self.cls_convs(x), self.reg_convs(x)
            logits.append(self.conv_cls(for_classes))  # [N, classes, h, w]
            distance = scale(self.conv_reg(for_boxes))  # [N, 4, h, w]
            distance = distance.relu() * stride if self.norm_on_bbox else distance.exp()
            boxes.append(torch.cat([distance, self.angle(for_boxes)], 1))  # [N, 5, h, w]
            for_centerness = for_boxes if self.centerness_on_reg else for_classes
            centerness.append(self.conv_centerness(for_centerness))  # [N, 1, h, w]
        return (*logits, *boxes, *centerness)

    def angle(self, for_boxes: Tensor) -> Tensor:
        """Return angles in radians, [N, 1, h, w]."""
        angle: Tensor = self.scale_angle(self.conv_angle(for_boxes))
        return angle


class RotatedFCOS(RotatedDenseDetector):
    """Rotated FCOS."""

    family = "Rotated FCOS"
    head = RotatedFCOSHead
