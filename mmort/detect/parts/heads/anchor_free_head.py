"""Dense heads with a tower for the classes and a tower for the boxes, over locations instead of anchors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from mmort.configs.schema import Config
from mmort.detect.entries import default, part, training_only
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.heads.tower_entries import TowerEntries
from mmort.detect.parts.layers import Scale, tower_pair
from mmort.detect.parts.priors import Points
from mmort.detect.parts.single_stage import DenseHead


class AnchorFreeHead(DenseHead):
    """Base of heads whose boxes are distances, with a learned factor for each level."""

    class_layers: ClassVar = {"conv_cls": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerEntries):
        """The entries of ``bbox_head``."""

        strides: Sequence[Any] = (4, 8, 16, 32, 64)
        dcn_on_last_conv: bool = False
        conv_bias: bool | str = "auto"
        norm_cfg: Config | None = default({"type": "GN", "num_groups": 32})
        bbox_coder: BoxCoder = part("box coder", default={"type": "DistancePointBBoxCoder"})

        ignored: ClassVar = training_only("regress_ranges")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes = entries.num_classes
        self.strides = list(entries.strides)
        self.priors, self.coder = Points(self.strides), entries.bbox_coder
        self.cls_convs, self.reg_convs = self.build_towers(entries)
        self.conv_cls: nn.Module = nn.Conv2d(entries.feat_channels, self.classes, 3, padding=1)
        self.conv_reg = nn.Conv2d(entries.feat_channels, 4, 3, padding=1)
        self.scales = nn.ModuleList(Scale() for _ in self.strides)

    def build_towers(self, entries: Entries) -> tuple[nn.Sequential, nn.Sequential]:
        """Return the towers for the classes and for the boxes."""
        return tower_pair(
            entries.in_channels,
            entries.feat_channels,
            entries.stacked_convs,
            conv_cfg=entries.conv_cfg,
            last_conv_cfg={"type": "DCNv2"} if entries.dcn_on_last_conv else None,
            norm_cfg=entries.norm_cfg,
            bias=entries.conv_bias,
        )
