"""Features of regions of interest from all levels of a pyramid.

Source: L. Rossi et al., "A Novel Region of Interest Extraction Layer for Instance Segmentation", ICPR 2020;
MMDetection's ``GenericRoIExtractor``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, part, require
from mmort.detect.parts.layers import ConvModule, LayerEntries
from mmort.detect.parts.plugins import GeneralizedAttention
from mmort.detect.parts.roi_extractor import RoILayer, scaled


class PluginConv(ConvModule):
    """A convolution as a step before or after the levels are brought together."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        """The entries of ``pre_cfg`` or ``post_cfg``."""

        in_channels: int
        out_channels: int
        kernel_size: int
        padding: int = 0

        ignored: ClassVar = {"inplace": "the same values"}

    def __init__(self, entries: Entries) -> None:
        super().__init__(
            entries.in_channels, entries.out_channels, entries.kernel_size, padding=entries.padding, **entries.layer
        )


_STEPS = {"ConvModule": PluginConv, "GeneralizedAttention": GeneralizedAttention}


@PARTS.register("RoI extractor", "GenericRoIExtractor")
class GenericRoIExtractor(nn.Module):
    """RoIAlign on every level, the results summed or in a row, perhaps with a layer before and one after."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``bbox_roi_extractor`` or ``mask_roi_extractor``."""

        roi_layer: RoILayer = part("roi_layer", types={"RoIAlign": RoILayer})
        featmap_strides: list[int]
        aggregation: str = "sum"
        pre_cfg: nn.Module | None = part("pre_cfg", types=_STEPS, default=None)
        post_cfg: nn.Module | None = part("post_cfg", types=_STEPS, default=None)

        ignored: ClassVar = {"out_channels": "those of the features"}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.sums = require("aggregation", entries.aggregation, "sum", "concat") == "sum"
        self.roi_layers = nn.ModuleList(entries.roi_layer.at_stride(stride) for stride in entries.featmap_strides)
        self.pre_module, self.post_module = entries.pre_cfg, entries.post_cfg

    def forward(self, features: list[Tensor], rois: Tensor, scale: float = 1.0) -> Tensor:
        """Pool the features [N, C, h, w] of regions [R, 5]; see `RoIExtractor.forward`."""
        if scale != 1 and min(len(self.roi_layers), len(features)) > 1:
            rois = scaled(rois, scale)
        pooled = [layer(level, rois) for layer, level in zip(self.roi_layers, features, strict=False)]
        if len(pooled) == 1:
            return pooled[0]
        if self.pre_module is not None:
            pooled = [self.pre_module(level) for level in pooled]
        x = sum(pooled[1:], pooled[0]) if self.sums else torch.cat(pooled, 1)
        return x if self.post_module is None else self.post_module(x)
