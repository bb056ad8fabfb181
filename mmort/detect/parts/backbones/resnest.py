"""ResNeSt: bottlenecks whose 3x3 convolution weights its groups of channels by what the whole map shows.

Source: H. Zhang et al., "ResNeSt: Split-Attention Networks", CVPRW 2022; MMDetection's ``ResNeSt``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS
from mmort.detect.parts.backbones.resnet import (
    BLOCK_COUNTS,
    BlockSettings,
    Bottleneck,
    ResNetBase,
    ResNetV1d,
    StagePlan,
    add_norm,
    block_settings,
    group_width,
    known_depth,
    stage_widths,
)
from mmort.detect.parts.layers import convolution

_COUNTS = {**BLOCK_COUNTS, 200: (3, 24, 36, 3)}


@dataclass(frozen=True, kw_only=True)
class ResNeStSettings(BlockSettings):
    """`BlockSettings`, and those of the attention."""

    radix: int = 2
    reduction_factor: int = 4
    avg_down_stride: bool = True


class SplitAttention(nn.Module):
    """A convolution to `radix` times the channels, summed with weights that the whole map decides."""

    def __init__(self, channels: int, stride: int, settings: ResNeStSettings) -> None:
        super().__init__()
        radix, groups, dilation = settings.radix, settings.groups, settings.dilation
        self.radix, self.groups = radix, groups
        inner = max(channels * radix // settings.reduction_factor, 32)
        self.conv = convolution(
            settings.conv_cfg if settings.dcn is None else settings.dcn,
            channels,
            channels * radix,
            3,
            stride=stride,
            padding=dilation,
            dilation=dilation,
            groups=groups * radix,
            bias=False,
        )
        self.norm0_name = add_norm(self, settings.norm_cfg, channels * radix, 0)
        self.fc1 = nn.Conv2d(channels, inner, 1, groups=groups)
        self.norm1_name = add_norm(self, settings.norm_cfg, inner, 1)
        self.fc2 = nn.Conv2d(inner, channels * radix, 1, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(getattr(self, self.norm0_name)(self.conv(x)))
        splits = torch.unflatten(x, 1, (self.radix, -1))  # [N, radix, C, h, w]
        mean = splits.sum(1).mean((2, 3), keepdim=True)
        logits = self.fc2(torch.relu(getattr(self, self.norm1_name)(self.fc1(mean))))  # [N, radix * C, 1, 1]
        if self.radix == 1:
            return logits.sigmoid() * x
        weights = torch.unflatten(logits, 1, (self.groups, self.radix, -1)).softmax(2)
        weights = weights.transpose(1, 2).flatten(2, 3)  # [N, radix, C, 1, 1]
        return (weights * splits).sum(1)


class ResNeStBlock(Bottleneck):
    """A bottleneck with a `SplitAttention`; a pooling may take the stride."""

    def add_middle(self, width: int, stride: int, settings: BlockSettings) -> None:
        """Add the attention, and perhaps a pooling."""
        assert isinstance(settings, ResNeStSettings)
        pooled = settings.avg_down_stride and stride > 1
        self.conv2 = SplitAttention(width, 1 if pooled else stride, settings)
        self.avd_layer = nn.AvgPool2d(3, stride, padding=1) if pooled else nn.Identity()

    def middle(self, x: Tensor) -> Tensor:
        return self.avd_layer(self.conv2(x))


@PARTS.register("backbone", "ResNeSt")
class ResNeSt(ResNetBase):
    """ResNeSt."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(ResNetV1d.Entries):
        radix: int = 2
        reduction_factor: int = 4
        avg_down_stride: bool = True

    def __init__(self, entries: Entries) -> None:
        counts = _COUNTS[known_depth(entries.depth, _COUNTS)]
        plans = []
        for stage, channels in enumerate(stage_widths(entries)):
            common = vars(block_settings(entries, stage, group_width(entries, channels), entries.groups))
            settings = ResNeStSettings(
                **common,
                radix=entries.radix,
                reduction_factor=entries.reduction_factor,
                avg_down_stride=entries.avg_down_stride,
            )
            plans.append(StagePlan(ResNeStBlock, counts[stage], channels, settings))
        super().__init__(entries, plans)
