"""Feature pyramids of MMYOLO's detectors, from the coarsest level to the finest and back.

Sources: S. Liu et al., "Path Aggregation Network for Instance Segmentation", CVPR 2018; ultralytics' documentation of
the architectures of YOLOv5 and YOLOv8; MMDetection's ``YOLOXPAFPN`` and ``CSPNeXtPAFPN``; MMYOLO's configs.  Layers
have MMYOLO's names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, only, training_only
from mmort.detect.parts.csp import CSPLayer, CSPNeXtBlock, convolution_block
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.yolo.blocks import SplitLayer
from mmort.detect.parts.yolo.scaling import RoundedDown, ScaledEntries


class YOLONeck(nn.Module):
    """Layers of every level: one that reduces its channels, those of both ways, and one of the output.

    Methods make the layers; levels are counted from the finest.

    Attributes
    ----------
    upsampled_first : bool
        Whether the map of the coarser level comes before that of the finer one, where both are put together.
    channels : list of int
        Of the backbone's maps of these levels.
    extra : int
        How many finer maps of the backbone come before theirs.
    """

    extra: ClassVar[int] = 0

    @dataclass(frozen=True, kw_only=True)
    class Entries(ScaledEntries):
        in_channels: Sequence[int]

        ignored: ClassVar = training_only("freeze_all")

    def __init__(self, entries: Any) -> None:
        super().__init__()
        self.upsampled_first = True
        self.channels = [entries.channels(channels) for channels in entries.in_channels[self.extra :]]
        levels = range(len(self.channels))
        self.reduce_layers = nn.ModuleList(self.reduce_layer(entries, level) for level in levels)
        self.upsample_layers = nn.ModuleList(self.upsample_layer(entries, level) for level in reversed(levels[1:]))
        self.top_down_layers = nn.ModuleList(self.top_down_layer(entries, level) for level in reversed(levels[1:]))
        self.downsample_layers = nn.ModuleList(self.downsample_layer(entries, level) for level in levels[:-1])
        self.bottom_up_layers = nn.ModuleList(self.bottom_up_layer(entries, level) for level in levels[:-1])
        self.out_layers = nn.ModuleList(self.out_layer(entries, level) for level in levels)

    def reduce_layer(self, entries: Any, level: int) -> nn.Module:
        """Return the layer that the backbone's map of a level goes through first."""
        if level < len(self.channels) - 1:
            return nn.Identity()
        return ConvModule(self.channels[level], self.channels[level - 1], 1, **entries.layer)

    def upsample_layer(self, entries: Any, level: int) -> nn.Module:
        """Return the layer for a level's map before it is enlarged to the size of the finer one."""
        return nn.Identity()

    def top_down_layer(self, entries: Any, level: int) -> nn.Module:
        """Return the layer of a level's map and the finer level's, which gives the finer level's."""
        raise NotImplementedError

    def downsample_layer(self, entries: Any, level: int) -> nn.Module:
        """Return the layer that halves the size of a level's map."""
        channels = self.channels[level]
        return ConvModule(channels, channels, 3, stride=2, padding=1, **entries.layer)

    def bottom_up_layer(self, entries: Any, level: int) -> nn.Module:
        """Return the layer of a level's map and the coarser level's, which gives the coarser level's."""
        raise NotImplementedError

    def out_layer(self, entries: Any, level: int) -> nn.Module:
        """Return the last layer of a level."""
        return nn.Identity()

    def upsampled(self, layer: nn.Module, x: Tensor, finer: Tensor) -> Tensor:
        """Return a level's map in the size of the finer level's."""
        # Twice the size, given as the finer level's: so an export need not prove that they are equal.
        return functional.interpolate(layer(x), size=finer.shape[2:])

    def joined(self, layer: nn.Module, coarser: Tensor, maps: Sequence[Tensor], level: int) -> Tensor:
        """Return the input of a level: the coarser level's map through its layer, joined with the backbone's."""
        finer = maps[self.extra + level]
        pair = self.upsampled(layer, coarser, finer), finer
        return torch.cat(pair if self.upsampled_first else pair[::-1], 1)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        reduced = [layer(x) for layer, x in zip(self.reduce_layers, inputs[self.extra :], strict=True)]
        maps = [*inputs[: self.extra], *reduced]
        merged = [reduced[-1]]  # coarsest first
        levels = reversed(range(len(reduced) - 1))
        for up, block, level in zip(self.upsample_layers, self.top_down_layers, levels, strict=True):
            merged.append(block(self.joined(up, merged[-1], maps, level)))
        outputs = [merged[-1]]
        coarser_maps = reversed(merged[:-1])
        for down, block, coarser in zip(self.downsample_layers, self.bottom_up_layers, coarser_maps, strict=True):
            outputs.append(block(torch.cat([down(outputs[-1]), coarser], 1)))
        return tuple(layer(x) for layer, x in zip(self.out_layers, outputs, strict=True))


