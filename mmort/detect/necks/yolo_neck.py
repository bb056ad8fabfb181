"""YOLOv3's neck: every level is computed from its own features and the coarser level's.

Source: J. Redmon, A. Farhadi, "YOLOv3: An Incremental Improvement", 2018; MMDetection's ``YOLOV3Neck``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.detect.layers import ConvModule


class DetectionBlock(nn.Module):
    """Five convolutions, 1x1 and 3x3 in turns."""

    def __init__(self, in_channels: int, channels: int, **common: Any) -> None:
        super().__init__()
        self.conv1 = ConvModule(in_channels, channels, 1, **common)
        self.conv2 = ConvModule(channels, channels * 2, 3, padding=1, **common)
        self.conv3 = ConvModule(channels * 2, channels, 1, **common)
        self.conv4 = ConvModule(channels, channels * 2, 3, padding=1, **common)
        self.conv5 = ConvModule(channels * 2, channels, 1, **common)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.conv5(self.conv4(self.conv3(self.conv2(self.conv1(x)))))  # type: ignore[no-any-return]


class YOLOV3Neck(nn.Module):
    """YOLOv3's neck; parameters have the names of the config's entries.  Levels go out coarsest first."""

    def __init__(
        self,
        num_scales: int,
        in_channels: Sequence[int],
        out_channels: Sequence[int],
        conv_cfg: dict[str, Any] | None = None,
        norm_cfg: dict[str, Any] = {"type": "BN"},  # noqa: B006 - never written to
        act_cfg: dict[str, Any] = {"type": "LeakyReLU", "negative_slope": 0.1},  # noqa: B006
    ) -> None:
        super().__init__()
        if not num_scales == len(in_channels) == len(out_channels):
            raise ValueError("detect.build: neck.in_channels and neck.out_channels must have num_scales entries")
        common: dict[str, Any] = {"conv_cfg": conv_cfg, "norm_cfg": norm_cfg, "act_cfg": act_cfg}
        self.detect1 = DetectionBlock(in_channels[0], out_channels[0], **common)
        for level in range(1, num_scales):
            channels = out_channels[level]
            self.add_module(f"conv{level}", ConvModule(out_channels[level - 1], channels, 1, **common))
            self.add_module(f"detect{level + 1}", DetectionBlock(in_channels[level] + channels, channels, **common))

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:  # noqa: D102
        x = self.detect1(inputs[-1])
        outputs = [x]
        for level, finer in enumerate(reversed(inputs[:-1]), start=1):
            # Twice the size; asked for as the finer level's, so that an export need not prove that they are equal.
            x = F.interpolate(getattr(self, f"conv{level}")(x), size=finer.shape[2:])
            x = getattr(self, f"detect{level + 1}")(torch.cat([x, finer], 1))
            outputs.append(x)
        return tuple(outputs)
