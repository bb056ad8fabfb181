"""Blocks of YOLOv5 and YOLOv8, of which the necks and backbones of other YOLOs are made too.

Sources: ultralytics' documentation of the architectures of YOLOv5 and YOLOv8; layers have MMYOLO's names.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.detect.parts.layers import ConvModule


class RepeatedPooling(nn.Module):
    """Spatial pyramid pooling by one window, several times in a row: MMYOLO's ``SPPFBottleneck``."""

    def __init__(self, in_channels: int, out_channels: int, size: int = 5, **layer: Any) -> None:
        super().__init__()
        channels = in_channels // 2
        self.size = size
        self.conv1 = ConvModule(in_channels, channels, 1, **layer)
        self.conv2 = ConvModule(channels * 4, out_channels, 1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.conv1(x)]
        for _ in range(3):
            maps.append(functional.max_pool2d(maps[-1], self.size, stride=1, padding=self.size // 2))
        return self.conv2(torch.cat(maps, 1))


class Bottleneck(nn.Module):
    """Two 3x3 convolutions, perhaps beside a shortcut."""

    def __init__(self, channels: int, *, add_identity: bool, **layer: Any) -> None:
        super().__init__()
        self.conv1, self.conv2 = (ConvModule(channels, channels, 3, padding=1, **layer) for _ in range(2))
        self.add_identity = add_identity

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(self.conv1(x))
        return x + y if self.add_identity else y


class SplitLayer(nn.Module):
    """Blocks on one half of the channels, of which the last layer reads every output: ``CSPLayerWithTwoConv``."""

    def __init__(self, in_channels: int, out_channels: int, count: int, *, add_identity: bool, **layer: Any) -> None:
        super().__init__()
        channels = out_channels // 2
        self.main_conv = ConvModule(in_channels, channels * 2, 1, **layer)
        self.blocks = nn.ModuleList(Bottleneck(channels, add_identity=add_identity, **layer) for _ in range(count))
        self.final_conv = ConvModule(channels * (2 + count), out_channels, 1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        maps = list(self.main_conv(x).chunk(2, 1))
        for block in self.blocks:
            maps.append(block(maps[-1]))
        return self.final_conv(torch.cat(maps, 1))
