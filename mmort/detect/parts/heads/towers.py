"""Dense heads with a tower of convolutions for the classes and one for the boxes, over anchors or locations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from mmort.configs.schema import Config
from mmort.detect.entries import Schema, default, nested, part, training_only
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, DenseLoss
from mmort.detect.parts.layers import Scale, tower
from mmort.detect.parts.priors import Points, Priors
from mmort.detect.parts.single_stage import DenseHead


@dataclass(frozen=True, kw_only=True)
class TowerEntries(Schema):
    """The entries of ``bbox_head`` that say what the towers are."""

    num_classes: int
    in_channels: int
    feat_channels: int = 256
    stacked_convs: int = 4
    conv_cfg: Config | None = None
    norm_cfg: Config | None = None


def tower_pair(entries: TowerEntries, **layer: Any) -> tuple[nn.Sequential, nn.Sequential]:
    """Build two towers alike, one for the classes and one for the boxes; `layer` are more arguments of `tower`."""
    layer = {"conv_cfg": entries.conv_cfg, "norm_cfg": entries.norm_cfg, **layer}
    stacked = entries.in_channels, entries.feat_channels, entries.stacked_convs
    return tower(*stacked, **layer), tower(*stacked, **layer)


class TowerHead(DenseHead):
    """Base of heads with two towers over anchors."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerEntries):
        norm_cfg: Config | None = default({"type": "GN", "num_groups": 32})
        anchor_generator: Priors = part("prior generator")
        bbox_coder: BoxCoder = part("box coder", default={"type": "DeltaXYWHBBoxCoder"})
        loss_cls: DenseLoss = nested(DenseLoss, default=WITH_SIGMOID)

        ignored: ClassVar = training_only("reg_decoded_bbox")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes, self.activation = entries.num_classes, entries.loss_cls.activation
        self.priors, self.coder = entries.anchor_generator, entries.bbox_coder


class AnchorFreeHead(DenseHead):
    """Base of heads with two towers whose boxes are distances from locations, with a learned factor for each level."""

    class_layers: ClassVar = {"conv_cls": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerEntries):
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
        last = {"type": "DCNv2"} if entries.dcn_on_last_conv else None
        return tower_pair(entries, last_conv_cfg=last, bias=entries.conv_bias)
