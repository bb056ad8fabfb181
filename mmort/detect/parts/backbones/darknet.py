"""Darknet-53.

Source: J. Redmon, A. Farhadi, "YOLOv3: An Incremental Improvement", 2018; MMDetection's ``Darknet``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, only, training_only
from mmort.detect.parts.layers import ConvModule, LayerEntries

_BLOCKS = (1, 2, 8, 8, 4)  # by stage; a stage has twice the channels of the one before, from 64 on


class ResBlock(nn.Module):
    """A 1x1 and a 3x3 convolution beside a shortcut."""

    def __init__(self, channels: int, **layer: Any) -> None:
        super().__init__()
        self.conv1 = ConvModule(channels, channels // 2, 1, **layer)
        self.conv2 = ConvModule(channels // 2, channels, 3, padding=1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(self.conv1(x))


@PARTS.register("backbone", "Darknet")
class Darknet(nn.Module):
    """Darknet-53."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        depth: int = only(53)
        out_indices: Sequence[int] = (3, 4, 5)  # stages, counted from 1
        norm_cfg: Config | None = default({"type": "BN"})
        act_cfg: Config | None = default({"type": "LeakyReLU", "negative_slope": 0.1})

        ignored: ClassVar = training_only("frozen_stages", "norm_eval")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.out_indices = tuple(entries.out_indices)
        layer = entries.layer
        self.conv1 = ConvModule(3, 32, 3, padding=1, **layer)
        for stage, count in enumerate(_BLOCKS, start=1):
            channels = 32 * 2**stage
            blocks = nn.Sequential()
            blocks.add_module("conv", ConvModule(channels // 2, channels, 3, stride=2, padding=1, **layer))
            for index in range(count):
                blocks.add_module(f"res{index}", ResBlock(channels, **layer))
            self.add_module(f"conv_res_block{stage}", blocks)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.conv1(x)  # [N, 32, H, W]
        outputs = [x] if 0 in self.out_indices else []
        for stage in range(1, len(_BLOCKS) + 1):
            x = getattr(self, f"conv_res_block{stage}")(x)  # [N, 32 * 2**stage, H / 2**stage, W / 2**stage]
            if stage in self.out_indices:
                outputs.append(x)
        return tuple(outputs)