@PARTS.register("neck", "YOLOv5PAFPN")
class YOLOv5PAFPN(YOLONeck):
    """YOLOv5's neck."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLONeck.Entries):
        num_csp_blocks: int = 1

        ignored: ClassVar = {**YOLONeck.Entries.ignored, "out_channels": "MMYOLO does not read it"}

    def block(self, entries: Any, in_channels: int, out_channels: int) -> nn.Module:
        """Return the layer of two levels."""
        count = entries.blocks(entries.num_csp_blocks)
        return CSPLayer(in_channels, out_channels, count, add_identity=False, **entries.layer)

    def top_down_layer(self, entries: Any, level: int) -> nn.Module:
        channels = self.channels[level - 1]
        block = self.block(entries, channels * 2, channels)
        if level == 1:
            return block
        return nn.Sequential(block, ConvModule(channels, self.channels[level - 2], 1, **entries.layer))

    def bottom_up_layer(self, entries: Any, level: int) -> nn.Module:
        return self.block(entries, self.channels[level] * 2, self.channels[level + 1])


@PARTS.register("neck", "YOLOv8PAFPN")
class YOLOv8PAFPN(YOLOv5PAFPN):
    """YOLOv8's neck, which reduces no channels."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLONeck.Entries):
        out_channels: Sequence[int]
        num_csp_blocks: int = 3

        def check(self, name: str) -> None:
            if list(self.out_channels) != list(self.in_channels):
                raise ValueError(
                    f"detect.build: out_channels of {name} must be its in_channels, {[*self.in_channels]}, got "
                    f"{[*self.out_channels]}"
                )

    def block(self, entries: Any, in_channels: int, out_channels: int) -> nn.Module:
        count = entries.blocks(entries.num_csp_blocks)
        return SplitLayer(in_channels, out_channels, count, add_identity=False, **entries.layer)

    def reduce_layer(self, entries: Any, level: int) -> nn.Module:
        return nn.Identity()

    def top_down_layer(self, entries: Any, level: int) -> nn.Module:
        return self.block(entries, self.channels[level - 1] + self.channels[level], self.channels[level - 1])

    def bottom_up_layer(self, entries: Any, level: int) -> nn.Module:
        return self.block(entries, self.channels[level] + self.channels[level + 1], self.channels[level + 1])


class YOLOXPAFPN(YOLOv5PAFPN):
    """YOLOX's neck, of the same type as MMDetection's; `use_depthwise` changes the layers that halve maps only."""

    out_kernel: ClassVar[int] = 1

    @dataclass(frozen=True, kw_only=True)
    class Entries(RoundedDown, YOLONeck.Entries):
        out_channels: int
        num_csp_blocks: int = 3
        use_depthwise: bool = False

    def downsample_layer(self, entries: Any, level: int) -> nn.Module:
        channels = self.channels[level]
        convolution = convolution_block(entries.use_depthwise)
        return convolution(channels, channels, 3, stride=2, padding=1, **entries.layer)

    def out_layer(self, entries: Any, level: int) -> nn.Module:
        channels, size = entries.channels(entries.out_channels), self.out_kernel
        return ConvModule(self.channels[level], channels, size, padding=size // 2, **entries.layer)


class CSPNeXtPAFPN(YOLOXPAFPN):
    """RTMDet's neck, of the same type as MMDetection's."""

    out_kernel = 3

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOXPAFPN.Entries):
        expand_ratio: float = 0.5
        use_depthwise: bool = only(False)
        norm_cfg: Config | None = default({"type": "BN"})

    def block(self, entries: Any, in_channels: int, out_channels: int) -> nn.Module:
        count, ratio = entries.blocks(entries.num_csp_blocks), entries.expand_ratio
        return CSPLayer(in_channels, out_channels, count, block=CSPNeXtBlock, expand_ratio=ratio, **entries.layer)
