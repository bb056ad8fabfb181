"""SimpleFPN: maps of several sizes, all made of the one map of a plain transformer.

Source: Y. Li et al., "Exploring Plain Vision Transformer Backbones for Object Detection", ECCV 2022; ``SimpleFPN`` of
MMDetection's ``projects/ViTDet``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS
from mmort.detect.parts.layers import ConvModule, LayerEntries, normalization


@PARTS.register("neck", "SimpleFPN")
class SimpleFPN(nn.Module):
    """Maps of four times, twice, once and half of the sides of a map, and every second cell of the last beyond."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        """The entries of ``neck``."""

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
