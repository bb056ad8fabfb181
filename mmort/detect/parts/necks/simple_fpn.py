"""Maps of several sizes, all made of the one map of a plain transformer.

Source: Y. Li et al., "Exploring Plain Vision Transformer Backbones for Object Detection", ECCV 2022; ``SimpleFPN`` of
MMDetection's ``projects/ViTDet``, ``SFP`` of the code of Co-DETR's authors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, training_only
from mmort.detect.parts.layers import ChannelNorm, ConvModule, LayerEntries, normalization


@PARTS.register("neck", "SimpleFPN")
class SimpleFPN(nn.Module):
    """Maps of four times, twice, once and half of the sides of a map, and every second cell of the last beyond."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        backbone_channel: int
        in_channels: Sequence[int]
        out_channels: int
        num_outs: int
        norm_cfg: Config
        act_cfg: Config | None = None

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        before, channels = entries.backbone_channel, entries.out_channels
        half, quarter = before // 2, before // 4
        expected = [quarter, half, before, before]
        if [*entries.in_channels] != expected:
            raise ValueError(
                f"detect.build: neck.in_channels must be {expected}, because of backbone_channel, "
                f"got {[*entries.in_channels]}"
            )
        self.extra = entries.num_outs - len(expected)
        self.fpn1 = nn.Sequential(
            nn.ConvTranspose2d(before, half, 2, stride=2),
            normalization(entries.norm_cfg, half)[1],
            nn.GELU(),
            nn.ConvTranspose2d(half, quarter, 2, stride=2),
        )
        self.fpn2 = nn.Sequential(nn.ConvTranspose2d(before, half, 2, stride=2))
        self.lateral_convs = nn.ModuleList(ConvModule(width, channels, 1, **entries.layer) for width in expected)
        self.fpn_convs = nn.ModuleList(ConvModule(channels, channels, 3, padding=1, **entries.layer) for _ in expected)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if len(inputs) != 1:
            raise ValueError(f"detect: neck 'SimpleFPN' needs a backbone with one map, as ViT, got {len(inputs)} maps")
        x = inputs[0]
        maps = self.fpn1(x), self.fpn2(x), x, F.max_pool2d(x, 2)
        outputs = [conv(lateral(x)) for x, lateral, conv in zip(maps, self.lateral_convs, self.fpn_convs, strict=True)]
        for _ in range(self.extra):
            outputs.append(F.max_pool2d(outputs[-1], 1, stride=2))
        return tuple(outputs)


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
