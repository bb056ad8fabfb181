"""Rotated ATSS: RetinaNet's network in MMRotate 0, and in MMRotate 1 that of ATSS, with a centerness.

Source: MMRotate's ``RotatedATSSHead``.
"""

from __future__ import annotations

from dataclasses import dataclass

from mmort.detect.entries import PARTS, part
from mmort.detect.families.dense.atss import ATSSHead
from mmort.detect.families.rotated.rotated_retinanet import RotatedRetinaHead
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.dense import RotatedDenseDetector
from mmort.detect.parts.single_stage import DenseHead


class RotatedATSSHead(ATSSHead):
    """ATSS's head with five numbers for each box."""

    box_channels = 5

    @dataclass(frozen=True, kw_only=True)
    class Entries(ATSSHead.Entries):
        bbox_coder: RotatedBoxCoder = part("rotated box coder")


@PARTS.register("detector", "RotatedATSSHead")
class RotatedATSS(RotatedDenseDetector):
    """Rotated ATSS; that of MMRotate 0 is Rotated RetinaNet with one anchor in a location."""

    family = "Rotated ATSS"

    @classmethod
    def head_of(cls, version: int) -> type[DenseHead]:
        return RotatedATSSHead if version == 3 else RotatedRetinaHead
