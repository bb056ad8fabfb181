"""TridentNet: a Faster R-CNN whose backbone has branches of several dilations, of which one detects.

Source: Y. Li et al., "Scale-Aware Trident Networks for Object Detection", ICCV 2019; MMDetection's
``TridentFasterRCNN``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mmort.detect.families.faster_rcnn import StandardRoIHead
from mmort.detect.parts.two_stage import TwoStageDetector


class TridentRoIHead(StandardRoIHead):
    """Faster R-CNN's second stage, for one branch."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(StandardRoIHead.Entries):
        """The entries of ``roi_head``."""

        test_branch_idx: int

        ignored: ClassVar = {"num_branch": "the backbone has it too"}

    def __init__(self, entries: Entries) -> None:
        if entries.test_branch_idx < 0:
            raise ValueError(
                "detect.build: roi_head.test_branch_idx must be a branch; the union of all is not supported"
            )
        super().__init__(entries)


class TridentFasterRCNN(TwoStageDetector):
    """TridentNet."""

    family = family_with_masks = "TridentNet"
    model_types = ("TridentFasterRCNN",)
    head = TridentRoIHead
