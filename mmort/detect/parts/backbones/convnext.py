"""ConvNeXt: a convolutional network with the proportions of a Swin Transformer.

Source: Z. Liu et al., "A ConvNet for the 2020s", CVPR 2022; S. Woo et al., "ConvNeXt V2", CVPR 2023; ``ConvNeXt`` of
MMPreTrain (``mmcls`` before).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, default, only, read_entries, training_only
from mmort.detect.parts.layers import ChannelNorm, activation

# By name, the number of blocks and the channels of each stage.
_ARCHITECTURES: dict[str, tuple[Sequence[int], Sequence[int]]] = {
    "atto": ((2, 2, 6, 2), (40, 80, 160, 320)),
    "femto": ((2, 2, 6, 2), (48, 96, 192, 384)),
    "pico": ((2, 2, 6, 2), (64, 128, 256, 512)),
    "nano": ((2, 2, 8, 2), (80, 160, 320, 640)),
    "tiny": ((3, 3, 9, 3), (96, 192, 384, 768)),
    "small": ((3, 3, 27, 3), (96, 192, 384, 768)),
    "base": ((3, 3, 27, 3), (128, 256, 512, 1024)),
    "large": ((3, 3, 27, 3), (192, 384, 768, 1536)),
    "xlarge": ((3, 3, 27, 3), (256, 512, 1024, 2048)),
    "huge": ((3, 3, 27, 3), (352, 704, 1408, 2816)),
}


class GlobalResponseNorm(nn.Module):
    """Scales the channels of maps [N, H, W, C] by their norms over the map, relative to the mean norm."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.zeros(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        norms = x.square().sum((1, 2), keepdim=True).sqrt()
        return self.gamma * (x * (norms / (norms.mean(3, keepdim=True) + 1e-6))) + self.beta + x


class ConvNeXtBlock(nn.Module):
    """A 7x7 convolution of each channel alone and two linear layers, beside a shortcut."""

    def __init__(self, channels: int, act_cfg: Config, scaled: bool, use_grn: bool) -> None:
        super().__init__()
        self.depthwise_conv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pointwise_conv1 = nn.Linear(channels, 4 * channels)
        self.act = activation(act_cfg)
        self.grn = GlobalResponseNorm(4 * channels) if use_grn else nn.Identity()
        self.pointwise_conv2 = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.ones(channels)) if scaled else None

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(self.depthwise_conv(x).permute(0, 2, 3, 1))  # [N, H, W, C]
        inner = self.pointwise_conv2(self.grn(self.act(self.pointwise_conv1(inner))))
        if self.gamma is not None:
            inner = inner * self.gamma
        return x + inner.permute(0, 3, 1, 2)


@dataclass(frozen=True, kw_only=True)
class ArchEntries(Schema):
    """The entries of ``arch``."""

    depths: Sequence[int]
    channels: Sequence[int]


@PARTS.register("backbone", "ConvNeXt")
class ConvNeXt(nn.Module):
    """ConvNeXt."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        arch: str | Config = "tiny"  # a name, or depths and channels
        in_channels: int = 3
        stem_patch_size: int = 4
        act_cfg: Config = default({"type": "GELU"})
        use_grn: bool = False
        layer_scale_init_value: float = 1e-6
        out_indices: int | Sequence[int] = -1
        gap_before_final_norm: bool = only(False, required=True)  # detectors need maps

        ignored: ClassVar = training_only("drop_path_rate", "frozen_stages", "with_cp")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        arch = entries.arch
        if isinstance(arch, str):
            if arch not in _ARCHITECTURES:
                raise ValueError(
                    f"detect.build: backbone.arch must be one of {', '.join(_ARCHITECTURES)}, or a dict, got {arch!r}"
                )
            depths, widths = _ARCHITECTURES[arch]
        else:
            settings = read_entries("backbone.arch", ArchEntries, arch)
            depths, widths = settings.depths, settings.channels
        indices = [entries.out_indices] if isinstance(entries.out_indices, int) else entries.out_indices
        self.out_indices = [index % len(depths) for index in indices]
        size, norm = entries.stem_patch_size, partial(ChannelNorm, eps=1e-6)
        stem = nn.Sequential(nn.Conv2d(entries.in_channels, widths[0], size, stride=size), norm(widths[0]))
        self.downsample_layers = nn.ModuleList([stem])
        for before, width in pairwise(widths):
            self.downsample_layers.append(nn.Sequential(norm(before), nn.Conv2d(before, width, 2, stride=2)))
        scaled = entries.layer_scale_init_value > 0
        self.stages = nn.ModuleList(
            nn.Sequential(*(ConvNeXtBlock(width, entries.act_cfg, scaled, entries.use_grn) for _ in range(depth)))
            for depth, width in zip(depths, widths, strict=True)
        )
        for stage in self.out_indices:
            self.add_module(f"norm{stage}", norm(widths[stage]))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        outputs = []
        for index, (downsample, stage) in enumerate(zip(self.downsample_layers, self.stages, strict=True)):
            x = stage(downsample(x))
            if index in self.out_indices:
                outputs.append(getattr(self, f"norm{index}")(x))
        return tuple(outputs)
