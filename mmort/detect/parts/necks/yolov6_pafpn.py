"""YOLOv6's feature pyramids, in which transposed convolutions enlarge maps.

Sources: C. Li et al., "YOLOv6: A Single-Stage Object Detection Framework for Industrial Applications", 2022; C. Li et
al., "YOLOv6 v3.0: A Full-Scale Reloading", 2023; MMYOLO's configs.  Layers have MMYOLO's names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, nested
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.necks.yolo_pafpn import YOLONeck
from mmort.detect.parts.yolo.rep_vgg import BepLayer, BlockEntries, RepStage
from mmort.detect.parts.yolo.scaling import RELU, SILU


class BiFusion(nn.Module):
    """A level's map from the coarser one, the backbone's of the same size, and the finer one."""

    def __init__(self, finer: int, same: int, channels: int, **layer: Any) -> None:
        super().__init__()
        self.conv1 = ConvModule(same, channels, 1, **layer)
        self.conv2 = ConvModule(finer, channels, 1, **layer)
        self.conv3 = ConvModule(channels * 3, channels, 1, **layer)
        self.upsample = nn.ConvTranspose2d(channels, channels, 2, stride=2)
        self.downsample = ConvModule(channels, channels, 3, stride=2, padding=1, **layer)

    def forward(self, coarser: Tensor, same: Tensor, finer: Tensor) -> Tensor:
        maps = self.upsample(coarser), self.conv1(same), self.downsample(self.conv2(finer))
        return self.conv3(torch.cat(maps, 1))


@PARTS.register("neck", "YOLOv6RepPAFPN")
class YOLOv6RepPAFPN(YOLONeck):
    """The neck of the smaller models."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLONeck.Entries):
        out_channels: Sequence[int]
        num_csp_blocks: int = 12
        block_cfg: BlockEntries = nested(BlockEntries, default={"type": "RepVGGBlock"})
        act_cfg: Config | None = default(RELU)

        def out(self, level: int) -> int:
            """Return the channels of an output."""
            return self.channels(self.out_channels[level])

    def reduce_layer(self, entries: Any, level: int) -> nn.Module:
        if level < len(self.channels) - 1:
            return nn.Identity()
        return ConvModule(self.channels[level], entries.out(level - 1), 1, **entries.layer)

    def upsample_layer(self, entries: Any, level: int) -> nn.Module:
        channels = entries.out(level - 1)
        return nn.ConvTranspose2d(channels, channels, 2, stride=2)

    def upsampled(self, layer: nn.Module, x: Tensor, finer: Tensor) -> Tensor:
        return layer(x)

    def top_down_layer(self, entries: Any, level: int) -> nn.Module:
        block = self.block(entries, self.joined_channels(entries, level), entries.out(level - 1))
        if level == 1:
            return block
        return nn.Sequential(block, ConvModule(entries.out(level - 1), entries.out(level - 2), 1, **entries.layer))

    def joined_channels(self, entries: Any, level: int) -> int:
        """Return the channels of what `joined` makes of a level."""
        return self.channels[level - 1] + entries.out(level - 1)

    def downsample_layer(self, entries: Any, level: int) -> nn.Module:
        channels = entries.out(level)
        return ConvModule(channels, channels, 3, stride=2, padding=1, **entries.layer)

    def bottom_up_layer(self, entries: Any, level: int) -> nn.Module:
        return self.block(entries, entries.out(level) * 2, entries.out(level + 1))

    def block(self, entries: Any, in_channels: int, out_channels: int) -> nn.Module:
        """Return the layer of two levels."""
        return RepStage(in_channels, out_channels, entries.blocks(entries.num_csp_blocks), entries.block_cfg.block)


@PARTS.register("neck", "YOLOv6CSPRepPAFPN")
class YOLOv6CSPRepPAFPN(YOLOv6RepPAFPN):
    """The neck of the larger models."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOv6RepPAFPN.Entries):
        hidden_ratio: float = 0.5
        block_act_cfg: Config | None = default(SILU)

    def block(self, entries: Any, in_channels: int, out_channels: int) -> nn.Module:
        return BepLayer(
            in_channels,
            out_channels,
            entries.blocks(entries.num_csp_blocks),
            entries.block_cfg.block,
            entries.hidden_ratio,
            norm_cfg=entries.norm_cfg,
            act_cfg=entries.block_act_cfg,
        )


class _BiFusing(YOLOv6RepPAFPN):
    """A neck of version 3, which takes the map of one more, finer level."""

    extra: ClassVar[int] = 1

    def upsample_layer(self, entries: Any, level: int) -> nn.Module:
        finer = entries.channels(entries.in_channels[level - 1])
        return BiFusion(finer, self.channels[level - 1], entries.out(level - 1), **entries.layer)

    def joined_channels(self, entries: Any, level: int) -> int:
        return entries.out(level - 1)

    def joined(self, layer: nn.Module, coarser: Tensor, maps: Sequence[Tensor], level: int) -> Tensor:
        finer, same = maps[level : level + 2]
        return layer(coarser, same, finer)


@PARTS.register("neck", "YOLOv6RepBiPAFPN")
class YOLOv6RepBiPAFPN(_BiFusing):
    """The neck of the smaller models of version 3."""


@PARTS.register("neck", "YOLOv6CSPRepBiPAFPN")
class YOLOv6CSPRepBiPAFPN(_BiFusing, YOLOv6CSPRepPAFPN):
    """The neck of the larger models of version 3."""

    Entries = YOLOv6CSPRepPAFPN.Entries
