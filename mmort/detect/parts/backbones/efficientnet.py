"""EfficientNet: inverted residuals with attention over channels, wider and deeper by one number.

Source: M. Tan and Q. Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019;
MMDetection's ``EfficientNet``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, training_only
from mmort.detect.parts.layers import ConvModule, LayerEntries, multiple_of_8

# Kernel size, channels, stride of the first block, expansion inside the blocks, number of blocks.
_RUNS = (
    (3, 16, 1, 1, 1),
    (3, 24, 2, 6, 2),
    (5, 40, 2, 6, 2),
    (3, 80, 2, 6, 3),
    (5, 112, 1, 6, 3),
    (5, 192, 2, 6, 4),
    (3, 320, 1, 6, 1),
)
_SCALES = {  # of the channels and of the numbers of blocks
    "b0": (1.0, 1.0),
    "b1": (1.0, 1.1),
    "b2": (1.1, 1.2),
    "b3": (1.2, 1.4),
    "b4": (1.4, 1.8),
    "b5": (1.6, 2.2),
    "b6": (1.8, 2.6),
    "b7": (2.0, 3.1),
    "b8": (2.2, 3.6),
}


class ChannelWeights(nn.Module):
    """Two 1x1 convolutions of the mean of the map, whose result weights the channels."""

    def __init__(self, channels: int, inner: int, conv_act: Config | None) -> None:
        super().__init__()
        self.conv1 = ConvModule(channels, inner, 1, act_cfg=conv_act)
        self.conv2 = ConvModule(inner, channels, 1, act_cfg={"type": "Sigmoid"})

    def forward(self, x: Tensor) -> Tensor:
        return x * self.conv2(self.conv1(x.mean((2, 3), keepdim=True)))


class EfficientBlock(nn.Module):
    """A depthwise convolution between two 1x1, with weighted channels, and a shortcut where shapes allow it."""

    def __init__(
        self, in_channels: int, channels: int, kernel_size: int, stride: int, expansion: int, entries: LayerEntries
    ) -> None:
        super().__init__()
        inner, layer = in_channels * expansion, entries.layer
        self.expand_conv = ConvModule(in_channels, inner, 1, **layer) if expansion != 1 else nn.Identity()
        self.depthwise_conv = ConvModule(
            inner, inner, kernel_size, stride=stride, padding=kernel_size // 2, groups=inner, **layer
        )
        self.se = ChannelWeights(inner, in_channels // 4, entries.act_cfg)
        self.linear_conv = ConvModule(inner, channels, 1, **{**layer, "act_cfg": None})
        self.shortcut = stride == 1 and in_channels == channels

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear_conv(self.se(self.depthwise_conv(self.expand_conv(x))))
        return x + out if self.shortcut else out


@PARTS.register("backbone", "EfficientNet")
class EfficientNet(nn.Module):
    """EfficientNet B0 to B8."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        arch: str = "b0"
        out_indices: Sequence[int] = (6,)  # the stem is 0, the convolution after the last blocks 6
        conv_cfg: Config | None = default({"type": "Conv2dAdaptivePadding"})
        norm_cfg: Config | None = default({"type": "BN", "eps": 1e-3})
        act_cfg: Config | None = default({"type": "Swish"})

        ignored: ClassVar = training_only("drop_path_rate", "frozen_stages", "norm_eval", "with_cp")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        if entries.arch not in _SCALES:
            raise ValueError(f"detect.build: backbone.arch must be one of {', '.join(_SCALES)} got {entries.arch!r}")
        wider, deeper = _SCALES[entries.arch]
        layer = entries.layer
        self.out_indices = tuple(entries.out_indices)
        last = max(self.out_indices)
        channels = multiple_of_8(32 * wider)
        stages: list[list[nn.Module]] = [[]]  # a run with a stride begins another
        for kernel, width, stride, expansion, count in _RUNS:
            if stride > 1:
                stages.append([])
            width = multiple_of_8(width * wider)
            for _ in range(math.ceil(deeper * count)):
                if len(stages) <= last:
                    stages[-1].append(EfficientBlock(channels, width, kernel, stride, expansion, entries))
                channels, stride = width, 1
        self.layers = nn.ModuleList([ConvModule(3, multiple_of_8(32 * wider), 3, stride=2, padding=1, **layer)])
        self.layers.extend(nn.Sequential(*blocks) for blocks in stages[:last])
        if len(self.layers) <= last:
            self.layers.append(ConvModule(channels, multiple_of_8(1280 * wider), 1, **layer))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        outputs = []
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index in self.out_indices:
                outputs.append(x)
        return tuple(outputs)
