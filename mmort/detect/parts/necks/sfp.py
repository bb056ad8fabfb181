"""SFP: maps of several sizes, all made of the one map of a plain transformer.

Source: Y. Li et al., "Exploring Plain Vision Transformer Backbones for Object Detection", ECCV 2022; ``SFP`` of the
code of Co-DETR's authors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, training_only
from mmort.detect.parts.layers import ChannelNorm


def _convolution(before: int, channels: int, kernel: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    """Return a convolution and its normalization."""
    convolution = nn.Conv2d(before, channels, kernel, stride=stride, padding=kernel // 2, bias=False)
    return convolution, ChannelNorm(channels, eps=1e-6)


def _enlarged(before: int, channels: int) -> tuple[nn.Module, ...]:
    """Return layers that double the sides of a map."""
    return nn.Upsample(scale_factor=2), *_convolution(before, channels, 3), nn.GELU()


def _projected(before: int, channels: int) -> tuple[nn.Module, ...]:
    """Return the last layers of each map."""
    return *_convolution(before, channels, 1), nn.GELU(), *_convolution(channels, channels, 3)


@PARTS.register("neck", "SFP")
class SFP(nn.Module):
    """Maps of twice, once, half and a quarter of the sides of a map, and if `use_p2`, of four times before them."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``neck``."""

        in_channels: Sequence[int]
        out_channels: int
        use_p2: bool = False

        ignored: ClassVar = {"num_outs": "the maps are always the same", **training_only("use_act_checkpoint")}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        before, channels = entries.in_channels[0], entries.out_channels
        half, quarter = before // 2, before // 4
        if entries.use_p2:
            self.p2 = nn.Sequential(*_enlarged(before, half), *_enlarged(half, quarter), *_projected(quarter, channels))
        self.p3 = nn.Sequential(*_enlarged(before, half), *_projected(half, channels))
        self.p4 = nn.Sequential(*_projected(before, channels))
        self.p5 = nn.Sequential(nn.MaxPool2d(3, stride=2, padding=1), *_projected(before, channels))
        reduced = nn.MaxPool2d(3, stride=2, padding=1), *_convolution(before, before, 3, stride=2), nn.GELU()
        self.p6 = nn.Sequential(*reduced, *_projected(before, channels))
        self.use_p2 = entries.use_p2

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        layers = [self.p3, self.p4, self.p5, self.p6]
        return tuple(layer(inputs[0]) for layer in ([self.p2, *layers] if self.use_p2 else layers))
