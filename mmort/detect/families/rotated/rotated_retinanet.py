"""Rotated RetinaNet: RetinaNet that also regresses an angle.

Losses on Gaussian distributions (GWD, KLD, KFIoU) change its training only.  Source: MMRotate's ``RotatedRetinaHead``
and ``KFIoURRetinaHead``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mmort.detect.entries import PARTS, part, training_only
from mmort.detect.families.dense.retinanet import ANCHORS, RetinaHead
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.dense import RotatedDenseDetector

_ANCHORS = {**ANCHORS, "type": "RotatedAnchorGenerator"}


class RotatedRetinaHead(RetinaHead):
    """RetinaNet's head with five numbers for each box."""

    box_channels = 5

    @dataclass(frozen=True, kw_only=True)
    class Entries(RetinaHead.Entries):
        anchor_generator: Priors = part("prior generator", default=_ANCHORS)
        bbox_coder: RotatedBoxCoder = part("rotated box coder", default={"type": "DeltaXYWHAOBBoxCoder"})

        ignored: ClassVar = {**RetinaHead.Entries.ignored, **training_only("assign_by_circumhbbox")}


@PARTS.register("detector", "KFIoURRetinaHead", "RotatedRetinaHead")
@PARTS.register("detector", "RetinaHead", coder="rotated box coder")
class RotatedRetinaNet(RotatedDenseDetector):
    """Rotated RetinaNet."""

    family = "Rotated RetinaNet"
    head = RotatedRetinaHead
