"""HTC: a Cascade Mask R-CNN whose mask heads build on each other, with features of the regions' surroundings.

Source: K. Chen et al., "Hybrid Task Cascade for Instance Segmentation", CVPR 2019.  Box and mask AP of MMDetection's
R-50-FPN model on COCO val2017: 42.3 and 37.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from mmort.configs.layout import DetectorConfig
from mmort.detect.entries import PARTS, Parts, part, training_only
from mmort.detect.families.two_stage.cascade_rcnn import CascadeRoIHead, mean
from mmort.detect.parts.heads.mask_head import FCNMaskHead
from mmort.detect.parts.heads.semantic_head import FusedSemanticHead, with_surroundings
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.roi_extractor import RoIExtractor
from mmort.detect.parts.test_cfg import RCNNEntries
from mmort.detect.parts.two_stage import TwoStageDetector


class HTCMaskHead(FCNMaskHead):
    """A mask head that also reads what the one before made of the same features."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(FCNMaskHead.Entries):
        with_conv_res: bool = True

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        width = entries.conv_out_channels
        self.conv_res = None
        if entries.with_conv_res:
            self.conv_res = ConvModule(width, width, 1, conv_cfg=entries.conv_cfg, norm_cfg=entries.norm_cfg)

    def convolved(self, features: Tensor, previous: Tensor | None) -> Tensor:
        """Return maps [R, C, h, w] for `masks`, which the next head takes as `previous`."""
        if previous is not None and self.conv_res is not None:
            features = features + self.conv_res(previous)
        return self.convs(features)


class HybridTaskCascadeRoIHead(CascadeRoIHead):
    """The stages of a cascade, which share a map of the surroundings and pass on their masks' features.

    Attributes
    ----------
    averages_masks : bool
        Whether masks are the mean of all stages'; otherwise they are the last stage's.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(CascadeRoIHead.Entries):
        mask_head: Sequence[HTCMaskHead] | None = part(
            "mask_head", types={"HTCMaskHead": HTCMaskHead}, default=None, count="num_stages"
        )
        semantic_roi_extractor: RoIExtractor | None = part("RoI extractor", default=None)
        semantic_head: FusedSemanticHead | None = part(
            "semantic_head", types={"FusedSemanticHead": FusedSemanticHead}, default=None
        )
        semantic_fusion: Sequence[str] = ("bbox", "mask")
        mask_info_flow: bool = True

        ignored: ClassVar = {**CascadeRoIHead.Entries.ignored, **training_only("interleaved")}

    def __init__(self, entries: Entries, test_cfg: RCNNEntries) -> None:
        super().__init__(entries, test_cfg)
        self.averages_masks = True
        self.flows = entries.mask_info_flow
        self.fusion = entries.semantic_fusion if entries.semantic_head is not None else ()
        if entries.semantic_head is not None:
            if entries.semantic_roi_extractor is None:
                raise ValueError("detect.build: roi_head with semantic_head must have semantic_roi_extractor")
            self.semantic_head = entries.semantic_head
            self.semantic_roi_extractor = entries.semantic_roi_extractor

    def prepare(self, features: list[Tensor]) -> list[Tensor]:
        """Return the levels, and after them the map of the surroundings if there is one."""
        return [*features, self.semantic_head(features)] if self.fusion else features

    def pool(self, stage: int, features: list[Tensor], rois: Tensor) -> Tensor:
        return self._with_surroundings("bbox", super().pool(stage, self._levels(features), rois), features, rois)

    def probabilities(self, features: list[Tensor], rois: Tensor, classes: Tensor) -> Tensor:
        """Return the masks [R, h, w] of regions [R, 5] whose classes [R] are known."""
        pooled = self.mask_roi_extractor[-1](self._levels(features), rois)
        pooled = self._with_surroundings("mask", pooled, features, rois)
        masks, previous = [], None
        heads: list[Any] = list(self.mask_head)
        for head in heads:
            previous = head.convolved(pooled, previous if self.flows else None)
            masks.append(head.masks(previous, classes).sigmoid())
        return mean(masks) if self.averages_masks else masks[-1]

    def _levels(self, features: list[Tensor]) -> list[Tensor]:
        """Return the levels of a pyramid that `prepare` returned."""
        return features[:-1] if self.fusion else features

    def _with_surroundings(self, task: str, pooled: Tensor, features: list[Tensor], rois: Tensor) -> Tensor:
        """Return features of regions [R, C, h, w], with those of the surroundings added if the task has them."""
        if task not in self.fusion:
            return pooled
        return with_surroundings(pooled, self.semantic_roi_extractor(features[-1:], rois))


@PARTS.register("detector", "HybridTaskCascadeRoIHead")
class HTC(TwoStageDetector):
    """HTC."""

    family = family_with_masks = "HTC"
    model_types = ("HybridTaskCascade",)
    head = HybridTaskCascadeRoIHead
    roi_head: HybridTaskCascadeRoIHead

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        # MMDetection 3 computes the masks of all stages and pastes the last one's.
        self.roi_head.averages_masks = config.version == 2
