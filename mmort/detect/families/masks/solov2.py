"""SOLOv2: SOLO whose cells predict the weights of the convolution that makes their masks.

Source: X. Wang et al., "SOLOv2: Dynamic and Fast Instance Segmentation", NeurIPS 2020; MMDetection's ``SOLOV2Head``.
Mask AP of MMDetection's R-50 model on COCO val2017: 34.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.detector import level_names
from mmort.detect.entries import PARTS, Schema, nested, only, part
from mmort.detect.families.masks.solo import (
    SOLO,
    GridHead,
    SOLOEntries,
    grid_tower,
    on_grids,
    resized_features,
    with_coordinates,
)
from mmort.detect.parts.layers import ConvModule


@dataclass(frozen=True, kw_only=True)
class MaskFeatureEntries(Schema):
    """The entries of ``mask_head.mask_feature_head``."""

    feat_channels: int
    start_level: int = only(0, required=True)
    end_level: int
    out_channels: int
    mask_stride: int = only(4)
    conv_cfg: Config | None = None
    norm_cfg: Config | None = None

    ignored: ClassVar = {"in_channels": "those of mask_head, in MMDetection too"}


class MaskFeatModule(nn.Module):
    """The sum of several levels' features at the finest one's size; the coarsest has its pixels' coordinates too."""

    def __init__(self, entries: MaskFeatureEntries, in_channels: int) -> None:
        super().__init__()
        layer: dict[str, Any] = {"conv_cfg": entries.conv_cfg, "norm_cfg": entries.norm_cfg}
        self.end_level = entries.end_level
        self.convs_all_levels = nn.ModuleList()
        for level in range(entries.end_level + 1):
            convs = nn.Sequential()
            inputs = in_channels + 2 * (0 < level == entries.end_level)
            for step in range(max(level, 1)):
                convs.add_module(f"conv{step}", ConvModule(inputs, entries.feat_channels, 3, padding=1, **layer))
                if level > 0:
                    convs.add_module(f"upsample{step}", nn.Upsample(scale_factor=2.0, mode="bilinear"))
                inputs = entries.feat_channels
            self.convs_all_levels.append(convs)
        self.conv_pred = ConvModule(entries.feat_channels, entries.out_channels, 1, **layer)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        used = list(features[: self.end_level + 1])
        if self.end_level > 0:
            used[-1] = with_coordinates(used[-1])
        first, *remaining = (convs(x) for convs, x in zip(self.convs_all_levels, used, strict=True))
        return self.conv_pred(sum(remaining, first))


class SOLOV2Head(GridHead):
    """Class logits and weights of the masks' convolutions for every cell, and the features that these read."""

    raw_kinds = ("kernel_pred", "cls_score")

    @dataclass(frozen=True, kw_only=True)
    class Entries(SOLOEntries):
        mask_feature_head: MaskFeatureEntries = nested(MaskFeatureEntries, "mask_head.mask_feature_head")
        dynamic_conv_size: int = only(1)
        dcn_cfg: Config | None = None
        dcn_apply_to_all_conv: bool = True

    def __init__(self, entries: Entries) -> None:
        convs: dict[str, Any] = {"conv_cfg" if entries.dcn_apply_to_all_conv else "last_conv_cfg": entries.dcn_cfg}
        super().__init__(entries, grid_tower(entries, 0, **convs))
        self.kernel_convs = grid_tower(entries, 2, **convs)
        self.conv_kernel = nn.Conv2d(entries.feat_channels, entries.mask_feature_head.out_channels, 3, padding=1)
        self.mask_feature_head = MaskFeatModule(entries.mask_feature_head, entries.in_channels)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        located = on_grids([with_coordinates(x) for x in resized_features(features)], self.grids)
        kernels = [self.conv_kernel(self.kernel_convs(x)) for x in located]
        classes = self.class_maps([x[:, :-2] for x in located])
        return (*kernels, self.mask_feature_head(features), *classes)

    def masks(self, maps: Sequence[Tensor], cells: Sequence[Tensor]) -> Tensor:
        features = maps[len(self.grids)]
        kernels = [map.flatten(2).index_select(2, of_level) for map, of_level in zip(maps, cells, strict=False)]
        logits = torch.cat(kernels, 2).transpose(1, 2) @ features.flatten(2)
        return torch.unflatten(logits.sigmoid(), 2, features.shape[2:])


@PARTS.register("detector", "SOLOV2Head")
class SOLOv2(SOLO):
    """SOLOv2."""

    family = "SOLOv2"

    @dataclass(frozen=True, kw_only=True)
    class Model(SOLO.Model):
        mask_head: GridHead = part("mask_head", types={"SOLOV2Head": SOLOV2Head})

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the head's maps."""
        kernels, classes = (level_names([kind], len(self.mask_head.grids)) for kind in self.mask_head.raw_kinds)
        return *kernels, "mask_feats", *classes
