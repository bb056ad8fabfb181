"""The neck of NAS-FCOS: maps merged in the order that a search has found.

Source: N. Wang et al., "NAS-FCOS: Fast Neural Architecture Search for Object Detection", CVPR 2020; MMDetection's
``NASFCOS_FPN``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.merge_cells import resize
from mmort.detect.parts.necks.fpn import end_of_levels

_CELLS = ("c22_1", "c22_2", "c32", "c02", "c42", "c36", "c61")
"""In MMDetection's names, which two maps are merged: 0 to 2 are the backbone's, and each cell adds one."""

_WITH_SECOND_CONVOLUTION = ("c22_1", "c22_2", "c42", "c36", "c61")
_FINE = (0, 6)  # the maps of the finest level


class MergeCell(nn.Module):
    """Two maps, each perhaps convolved, side by side; then one value for each channel from two."""

    def __init__(self, channels: int, second: bool, layer: dict[str, Any]) -> None:
        super().__init__()
        self.input1_conv = ConvModule(channels, channels, 3, padding=1, bias=True, **layer)
        self.input2_conv: nn.Module = nn.Identity()
        if second:
            self.input2_conv = ConvModule(channels, channels, 3, padding=1, bias=True, **layer)
        self.out_conv = ConvModule(
            2 * channels,
            channels,
            1,
            groups=channels,
            bias=False,
            norm_cfg={"type": "BN"},
            order=("norm", "act", "conv"),
        )

    def forward(self, first: Tensor, second: Tensor, finer: int) -> Tensor:
        """Return the merged map, at the size of the `finer` one of both (0 or 1)."""
        maps = [self.input1_conv(first), self.input2_conv(second)]
        maps[1 - finer] = resize(maps[1 - finer], maps[finer].shape[2:], finer=True)
        return self.out_conv(torch.cat(maps, 1))


@PARTS.register("neck", "NASFCOS_FPN")
class NASFCOSFPN(nn.Module):
    """NAS-FCOS's neck, for three levels of a backbone."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: Sequence[int]
        out_channels: int
        num_outs: int
        start_level: int = 1
        end_level: int = -1
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None

        ignored: ClassVar = {"add_extra_convs": "MMDetection does not read it either"}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        end = end_of_levels(len(entries.in_channels), entries.end_level)
        channels, self.start_level, self.end = entries.out_channels, entries.start_level, end
        used = entries.in_channels[self.start_level : end]
        if len(used) != 3 or self.start_level != 1:
            raise ValueError(
                f"detect.build: neck NASFCOS_FPN must read levels 1 to 3, got {self.start_level} to {end - 1}"
            )
        self.adapt_convs = nn.ModuleList(
            ConvModule(before, channels, 1, bias=False, norm_cfg={"type": "BN"}) for before in used
        )
        layer = {"conv_cfg": entries.conv_cfg, "norm_cfg": entries.norm_cfg}
        self.fpn = nn.ModuleDict(
            {name: MergeCell(channels, name in _WITH_SECOND_CONVOLUTION, layer) for name in _CELLS}
        )
        self.extra_downsamples = nn.ModuleList(
            ConvModule(
                channels,
                channels,
                3,
                stride=2,
                padding=1,
                act_cfg=None if index == 0 else {"type": "ReLU"},
                order=("act", "norm", "conv"),
            )
            for index in range(entries.num_outs - 3)
        )

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        inputs = inputs[self.start_level : self.end]
        maps = [conv(x) for conv, x in zip(self.adapt_convs, inputs, strict=True)]
        for name in _CELLS:
            first, second = int(name[1]), int(name[2])
            finer = int(first not in _FINE and second in _FINE)
            maps.append(self.fpn[name](maps[first], maps[second], finer))
        outputs = []
        for x, merged in zip(inputs, (maps[9], maps[8], maps[7]), strict=True):
            added = F.interpolate(maps[5], size=merged.shape[2:], mode="bilinear", align_corners=False)
            outputs.append(F.interpolate(merged + added, size=x.shape[2:], mode="bilinear", align_corners=False))
        for downsample in self.extra_downsamples:
            outputs.append(downsample(outputs[-1]))
        return tuple(outputs)
