"""FoveaBox: no anchors; the logarithms of the distances to the sides, in units of the level's typical length.

Source: T. Kong et al., "FoveaBox: Beyond Anchor-Based Object Detection", 2020; MMDetection's ``FoveaHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, as_many_as, nested, training_only
from mmort.detect.parts.boxes import clip
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, SigmoidLoss
from mmort.detect.parts.heads.towers import TowerEntries
from mmort.detect.parts.layers import ConvModule, FeatureAdaption, tower
from mmort.detect.parts.priors import Points
from mmort.detect.parts.single_stage import DenseDetector, DenseHead


class FoveaHead(DenseHead):
    """A tower for the classes and a tower for the boxes; the first may be aligned with the boxes."""

    class_layers: ClassVar = {"conv_cls": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerEntries):
        strides: Sequence[Any] = (4, 8, 16, 32, 64)
        base_edge_list: Sequence[float] = as_many_as("strides", default=(16, 32, 64, 128, 256))
        with_deform: bool = False
        deform_groups: int = 4
        conv_bias: bool | str = "auto"
        loss_cls: SigmoidLoss = nested(SigmoidLoss, default=WITH_SIGMOID)

        ignored: ClassVar = training_only("scale_ranges", "sigma")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes = entries.num_classes
        self.priors, self.lengths = Points(entries.strides), list(entries.base_edge_list)
        channels, width = entries.feat_channels, entries.feat_channels * 4
        layer: dict[str, Any] = {"conv_cfg": entries.conv_cfg, "norm_cfg": entries.norm_cfg}
        stacked = entries.in_channels, channels, entries.stacked_convs
        self.reg_convs = tower(*stacked, bias=entries.conv_bias, **layer)
        self.with_deform = entries.with_deform
        if self.with_deform:
            self.feature_adaption = FeatureAdaption(4, channels, channels, entries.deform_groups)
            self.cls_convs = nn.Sequential(
                ConvModule(channels, width, 3, padding=1, **layer), ConvModule(width, width, 1, **layer)
            )
        else:
            self.cls_convs = tower(*stacked, bias=entries.conv_bias, **layer)
        self.conv_cls = nn.Conv2d(width if self.with_deform else channels, self.classes, 3, padding=1)
        self.conv_reg = nn.Conv2d(channels, 4, 3, padding=1)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        regressed = [self.conv_reg(self.reg_convs(x)) for x in features]  # [N, 4, h, w]
        aligned = list(features)
        if self.with_deform:
            aligned = [self.feature_adaption(x, logs.exp()) for x, logs in zip(features, regressed, strict=True)]
        return (*(self.conv_cls(self.cls_convs(x)) for x in aligned), *regressed)

    def for_coder(self, level: int, regressed: Tensor) -> Tensor:
        """Return the distances to the sides, [N, K, 4]."""
        return regressed.exp() * self.lengths[level]

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor) -> Tensor:
        """Return boxes whose last coordinates are those of the last pixel."""
        boxes = torch.cat([priors - regressed[..., :2], priors + regressed[..., 2:]], -1)
        return clip(boxes, limits - 1)


@PARTS.register("detector", "FoveaHead")
class FoveaBox(DenseDetector):
    """FoveaBox."""

    family = "FoveaBox"
    head = FoveaHead
