"""HRNet: branches of several resolutions side by side, which exchange their maps again and again.

Source: K. Sun et al., "High-Resolution Representations for Labeling Pixels and Regions", 2019; MMDetection's ``HRNet``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, default, nested, require, training_only
from mmort.detect.parts.backbones.resnet import BasicBlock, BlockSettings, Bottleneck, add_norm
from mmort.detect.parts.layers import convolution, normalization

_BLOCKS: dict[str, type[Any]] = {"BASIC": BasicBlock, "BOTTLENECK": Bottleneck}


class Layers:
    """Builds what all of the network is made of: convolutions with a normalization, and rows of blocks."""

    def __init__(self, conv_cfg: Config | None, norm_cfg: Config) -> None:
        self.settings = BlockSettings(conv_cfg=conv_cfg, norm_cfg=norm_cfg)

    def conv(self, in_channels: int, channels: int, kernel: int, stride: int = 1, relu: bool = True) -> nn.Sequential:
        """Return a convolution, a normalization, and perhaps a ReLU."""
        settings = self.settings
        layers = [
            convolution(
                settings.conv_cfg, in_channels, channels, kernel, stride=stride, padding=kernel // 2, bias=False
            ),
            normalization(settings.norm_cfg, channels)[1],
        ]
        return nn.Sequential(*layers, *[nn.ReLU()] * relu)

    def halvings(self, in_channels: int, channels: int, count: int, last_relu: bool) -> nn.Sequential:
        """Return `count` convolutions of stride 2; only the last changes the channels."""
        layers = []
        for index in range(count):
            last = index == count - 1
            layers.append(self.conv(in_channels, channels if last else in_channels, 3, 2, last_relu or not last))
        return nn.Sequential(*layers)

    def blocks(self, block: type[Any], in_channels: int, channels: int, count: int) -> nn.Sequential:
        """Return blocks that keep the size of their maps."""
        out = channels * block.expansion
        shortcut = self.conv(in_channels, out, 1, relu=False) if in_channels != out else None
        first = block(in_channels, channels, 1, shortcut, self.settings)
        return nn.Sequential(first, *(block(out, channels, settings=self.settings) for _ in range(count - 1)))


class HRModule(nn.Module):
    """Blocks in every branch, then the sum of all branches, resized, for each of them."""

    def __init__(self, layers: Layers, block: type[Any], stage: StageEntries, outputs: int) -> None:
        super().__init__()
        channels = [width * block.expansion for width in stage.num_channels]
        branches = zip(channels, stage.num_channels, stage.num_blocks, strict=True)
        self.branches = nn.ModuleList(layers.blocks(block, before, width, count) for before, width, count in branches)
        self.fuse_layers = nn.ModuleList()
        for target in range(outputs if len(channels) > 1 else 0):
            row: list[nn.Module] = []
            for source, before in enumerate(channels):
                if source > target:
                    row.append(layers.conv(before, channels[target], 1, relu=False))
                else:
                    row.append(layers.halvings(before, channels[target], target - source, last_relu=False))
            self.fuse_layers.append(nn.ModuleList(row))

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        maps = [branch(x) for branch, x in zip(self.branches, maps, strict=True)]
        if not self.fuse_layers:
            return maps
        return [torch.relu(self._sum(target, row, maps)) for target, row in enumerate(self.fuse_layers)]

    def _sum(self, target: int, row: nn.Module, maps: Sequence[Tensor]) -> Tensor:
        """Return the sum of all branches at the size of the branch `target`."""
        terms = []
        for source, (layer, x) in enumerate(zip(row.children(), maps, strict=True)):
            x = layer(x)  # the branch itself has no layers
            if source > target:
                x = F.interpolate(x, size=maps[target].shape[2:])
            terms.append(x)
        return sum(terms[1:], terms[0])


@dataclass(frozen=True, kw_only=True)
class StageEntries(Schema):
    """The entries of a stage."""

    num_modules: int
    num_branches: int
    block: str
    num_blocks: Sequence[int]
    num_channels: Sequence[int]

    def __post_init__(self) -> None:
        require("backbone.extra's block", self.block, *_BLOCKS)
        if not len(self.num_blocks) == len(self.num_channels) == self.num_branches:
            raise ValueError(
                f"detect.build: backbone.extra must have num_branches ({self.num_branches}) numbers of blocks and of "
                f"channels, got {self.num_blocks} and {self.num_channels}"
            )


@dataclass(frozen=True, kw_only=True)
class StagesEntries(Schema):
    """The entries of ``extra``."""

    stage1: StageEntries = nested(StageEntries)
    stage2: StageEntries = nested(StageEntries)
    stage3: StageEntries = nested(StageEntries)
    stage4: StageEntries = nested(StageEntries)


@PARTS.register("backbone", "HRNet")
class HRNet(nn.Module):
    """HRNet; the maps of all branches are returned, finest first."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        extra: StagesEntries = nested(StagesEntries, "backbone.extra")
        in_channels: int = 3
        conv_cfg: Config | None = None
        norm_cfg: Config = default({"type": "BN"})
        multiscale_output: bool = True

        ignored: ClassVar = training_only("norm_eval", "with_cp", "zero_init_residual")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        extra = entries.extra
        stages = [extra.stage1, extra.stage2, extra.stage3, extra.stage4]
        blocks = [_BLOCKS[stage.block] for stage in stages]
        layers = Layers(entries.conv_cfg, entries.norm_cfg)
        self.conv1 = convolution(entries.conv_cfg, entries.in_channels, 64, 3, stride=2, padding=1, bias=False)
        self.norm1_name = add_norm(self, entries.norm_cfg, 64, 1)
        self.conv2 = convolution(entries.conv_cfg, 64, 64, 3, stride=2, padding=1, bias=False)
        self.norm2_name = add_norm(self, entries.norm_cfg, 64, 2)
        (width,), (count,) = stages[0].num_channels, stages[0].num_blocks
        self.layer1 = layers.blocks(blocks[0], 64, width, count)
        channels = [width * blocks[0].expansion]
        for number, (stage, block) in enumerate(zip(stages[1:], blocks[1:], strict=True), start=1):
            before, channels = channels, [width * block.expansion for width in stage.num_channels]
            self.add_module(f"transition{number}", _transition(layers, before, channels))
            last = number == 3 and not entries.multiscale_output
            outputs = [len(channels)] * (stage.num_modules - 1) + [1 if last else len(channels)]
            modules = (HRModule(layers, block, stage, count) for count in outputs)
            self.add_module(f"stage{number + 1}", nn.Sequential(*modules))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = torch.relu(getattr(self, self.norm1_name)(self.conv1(x)))
        x = torch.relu(getattr(self, self.norm2_name)(self.conv2(x)))  # [N, 64, H/4, W/4]
        maps = [self.layer1(x)]
        for number in range(1, 4):
            transition = self.get_submodule(f"transition{number}").children()
            # A layer that changes anything reads the coarsest branch.
            pairs = zip_longest(transition, maps)
            maps = [layer(maps[-1] if any(layer.children()) else x) for layer, x in pairs]
            maps = self.get_submodule(f"stage{number + 1}")(maps)
        return tuple(maps)


def _transition(layers: Layers, before: Sequence[int], after: Sequence[int]) -> nn.ModuleList:
    """Return for each branch of a stage the layers between it and the stage before; none if nothing changes."""
    transition = nn.ModuleList()
    for index, channels in enumerate(after):
        if index >= len(before):
            count = index + 1 - len(before)
            transition.append(layers.halvings(before[-1], channels, count, last_relu=True))
        elif channels != before[index]:
            transition.append(layers.conv(before[index], channels, 3))
        else:
            transition.append(nn.Sequential())
    return transition
