"""Cascade R-CNN, and Cascade Mask R-CNN: several second stages, each working on the boxes of the one before.

Source: Z. Cai and N. Vasconcelos, "Cascade R-CNN", CVPR 2018.  Box AP (and mask AP) of MMDetection's R-50-FPN models
on COCO val2017: 40.3; 41.2 (35.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, part, training_only
from mmort.detect.parts.boxes import regions
from mmort.detect.parts.heads.box_head import RegionHead
from mmort.detect.parts.heads.mask_head import FCNMaskHead
from mmort.detect.parts.roi_extractor import RoIExtractor
from mmort.detect.parts.test_cfg import RCNNEntries
from mmort.detect.parts.two_stage import RoIHead, TwoStageDetector


class BoxCascade(RoIHead):
    """A head for boxes for each stage."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_stages: int
        bbox_roi_extractor: list[RoIExtractor] = part("RoI extractor", count="num_stages")
        bbox_head: Sequence[RegionHead] = part("bbox_head", count="num_stages")

        ignored: ClassVar = training_only("stage_loss_weights")

    def __init__(self, entries: Entries, test_cfg: RCNNEntries) -> None:
        super().__init__(test_cfg)
        self.bbox_roi_extractor = nn.ModuleList(entries.bbox_roi_extractor)
        self.bbox_head = nn.ModuleList(entries.bbox_head)

    def detect(self, features: list[Tensor], proposals: Tensor, used: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return dets and labels; the classes are those of the mean of all stages' logits."""
        batch = proposals.shape[:2]
        boxes, all_logits = proposals, []
        heads: list[Any] = list(self.bbox_head)
        for stage, head in enumerate(heads):
            outputs = head(self.pool(stage, features, regions(boxes)))
            logits, deltas = (output.reshape(*batch, -1) for output in outputs)
            all_logits.append(logits)  # [N, P, classes + 1]
            if head is not heads[-1]:
                boxes = head.refine(boxes, logits, deltas, limits)  # [N, P, 4]
        return heads[-1].detect(boxes, used, mean(all_logits), deltas, limits, self.test_cfg)

    def pool(self, stage: int, features: list[Tensor], rois: Tensor) -> Tensor:
        """Return the input of a stage's box head, [R, C, h, w], for regions [R, 5]."""
        return self.bbox_roi_extractor[stage](features, rois)


class CascadeRoIHead(BoxCascade):
    """A head for boxes, and perhaps one for masks, for each stage."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(BoxCascade.Entries):
        mask_roi_extractor: list[RoIExtractor] | None = part("RoI extractor", default=None, count="num_stages")
        mask_head: Sequence[FCNMaskHead] | None = part("mask_head", default=None, count="num_stages")

    def __init__(self, entries: Entries, test_cfg: RCNNEntries) -> None:
        super().__init__(entries, test_cfg)
        self.with_mask = entries.mask_head is not None
        if entries.mask_head is not None:
            self.mask_roi_extractor = nn.ModuleList(entries.mask_roi_extractor or entries.bbox_roi_extractor)
            self.mask_head = nn.ModuleList(entries.mask_head)

    def probabilities(self, features: list[Tensor], rois: Tensor, classes: Tensor) -> Tensor:
        """Return the mean of the stages' masks [R, h, w] of regions [R, 5] whose classes [R] are known."""
        heads = zip(self.mask_roi_extractor, self.mask_head, strict=True)
        return mean([head(extractor(features, rois), classes).sigmoid() for extractor, head in heads])


@PARTS.register("detector", "CascadeRoIHead")
class CascadeRCNN(TwoStageDetector):
    """Cascade R-CNN, or Cascade Mask R-CNN if the config has mask heads."""

    family, family_with_masks = "Cascade R-CNN", "Cascade Mask R-CNN"
    head = CascadeRoIHead


def mean(tensors: list[Tensor]) -> Tensor:
    """Return the mean of tensors of one shape."""
    return sum(tensors[1:], tensors[0]) / len(tensors)
