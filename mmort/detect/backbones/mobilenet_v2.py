"""MobileNetV2.

Source: M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018; MMDetection's
``MobileNetV2``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from mmort.detect.layers import ConvModule

# Growth inside the blocks, channels, number of blocks, stride of the first.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class InvertedResidual(nn.Module):
    """A depthwise convolution between two 1x1 (none before it if nothing grows), beside a shortcut if shapes allow."""

    def __init__(
        self, in_channels: int, out_channels: int, growth: int, stride: int, act_cfg: dict[str, Any], **common: Any
    ) -> None:
        super().__init__()
        inner = in_channels * growth
        common |= {"act_cfg": act_cfg}
        self.expand_conv = ConvModule(in_channels, inner, 1, **common) if growth != 1 else None
        self.depthwise_conv = ConvModule(inner, inner, 3, stride=stride, padding=1, groups=inner, **common)
        self.linear_conv = ConvModule(inner, out_channels, 1, **{**common, "act_cfg": None})
        self.shortcut = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        inner = x if self.expand_conv is None else self.expand_conv(x)
        out: Tensor = self.linear_conv(self.depthwise_conv(inner))
        return x + out if self.shortcut else out


class MobileNetV2(nn.Module):
    """MobileNetV2; parameters have the names of the config's entries.  `out_indices` counts stages, the last is 7."""

    def __init__(
        self,
        widen_factor: float = 1.0,
        out_indices: Sequence[int] = (1, 2, 4, 7),
        conv_cfg: dict[str, Any] | None = None,
        norm_cfg: dict[str, Any] = {"type": "BN"},  # noqa: B006 - never written to
        act_cfg: dict[str, Any] = {"type": "ReLU6"},  # noqa: B006
    ) -> None:
        super().__init__()
        self.out_indices = tuple(out_indices)
        common: dict[str, Any] = {"conv_cfg": conv_cfg, "norm_cfg": norm_cfg, "act_cfg": act_cfg}
        channels = _multiple_of_8(32 * widen_factor)
        self.conv1 = ConvModule(3, channels, 3, stride=2, padding=1, **common)
        for stage, (growth, width, count, stride) in enumerate(_STAGES):
            width = _multiple_of_8(width * widen_factor)
            blocks = []
            for each in (stride,) + (1,) * (count - 1):
                blocks.append(InvertedResidual(channels, width, growth, each, **common))
                channels = width
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.conv2 = ConvModule(channels, int(1280 * max(widen_factor, 1)), 1, **common)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:  # noqa: D102
        x = self.conv1(x)  # [N, C, H/2, W/2]
        outputs = []
        for stage in range(max(self.out_indices) + 1):
            x = self.conv2(x) if stage == len(_STAGES) else getattr(self, f"layer{stage + 1}")(x)
            if stage in self.out_indices:
                outputs.append(x)
        return tuple(outputs)


def _multiple_of_8(channels: float) -> int:
    """Return the nearest multiple of 8 (at least 8) that is not below 90 % of `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8
