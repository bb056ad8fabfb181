"""The neck of HRNet: all branches joined at the finest resolution, then pooled to every level.

Source: K. Sun et al., "High-Resolution Representations for Labeling Pixels and Regions", 2019; MMDetection's ``HRFPN``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, require, training_only
from mmort.detect.parts.layers import ConvModule


@PARTS.register("neck", "HRFPN")
class HRFPN(nn.Module):
    """HRNet's pyramid."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: Sequence[int]
        out_channels: int
        num_outs: int = 5
        pooling_type: str = "AVG"
        conv_cfg: Config | None = None
        stride: int = 1

        ignored: ClassVar = {"norm_cfg": "MMDetection does not read it either", **training_only("with_cp")}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        pooling = require("neck.pooling_type", entries.pooling_type, "AVG", "MAX")
        self.pool = F.max_pool2d if pooling == "MAX" else F.avg_pool2d
        channels, conv_cfg = entries.out_channels, entries.conv_cfg
        self.reduction_conv = ConvModule(sum(entries.in_channels), channels, 1, conv_cfg=conv_cfg, act_cfg=None)
        self.fpn_convs = nn.ModuleList(
            ConvModule(channels, channels, 3, stride=entries.stride, padding=1, conv_cfg=conv_cfg, act_cfg=None)
            for _ in range(entries.num_outs)
        )

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        size = inputs[0].shape[2:]
        resized = [F.interpolate(x, size=size, mode="bilinear", align_corners=False) for x in inputs[1:]]
        x = self.reduction_conv(torch.cat([inputs[0], *resized], 1))  # [N, C, H/4, W/4]
        pooled = [x, *(self.pool(x, 2**level) for level in range(1, len(self.fpn_convs)))]
        return tuple(conv(level) for conv, level in zip(self.fpn_convs, pooled, strict=True))
