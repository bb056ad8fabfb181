"""The masks of Co-DETR's boxes: coarse ones, refined stage by stage near their boundaries.

Source: G. Zhang et al., "RefineMask: Towards High-Quality Instance Segmentation with Fine-Grained Features", CVPR 2021;
``SimpleRefineMaskHead`` and ``MaskIoUHead`` of the code of Co-DETR's authors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import Schema, as_many_as, at_least, nested, only
from mmort.detect.families.two_stage.mask_scoring_rcnn import MaskIoUHead
from mmort.detect.parts.heads.mask_head import own_class
from mmort.detect.parts.layers import ConvModule, tower
from mmort.torch import RoIAlign


class Fusion(nn.Module):
    """Sums convolutions of several dilations, and the mean of the map unless the type says otherwise."""

    def __init__(self, channels: int, entries: RefineMaskHead.Entries) -> None:
        super().__init__()
        self.with_mean = entries.fusion_type == "MultiBranchFusionAvg"
        self.dilation_conv_1, self.dilation_conv_2, self.dilation_conv_3 = (
            ConvModule(channels, channels, 3, padding=dilation, dilation=dilation) for dilation in entries.dilations
        )
        self.merge_conv = ConvModule(channels, channels, 1, act_cfg=None)

    def forward(self, x: Tensor) -> Tensor:
        total = self.dilation_conv_1(x) + self.dilation_conv_2(x) + self.dilation_conv_3(x)
        return self.merge_conv(total + x.mean((2, 3), keepdim=True) if self.with_mean else total)


class Stage(nn.Module):
    """Features of regions, refined by those of the finest map and by their masks, and perhaps enlarged."""

    def __init__(self, entries: RefineMaskHead.Entries, channels: int, size: int) -> None:
        super().__init__()
        self.align_corners = entries.upsample_cfg.align_corners
        self.semantic_transform_in = nn.Conv2d(entries.conv_out_channels_semantic, channels, 1)
        self.semantic_roi_extractor = RoIAlign(size, 1 / entries.semantic_out_stride, 0)
        self.fuse_conv = nn.ModuleList([nn.Conv2d(2 * channels + 1, channels, 1), Fusion(channels, entries)])
        self.fuse_transform_out = nn.Conv2d(channels, channels // 2 - 1, 1)

    def forward(self, x: Tensor, logits: Tensor, map: Tensor, rois: Tensor, enlarged: bool) -> Tensor:
        """Return features [R, C / 2, h', w'] for features [R, C, h, w], masks' logits [R, h, w], and a map."""
        fine = self.semantic_roi_extractor(self.semantic_transform_in(map).relu(), rois)
        masks = logits[:, None].sigmoid()
        x = torch.cat([x, fine, masks], 1)
        for layer in self.fuse_conv:
            x = layer(x).relu()
        x = torch.cat([self.fuse_transform_out(x).relu(), masks], 1)
        return F.interpolate(x, None, 2.0, "bilinear", self.align_corners) if enlarged else x


@dataclass(frozen=True, kw_only=True)
class UpsampleEntries(Schema):
    """The entries of ``upsample_cfg``."""

    types = ("bilinear",)

    scale_factor: int = only(2)
    align_corners: bool | None = None


