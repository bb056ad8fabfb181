"""VGG-16 as SSD has it, with the two fully connected layers made convolutions.

Source: W. Liu et al., "SSD: Single Shot MultiBox Detector", ECCV 2016; MMDetection's ``SSDVGG``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema

# By depth, the number of convolutions of each stage.
_CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


@PARTS.register("backbone", "SSDVGG")
class SSDVGG(nn.Module):
    """VGG for SSD."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        depth: int
        with_last_pool: bool = False
        ceil_mode: bool = True
        out_feature_indices: Sequence[int] = (22, 34)  # layers, activations and poolings included

        ignored: ClassVar = {"out_indices": "MMDetection does not read it either: out_feature_indices counts"}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        depth = entries.depth
        if depth not in _CONVOLUTIONS:
            raise ValueError(f"detect.build: backbone.depth must be one of {[*_CONVOLUTIONS]} for SSDVGG, got {depth}")
        self.out_feature_indices = tuple(entries.out_feature_indices)
        layers: list[nn.Module] = []
        in_channels = 3
        for stage, count in enumerate(_CONVOLUTIONS[depth]):
            channels = min(64 * 2**stage, 512)
            for _ in range(count):
                layers += [nn.Conv2d(in_channels, channels, 3, padding=1), nn.ReLU()]
                in_channels = channels
            layers.append(nn.MaxPool2d(2, stride=2, ceil_mode=entries.ceil_mode))
        if not entries.with_last_pool:
            del layers[-1]
        layers.append(nn.MaxPool2d(3, stride=1, padding=1))
        layers += [nn.Conv2d(512, 1024, 3, padding=6, dilation=6), nn.ReLU()]
        layers += [nn.Conv2d(1024, 1024, 1), nn.ReLU()]
        self.features = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        outputs = []
        for index, layer in enumerate(self.features):
            x = layer(x)
            if index in self.out_feature_indices:
                # MMDetection's ReLUs work in place, so a convolution's output is what the next makes of it.
                outputs.append(x.relu() if isinstance(layer, nn.Conv2d) else x)
        return tuple(outputs)
