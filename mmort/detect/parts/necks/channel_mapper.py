"""ChannelMapper: a convolution for every level, so that all have the same channels.

Source: MMDetection's ``ChannelMapper``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from mmort.detect.entries import PARTS
from mmort.detect.parts.layers import ConvModule, LayerEntries


@PARTS.register("neck", "ChannelMapper")
class ChannelMapper(nn.Module):
    """A convolution for every level; further levels come from convolutions with stride 2."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        in_channels: Sequence[int]
        out_channels: int
        kernel_size: int = 3
        bias: bool | str = "auto"
        num_outs: int | None = None

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        layer: dict[str, Any] = {"bias": entries.bias, **entries.layer}
        kernel, channels = entries.kernel_size, entries.out_channels
        self.convs = nn.ModuleList(
            ConvModule(before, channels, kernel, padding=(kernel - 1) // 2, **layer) for before in entries.in_channels
        )
        levels = len(entries.in_channels)
        sources = [entries.in_channels[-1], *[channels] * (entries.num_outs or levels)]
        self.extra_convs = nn.ModuleList(
            ConvModule(before, channels, 3, stride=2, padding=1, **layer)
            for before in sources[: (entries.num_outs or levels) - levels]
        )

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        outputs = [conv(x) for conv, x in zip(self.convs, inputs, strict=True)]
        x = inputs[-1]
        for conv in self.extra_convs:
            x = conv(x)
            outputs.append(x)
        return tuple(outputs)
