"""CSL: Rotated RetinaNet and Rotated FCOS that classify the angle.

Source: MMRotate's ``CSLRRetinaHead`` and ``CSLRFCOSHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmort.detect.entries import part
from mmort.detect.families.rotated_fcos import RotatedFCOSHead
from mmort.detect.families.rotated_retinanet import RotatedRetinaHead
from mmort.detect.parts.rotated.angle_coder import CSLCoder
from mmort.detect.parts.rotated.dense import RotatedDenseDetector

_CODERS = {"CSLCoder": CSLCoder}


class CSLRetinaHead(RotatedRetinaHead):
    """A head whose fifth number of a box is its angle, which replaces the delta."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedRetinaHead.Entries):
        """The entries of ``bbox_head``."""

        angle_coder: CSLCoder = part("angle coder", types=_CODERS)

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.angle_coder = entries.angle_coder
        channels = self.priors.num_base_priors[0] * self.angle_coder.classes
        self.retina_angle_cls = nn.Conv2d(entries.feat_channels, channels, 3, padding=1)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits, boxes = [], []
        for x in features:  # [N, C, h, w]
            logits.append(self.retina_cls(self.cls_convs(x)))  # [N, A * classes, h, w]
            for_boxes = self.reg_convs(x)
            deltas = torch.unflatten(self.retina_reg(for_boxes), 1, (-1, self.box_channels))[:, :, :4]
            angles = torch.unflatten(self.retina_angle_cls(for_boxes), 1, (-1, self.angle_coder.classes))
            boxes.append(torch.cat([deltas, self.angle_coder.decode(angles, 2)], 2).flatten(1, 2))  # [N, A * 5, h, w]
        return (*logits, *boxes)


class CSLRetinaNet(RotatedDenseDetector):
    """RetinaNet with classes of angles."""

    family = "CSL RetinaNet"
    head = CSLRetinaHead


class CSLFCOSHead(RotatedFCOSHead):
    """A head with the logits of the angle's classes instead of the angle."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedFCOSHead.Entries):
        """The entries of ``bbox_head``."""

        scale_angle: bool = False
        angle_coder: CSLCoder = part("angle coder", types=_CODERS)

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.angle_coder = entries.angle_coder
        self.conv_angle = nn.Conv2d(entries.feat_channels, self.angle_coder.classes, 3, padding=1)

    def angle(self, for_boxes: Tensor) -> Tensor:
        """Return angles in radians, [N, 1, h, w]."""
        return self.angle_coder.decode(self.conv_angle(for_boxes), 1)


class CSLFCOS(RotatedDenseDetector):
    """FCOS with classes of angles."""

    family = "CSL FCOS"
    head = CSLFCOSHead
