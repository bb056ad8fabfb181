"""Rotated RetinaNet and Rotated FCOS that predict the angle for an angle coder: CSL classifies it, PSC finds a phase.

Source: MMRotate's ``CSLRRetinaHead``, ``CSLRFCOSHead`` and ``AngleBranchRetinaHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.detect.entries import PARTS, Parts, only, part, training_only
from mmort.detect.families.rotated.rotated_fcos import RotatedFCOS, RotatedFCOSHead
from mmort.detect.families.rotated.rotated_retinanet import RotatedRetinaHead
from mmort.detect.parts.rotated.angle_coder import ANGLE_CODERS, AngleCoder
from mmort.detect.parts.rotated.dense import RotatedDenseDetector


class CSLRetinaHead(RotatedRetinaHead):
    """A head whose fifth number of a box is its angle, which replaces the delta."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedRetinaHead.Entries):
        angle_coder: AngleCoder = part("angle coder", types=ANGLE_CODERS)
        use_encoded_angle: bool = only(True)
        use_normalized_angle_feat: bool = False

        ignored: ClassVar = {**RotatedRetinaHead.Entries.ignored, **training_only("shield_reg_angle")}

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.angle_coder, self.normalized = entries.angle_coder, entries.use_normalized_angle_feat
        channels = self.priors.num_base_priors[0] * self.angle_coder.channels
        self.retina_angle_cls = nn.Conv2d(entries.feat_channels, channels, 3, padding=1)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits, boxes = [], []
        for x in features:  # [N, C, h, w]
            logits.append(self.retina_cls(self.cls_convs(x)))  # [N, A * classes, h, w]
            for_boxes = self.reg_convs(x)
            deltas = torch.unflatten(self.retina_reg(for_boxes), 1, (-1, self.box_channels))[:, :, :4]
            predicted = self.retina_angle_cls(for_boxes)
            if self.normalized:
                predicted = predicted.sigmoid() * 2 - 1
            angles = torch.unflatten(predicted, 1, (-1, self.angle_coder.channels))
            boxes.append(torch.cat([deltas, self.angle_coder.decode(angles, 2)], 2).flatten(1, 2))  # [N, A * 5, h, w]
        return (*logits, *boxes)


@PARTS.register("detector", "AngleBranchRetinaHead", "CSLRRetinaHead")
class CSLRetinaNet(RotatedDenseDetector):
    """CSL or PSC RetinaNet, by its angle coder."""

    head = CSLRetinaHead
    bbox_head: CSLRetinaHead

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.family = f"{self.bbox_head.angle_coder.name} RetinaNet"


class CSLFCOSHead(RotatedFCOSHead):
    """A head with an angle coder, whose input has no scale."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedFCOSHead.Entries):
        scale_angle: bool = False
        angle_coder: AngleCoder = part("angle coder", types=ANGLE_CODERS)


@PARTS.register("detector", "CSLRFCOSHead")
class CSLFCOS(RotatedFCOS):
    """FCOS with classes of angles."""

    head = CSLFCOSHead
