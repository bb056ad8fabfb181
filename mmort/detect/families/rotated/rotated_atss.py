"""Rotated ATSS: RetinaNet's network in MMRotate 0, and in MMRotate 1 that of ATSS, with a centerness.

Source: MMRotate's ``RotatedATSSHead``.
"""

from __future__ import annotations

from dataclasses import dataclass

from mmort.configs.layout import DetectorConfig
from mmort.detect.entries import PARTS, Parts, part
from mmort.detect.families.dense.atss import ATSSHead
from mmort.detect.families.rotated.rotated_retinanet import RotatedRetinaHead
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.dense import RotatedDenseDetector


class RotatedATSSHead(ATSSHead):
    """ATSS's head with five numbers for each box."""

    box_channels = 5

    @dataclass(frozen=True, kw_only=True)
    class Entries(ATSSHead.Entries):
        """The entries of ``bbox_head``."""

        bbox_coder: RotatedBoxCoder = part("rotated box coder")


class RotatedATSS(RotatedDenseDetector):
    """MMRotate 1's Rotated ATSS."""

    family = "Rotated ATSS"
    head = RotatedATSSHead


class RotatedATSSWithoutCenterness(RotatedDenseDetector):
    """MMRotate 0's Rotated ATSS: Rotated RetinaNet with one anchor in a location."""

    family = "Rotated ATSS"
    head = RotatedRetinaHead


@PARTS.register("detector", "RotatedATSSHead")
def rotated_atss(config: DetectorConfig, parts: Parts) -> RotatedDenseDetector:
    """Return the detector that the config's version means by ``RotatedATSSHead``."""
    return (RotatedATSS if config.version == 3 else RotatedATSSWithoutCenterness)(config, parts)
