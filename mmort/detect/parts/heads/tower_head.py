"""Dense heads with a tower of convolutions for the classes, and one for the boxes, over anchors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from mmort.configs.schema import Config
from mmort.detect.entries import default, nested, part, training_only
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, DenseLoss
from mmort.detect.parts.heads.tower_entries import TowerEntries
from mmort.detect.parts.layers import tower_pair
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.single_stage import DenseHead


class TowerHead(DenseHead):
    """Base of heads with two towers."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerEntries):
        """The entries of ``bbox_head``."""

        norm_cfg: Config | None = default({"type": "GN", "num_groups": 32})
        anchor_generator: Priors = part("prior generator")
        bbox_coder: BoxCoder = part("box coder", default={"type": "DeltaXYWHBBoxCoder"})
        loss_cls: DenseLoss = nested(DenseLoss, default=WITH_SIGMOID)

        ignored: ClassVar = training_only("reg_decoded_bbox")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes, self.activation = entries.num_classes, entries.loss_cls.activation
        self.class_channels = self.classes + (self.activation == "softmax")
        self.priors, self.coder = entries.anchor_generator, entries.bbox_coder

    def build_towers(
        self, entries: Entries, first_conv_cfg: Config | None = None
    ) -> tuple[nn.Sequential, nn.Sequential]:
        """Return the towers for the classes and for the boxes, whose first convolution may be of another kind."""
        return tower_pair(
            entries.in_channels,
            entries.feat_channels,
            entries.stacked_convs,
            conv_cfg=entries.conv_cfg,
            first_conv_cfg=first_conv_cfg,
            norm_cfg=entries.norm_cfg,
        )
