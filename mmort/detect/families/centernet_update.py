"""CenterNet as MMDetection 3 retrains it: a dense head without anchors, and no centerness as FCOS has it.

Source: X. Zhou et al., "Probabilistic two-stage detection", 2021, its first stage; MMDetection's
``CenterNetUpdateHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.detect.entries import Schema, default, part
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.layers import Scale, tower_pair
from mmort.detect.parts.priors import Points
from mmort.detect.parts.single_stage import DenseDetector, DenseHead
from mmort.detect.versions import Config


class CenterNetUpdateHead(DenseHead):
    """A tower for the classes, which are heatmaps, and a tower for the boxes."""

    class_layers: ClassVar = {"conv_cls": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``bbox_head``."""

        num_classes: int
        in_channels: int
        feat_channels: int = 256
        stacked_convs: int = 4
        strides: Sequence[Any] = (4, 8, 16, 32, 64)
        dcn_on_last_conv: bool = False
        conv_bias: bool | str = "auto"
        conv_cfg: Config | None = None
        norm_cfg: Config | None = default({"type": "GN", "num_groups": 32})
        bbox_coder: BoxCoder = part("box coder", default={"type": "DistancePointBBoxCoder"})

        ignored: ClassVar = {
            "regress_ranges": "training only",
            "hm_min_radius": "training only",
            "hm_min_overlap": "training only",
            "more_pos_thresh": "training only",
            "more_pos_topk": "training only",
            "soft_weight_on_reg": "training only",
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes, channels = entries.num_classes, entries.feat_channels
        self.strides = list(entries.strides)
        self.priors, self.coder = Points(self.strides), entries.bbox_coder
        self.cls_convs, self.reg_convs = tower_pair(
            entries.in_channels,
            channels,
            entries.stacked_convs,
            conv_cfg=entries.conv_cfg,
            last_conv_cfg={"type": "DCNv2"} if entries.dcn_on_last_conv else None,
            norm_cfg=entries.norm_cfg,
            bias=entries.conv_bias,
        )
        self.conv_cls = nn.Conv2d(channels, self.classes, 3, padding=1)
        self.conv_reg = nn.Conv2d(channels, 4, 3, padding=1)
        self.scales = nn.ModuleList(Scale() for _ in self.strides)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits = [self.conv_cls(self.cls_convs(x)) for x in features]  # [N, classes, h, w]
        distances = [
            scale(self.conv_reg(self.reg_convs(x))).relu() * stride  # [N, 4, h, w]
            for x, scale, stride in zip(features, self.scales, self.strides, strict=True)
        ]
        return (*logits, *distances)


class CenterNetUpdate(DenseDetector):
    """CenterNet with a feature pyramid."""

    family = "CenterNet-update"
    head = CenterNetUpdateHead
