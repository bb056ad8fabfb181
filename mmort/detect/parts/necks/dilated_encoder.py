"""YOLOF's neck: the last level alone, through residual blocks whose dilations widen the field of view.

Source: Q. Chen et al., "You Only Look One-level Feature", CVPR 2021; MMDetection's ``DilatedEncoder``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema
from mmort.detect.parts.layers import ConvModule


class DilatedBottleneck(nn.Module):
    """A residual block with a dilated 3x3 convolution."""

    def __init__(self, channels: int, middle: int, dilation: int) -> None:
        super().__init__()
        norm_cfg = {"type": "BN"}
        self.conv1 = ConvModule(channels, middle, 1, norm_cfg=norm_cfg)
        self.conv2 = ConvModule(middle, middle, 3, padding=dilation, dilation=dilation, norm_cfg=norm_cfg)
        self.conv3 = ConvModule(middle, channels, 1, norm_cfg=norm_cfg)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv3(self.conv2(self.conv1(x)))


@PARTS.register("neck", "DilatedEncoder")
class DilatedEncoder(nn.Module):
    """YOLOF's neck."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: int
        out_channels: int
        block_mid_channels: int
        num_residual_blocks: int
        block_dilations: Sequence[int]

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels = entries.out_channels
        self.lateral_conv, self.lateral_norm = nn.Conv2d(entries.in_channels, channels, 1), nn.BatchNorm2d(channels)
        self.fpn_conv, self.fpn_norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.dilated_encoder_blocks = nn.Sequential(
            *(
                DilatedBottleneck(channels, entries.block_mid_channels, dilation)
                for dilation in entries.block_dilations[: entries.num_residual_blocks]
            )
        )

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        x = self.fpn_norm(self.fpn_conv(self.lateral_norm(self.lateral_conv(inputs[-1]))))
        return (self.dilated_encoder_blocks(x),)
