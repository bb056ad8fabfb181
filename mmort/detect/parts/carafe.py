"""CARAFE: enlarging maps with kernels that the map itself decides.

Source: J. Wang et al., "CARAFE: Content-Aware ReAssembly of FEatures", ICCV 2019; MMCV's ``CARAFEPack``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.detect.entries import Schema
from mmort.torch import carafe


class CARAFE(nn.Module):
    """Every pixel of the larger map is a weighted mean of the pixels around it in the smaller one."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of an ``upsample_cfg``."""

        channels: int
        scale_factor: int
        up_kernel: int = 5
        up_group: int = 1
        encoder_kernel: int = 3
        encoder_dilation: int = 1
        compressed_channels: int = 64

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.factor, self.kernel, self.groups = entries.scale_factor, entries.up_kernel, entries.up_group
        self.channel_compressor = nn.Conv2d(entries.channels, entries.compressed_channels, 1)
        self.content_encoder = nn.Conv2d(
            entries.compressed_channels,
            self.kernel**2 * self.groups * self.factor**2,
            entries.encoder_kernel,
            padding=(entries.encoder_kernel - 1) * entries.encoder_dilation // 2,
            dilation=entries.encoder_dilation,
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return maps [N, C, H * factor, W * factor] of maps [N, C, H, W]."""
        logits = self.content_encoder(self.channel_compressor(x))
        logits = F.pixel_shuffle(logits, self.factor)  # [N, groups * taps, H * factor, W * factor]
        weights = torch.unflatten(logits, 1, (self.groups, -1)).softmax(2).flatten(1, 2)
        return carafe(x, weights, self.kernel, self.groups, self.factor)
