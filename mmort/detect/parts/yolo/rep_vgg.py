"""Blocks of RepVGG, whose branches training needs, and the layers that YOLOv6 makes of them.

Sources: X. Ding et al., "RepVGG: Making VGG-style ConvNets Great Again", CVPR 2021; C. Li et al., "YOLOv6: A
Single-Stage Object Detection Framework for Industrial Applications", 2022; C. Li et al., "YOLOv6 v3.0: A Full-Scale
Reloading", 2023.  Layers have MMYOLO's names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.configs.schema import Config
from mmort.detect.entries import Schema
from mmort.detect.parts.layers import ConvModule, activation, normalization
from mmort.detect.parts.yolo.scaling import BATCH_NORM, RELU, SILU

Block = Callable[..., nn.Module]
"""Makes a block of some input and output channels, and perhaps a stride."""


class RepVGGBlock(nn.Module):
    """A 3x3 and a 1x1 convolution beside the map itself, if it has the output's shape, each with a normalization.

    With `weighted` the 1x1 convolution has a learned factor; without `identity` the map itself takes no part.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int = 1,
        *,
        norm_cfg: Config,
        act_cfg: Config | None,
        identity: bool = True,
        weighted: bool = False,
    ) -> None:
        super().__init__()
        layer: dict[str, Any] = {"stride": stride, "norm_cfg": norm_cfg, "act_cfg": None}
        self.rbr_dense = ConvModule(in_channels, out_channels, 3, padding=1, **layer)
        self.rbr_1x1 = ConvModule(in_channels, out_channels, 1, **layer)
        has_identity = identity and in_channels == out_channels and stride == 1
        self.rbr_identity = normalization(norm_cfg, in_channels)[1] if has_identity else None
        self.alpha = nn.Parameter(torch.ones(1)) if weighted else None
        self.nonlinearity = activation(act_cfg)

    def forward(self, x: Tensor) -> Tensor:
        small = self.rbr_1x1(x)
        total = self.rbr_dense(x) + (small if self.alpha is None else self.alpha * small)
        return self.nonlinearity(total if self.rbr_identity is None else total + self.rbr_identity(x))


class ConvWrapper(nn.Module):
    """A 3x3 convolution where others have a `RepVGGBlock`."""

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1, **layer: Any) -> None:
        super().__init__()
        self.block = ConvModule(in_channels, out_channels, 3, stride=stride, padding=1, bias=True, **layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x)


@dataclass(frozen=True, kw_only=True)
class BlockEntries(Schema):
    """The entries of ``block_cfg``."""

    types: ClassVar = ("RepVGGBlock", "ConvWrapper")

    type: str = "RepVGGBlock"
    norm_cfg: Config | None = None

    @property
    def block(self) -> Block:
        """The constructor of the blocks, which have activations of their own."""
        if self.type == "ConvWrapper":
            return partial(ConvWrapper, norm_cfg=self.norm_cfg, act_cfg=SILU)
        return partial(RepVGGBlock, norm_cfg=self.norm_cfg or BATCH_NORM, act_cfg=RELU)


class RepStage(nn.Module):
    """Blocks in a row, of which the first changes the channels: MMYOLO's ``RepStageBlock``."""

    def __init__(self, in_channels: int, out_channels: int, count: int, block: Block) -> None:
        super().__init__()
        self.conv1 = block(in_channels, out_channels)
        self.block = nn.Sequential(*(block(out_channels, out_channels) for _ in range(count - 1)))

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.conv1(x))


class BottleRep(nn.Module):
    """Two blocks beside a shortcut with a learned factor."""

    def __init__(self, in_channels: int, out_channels: int, block: Block) -> None:
        super().__init__()
        self.conv1, self.conv2 = block(in_channels, out_channels), block(out_channels, out_channels)
        self.alpha = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(self.conv1(x)) + self.alpha * x


class BepLayer(nn.Module):
    """Pairs of blocks on one half of the channels, none on the other: MMYOLO's ``BepC3StageBlock``."""

    def __init__(
        self, in_channels: int, out_channels: int, count: int, block: Block, hidden_ratio: float, **layer: Any
    ) -> None:
        super().__init__()
        channels = int(out_channels * hidden_ratio)
        self.conv1, self.conv2 = (ConvModule(in_channels, channels, 1, **layer) for _ in range(2))
        self.conv3 = ConvModule(2 * channels, out_channels, 1, **layer)
        self.block = RepStage(channels, channels, count // 2, partial(BottleRep, block=block))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv3(torch.cat([self.block(self.conv1(x)), self.conv2(x)], 1))


class SplitPooling(nn.Module):
    """Repeated pooling on one half of the channels: MMYOLO's ``CSPSPPFBottleneck``."""

    def __init__(self, in_channels: int, out_channels: int, size: int = 5, **layer: Any) -> None:
        super().__init__()
        channels = in_channels // 2
        self.size = size
        self.conv1, self.conv2 = (ConvModule(in_channels, channels, 1, **layer) for _ in range(2))
        self.conv3, self.conv6 = (ConvModule(channels, channels, 3, padding=1, **layer) for _ in range(2))
        self.conv4 = ConvModule(channels, channels, 1, **layer)
        self.conv5 = ConvModule(4 * channels, channels, 1, **layer)
        self.conv7 = ConvModule(2 * channels, out_channels, 1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.conv4(self.conv3(self.conv1(x)))]
        for _ in range(3):
            maps.append(functional.max_pool2d(maps[-1], self.size, stride=1, padding=self.size // 2))
        pooled = self.conv6(self.conv5(torch.cat(maps, 1)))
        return self.conv7(torch.cat([self.conv2(x), pooled], 1))
