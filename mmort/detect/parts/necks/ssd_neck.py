"""SSD's neck: further levels, each computed from the one before.

Source: W. Liu et al., "SSD: Single Shot MultiBox Detector", ECCV 2016; MMDetection's ``SSDNeck``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS
from mmort.detect.parts.layers import ConvModule, DepthwiseSeparableConvModule, LayerEntries


class L2Norm(nn.Module):
    """Normalize the channels of every location to length 1, then weight them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        norm = x.square().sum(1, keepdim=True).sqrt() + 1e-10
        return self.weight[:, None, None] * x / norm


@PARTS.register("neck", "SSDNeck")
class SSDNeck(nn.Module):
    """SSD's neck."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        in_channels: Sequence[int]
        out_channels: Sequence[int]
        level_strides: Sequence[int]
        level_paddings: Sequence[int]
        l2_norm_scale: float | None = 20.0
        last_kernel_size: int = 3
        use_depthwise: bool = False

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        in_channels, out_channels = entries.in_channels, entries.out_channels
        strides, paddings = entries.level_strides, entries.level_paddings
        extra = out_channels[len(in_channels) :]
        if not len(extra) == len(strides) == len(paddings):
            raise ValueError(
                "detect.build: neck.level_strides and neck.level_paddings must have an entry for each level beyond "
                f"the backbone's: {len(extra)}"
            )
        self.l2_norm = L2Norm(in_channels[0]) if entries.l2_norm_scale else None
        layer = entries.layer
        second = DepthwiseSeparableConvModule if entries.use_depthwise else ConvModule
        self.extra_layers = nn.ModuleList()
        before = out_channels[len(in_channels) - 1]
        for level, (channels, stride, padding) in enumerate(zip(extra, strides, paddings, strict=True)):
            kernel = entries.last_kernel_size if level == len(extra) - 1 else 3
            self.extra_layers.append(
                nn.Sequential(
                    ConvModule(before, channels // 2, 1, **layer),
                    second(channels // 2, channels, kernel, stride=stride, padding=padding, **layer),
                )
            )
            before = channels

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        outputs = list(inputs)
        x = outputs[-1]
        if self.l2_norm is not None:
            outputs[0] = self.l2_norm(outputs[0])
        for layer in self.extra_layers:
            x = layer(x)
            outputs.append(x)
        return tuple(outputs)
