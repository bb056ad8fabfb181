"""The stacked hourglass network.

Source: A. Newell et al., "Stacked Hourglass Networks for Human Pose Estimation", ECCV 2016; H. Law and J. Deng,
"CornerNet", ECCV 2018; MMDetection's ``HourglassNet``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, default
from mmort.detect.parts.backbones.resnet import BasicBlock, BlockSettings
from mmort.detect.parts.layers import ConvModule, convolution, normalization

_BN = {"type": "BN"}


@PARTS.register("backbone", "HourglassNet")
class HourglassNet(nn.Module):
    """Hourglasses in a row, each fed with the maps of the one before; the maps of all are returned."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        downsample_times: int = 5
        num_stacks: int = 2
        stage_channels: Sequence[int] = (256, 256, 384, 384, 384, 512)
        stage_blocks: Sequence[int] = (2, 2, 2, 2, 2, 4)
        feat_channel: int = 256
        norm_cfg: Config = default(_BN)

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        downsample_times, num_stacks, norm_cfg = entries.downsample_times, entries.num_stacks, entries.norm_cfg
        stage_channels, stage_blocks = entries.stage_channels, entries.stage_blocks
        feat_channel = entries.feat_channel
        if not downsample_times < len(stage_channels) == len(stage_blocks):
            raise ValueError(
                f"detect.build: backbone.stage_channels and stage_blocks must have more than downsample_times = "
                f"{downsample_times} entries, got {len(stage_channels)} and {len(stage_blocks)}"
            )
        channels = stage_channels[0]
        self.stem = nn.Sequential(
            ConvModule(3, channels // 2, 7, stride=2, padding=3, norm_cfg=norm_cfg),
            _blocks(channels // 2, channels, 1, stride=2, norm_cfg=norm_cfg),
        )
        self.hourglass_modules = nn.ModuleList(
            HourglassModule(downsample_times, stage_channels, stage_blocks) for _ in range(num_stacks)
        )
        between = range(num_stacks - 1)
        self.inters = _blocks(channels, channels, num_stacks - 1, norm_cfg=norm_cfg)
        self.conv1x1s = nn.ModuleList(
            ConvModule(channels, channels, 1, norm_cfg=norm_cfg, act_cfg=None) for _ in between
        )
        self.out_convs = nn.ModuleList(
            ConvModule(channels, feat_channel, 3, padding=1, norm_cfg=norm_cfg) for _ in range(num_stacks)
        )
        self.remap_convs = nn.ModuleList(
            ConvModule(feat_channel, channels, 1, norm_cfg=norm_cfg, act_cfg=None) for _ in between
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.stem(x)  # [N, C, H/4, W/4]
        outputs: list[Tensor] = []
        for stack, (hourglass, out_conv) in enumerate(zip(self.hourglass_modules, self.out_convs, strict=True)):
            if stack:
                x = torch.relu(self.conv1x1s[stack - 1](x) + self.remap_convs[stack - 1](outputs[-1]))
                x = self.inters[stack - 1](x)
            outputs.append(out_conv(hourglass(x)))  # [N, feat_channel, H/4, W/4]
        return tuple(outputs)


class HourglassModule(nn.Module):
    """Down to half the size, through the next smaller hourglass and up again, beside a path of the full size.

    It always has batch normalization: MMDetection does not pass ``norm_cfg`` on to it.
    """

    def __init__(self, depth: int, stage_channels: Sequence[int], stage_blocks: Sequence[int]) -> None:
        super().__init__()
        channels, inner = stage_channels[:2]
        count = stage_blocks[0]
        self.up1 = _blocks(channels, channels, count)
        self.low1 = _blocks(channels, inner, count, stride=2)
        self.low2 = (
            HourglassModule(depth - 1, stage_channels[1:], stage_blocks[1:])
            if depth > 1
            else _blocks(inner, inner, stage_blocks[1])
        )
        self.low3 = _blocks(inner, channels, count, change_last=True)

    def forward(self, x: Tensor) -> Tensor:
        around = self.up1(x)
        through = self.low3(self.low2(self.low1(x)))
        return around + nn.functional.interpolate(through, size=around.shape[2:])


def _blocks(
    in_channels: int,
    channels: int,
    count: int,
    stride: int = 1,
    norm_cfg: Config = _BN,
    change_last: bool = False,
) -> nn.Sequential:
    """Build residual blocks, at least one; the first (or the last) changes size and channels."""
    count = max(count, 1)
    changing = count - 1 if change_last else 0
    layers = []
    for index in range(count):
        before = in_channels if index <= changing else channels
        after = channels if index >= changing else in_channels
        step = stride if index == changing else 1
        shortcut = None
        if step != 1 or before != after:
            shortcut = nn.Sequential(
                convolution(None, before, after, 1, stride=step, bias=False), normalization(norm_cfg, after)[1]
            )
        layers.append(BasicBlock(before, after, step, shortcut, BlockSettings(norm_cfg=norm_cfg)))
    return nn.Sequential(*layers)
