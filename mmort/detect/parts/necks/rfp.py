"""RFP: a feature pyramid that feeds its levels into further runs of the backbone.

Source: S. Qiao et al., "DetectoRS: Detecting Objects with Recursive Feature Pyramid and Switchable Atrous Convolution",
CVPR 2021; MMDetection's ``RFP``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Parts
from mmort.detect.parts.backbones.detectors_resnet import DetectoRSResNet
from mmort.detect.parts.necks.fpn import FPN


class ASPP(nn.Module):
    """Convolutions with several dilations side by side, the last of the mean of the map."""

    def __init__(self, in_channels: int, channels: int, dilations: Sequence[int]) -> None:
        super().__init__()
        if dilations[-1] != 1:
            raise ValueError(f"detect.build: neck.aspp_dilations must end in 1, got {dilations!r}")
        self.aspp = nn.ModuleList(
            nn.Conv2d(in_channels, channels, 3, padding=dilation, dilation=dilation)
            if dilation > 1
            else nn.Conv2d(in_channels, channels, 1)
            for dilation in dilations
        )

    def forward(self, x: Tensor) -> Tensor:
        *convs, last = self.aspp
        maps = [conv(x).relu() for conv in convs]
        mean = last(x.mean((2, 3), keepdim=True)).relu()
        return torch.cat([*maps, mean.expand(-1, -1, *x.shape[2:])], 1)


@PARTS.register("neck", "RFP")
class RFP(FPN):
    """Recursive feature pyramid."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(FPN.Entries):
        rfp_steps: int
        rfp_backbone: Config
        aspp_out_channels: int
        aspp_dilations: Sequence[int] = (1, 3, 6, 1)

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        parts = Parts({"rfp_backbone": {"DetectoRS_ResNet": DetectoRSResNet}})
        backbones = (parts.build("rfp_backbone", entries.rfp_backbone) for _ in range(entries.rfp_steps - 1))
        self.rfp_modules = nn.ModuleList(backbones)
        self.rfp_aspp = ASPP(entries.out_channels, entries.aspp_out_channels, entries.aspp_dilations)
        self.rfp_weight = nn.Conv2d(entries.out_channels, 1, 1)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        image, *maps = inputs
        outputs = super().forward(maps)
        backbones: list[Any] = list(self.rfp_modules)
        for backbone in backbones:
            features = [outputs[0], *(self.rfp_aspp(x) for x in outputs[1:])]
            further = super().forward(backbone.with_features(image, features))
            weights = [self.rfp_weight(x).sigmoid() for x in further]
            mixed = zip(weights, further, outputs, strict=True)
            outputs = tuple(weight * new + (1 - weight) * old for weight, new, old in mixed)
        return outputs
