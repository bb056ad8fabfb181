"""Layers of PP-YOLOE: blocks of RepVGG in cross stage partial layers, with attention for each channel.

Source: S. Xu et al., "PP-YOLOE: An evolved version of YOLO", 2022.  Layers have MMYOLO's names.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.detect.entries import Schema
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.yolo.rep_vgg import RepVGGBlock


@dataclass(frozen=True, kw_only=True)
class BasicBlockEntries(Schema):
    """The entries of ``block_cfg``."""

    types: ClassVar = ("PPYOLOEBasicBlock",)

    shortcut: bool = True
    use_alpha: bool = False


def block_count(full: int, factor: float) -> int:
    """Return the blocks of a layer that has `full` in the full-sized network; there may be none."""
    return round(full * factor)


class EffectiveSELayer(nn.Module):
    """A factor for each channel, from the channels' means over the map."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = ConvModule(channels, channels, 1, act_cfg=None)

    def forward(self, x: Tensor) -> Tensor:
        return x * functional.hardsigmoid(self.fc(x.mean((2, 3), keepdim=True)))


class BasicBlock(nn.Module):
    """A 3x3 convolution and a `RepVGGBlock`, perhaps beside a shortcut."""

    def __init__(self, channels: int, entries: BasicBlockEntries, **layer: Any) -> None:
        super().__init__()
        self.conv1 = ConvModule(channels, channels, 3, padding=1, **layer)
        self.conv2 = RepVGGBlock(channels, channels, identity=False, weighted=entries.use_alpha, **layer)
        self.shortcut = entries.shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(self.conv1(x))
        return x + y if self.shortcut else y


class Pooling(nn.Module):
    """Maxima over windows of several sizes beside the map itself."""

    sizes: ClassVar = (5, 9, 13)

    def __init__(self, channels: int, **layer: Any) -> None:
        super().__init__()
        self.conv2 = ConvModule(channels * (1 + len(self.sizes)), channels, 1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        pooled = [functional.max_pool2d(x, size, stride=1, padding=size // 2) for size in self.sizes]
        return self.conv2(torch.cat([x, *pooled], 1))


class CSPResLayer(nn.Module):
    """Blocks on one half of the channels, none on the other.

    In a backbone a convolution halves the map's size first, and in the end the channels are weighted.  With `pools`
    there is pooling after the middle block.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        count: int,
        block: BasicBlockEntries,
        *,
        of_backbone: bool = False,
        pools: bool = False,
        **layer: Any,
    ) -> None:
        super().__init__()
        between = (in_channels + out_channels) // 2 if of_backbone else in_channels
        channels = (between if of_backbone else out_channels) // 2
        self.conv_down = (
            ConvModule(in_channels, between, 3, stride=2, padding=1, **layer) if of_backbone else nn.Identity()
        )
        self.conv1, self.conv2 = (ConvModule(between, channels, 1, **layer) for _ in range(2))
        blocks: OrderedDict[str, nn.Module] = OrderedDict()
        for index in range(count):
            blocks[str(index)] = BasicBlock(channels, block, **layer)
            if pools and index == (count - 1) // 2:
                blocks["spp"] = Pooling(channels, **layer)
        self.blocks = nn.Sequential(blocks)
        self.attn = EffectiveSELayer(channels * 2) if of_backbone else nn.Identity()
        self.conv3 = ConvModule(channels * 2, out_channels, 1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_down(x)
        return self.conv3(self.attn(torch.cat([self.conv1(x), self.blocks(self.conv2(x))], 1)))
