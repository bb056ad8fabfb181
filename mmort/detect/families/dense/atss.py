"""ATSS: RetinaNet with one anchor in a location, and a centerness as FCOS has it.

DDOD's towers start with a deformable convolution, and it predicts the overlap, not the centerness.  Sources: S. Zhang
et al., "Bridging the Gap Between Anchor-based and Anchor-free Detection via Adaptive Training Sample Selection", CVPR
2020; Z. Chen et al., "Disentangle Your Dense Object Detector", ACM MM 2021; MMDetection's ``ATSSHead``, ``DDODHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mmort.detect.entries import PARTS
from mmort.detect.parts.heads.towers import TowerHead, tower_pair
from mmort.detect.parts.layers import Scale
from mmort.detect.parts.single_stage import DenseDetector


class ATSSHead(TowerHead):
    """A tower for the classes, and one for the boxes and the centerness."""

    class_layers: ClassVar = {"atss_cls": 0}
    raw_kinds: ClassVar = ("cls_score", "bbox_pred", "centerness")

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerHead.Entries):
        pred_kernel_size: int = 3

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.cls_convs, self.reg_convs = tower_pair(entries)
        anchors, channels = self.priors.num_base_priors[0], entries.feat_channels
        size, padding = entries.pred_kernel_size, entries.pred_kernel_size // 2
        self.atss_cls = nn.Conv2d(channels, anchors * self.class_channels, size, padding=padding)
        self.atss_reg = nn.Conv2d(channels, anchors * self.box_channels, size, padding=padding)
        self.atss_centerness = nn.Conv2d(channels, anchors, size, padding=padding)
        self.scales = nn.ModuleList(Scale() for _ in self.priors.strides)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        for_boxes = [self.reg_convs(x) for x in features]  # [N, C, h, w]
        logits = [self.atss_cls(self.cls_convs(x)) for x in features]  # [N, A * classes, h, w]
        deltas = [scale(self.atss_reg(x)) for scale, x in zip(self.scales, for_boxes, strict=True)]  # [N, A * 4, h, w]
        return (*logits, *deltas, *(self.atss_centerness(x) for x in for_boxes))


@PARTS.register("detector", "ATSSHead")
class ATSS(DenseDetector):
    """ATSS."""

    family = "ATSS"
    head = ATSSHead


class DDODHead(TowerHead):
    """A tower for the classes, and one for the boxes and their overlap with the object."""

    class_layers: ClassVar = {"atss_cls": 0}
    raw_kinds: ClassVar = ("cls_score", "bbox_pred", "iou_pred")

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerHead.Entries):
        use_dcn: bool = True

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        first = {"type": "DCN"} if entries.use_dcn else None
        self.cls_convs, self.reg_convs = tower_pair(entries, first_conv_cfg=first)
        anchors, channels = self.priors.num_base_priors[0], entries.feat_channels
        self.atss_cls = nn.Conv2d(channels, anchors * self.class_channels, 3, padding=1)
        self.atss_reg = nn.Conv2d(channels, anchors * 4, 3, padding=1)
        self.atss_iou = nn.Conv2d(channels, anchors, 3, padding=1)
        self.scales = nn.ModuleList(Scale() for _ in self.priors.strides)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        for_boxes = [self.reg_convs(x) for x in features]  # [N, C, h, w]
        logits = [self.atss_cls(self.cls_convs(x)) for x in features]  # [N, A * classes, h, w]
        deltas = [scale(self.atss_reg(x)) for scale, x in zip(self.scales, for_boxes, strict=True)]  # [N, A * 4, h, w]
        return (*logits, *deltas, *(self.atss_iou(x) for x in for_boxes))


@PARTS.register("detector", "DDODHead")
class DDOD(DenseDetector):
    """DDOD."""

    family = "DDOD"
    head = DDODHead
