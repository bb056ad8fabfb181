"""RTMDet: convolutions shared by the levels, with normalizations of each level's own, and distances to the sides.

Source: C. Lyu et al., "RTMDet: An Empirical Study of Designing Real-Time Object Detectors", 2022; MMDetection's
``RTMDetSepBNHead``.  Box AP of MMDetection's RTMDet-s on COCO val2017: 44.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, nested, only, part
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, DenseLoss
from mmort.detect.parts.layers import LayerEntries, shared_towers
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.single_stage import DenseDetector, DenseHead


class RTMDetSepBNHead(DenseHead):
    """A tower for the classes and a tower for the boxes."""

    class_layers: ClassVar = {"rtm_cls": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        num_classes: int
        in_channels: int
        feat_channels: int = 256
        stacked_convs: int = 4
        share_conv: bool = True
        pred_kernel_size: int = 1
        with_objectness: bool = only(False, required=True)  # MMDetection's default is True
        exp_on_reg: bool = False
        anchor_generator: Priors = part("prior generator")
        bbox_coder: BoxCoder = part("box coder", default={"type": "DistancePointBBoxCoder"})
        loss_cls: DenseLoss = nested(DenseLoss, default=WITH_SIGMOID)
        norm_cfg: Config | None = default({"type": "BN", "momentum": 0.03, "eps": 0.001})
        act_cfg: Config | None = default({"type": "SiLU"})

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes, self.activation = entries.num_classes, entries.loss_cls.activation
        self.priors, self.coder, self.exp_on_reg = entries.anchor_generator, entries.bbox_coder, entries.exp_on_reg
        self.cls_convs, self.reg_convs = self.build_towers(entries)
        self.rtm_cls = self.build_predictors(entries, self.class_channels)
        self.rtm_reg = self.build_predictors(entries, 4)

    def build_towers(self, entries: Entries) -> tuple[nn.ModuleList, nn.ModuleList]:
        """Return the towers for the classes and for the boxes, by level."""
        levels, shared = len(self.priors.strides), entries.share_conv
        return level_towers(entries, levels, shared), level_towers(entries, levels, shared)

    def build_predictors(self, entries: Entries, channels: int) -> nn.ModuleList:
        """Return a convolution for each level that predicts `channels` numbers."""
        size = entries.pred_kernel_size
        return nn.ModuleList(
            nn.Conv2d(entries.feat_channels, channels, size, padding=size // 2) for _ in self.priors.strides
        )

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        for_classes = [convs(x) for convs, x in zip(self.cls_convs, features, strict=True)]  # [N, C, h, w]
        for_boxes = for_classes
        if self.reg_convs is not self.cls_convs:
            for_boxes = [convs(x) for convs, x in zip(self.reg_convs, features, strict=True)]
        logits = [predict(x) for predict, x in zip(self.rtm_cls, for_classes, strict=True)]  # [N, classes, h, w]
        return (*logits, *(self.regressed(level, x) for level, x in enumerate(for_boxes)))

    def regressed(self, level: int, for_boxes: Tensor) -> Tensor:
        """Return the numbers of each box, [N, box_channels, h, w], of the features [N, C, h, w] for boxes."""
        return self.distances(self.rtm_reg[level](for_boxes)) * self.priors.strides[level][0]

    def distances(self, raw: Tensor) -> Tensor:
        """Return distances to the sides, in strides; without `exp_on_reg` they may be negative."""
        return raw.exp() if self.exp_on_reg else raw


def level_towers(entries: RTMDetSepBNHead.Entries, levels: int, shared: bool) -> nn.ModuleList:
    """Build a tower for each level."""
    layer = entries.layer
    stacked = entries.in_channels, entries.feat_channels, entries.stacked_convs
    return shared_towers(levels, *stacked, shared=shared, **layer)


@PARTS.register("detector", "RTMDetSepBNHead")
class RTMDet(DenseDetector):
    """RTMDet."""

    family = "RTMDet"
    head = RTMDetSepBNHead
