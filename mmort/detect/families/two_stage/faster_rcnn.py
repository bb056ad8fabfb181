"""Faster R-CNN, and Mask R-CNN, which adds a mask head; and Fast R-CNN, whose proposals are an input.

Source: S. Ren et al., "Faster R-CNN", NeurIPS 2015; K. He et al., "Mask R-CNN", ICCV 2017; R. Girshick, "Fast R-CNN",
ICCV 2015.  Box AP (and mask AP) of MMDetection's R-50-FPN models on COCO val2017: 37.4; 38.2 (34.7).

Variants: Dynamic R-CNN, trained with thresholds that rise (H. Zhang et al., ECCV 2020; box AP 38.9), and TridentNet,
whose backbone has branches of several dilations, of which one detects (Y. Li et al., ICCV 2019; MMDetection's
``TridentFasterRCNN``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, part
from mmort.detect.parts.boxes import regions
from mmort.detect.parts.heads.box_head import RegionHead
from mmort.detect.parts.roi_extractor import RoIExtractor
from mmort.detect.parts.test_cfg import RCNNEntries
from mmort.detect.parts.two_stage import RoIHead, TwoStageDetector


class StandardRoIHead(RoIHead):
    """One head for boxes, and perhaps one for masks."""

    mask_roi_extractor: nn.Module
    mask_head: nn.Module

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        bbox_roi_extractor: RoIExtractor = part("RoI extractor")
        bbox_head: RegionHead = part("bbox_head")
        mask_roi_extractor: nn.Module | None = part("RoI extractor", default=None)
        mask_head: nn.Module | None = part("mask_head", default=None)
        shared_head: nn.Module | None = part("shared_head", default=None)

    def __init__(self, entries: Entries, test_cfg: RCNNEntries) -> None:
        super().__init__(test_cfg)
        self.shared_head = entries.shared_head or nn.Identity()
        self.bbox_roi_extractor = entries.bbox_roi_extractor
        self.bbox_head = entries.bbox_head
        self.with_mask = entries.mask_head is not None
        if entries.mask_head is not None:
            self.mask_roi_extractor = entries.mask_roi_extractor or entries.bbox_roi_extractor
            self.mask_head = entries.mask_head

    def detect(self, features: list[Tensor], proposals: Tensor, used: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return dets [N, K, 5] and labels [N, K] of proposals [N, P, 4], those that are `used` [N, P]."""
        logits, deltas = self.predict(features, regions(proposals))
        batch = proposals.shape[:2]
        return self.bbox_head.detect(
            proposals, used, logits.reshape(*batch, -1), deltas.reshape(*batch, -1), limits, self.test_cfg
        )

    def predict(self, features: list[Tensor], rois: Tensor) -> tuple[Tensor, Tensor]:
        """Return the box head's logits and deltas of regions [R, 5]."""
        logits, deltas = self.bbox_head(self.shared_head(self.bbox_roi_extractor(features, rois)))
        return logits, deltas

    def probabilities(self, features: list[Tensor], rois: Tensor, classes: Tensor) -> Tensor:
        """Return the masks [R, h, w] of regions [R, 5] whose classes [R] are known."""
        pooled = self.shared_head(self.mask_roi_extractor(features, rois))
        return self.mask_head(pooled, classes).sigmoid()


@PARTS.register("detector", "StandardRoIHead", "PISARoIHead")
class FasterRCNN(TwoStageDetector):
    """Faster R-CNN, or Mask R-CNN if the config has a mask head, or Fast R-CNN if it has no RPN."""

    family, family_with_masks = "Faster R-CNN", "Mask R-CNN"
    family_without_rpn: ClassVar[str | None] = "Fast R-CNN"
    model_types = (*TwoStageDetector.model_types, "FastRCNN")
    head = StandardRoIHead


@PARTS.register("detector", "DynamicRoIHead")
class DynamicRCNN(FasterRCNN):
    """Dynamic R-CNN, which differs from Faster R-CNN in its training only."""

    family = family_with_masks = "Dynamic R-CNN"


class TridentRoIHead(StandardRoIHead):
    """Faster R-CNN's second stage, for one branch."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(StandardRoIHead.Entries):
        test_branch_idx: int

        ignored: ClassVar = {"num_branch": "the backbone has it too"}

    def __init__(self, entries: Entries, test_cfg: RCNNEntries) -> None:
        if entries.test_branch_idx < 0:
            raise ValueError(
                "detect.build: roi_head.test_branch_idx must be a branch, as the union of all is not supported, got "
                f"{entries.test_branch_idx}"
            )
        if test_cfg.nms.type != "nms":
            raise ValueError(
                "detect.build: test_cfg.rcnn.nms of TridentNet must be of type 'nms': MMDetection applies it twice, so "
                f"that scores decay twice, got {test_cfg.nms.type!r}"
            )
        super().__init__(entries, test_cfg)


@PARTS.register("detector", "TridentRoIHead")
class TridentFasterRCNN(TwoStageDetector):
    """TridentNet."""

    family = family_with_masks = "TridentNet"
    model_types = ("TridentFasterRCNN",)
    head = TridentRoIHead
