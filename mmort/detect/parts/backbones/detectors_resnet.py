"""DetectoRS' ResNet: convolutions that switch between two dilations, and a second run with features of the neck.

Source: S. Qiao et al., "DetectoRS: Detecting Objects with Recursive Feature Pyramid and Switchable Atrous Convolution",
CVPR 2021; MMDetection's ``DetectoRS_ResNet`` and MMCV's ``SAConv2d``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, nested
from mmort.detect.parts.backbones.resnet import (
    BLOCK_COUNTS,
    BlockSettings,
    Bottleneck,
    ResNetBase,
    ResNetEntries,
    StagePlan,
    block_settings,
    known_depth,
    stage_widths,
)
from mmort.detect.parts.layers import ConvAWS
from mmort.torch import deform_conv2d


class SwitchableConv(ConvAWS):
    """The weighted mean of a convolution and of one with three times the dilation, between two global contexts."""

    def __init__(self, channels: int, stride: int, dilation: int, use_deform: bool = False) -> None:
        super().__init__(channels, channels, 3, stride=stride, padding=dilation, dilation=dilation, bias=False)
        self.step, self.extent = stride, dilation
        self.switch = nn.Conv2d(channels, 1, 1, stride=stride)
        self.weight_diff = nn.Parameter(torch.zeros_like(self.weight))
        self.pre_context = nn.Conv2d(channels, channels, 1)
        self.post_context = nn.Conv2d(channels, channels, 1)
        self.deforms = use_deform
        if use_deform:
            self.offset_s, self.offset_l = (nn.Conv2d(channels, 18, 3, stride=stride, padding=1) for _ in range(2))

    def forward(self, input: Tensor) -> Tensor:
        x = input + self.pre_context(input.mean((2, 3), keepdim=True))
        around = F.avg_pool2d(F.pad(x, (2, 2, 2, 2), mode="reflect"), 5, stride=1)
        switch = self.switch(around)
        weight = self.standardized()
        small = self._convolve(x, weight, 1, around)
        large = self._convolve(x, weight + self.weight_diff, 3, around)
        out = switch * small + (1 - switch) * large
        return out + self.post_context(out.mean((2, 3), keepdim=True))

    def _convolve(self, x: Tensor, weight: Tensor, factor: int, around: Tensor) -> Tensor:
        """Return a convolution with `factor` times the dilation, whose offsets follow from `around`."""
        extent = factor * self.extent  # padding and dilation
        if not self.deforms:
            return F.conv2d(x, weight, None, self.step, extent, extent)
        offset = (self.offset_s if factor == 1 else self.offset_l)(around)
        return deform_conv2d(x, offset, weight, self.step, extent, extent, 1, 1)


@dataclass(frozen=True, kw_only=True)
class SwitchableEntries(Schema):
    """The entries of ``sac``."""

    types = ("SAC",)

    type: str
    use_deform: bool = False


@dataclass(frozen=True, kw_only=True)
class DetectoRSSettings(BlockSettings):
    """`BlockSettings`, and the config of a `SwitchableConv`, if the stage has them."""

    sac: SwitchableEntries | None = None


class DetectoRSBlock(Bottleneck):
    """A bottleneck whose 3x3 convolution may be a `SwitchableConv`."""

    def add_middle(self, width: int, stride: int, settings: BlockSettings) -> None:
        """Add the layers that `middle` calls."""
        super().add_middle(width, stride, settings)
        assert isinstance(settings, DetectoRSSettings)
        if settings.sac is not None:
            self.conv2 = SwitchableConv(width, stride, settings.dilation, settings.sac.use_deform)


@PARTS.register("backbone", "DetectoRS_ResNet")
class DetectoRSResNet(ResNetBase):
    """ResNet of DetectoRS; with `output_img` its first output is the image."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(ResNetEntries):
        depth: int
        sac: SwitchableEntries | None = nested(SwitchableEntries, "backbone.sac", default=None)
        stage_with_sac: Sequence[bool] = (False, False, False, False)
        rfp_inplanes: int | None = None
        output_img: bool = False

    def __init__(self, entries: Entries) -> None:
        counts = BLOCK_COUNTS[known_depth(entries.depth, BLOCK_COUNTS)]
        plans = []
        for stage, channels in enumerate(stage_widths(entries)):
            sac = entries.sac if entries.stage_with_sac[stage] else None
            settings = DetectoRSSettings(**vars(block_settings(entries, stage)), sac=sac)
            plans.append(StagePlan(DetectoRSBlock, counts[stage], channels, settings))
        super().__init__(entries, plans)
        self.output_img = entries.output_img
        self.reads_features = bool(entries.rfp_inplanes)
        if entries.rfp_inplanes:
            for stage, plan in enumerate(plans[1:], start=2):
                first: Any = self.get_submodule(f"layer{stage}.0")
                first.rfp_conv = nn.Conv2d(entries.rfp_inplanes, plan.channels * plan.block.expansion, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        maps = super().forward(x)
        return (x, *maps) if self.output_img else maps

    def with_features(self, image: Tensor, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the maps of an image, with the neck's features of all levels added in all stages but the first.

        As in MMDetection, without ``rfp_inplanes`` they are not.
        """
        x = self.stem_maps(image)
        outputs = []
        for stage in range(self.stages):
            first, *blocks = getattr(self, f"layer{stage + 1}")
            reads = self.reads_features and stage > 0
            x = torch.relu(first.sum(x) + first.rfp_conv(features[stage])) if reads else first(x)
            for block in blocks:
                x = block(x)
            if stage in self.out_indices:
                outputs.append(x)
        return tuple(outputs)
