"""Cross stage partial layers, of which CSPDarknet, CSPNeXt and their necks are made.

Source: C.-Y. Wang et al., "CSPNet", CVPR workshops 2020; Z. Ge et al., "YOLOX", 2021; C. Lyu et al., "RTMDet", 2022;
MMDetection's ``CSPLayer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.detect.parts.layers import ConvModule, DepthwiseSeparableConvModule


def convolution_block(use_depthwise: bool) -> type[ConvModule] | type[DepthwiseSeparableConvModule]:
    """Return the class of the convolutions larger than 1x1 of a network that may be depthwise."""
    return DepthwiseSeparableConvModule if use_depthwise else ConvModule


class DarknetBottleneck(nn.Module):
    """A 1x1 and a 3x3 convolution, perhaps beside a shortcut."""

    def __init__(self, channels: int, *, add_identity: bool, use_depthwise: bool, **layer: Any) -> None:
        super().__init__()
        self.conv1, self.conv2 = self.convolutions(channels, use_depthwise, **layer)
        self.add_identity = add_identity

    def convolutions(self, channels: int, use_depthwise: bool, **layer: Any) -> tuple[nn.Module, nn.Module]:
        """Return the two convolutions."""
        last = convolution_block(use_depthwise)
        return ConvModule(channels, channels, 1, **layer), last(channels, channels, 3, padding=1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(self.conv1(x))
        return x + y if self.add_identity else y


class CSPNeXtBlock(DarknetBottleneck):
    """A 3x3 convolution and a depthwise 5x5 one, perhaps beside a shortcut."""

    def convolutions(self, channels: int, use_depthwise: bool, **layer: Any) -> tuple[nn.Module, nn.Module]:
        # As in MMDetection, conv_cfg is not the first convolution's.
        first = convolution_block(use_depthwise)(channels, channels, 3, padding=1, **{**layer, "conv_cfg": None})
        return first, DepthwiseSeparableConvModule(channels, channels, 5, padding=2, **layer)


class ChannelAttention(nn.Module):
    """A factor for each channel, from the channels' means over the map."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * functional.hardsigmoid(self.fc(x.mean((2, 3), keepdim=True)))


class CSPLayer(nn.Module):
    """Blocks on one half of the channels, none on the other."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        count: int,
        *,
        block: type[nn.Module] = DarknetBottleneck,
        expand_ratio: float = 0.5,
        add_identity: bool = False,
        use_depthwise: bool = False,
        channel_attention: bool = False,
        **layer: Any,
    ) -> None:
        super().__init__()
        channels = int(out_channels * expand_ratio)
        self.main_conv = ConvModule(in_channels, channels, 1, **layer)
        self.short_conv = ConvModule(in_channels, channels, 1, **layer)
        self.final_conv = ConvModule(2 * channels, out_channels, 1, **layer)
        self.blocks = nn.Sequential(
            *(block(channels, add_identity=add_identity, use_depthwise=use_depthwise, **layer) for _ in range(count))
        )
        self.channel_attention = channel_attention
        if channel_attention:
            self.attention = ChannelAttention(2 * channels)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([self.blocks(self.main_conv(x)), self.short_conv(x)], 1)
        return self.final_conv(self.attention(both) if self.channel_attention else both)


class SPPBottleneck(nn.Module):
    """Maxima over windows of several sizes beside the map itself: spatial pyramid pooling."""

    def __init__(self, in_channels: int, out_channels: int, kernel_sizes: Sequence[int], **layer: Any) -> None:
        super().__init__()
        channels = in_channels // 2
        self.kernel_sizes = tuple(kernel_sizes)
        self.conv1 = ConvModule(in_channels, channels, 1, **layer)
        self.conv2 = ConvModule(channels * (1 + len(self.kernel_sizes)), out_channels, 1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        pooled = [functional.max_pool2d(x, size, stride=1, padding=size // 2) for size in self.kernel_sizes]
        return self.conv2(torch.cat([x, *pooled], 1))