class RefineMaskHead(nn.Module):
    """Masks of each region's class in several sizes, of which each refines the one before."""

    class_layers: ClassVar = {"stage_instance_logits.0": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_convs_instance: int = at_least(0, default=2)
        num_convs_semantic: int = at_least(0, default=4)
        conv_in_channels_instance: int = 256
        conv_in_channels_semantic: int = 256
        conv_kernel_size_instance: int = only(3)
        conv_kernel_size_semantic: int = only(3)
        conv_out_channels_instance: int = 256
        conv_out_channels_semantic: int = 256
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None
        fusion_type: str = "MultiBranchFusionAvg"
        dilations: Sequence[int] = (1, 3, 5)
        semantic_out_stride: int = at_least(1, default=4)
        stage_num_classes: Sequence[int] = (80, 80, 80, 80)
        stage_sup_size: Sequence[int] = as_many_as("stage_num_classes", default=(14, 28, 56, 112))
        pre_upsample_last_stage: bool = False
        upsample_cfg: UpsampleEntries = nested(UpsampleEntries, default={"type": "bilinear", "scale_factor": 2})

        def check(self, name: str) -> None:
            """Raise a ValueError if a stage is not twice as large as the one before, or nothing fuses like this."""
            sizes = [*self.stage_sup_size]
            if len(sizes) < 2 or any(larger != 2 * size for size, larger in pairwise(sizes)):
                raise ValueError(f"detect.build: stage_sup_size of {name} must have sizes that double, got {sizes}")
            if self.fusion_type not in ("MultiBranchFusion", "MultiBranchFusionAvg") or len(self.dilations) != 3:
                raise ValueError(
                    f"detect.build: fusion_type of {name} must be 'MultiBranchFusion' or 'MultiBranchFusionAvg' with "
                    f"three dilations, got {self.fusion_type!r} with {len(self.dilations)}"
                )

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        width = entries.conv_out_channels_instance
        layer: dict[str, Any] = {"conv_cfg": entries.conv_cfg, "norm_cfg": entries.norm_cfg}
        self.instance_convs = tower(entries.conv_in_channels_instance, width, entries.num_convs_instance, **layer)
        self.semantic_convs = tower(
            entries.conv_in_channels_semantic,
            entries.conv_out_channels_semantic,
            entries.num_convs_semantic,
            **layer,
        )
        self.stages = nn.ModuleList(
            Stage(entries, width // 2**stage, size) for stage, size in enumerate(entries.stage_sup_size[:-1])
        )
        self.stage_instance_logits = nn.ModuleList(
            nn.Conv2d(width // 2**stage, classes, 1) for stage, classes in enumerate(entries.stage_num_classes)
        )
        self.enlarges_last = entries.pre_upsample_last_stage

    def forward(self, x: Tensor, map: Tensor, rois: Tensor, classes: Tensor) -> list[Tensor]:
        """Return the logits of each region's class, [R, h, w] of each size, the smallest first.

        Parameters
        ----------
        x : Tensor, [R, C, h, w]
            The regions' features.
        map : Tensor, [N, C, H, W]
            The finest map.
        rois : Tensor, [R, 5]
        classes : Tensor, [R]
        """
        x, map = self.instance_convs(x), self.semantic_convs(map)
        masks: list[Tensor] = []
        last = len(self.stages) - 1
        for index, stage in enumerate(self.stages):
            masks.append(own_class(self.stage_instance_logits[index](x), classes))
            x = stage(x, masks[-1], map, rois, self.enlarges_last or index < last)
        logits = own_class(self.stage_instance_logits[-1](x), classes)
        return [*masks, logits if self.enlarges_last else enlarged(logits)]


def refined(masks: Sequence[Tensor]) -> Tensor:
    """Return logits [R, h, w] of the last of several sizes, each of which is used near the boundary of the one before.

    The first size is not looked at, as in the authors' code.
    """
    logits = masks[1]
    for finer in masks[2:]:
        inside = F.pad((logits >= 0).to(logits.dtype), (1, 1, 1, 1))[:, None]
        uniform = F.max_pool2d(inside, 3, 1) == -F.max_pool2d(-inside, 3, 1)  # all nine pixels are
        logits = torch.where(enlarged(uniform[:, 0].to(logits.dtype)) >= 0.5, enlarged(logits), finer)
    return logits


def enlarged(maps: Tensor) -> Tensor:
    """Return maps [R, h, w] of twice the size, whose corners are those before."""
    return F.interpolate(maps[:, None], scale_factor=2, mode="bilinear", align_corners=True)[:, 0]


class NormedMaskIoUHead(MaskIoUHead):
    """The overlap of a mask with its object, from normalized convolutions."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(MaskIoUHead.Entries):
        norm_cfg: Config | None = None
        score_use_sigmoid: bool = False

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries, partial(ConvModule, norm_cfg=entries.norm_cfg))
        self.activation = nn.Sigmoid() if entries.score_use_sigmoid else nn.Identity()

    def forward(self, features: Tensor, masks: Tensor) -> Tensor:
        return self.activation(super().forward(features, masks))
