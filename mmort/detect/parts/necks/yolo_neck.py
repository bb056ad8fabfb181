"""YOLOv3's neck: every level is computed from its own features and the coarser level's.

Source: J. Redmon, A. Farhadi, "YOLOv3: An Incremental Improvement", 2018; MMDetection's ``YOLOV3Neck``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default
from mmort.detect.parts.layers import ConvModule, LayerEntries


class DetectionBlock(nn.Module):
    """Five convolutions, 1x1 and 3x3 in turn."""

    def __init__(self, in_channels: int, channels: int, **layer: Any) -> None:
        super().__init__()
        self.conv1 = ConvModule(in_channels, channels, 1, **layer)
        self.conv2 = ConvModule(channels, channels * 2, 3, padding=1, **layer)
        self.conv3 = ConvModule(channels * 2, channels, 1, **layer)
        self.conv4 = ConvModule(channels, channels * 2, 3, padding=1, **layer)
        self.conv5 = ConvModule(channels * 2, channels, 1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv5(self.conv4(self.conv3(self.conv2(self.conv1(x)))))


@PARTS.register("neck", "YOLOV3Neck")
class YOLOV3Neck(nn.Module):
    """YOLOv3's neck; its levels are returned coarsest first."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        num_scales: int
        in_channels: Sequence[int]
        out_channels: Sequence[int]
        norm_cfg: Config | None = default({"type": "BN"})
        act_cfg: Config | None = default({"type": "LeakyReLU", "negative_slope": 0.1})

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        num_scales, in_channels, out_channels = entries.num_scales, entries.in_channels, entries.out_channels
        if not num_scales == len(in_channels) == len(out_channels):
            raise ValueError(
                f"detect.build: neck.in_channels and neck.out_channels must have num_scales={num_scales} entries, got "
                f"{in_channels} and {out_channels}"
            )
        layer = entries.layer
        self.detect1 = DetectionBlock(in_channels[0], out_channels[0], **layer)
        for level in range(1, num_scales):
            channels = out_channels[level]
            self.add_module(f"conv{level}", ConvModule(out_channels[level - 1], channels, 1, **layer))
            self.add_module(f"detect{level + 1}", DetectionBlock(in_channels[level] + channels, channels, **layer))

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        x = self.detect1(inputs[-1])
        outputs = [x]
        for level, finer in enumerate(reversed(inputs[:-1]), start=1):
            # Twice the size, given as the finer level's: so an export need not prove that they are equal.
            x = F.interpolate(getattr(self, f"conv{level}")(x), size=finer.shape[2:])
            x = getattr(self, f"detect{level + 1}")(torch.cat([x, finer], 1))
            outputs.append(x)
        return tuple(outputs)
