"""Layers of YOLOv7.

Sources: C.-Y. Wang et al., "YOLOv7: Trainable bag-of-freebies sets new state-of-the-art for real-time object
detectors", 2022; C.-Y. Wang et al., "Designing Network Design Strategies Through Gradient Path Analysis", 2022.  Layers
have MMYOLO's names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.detect.entries import Schema
from mmort.detect.parts.layers import ConvModule


class ELAN(nn.Module):
    """Convolutions in a row, of which the last layer reads the output of each block: MMYOLO's ``ELANBlock``."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        middle_ratio: float,
        block_ratio: float,
        num_blocks: int,
        num_convs_in_block: int,
        **layer: Any,
    ) -> None:
        super().__init__()
        middle, inner = int(in_channels * middle_ratio), int(in_channels * block_ratio)
        self.main_conv, self.short_conv = (ConvModule(in_channels, middle, 1, **layer) for _ in range(2))
        self.blocks = nn.ModuleList()
        channels = middle
        for _ in range(num_blocks):
            convolutions = []
            for _ in range(num_convs_in_block):
                convolutions.append(ConvModule(channels, inner, 3, padding=1, **layer))
                channels = inner
            self.blocks.append(convolutions[0] if num_convs_in_block == 1 else nn.Sequential(*convolutions))
        self.final_conv = ConvModule(middle * 2 + inner * num_blocks, out_channels, 1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.short_conv(x), self.main_conv(x)]
        for block in self.blocks:
            maps.append(block(maps[-1]))
        return self.final_conv(torch.cat(maps[::-1], 1))


class SummedELAN(nn.Module):
    """The sum of several `ELAN` of the same map: MMYOLO's ``EELANBlock``."""

    def __init__(self, in_channels: int, out_channels: int, *, count: int, **options: Any) -> None:
        super().__init__()
        self.e_elan_blocks = nn.ModuleList(ELAN(in_channels, out_channels, **options) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = self.e_elan_blocks
        total: Tensor = first(x)
        for block in rest:
            total = total + block(x)
        return total


class TinyELAN(nn.Module):
    """The smallest model's `ELAN`: MMYOLO's ``TinyDownSampleBlock``."""

    def __init__(self, in_channels: int, out_channels: int, *, middle_ratio: float, **layer: Any) -> None:
        super().__init__()
        channels = int(in_channels * middle_ratio)
        self.short_conv = ConvModule(in_channels, channels, 1, **layer)
        self.main_convs = nn.ModuleList(
            [
                ConvModule(in_channels, channels, 1, **layer),
                *(ConvModule(channels, channels, 3, padding=1, **layer) for _ in range(2)),
            ]
        )
        self.final_conv = ConvModule(channels * 4, out_channels, 1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        maps, y = [self.short_conv(x)], x
        for convolution in self.main_convs:
            y = convolution(y)
            maps.append(y)
        return self.final_conv(torch.cat(maps[::-1], 1))


class HalvingLayer(nn.Module):
    """Maxima and a convolution, each of half of the output's channels: MMYOLO's ``MaxPoolAndStrideConvBlock``."""

    def __init__(self, in_channels: int, out_channels: int, *, keeps_channels: bool, **layer: Any) -> None:
        super().__init__()
        half = out_channels // 2
        between = in_channels if keeps_channels else half
        self.maxpool_branches = nn.Sequential(nn.MaxPool2d(2, 2), ConvModule(in_channels, half, 1, **layer))
        self.stride_conv_branches = nn.Sequential(
            ConvModule(in_channels, between, 1, **layer), ConvModule(between, half, 3, stride=2, padding=1, **layer)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.stride_conv_branches(x), self.maxpool_branches(x)], 1)


class PoolingLayer(nn.Module):
    """Repeated pooling beside a 1x1 convolution: MMYOLO's ``SPPFCSPBlock``; a `tiny` one has fewer convolutions."""

    size: ClassVar[int] = 5

    def __init__(self, in_channels: int, out_channels: int, *, expand_ratio: float, tiny: bool, **layer: Any) -> None:
        super().__init__()
        channels = int(2 * out_channels * expand_ratio)
        self.main_layers: nn.Module = ConvModule(in_channels, channels, 1, **layer)
        self.fuse_layers: nn.Module = ConvModule(channels * 4, channels, 1, **layer)
        self.tiny = tiny
        if not tiny:
            self.main_layers = nn.Sequential(
                self.main_layers,
                ConvModule(channels, channels, 3, padding=1, **layer),
                ConvModule(channels, channels, 1, **layer),
            )
            self.fuse_layers = nn.Sequential(self.fuse_layers, ConvModule(channels, channels, 3, padding=1, **layer))
        self.short_layer = ConvModule(in_channels, channels, 1, **layer)
        self.final_conv = ConvModule(channels * 2, out_channels, 1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.main_layers(x)]
        for _ in range(3):
            maps.append(functional.max_pool2d(maps[-1], self.size, stride=1, padding=self.size // 2))
        pooled = self.fuse_layers(torch.cat(maps[::-1] if self.tiny else maps, 1))
        return self.final_conv(torch.cat([pooled, self.short_layer(x)], 1))


@dataclass(frozen=True, kw_only=True)
class ELANEntries(Schema):
    """The entries of ``block_cfg``."""

    types: ClassVar = ("ELANBlock", "EELANBlock", "TinyDownSampleBlock")

    type: str = "ELANBlock"
    middle_ratio: float
    block_ratio: float | None = None
    num_blocks: int = 2
    num_convs_in_block: int = 1
    num_elan_block: int | None = None

    def check(self, name: str) -> None:
        needed = {
            "ELANBlock": {"block_ratio"},
            "EELANBlock": {"block_ratio", "num_elan_block"},
            "TinyDownSampleBlock": set(),
        }[self.type]
        given = {entry for entry in ("block_ratio", "num_elan_block") if getattr(self, entry) is not None}
        if given != needed:
            raise ValueError(
                f"detect.build: {name} {self.type!r} must have {', '.join(sorted(needed)) or 'middle_ratio'} and none "
                f"of the other types' entries, got {', '.join(sorted(given)) or 'none'}"
            )

    def block(self, in_channels: int, out_channels: int, **layer: Any) -> nn.Module:
        """Return a block."""
        if self.type == "TinyDownSampleBlock":
            return TinyELAN(in_channels, out_channels, middle_ratio=self.middle_ratio, **layer)
        options = {
            "middle_ratio": self.middle_ratio,
            "block_ratio": self.block_ratio,
            "num_blocks": self.num_blocks,
            "num_convs_in_block": self.num_convs_in_block,
            **layer,
        }
        if self.num_elan_block is not None:
            return SummedELAN(in_channels, out_channels, count=self.num_elan_block, **options)
        return ELAN(in_channels, out_channels, **options)
