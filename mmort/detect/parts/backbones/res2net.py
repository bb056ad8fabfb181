"""Res2Net: bottlenecks whose middle is a cascade of smaller convolutions.

Source: S. Gao et al., "Res2Net: A New Multi-scale Backbone Architecture", TPAMI 2021; MMDetection's ``Res2Net``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS
from mmort.detect.parts.backbones.resnet import (
    BLOCK_COUNTS,
    BlockSettings,
    Bottleneck,
    ResNetBase,
    ResNetEntries,
    StagePlan,
    block_settings,
    known_depth,
    stage_widths,
)
from mmort.detect.parts.layers import convolution, normalization


@dataclass(frozen=True, kw_only=True)
class Res2NetSettings(BlockSettings):
    """`BlockSettings`, and into how many parts the channels inside a block are split."""

    scales: int = 4


class Bottle2neck(Bottleneck):
    """A bottleneck that splits its channels; each part is convolved after the result of the one before is added."""

    def add_middle(self, width: int, stride: int, settings: BlockSettings) -> None:
        """Add a convolution for all parts but the last."""
        assert isinstance(settings, Res2NetSettings)
        self.scales, self.stride = settings.scales, stride
        part, dilation = width // self.scales, settings.dilation
        kind = settings.conv_cfg if settings.dcn is None else settings.dcn
        layer: dict[str, Any] = {"stride": stride, "padding": dilation, "dilation": dilation, "bias": False}
        parts = range(self.scales - 1)
        self.convs = nn.ModuleList(convolution(kind, part, part, 3, **layer) for _ in parts)
        self.bns = nn.ModuleList(normalization(settings.norm_cfg, part)[1] for _ in parts)
        self.pool = nn.AvgPool2d(3, stride, padding=1)

    def middle(self, x: Tensor) -> Tensor:
        *parts, last = x.chunk(self.scales, 1)
        # Only the first block of a stage changes its input, and there the parts do not depend on each other.
        first = self.downsample is not None
        outputs: list[Tensor] = []
        for part, conv, norm in zip(parts, self.convs, self.bns, strict=True):
            outputs.append(torch.relu(norm(conv(part if first or not outputs else part + outputs[-1]))))
        return torch.cat([*outputs, last if self.stride == 1 else self.pool(last)], 1)


@PARTS.register("backbone", "Res2Net")
class Res2Net(ResNetBase):
    """Res2Net with a deep stem and pooling in its shortcuts, which MMDetection's always has."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(ResNetEntries):
        depth: int
        scales: int = 4
        base_width: int = 26

    def __init__(self, entries: Entries) -> None:
        entries = dataclasses.replace(entries, style="pytorch", deep_stem=True, avg_down=True)
        counts = BLOCK_COUNTS[known_depth(entries.depth, BLOCK_COUNTS)]
        plans = []
        for stage, channels in enumerate(stage_widths(entries)):
            part = int(channels * (entries.base_width / entries.base_channels))
            common = vars(block_settings(entries, stage, part * entries.scales))
            plans.append(
                StagePlan(Bottle2neck, counts[stage], channels, Res2NetSettings(**common, scales=entries.scales))
            )
        super().__init__(entries, plans)
