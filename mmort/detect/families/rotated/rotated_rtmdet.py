"""Rotated RTMDet: RTMDet that also predicts an angle, for the distances along the sides of a turned box.

Source: C. Lyu et al., "RTMDet: An Empirical Study of Designing Real-Time Object Detectors", 2022; MMRotate 1's
``RotatedRTMDetSepBNHead``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mmort.detect.entries import PARTS, only, part, training_only
from mmort.detect.families.dense.rtmdet import RTMDetSepBNHead
from mmort.detect.parts.rotated.angle_coder import ANGLE_CODERS, AngleCoder
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.dense import RotatedDenseDetector


class RotatedRTMDetSepBNHead(RTMDetSepBNHead):
    """RTMDet's head with an angle for each box."""

    box_channels = 5

    @dataclass(frozen=True, kw_only=True)
    class Entries(RTMDetSepBNHead.Entries):
        bbox_coder: RotatedBoxCoder = part("rotated box coder", default={"type": "DistanceAnglePointCoder"})
        angle_coder: AngleCoder = part("angle coder", types=ANGLE_CODERS, default={"type": "PseudoAngleCoder"})
        scale_angle: bool = only(False)  # MMRotate does not support it either

        ignored: ClassVar = {"angle_version": "the coder's", **training_only("use_hbbox_loss")}

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.angle_coder = entries.angle_coder
        self.rtm_ang = self.build_predictors(entries, self.angle_coder.channels)

    def regressed(self, level: int, for_boxes: Tensor) -> Tensor:
        """Return the distances, with the angle in radians as fifth channel."""
        angle = self.angle_coder.decode(self.rtm_ang[level](for_boxes), 1)  # [N, 1, h, w]
        return torch.cat([super().regressed(level, for_boxes), angle], 1)


@PARTS.register("detector", "RotatedRTMDetSepBNHead")
class RotatedRTMDet(RotatedDenseDetector):
    """Rotated RTMDet."""

    family = "Rotated RTMDet"
    head = RotatedRTMDetSepBNHead
