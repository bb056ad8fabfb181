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
from mmort.detect.entries import PARTS, Schema, default, read_values, require
from mmort.detect.parts.layers import ConvModule


@dataclass(frozen=True, kw_only=True)
class TransitionEntries(Schema):
    """The entries of connections, which are arguments of `ConvModule`."""

    kernel_size: int = 3
    stride: int = 1
    padding: int = 0
    bias: bool | str = "auto"
    conv_cfg: Config | None = None
    norm_cfg: Config | None = None
    act_cfg: Config | None = None
    order: Sequence[str] = ("conv", "norm", "act")

    ignored: ClassVar = {"inplace": "the same values"}


class UpTransition(nn.Module):
    """Enlarges a map to the size of another, and convolves it."""

    def __init__(self, config: Config, in_channels: int, channels: int) -> None:
        super().__init__()
        options = dict(config)
        self.mode = require("mode of a transition of FPG", options.pop("mode", "nearest"), "nearest", "bilinear")
        options.pop("scale_factor", None)  # the size is that of the finer level
        self.conv = _convolution("interpolation_conv", options, in_channels, channels)

    def forward(self, x: Tensor, size: Sequence[int]) -> Tensor:
        return self.conv(F.interpolate(x, size=size, mode=self.mode))


class LastTransition(nn.Module):
    """The convolution of a level's result."""

    def __init__(self, config: Config, in_channels: int, channels: int) -> None:
        super().__init__()
        self.conv_out = _convolution("last_conv", config, in_channels, channels)

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
        same_up_trans: Config = default({"type": "conv", "kernel_size": 3, "stride": 2, "padding": 1})
        across_lateral_trans: Config = default({"type": "conv", "kernel_size": 1})
        across_down_trans: Config = default({"type": "conv", "kernel_size": 3})
        across_skip_trans: Config = default({"type": "identity"})
        output_trans: Config = default({"type": "last_conv", "kernel_size": 3})
        start_level: int = 0
        end_level: int = -1
        add_extra_convs: bool = False

        ignored: ClassVar = {"norm_cfg": "MMDetection does not read it either"}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        if set(entries.paths) != {"bu"} or len(entries.paths) != entries.stack_times:
            raise ValueError(f"detect.build: neck.paths must be 'bu' for each of stack_times, got {entries.paths!r}")
        levels, count = len(entries.in_channels), entries.num_outs
        self.start_level = entries.start_level
        self.end = levels if entries.end_level in (-1, levels - 1) else entries.end_level + 1
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
        self.skipped = [[*pyramids] for pyramids in entries.skip_inds]
        self.fpn_transitions = nn.ModuleList(
            nn.ModuleList(_connections(entries, widths, level, pyramid) for level in range(count))
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
        for pyramid, transitions in enumerate(self.fpn_transitions):
            before, maps = maps, []
            for level, connections in enumerate(transitions.children()):
                if pyramid in self.skipped[level]:
                    maps.append(before[level])
                    continue
                layers = dict(connections.named_children())
                x = layers["across_lateral"](before[level])
                if level > 0:
                    x = layers["same_up"](maps[-1]) + x
                if level < len(before) - 1:
                    x = x + layers["across_down"](before[level + 1], before[level].shape[2:])
                maps.append(x + layers["across_skip"](first[level]))
        return tuple(layer(x) for layer, x in zip(self.output_transition, maps, strict=True))


def _connections(entries: FPG.Entries, widths: Sequence[int], level: int, pyramid: int) -> nn.ModuleDict:
    """Return what computes a level of a pyramid, by MMDetection's names; nothing if its map is kept."""
    if pyramid in entries.skip_inds[level]:
        return nn.ModuleDict()
    width, finer = widths[level], widths[level - 1]
    connections = {
        "across_lateral": _convolution("conv", entries.across_lateral_trans, width, width),
        "across_skip": _convolution("conv", entries.across_skip_trans, finer, width),
    }
    if level > 0:
        connections["same_up"] = _convolution("conv", entries.same_up_trans, finer, width)
    if level < len(widths) - 1:
        connections["across_down"] = UpTransition(entries.across_down_trans, widths[level + 1], width)
    return nn.ModuleDict(connections)


def _convolution(kind: str, config: Config, in_channels: int, channels: int) -> nn.Module:
    """Return the convolution of a transition, which must be of a kind."""
    require("transition of FPG", config.get("type"), kind)
    options = read_values(f"transition of FPG {kind!r}", TransitionEntries, config)
    kernel = options.pop("kernel_size", 3)
    if kind != "conv":
        options["padding"] = (kernel - 1) // 2
    return ConvModule(in_channels, channels, kernel, **options)
