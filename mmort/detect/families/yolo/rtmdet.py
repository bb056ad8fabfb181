"""RTMDet of MMYOLO: MMDetection's layers, with MMYOLO's selection.

Source: C. Lyu et al., "RTMDet: An Empirical Study of Designing Real-Time Object Detectors", 2022; MMYOLO's configs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, part
from mmort.detect.parts.layers import shared_towers
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.yolo.detector import MODEL, HeadModule, YOLODetector
from mmort.detect.parts.yolo.distances import DistanceHead, DistanceModule, points
from mmort.detect.parts.yolo.scaling import SILU, RoundedDown


class RTMDetSepBNHeadModule(DistanceModule):
    """A tower for the classes and a tower for the boxes."""

    class_layers: ClassVar = {"rtm_cls": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(RoundedDown, DistanceModule.Entries):
        in_channels: int
        feat_channels: int = 256
        stacked_convs: int = 2
        share_conv: bool = True
        pred_kernel_size: int = 1
        norm_cfg: Config | None = default({"type": "BN"})
        act_cfg: Config | None = default(SILU)

    def __init__(self, entries: Any) -> None:
        super().__init__(entries)
        self.cls_convs, self.reg_convs = (self.build_towers(entries, entries.share_conv) for _ in range(2))
        self.rtm_cls, self.rtm_reg = (self.build_predictors(entries, numbers) for numbers in (self.classes, 4))

    def build_towers(self, entries: Any, shared: bool) -> nn.ModuleList:
        """Return a tower for each level, of which all may have the same convolutions."""
        inputs, channels = entries.channels(entries.in_channels), entries.channels(entries.feat_channels)
        layer = {"norm_cfg": entries.norm_cfg, "act_cfg": entries.act_cfg}
        return shared_towers(len(self.strides), inputs, channels, entries.stacked_convs, shared, **layer)

    def build_predictors(self, entries: Any, numbers: int) -> nn.ModuleList:
        """Return a convolution for each level that predicts `numbers`."""
        channels, size = entries.channels(entries.feat_channels), entries.pred_kernel_size
        return nn.ModuleList(nn.Conv2d(channels, numbers, size, padding=size // 2) for _ in self.strides)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return logits of classes [N, C, h, w], and what `regressed` returns, each by level."""
        for_classes = [convs(x) for convs, x in zip(self.cls_convs, features, strict=True)]
        logits = [predict(x) for predict, x in zip(self.rtm_cls, for_classes, strict=True)]
        return (*logits, *self.regressed(features))

    def regressed(self, features: Sequence[Tensor]) -> list[Tensor]:
        """Return distances in strides [N, 4, h, w], by level, and what else is regressed."""
        for_boxes = [convs(x) for convs, x in zip(self.reg_convs, features, strict=True)]
        return [predict(x) for predict, x in zip(self.rtm_reg, for_boxes, strict=True)]


class RTMDetHead(DistanceHead):
    """Distances to the sides from the corner of each location."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(DistanceHead.Entries):
        head_module: HeadModule = part("head_module", types={"RTMDetSepBNHeadModule": RTMDetSepBNHeadModule})
        prior_generator: Priors = part("prior generator", default=points(0))


@PARTS.register("detector", "RTMDetHead", model=MODEL)
class RTMDetOfMMYOLO(YOLODetector):
    """RTMDet of MMYOLO."""

    family = "RTMDet"
    head = RTMDetHead
