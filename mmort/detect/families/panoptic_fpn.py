"""Panoptic FPN: a Mask R-CNN with a branch for the background; the instances, which are its Mask R-CNN's.

Source: A. Kirillov et al., "Panoptic Feature Pyramid Networks", CVPR 2019; MMDetection's ``PanopticFPN``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mmort.detect.families.faster_rcnn import FasterRCNN
from mmort.detect.parts.two_stage import TwoStageDetector


class PanopticFPN(FasterRCNN):
    """Panoptic FPN's instances, before they are fused with the background."""

    @dataclass(frozen=True, kw_only=True)
    class TestCfg(TwoStageDetector.TestCfg):
        """The entries of ``test_cfg``."""

        ignored: ClassVar = {"panoptic": "of the panoptic segmentation"}

    family = family_with_masks = "Panoptic FPN"
    model_types = ("PanopticFPN",)
    model_entries: ClassVar[tuple[str, ...]] = (*FasterRCNN.model_entries, "semantic_head", "panoptic_fusion_head")
    unused_weights = ("semantic_head.",)

    def prepare_for_export(self, *, flip: bool) -> tuple[str, ...]:
        """Name the panoptic segmentation among what is left out."""
        return *super().prepare_for_export(flip=flip), "the panoptic segmentation"
