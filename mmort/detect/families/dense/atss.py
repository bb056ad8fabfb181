"""ATSS: RetinaNet with one anchor in a location, and a centerness as FCOS has it.

Source: S. Zhang et al., "Bridging the Gap Between Anchor-based and Anchor-free Detection via Adaptive Training Sample
Selection", CVPR 2020; MMDetection's ``ATSSHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mmort.detect.entries import PARTS
from mmort.detect.parts.heads.tower_head import TowerHead
from mmort.detect.parts.layers import Scale
from mmort.detect.parts.single_stage import DenseDetector


class ATSSHead(TowerHead):
    """A tower for the classes, and one for the boxes and the centerness."""

    class_layers: ClassVar = {"atss_cls": 0}
    raw_kinds: ClassVar = ("cls_score", "bbox_pred", "centerness")

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerHead.Entries):
        """The entries of ``bbox_head``."""

        pred_kernel_size: int = 3

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.cls_convs, self.reg_convs = self.build_towers(entries)
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
