"""RegNet, whose widths follow from four numbers.

Source: I. Radosavovic et al., "Designing Network Design Spaces", CVPR 2020; MMDetection's ``RegNet``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, at_least, only, read_entries
from mmort.detect.parts.backbones.resnet import (
    Bottleneck,
    ResNetBase,
    ResNetEntries,
    StagePlan,
    add_norm,
    block_settings,
)
from mmort.detect.parts.layers import convolution

# Initial width, slope of the widths, factor between stages, channels of a group, number of blocks.
_ARCHITECTURES: dict[str, tuple[int, float, float, int, int]] = {
    "regnetx_400mf": (24, 24.48, 2.54, 16, 22),
    "regnetx_800mf": (56, 35.73, 2.28, 16, 16),
    "regnetx_1.6gf": (80, 34.01, 2.25, 24, 18),
    "regnetx_3.2gf": (88, 26.31, 2.25, 48, 25),
    "regnetx_4.0gf": (96, 38.65, 2.43, 40, 23),
    "regnetx_6.4gf": (184, 60.83, 2.07, 56, 17),
    "regnetx_8.0gf": (80, 49.56, 2.88, 120, 23),
    "regnetx_12gf": (168, 73.36, 2.37, 112, 19),
}


@dataclass(frozen=True, kw_only=True)
class ArchEntries(Schema):
    """The entries of ``arch``."""

    w0: int = at_least(1)
    wa: float
    wm: float
    group_w: int = at_least(1)
    depth: int = at_least(1)
    bot_mul: float = only(1.0)


class RegNetBlock(Bottleneck):
    """A bottleneck that is as wide inside as outside."""

    expansion = 1


@PARTS.register("backbone", "RegNet")
class RegNet(ResNetBase):
    """RegNetX."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(ResNetEntries):
        arch: str | Config  # a name, or w0, wa, wm, group_w, depth and bot_mul
        stem_channels: int = 32
        base_channels: int = 32
        strides: Sequence[int] = (2, 2, 2, 2)

    def __init__(self, entries: Entries) -> None:
        arch = entries.arch
        if isinstance(arch, str):
            if arch not in _ARCHITECTURES:
                raise ValueError(
                    f"detect.build: backbone.arch must be one of {', '.join(_ARCHITECTURES)}, or a dict, got {arch!r}"
                )
            arch = dict(zip(("w0", "wa", "wm", "group_w", "depth"), _ARCHITECTURES[arch], strict=True))
        settings = read_entries("backbone.arch", ArchEntries, arch)
        plans = []
        for stage, (width, count) in enumerate(_stages(settings)):
            group = min(settings.group_w, width)
            width = round(width / group) * group
            plans.append(StagePlan(RegNetBlock, count, width, block_settings(entries, stage, width, width // group)))
        super().__init__(entries, plans)

    def add_stem(self, entries: ResNetEntries) -> int:
        """Add one convolution; see `ResNetBase`."""
        channels = entries.stem_channels or entries.base_channels
        self.conv1 = convolution(entries.conv_cfg, entries.in_channels, channels, 3, stride=2, padding=1, bias=False)
        self.norm1_name = add_norm(self, entries.norm_cfg, channels, 1)
        return channels

    def stem_maps(self, x: Tensor) -> Tensor:
        """Return the maps [N, C, H/2, W/2] that the first stage reads."""
        return torch.relu(getattr(self, self.norm1_name)(self.conv1(x)))


def _stages(arch: ArchEntries) -> list[tuple[int, int]]:
    """Return the width of each stage and its number of blocks."""
    first, factor = arch.w0, arch.wm
    widths = []
    for block in range(arch.depth):
        exponent = round(math.log((first + block * arch.wa) / first) / math.log(factor))
        widths.append(round(first * factor**exponent / 8) * 8)
    return sorted(Counter(widths).items())
