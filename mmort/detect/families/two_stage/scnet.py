"""SCNet: a cascade of boxes with one mask head, which reads the last box head's features and a vector of the image.

Source: T. Vu et al., "SCNet: Training Inference Sample Consistency for Instance Segmentation", AAAI 2021.  Box and mask
AP of MMDetection's R-50-FPN model on COCO val2017: 43.5 and 39.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, part
from mmort.detect.families.two_stage.cascade_rcnn import BoxCascade
from mmort.detect.parts.heads.box_head import BoxHead
from mmort.detect.parts.heads.mask_head import FCNMaskHead
from mmort.detect.parts.heads.semantic_head import FusedSemanticHead, with_surroundings
from mmort.detect.parts.layers import convolution, tower
from mmort.detect.parts.roi_extractor import RoIExtractor
from mmort.detect.parts.test_cfg import RCNNEntries
from mmort.detect.parts.two_stage import TwoStageDetector


class SimplifiedBasicBlock(nn.Module):
    """Two convolutions beside a shortcut, without a ReLU after the sum."""

    def __init__(self, channels: int, conv_cfg: Config | None) -> None:
        super().__init__()
        self.conv1, self.conv2 = (convolution(conv_cfg, channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(self.conv1(x).relu())


def residual_blocks(entries: Any) -> nn.Sequential:
    """Return half as many blocks as a head's entries have convolutions."""
    if entries.norm_cfg is not None or entries.in_channels != entries.conv_out_channels:
        raise ValueError("detect.build: conv_to_res must come with in_channels equal to conv_out_channels, no norm_cfg")
    blocks = range(entries.num_convs // 2)
    return nn.Sequential(*(SimplifiedBasicBlock(entries.in_channels, entries.conv_cfg) for _ in blocks))


class SCNetMaskHead(FCNMaskHead):
    """A mask head with residual blocks."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(FCNMaskHead.Entries):
        conv_to_res: bool = True

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        if entries.conv_to_res:
            self.convs = residual_blocks(entries)


class SCNetSemanticHead(FusedSemanticHead):
    """A head of the surroundings with residual blocks."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(FusedSemanticHead.Entries):
        conv_to_res: bool = True

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        if entries.conv_to_res:
            self.convs = residual_blocks(entries)


class GlobalContextHead(nn.Module):
    """One vector for the whole image, from the coarsest level."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_convs: int = 4
        in_channels: int = 256
        conv_out_channels: int = 256
        num_classes: int = 80
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None
        conv_to_res: bool = False

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        if entries.conv_to_res:
            self.convs = residual_blocks(entries)
        else:
            layer: dict[str, Any] = {"conv_cfg": entries.conv_cfg, "norm_cfg": entries.norm_cfg}
            self.convs = tower(entries.in_channels, entries.conv_out_channels, entries.num_convs, **layer)
        self.fc = nn.Linear(entries.conv_out_channels, entries.num_classes)  # the image's classes; only for training

    def forward(self, level: Tensor) -> Tensor:
        """Return [N, C, 1, 1] for the coarsest level [N, C, h, w]."""
        return self.convs(level).mean((2, 3), keepdim=True)


class FeatureRelayHead(nn.Module):
    """The features of a box head for a region, as a map for the mask head."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: int = 1024
        out_conv_channels: int = 256
        roi_feat_size: int = 7
        scale_factor: int = 2

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.shape = entries.out_conv_channels, entries.roi_feat_size, entries.roi_feat_size
        self.factor = entries.scale_factor
        self.fc = nn.Linear(entries.in_channels, entries.out_conv_channels * entries.roi_feat_size**2)

    def forward(self, rows: Tensor) -> Tensor:
        """Return [R, C, h, w] for rows [R, D]."""
        small = torch.unflatten(self.fc(rows), 1, self.shape)
        return functional.interpolate(small, scale_factor=self.factor, mode="bilinear", align_corners=True)


class SCNetRoIHead(BoxCascade):
    """A cascade of box heads, and one mask head on the boxes of the last.

    What its methods take as `features` has, after the levels, the map of the surroundings and the vector of the image.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(BoxCascade.Entries):
        bbox_head: Sequence[BoxHead] = part("bbox_head", types={"SCNetBBoxHead": BoxHead}, count="num_stages")
        mask_roi_extractor: RoIExtractor = part("RoI extractor")
        mask_head: SCNetMaskHead = part("mask_head", types={"SCNetMaskHead": SCNetMaskHead})
        semantic_roi_extractor: RoIExtractor = part("RoI extractor")
        semantic_head: SCNetSemanticHead = part("semantic_head", types={"SCNetSemanticHead": SCNetSemanticHead})
        glbctx_head: GlobalContextHead = part("glbctx_head", types={"GlobalContextHead": GlobalContextHead})
        feat_relay_head: FeatureRelayHead = part("feat_relay_head", types={"FeatureRelayHead": FeatureRelayHead})

        ignored: ClassVar = BoxCascade.Entries.ignored

    def __init__(self, entries: Entries, test_cfg: RCNNEntries) -> None:
        super().__init__(entries, test_cfg)
        self.with_mask = True
        self.mask_roi_extractor, self.mask_head = entries.mask_roi_extractor, entries.mask_head
        self.semantic_roi_extractor, self.semantic_head = entries.semantic_roi_extractor, entries.semantic_head
        self.glbctx_head, self.feat_relay_head = entries.glbctx_head, entries.feat_relay_head

    def prepare(self, features: list[Tensor]) -> list[Tensor]:
        return [*features, self.semantic_head(features), self.glbctx_head(features[-1])]

    def pool(self, stage: int, features: list[Tensor], rois: Tensor) -> Tensor:
        return self._fused(super().pool(stage, features[:-2], rois), features, rois)

    def probabilities(self, features: list[Tensor], rois: Tensor, classes: Tensor) -> Tensor:
        last: Any = self.bbox_head[-1]
        relayed = self.feat_relay_head(last.shared(self.pool(-1, features, rois)))
        pooled = self._fused(self.mask_roi_extractor(features[:-2], rois), features, rois)
        return self.mask_head(pooled + relayed, classes).sigmoid()

    def _fused(self, pooled: Tensor, features: list[Tensor], rois: Tensor) -> Tensor:
        """Return features of regions [R, C, h, w] with those of the surroundings and of the whole image added."""
        *_, around, context = features
        pooled = with_surroundings(pooled, self.semantic_roi_extractor([around], rois))
        return pooled + context.index_select(0, rois[:, 0].long())


@PARTS.register("detector", "SCNetRoIHead")
class SCNet(TwoStageDetector):
    """SCNet."""

    family = family_with_masks = "SCNet"
    model_types = ("SCNet",)
    head = SCNetRoIHead
