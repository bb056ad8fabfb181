"""MobileNetV2.

Source: M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018; MMDetection's
``MobileNetV2``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, training_only
from mmort.detect.parts.layers import ConvModule, LayerEntries, multiple_of_8

# Expansion inside the blocks, channels, number of blocks, stride of the first.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class InvertedResidual(nn.Module):
    """A depthwise convolution between two 1x1 (one if `expansion` is 1), with a shortcut where shapes allow it."""

    def __init__(self, in_channels: int, out_channels: int, expansion: int, stride: int, **layer: Any) -> None:
        super().__init__()
        inner = in_channels * expansion
        self.expand_conv = ConvModule(in_channels, inner, 1, **layer) if expansion != 1 else None
        self.depthwise_conv = ConvModule(inner, inner, 3, stride=stride, padding=1, groups=inner, **layer)
        self.linear_conv = ConvModule(inner, out_channels, 1, **{**layer, "act_cfg": None})
        self.shortcut = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        inner = x if self.expand_conv is None else self.expand_conv(x)
        out: Tensor = self.linear_conv(self.depthwise_conv(inner))
        return x + out if self.shortcut else out


@PARTS.register("backbone", "MobileNetV2")
class MobileNetV2(nn.Module):
    """MobileNetV2."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        widen_factor: float = 1.0
        out_indices: Sequence[int] = (1, 2, 4, 7)  # stages, counted from 0; 7 is the convolution after the last
        norm_cfg: Config | None = default({"type": "BN"})
        act_cfg: Config | None = default({"type": "ReLU6"})

        ignored: ClassVar = training_only("frozen_stages", "norm_eval", "with_cp")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.out_indices = tuple(entries.out_indices)
        widen_factor = entries.widen_factor
        layer = entries.layer
        channels = multiple_of_8(32 * widen_factor)
        self.conv1 = ConvModule(3, channels, 3, stride=2, padding=1, **layer)
        for stage, (expansion, width, count, stride) in enumerate(_STAGES):
            width = multiple_of_8(width * widen_factor)
            blocks = []
            for block_stride in (stride,) + (1,) * (count - 1):
                blocks.append(InvertedResidual(channels, width, expansion, block_stride, **layer))
                channels = width
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.conv2 = ConvModule(channels, int(1280 * max(widen_factor, 1)), 1, **layer)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.conv1(x)  # [N, C, H/2, W/2]
        outputs = []
        for stage in range(max(self.out_indices) + 1):
            x = self.conv2(x) if stage == len(_STAGES) else getattr(self, f"layer{stage + 1}")(x)
            if stage in self.out_indices:
                outputs.append(x)
        return tuple(outputs)
