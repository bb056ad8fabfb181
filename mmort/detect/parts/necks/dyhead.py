"""DyHead: three kinds of attention in turn, over levels, locations and channels.

Source: X. Dai et al., "Dynamic Head: Unifying Object Detection Heads with Attentions", CVPR 2021; MMDetection's
``DyHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, training_only
from mmort.detect.parts.layers import ConvModule
from mmort.torch import ModulatedDeformConv2d

_TAPS = 9  # of a 3x3 convolution


class DynamicConv(nn.Module):
    """A modulated deformable convolution, whose offsets come from elsewhere, and a normalization."""

    def __init__(self, in_channels: int, channels: int, stride: int = 1, *, bias: bool = False) -> None:
        super().__init__()
        self.conv = ModulatedDeformConv2d(in_channels, channels, 3, stride=stride, padding=1, bias=bias)
        self.norm = nn.GroupNorm(16, channels)

    def forward(self, x: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
        return self.norm(self.conv(x, offset, mask))


class DynamicReLU(nn.Module):
    """The larger of two linear functions of each channel, which the mean of the map decides."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = ConvModule(channels, channels // 4, 1)
        self.conv2 = ConvModule(channels // 4, channels * 4, 1, act_cfg=None)

    def forward(self, x: Tensor) -> Tensor:
        coefficients = F.hardsigmoid(self.of_means(x.mean((2, 3), keepdim=True))) - 0.5
        first, first_shift, second, second_shift = coefficients.chunk(4, 1)
        return torch.maximum(x * (first * 2 + 1) + first_shift, x * (second * 2) + second_shift)

    def of_means(self, means: Tensor) -> Tensor:
        """Return the inputs of the coefficients [N, 4*C, 1, 1], from the means of maps [N, C, 1, 1]."""
        return self.conv2(self.conv1(means))


class DyHeadBlock(nn.Module):
    """One round of the three kinds of attention."""

    def __init__(self, in_channels: int, channels: int, *, bias: bool = False) -> None:
        super().__init__()
        convs = (DynamicConv(in_channels, channels, stride, bias=bias) for stride in (1, 1, 2))
        self.spatial_conv_high, self.spatial_conv_mid, self.spatial_conv_low = convs
        self.spatial_conv_offset = nn.Conv2d(in_channels, 3 * _TAPS, 3, padding=1)
        self.scale_attn_module = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 1, 1), nn.ReLU(), nn.Hardsigmoid()
        )
        self.task_attn_module = DynamicReLU(channels)

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        outputs = []
        for level, x in enumerate(maps):
            predicted = self.spatial_conv_offset(x)
            offset, mask = predicted[:, : 2 * _TAPS], predicted[:, 2 * _TAPS :].sigmoid()
            neighbours = [self.spatial_conv_mid(x, offset, mask)]
            if level > 0:
                neighbours.append(self.spatial_conv_low(maps[level - 1], offset, mask))
            if level < len(maps) - 1:
                coarser = maps[level + 1]
                size = coarser.shape[2:]
                coarser = self.spatial_conv_high(coarser, _reread(offset, size), _reread(mask, size))
                neighbours.append(F.interpolate(coarser, size=x.shape[2:], mode="bilinear", align_corners=True))
            weighted = [neighbour * self.scale_attn_module(neighbour) for neighbour in neighbours]
            outputs.append(self.task_attn_module(sum(weighted[1:], weighted[0]) / len(weighted)))
        return outputs


def _reread(maps: Tensor, size: Sequence[int]) -> Tensor:
    """Return maps [N, C, h, w] of a smaller size, made of the first numbers of each image.

    MMCV's kernel reads the offsets of a finer level by the size of the coarser one; weights are trained with that.
    """
    count = maps.shape[1] * size[0] * size[1]
    return maps.flatten(1)[:, :count].reshape(maps.shape[0], maps.shape[1], size[0], size[1])


@PARTS.register("neck", "DyHead")
class DyHead(nn.Module):
    """Rounds of attention, after another neck."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: int
        out_channels: int
        num_blocks: int = 6

        ignored: ClassVar = training_only("zero_init_offset")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        widths = [entries.in_channels, *[entries.out_channels] * entries.num_blocks]
        self.dyhead_blocks = nn.Sequential(*(DyHeadBlock(before, after) for before, after in pairwise(widths)))

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(self.dyhead_blocks(inputs))
