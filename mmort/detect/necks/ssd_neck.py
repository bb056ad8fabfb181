"""SSD's neck: further levels, each computed from the one before.

Source: W. Liu et al., "SSD: Single Shot MultiBox Detector", ECCV 2016; MMDetection's ``SSDNeck``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmort.detect.layers import ConvModule, DepthwiseSeparableConvModule


class L2Norm(nn.Module):
    """Bring the channels of every place to length 1, then weight them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        norm = x.square().sum(1, keepdim=True).sqrt() + 1e-10
        return self.weight[:, None, None] * x / norm


class SSDNeck(nn.Module):
    """SSD's neck; parameters have the names of the config's entries."""

    def __init__(
        self,
        in_channels: Sequence[int],
        out_channels: Sequence[int],
        level_strides: Sequence[int],
        level_paddings: Sequence[int],
        l2_norm_scale: float | None = 20.0,
        last_kernel_size: int = 3,
        use_depthwise: bool = False,
        conv_cfg: dict[str, Any] | None = None,
        norm_cfg: dict[str, Any] | None = None,
        act_cfg: dict[str, Any] | None = {"type": "ReLU"},  # noqa: B006 - never written to
    ) -> None:
        super().__init__()
        extra = out_channels[len(in_channels) :]
        if not len(extra) == len(level_strides) == len(level_paddings):
            raise ValueError(
                "detect.build: neck.level_strides and neck.level_paddings must have an entry for each level beyond "
                f"the backbone's: {len(extra)}"
            )
        self.l2_norm = L2Norm(in_channels[0]) if l2_norm_scale else None
        common: dict[str, Any] = {"conv_cfg": conv_cfg, "norm_cfg": norm_cfg, "act_cfg": act_cfg}
        second = DepthwiseSeparableConvModule if use_depthwise else ConvModule
        self.extra_layers = nn.ModuleList()
        before = out_channels[len(in_channels) - 1]
        for level, (channels, stride, padding) in enumerate(zip(extra, level_strides, level_paddings, strict=True)):
            kernel = last_kernel_size if level == len(extra) - 1 else 3
            self.extra_layers.append(
                nn.Sequential(
                    ConvModule(before, channels // 2, 1, **common),
                    second(channels // 2, channels, kernel, stride=stride, padding=padding, **common),
                )
            )
            before = channels

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:  # noqa: D102
        outputs = list(inputs)
        x = outputs[-1]
        if self.l2_norm is not None:
            outputs[0] = self.l2_norm(outputs[0])
        for layer in self.extra_layers:
            x = layer(x)
            outputs.append(x)
        return tuple(outputs)
