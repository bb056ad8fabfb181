"""Darknet-53.

Source: J. Redmon, A. Farhadi, "YOLOv3: An Incremental Improvement", 2018; MMDetection's ``Darknet``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from mmort.detect.layers import ConvModule

_BLOCKS = (1, 2, 8, 8, 4)  # by stage; a stage has twice the channels of the one before, from 64 on


class ResBlock(nn.Module):
    """A 1x1 and a 3x3 convolution beside a shortcut."""

    def __init__(self, channels: int, **common: Any) -> None:
        super().__init__()
        self.conv1 = ConvModule(channels, channels // 2, 1, **common)
        self.conv2 = ConvModule(channels // 2, channels, 3, padding=1, **common)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x + self.conv2(self.conv1(x))  # type: ignore[no-any-return]


class Darknet(nn.Module):
    """Darknet-53; parameters have the names of the config's entries.  `out_indices` counts stages from 1."""

    def __init__(
        self,
        depth: int = 53,
        out_indices: Sequence[int] = (3, 4, 5),
        conv_cfg: dict[str, Any] | None = None,
        norm_cfg: dict[str, Any] = {"type": "BN"},  # noqa: B006 - never written to
        act_cfg: dict[str, Any] = {"type": "LeakyReLU", "negative_slope": 0.1},  # noqa: B006
    ) -> None:
        super().__init__()
        if depth != 53:
            raise ValueError(f"detect.build: backbone.depth must be 53 for Darknet, got {depth}")
        self.out_indices = tuple(out_indices)
        common: dict[str, Any] = {"conv_cfg": conv_cfg, "norm_cfg": norm_cfg, "act_cfg": act_cfg}
        self.conv1 = ConvModule(3, 32, 3, padding=1, **common)
        for stage, count in enumerate(_BLOCKS, start=1):
            channels = 32 * 2**stage
            blocks = nn.Sequential()
            blocks.add_module("conv", ConvModule(channels // 2, channels, 3, stride=2, padding=1, **common))
            for index in range(count):
                blocks.add_module(f"res{index}", ResBlock(channels, **common))
            self.add_module(f"conv_res_block{stage}", blocks)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:  # noqa: D102
        x = self.conv1(x)  # [N, 32, H, W]
        outputs = [x] if 0 in self.out_indices else []
        for stage in range(1, len(_BLOCKS) + 1):
            x = getattr(self, f"conv_res_block{stage}")(x)  # [N, 32 * 2**stage, H / 2**stage, W / 2**stage]
            if stage in self.out_indices:
                outputs.append(x)
        return tuple(outputs)
