"""FPG: pyramids side by side, each level connected with its neighbours and with the pyramid before.

Source: K. Chen et al., "Feature Pyramid Grids", 2020; MMDetection's ``FPG``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, nested, only, require
from mmort.detect.parts.layers import ConvModule, LayerEntries
from mmort.detect.parts.necks.fpn import end_of_levels


@dataclass(frozen=True, kw_only=True)
class TransitionEntries(LayerEntries):
    """The entries that all connections have, each with one convolution."""

    type: str
    kernel_size: int = 3
    stride: int = 1
    bias: bool | str = "auto"
    order: Sequence[str] = ("conv", "norm", "act")

    ignored: ClassVar = {"inplace": "the same values"}

    @property
    def border(self) -> int:
        """The convolution's padding: what keeps the size of maps."""
        return (self.kernel_size - 1) // 2

    def convolution(self, in_channels: int, channels: int) -> ConvModule:
        """Return the convolution."""
        return ConvModule(
            in_channels,
            channels,
            self.kernel_size,
            self.stride,
            self.border,
            bias=self.bias,
            order=self.order,
            **self.layer,
        )


@dataclass(frozen=True, kw_only=True)
class ConvEntries(TransitionEntries):
    """The entries of a connection that is a `ConvModule`."""

    types = ("conv",)

    padding: int = 0

    @property
    def border(self) -> int:
        """The convolution's padding."""
        return self.padding


@dataclass(frozen=True, kw_only=True)
class UpEntries(TransitionEntries):
    """The entries of an `UpTransition`."""

    types = ("interpolation_conv",)
    ignored: ClassVar = {**TransitionEntries.ignored, "scale_factor": "the size is that of the finer level"}

    mode: str = "nearest"

    def check(self, name: str) -> None:
        """Raise a ValueError if the mode is not supported."""
        require(f"mode of {name}", self.mode, "nearest", "bilinear")


@dataclass(frozen=True, kw_only=True)
class LastEntries(TransitionEntries):
    """The entries of a `LastTransition`."""

    types = ("last_conv",)


class UpTransition(nn.Module):
    """Enlarges a map to the size of another, and convolves it."""

    def __init__(self, entries: UpEntries, in_channels: int, channels: int) -> None:
        super().__init__()
        self.mode = entries.mode
        self.conv = entries.convolution(in_channels, channels)

    def forward(self, x: Tensor, size: Sequence[int]) -> Tensor:
        return self.conv(F.interpolate(x, size=size, mode=self.mode))


class Connections(nn.Module):
    """The layers that compute a level of a pyramid, with MMDetection's names."""

    def __init__(self, entries: FPG.Entries, widths: Sequence[int], level: int) -> None:
        super().__init__()
        self.level, width, finer = level, widths[level], widths[level - 1]
        self.across_lateral = entries.across_lateral_trans.convolution(width, width)
        self.across_skip = entries.across_skip_trans.convolution(finer, width)
        if level > 0:
            self.same_up = entries.same_up_trans.convolution(finer, width)
        if level < len(widths) - 1:
            self.across_down = UpTransition(entries.across_down_trans, widths[level + 1], width)

    def forward(self, before: Sequence[Tensor], finer: Sequence[Tensor], first: Sequence[Tensor]) -> Tensor:
        """Return a map [N, C, h, w] of the pyramid before, the finer maps of this one, and the inputs, by level."""
        level = self.level
        x = self.across_lateral(before[level])
        if level > 0:
            x = self.same_up(finer[-1]) + x
        if level < len(before) - 1:
            x = x + self.across_down(before[level + 1], before[level].shape[2:])
        return x + self.across_skip(first[level])


class LastTransition(nn.Module):
    """The convolution of a level's result."""

    def __init__(self, entries: LastEntries, in_channels: int, channels: int) -> None:
        super().__init__()
        self.conv_out = entries.convolution(in_channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv_out(x)


@PARTS.register("neck", "FPG")
class FPG(nn.Module):
    """Feature pyramid grid, whose pyramids are all computed from the finest level to the coarsest."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``neck``; those ending in ``_trans`` configure the connections."""

        in_channels: Sequence[int]
        out_channels: int
        num_outs: int
        stack_times: int
        paths: Sequence[str]
        skip_inds: Sequence[Sequence[int]]  # for each level, the pyramids that keep its map
        inter_channels: int | Sequence[int] | None = None
        same_up_trans: ConvEntries = nested(
            ConvEntries, default={"type": "conv", "kernel_size": 3, "stride": 2, "padding": 1}
        )
        same_down_trans: Config | None = only(None)
        across_up_trans: Config | None = only(None)
        across_lateral_trans: ConvEntries = nested(ConvEntries, default={"type": "conv", "kernel_size": 1})
        across_down_trans: UpEntries = nested(UpEntries)  # MMDetection's defaults of these two cannot be built
        across_skip_trans: ConvEntries = nested(ConvEntries)
        output_trans: LastEntries = nested(LastEntries, default={"type": "last_conv", "kernel_size": 3})
        start_level: int = 0
        end_level: int = -1
        add_extra_convs: bool = False

        ignored: ClassVar = {"norm_cfg": "MMDetection does not read it either"}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        if set(entries.paths) != {"bu"} or len(entries.paths) != entries.stack_times:
            raise ValueError(f"detect.build: neck.paths must be 'bu' for each of stack_times, got {entries.paths!r}")
        count = entries.num_outs
        self.start_level = entries.start_level
        self.end = end_of_levels(len(entries.in_channels), entries.end_level)
        inner = entries.inter_channels or entries.out_channels
        widths = [inner] * count if isinstance(inner, int) else [*inner]
        used = entries.in_channels[self.start_level : self.end]
        self.lateral_convs = nn.ModuleList(
            nn.Conv2d(before, width, 1) for before, width in zip(used, widths, strict=False)
        )
        self.extra_downsamples = nn.ModuleList(
            nn.Conv2d(widths[level - 1], widths[level], 3, stride=2, padding=1)
            if entries.add_extra_convs
            else nn.MaxPool2d(1, stride=2)
            for level in range(len(used), count)
        )
        self.fpn_transitions = nn.ModuleList(
            nn.ModuleList(
                nn.Identity() if pyramid in entries.skip_inds[level] else Connections(entries, widths, level)
                for level in range(count)
            )
            for pyramid in range(entries.stack_times)
        )
        self.output_transition = nn.ModuleList(
            LastTransition(entries.output_trans, width, entries.out_channels) for width in widths
        )

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        maps = [conv(x) for conv, x in zip(self.lateral_convs, inputs[self.start_level : self.end], strict=True)]
        for downsample in self.extra_downsamples:
            maps.append(downsample(maps[-1]))
        first = maps
        for transitions in self.fpn_transitions:
            before, maps = maps, []
            for level, connections in enumerate(transitions.children()):
                if isinstance(connections, Connections):
                    maps.append(connections(before, maps, first))
                else:
                    maps.append(before[level])
        return tuple(layer(x) for layer, x in zip(self.output_transition, maps, strict=True))
