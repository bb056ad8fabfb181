"""PointRend: a Mask R-CNN whose masks are refined at the points where they are least certain.

Source: A. Kirillov et al., "PointRend", CVPR 2020.  Box and mask AP of MMDetection's R-50-FPN model on COCO val2017:
38.4 and 36.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, at_least, nested, only, part, require
from mmort.detect.families.two_stage.faster_rcnn import StandardRoIHead
from mmort.detect.parts.heads.box_head import connected, linears
from mmort.detect.parts.heads.mask_head import own_class
from mmort.detect.parts.layers import ConvModule, tower
from mmort.detect.parts.test_cfg import RCNNEntries
from mmort.detect.parts.two_stage import TwoStageDetector
from mmort.torch import point_sample, rel_roi_point_to_rel_img_point


@dataclass(frozen=True, kw_only=True)
class SimpleRoIAlignEntries(Schema):
    """The entries of ``roi_layer``."""

    type: str
    output_size: int = at_least(1)
    aligned: bool = only(True)

    ignored: ClassVar = {"spatial_scale": "that of the stride"}

    def __post_init__(self) -> None:
        require("roi_layer of PointRend's masks", self.type, "SimpleRoIAlign")


class PointExtractor(nn.Module):
    """Features at points of regions, from one level of the pyramid."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        roi_layer: SimpleRoIAlignEntries = nested(SimpleRoIAlignEntries, "mask_roi_extractor.roi_layer")
        featmap_strides: list[int]

        ignored: ClassVar = {
            "aggregation": "there is one level",
            "out_channels": "those of the features",
            "finest_scale": "there is one level",
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        strides = entries.featmap_strides
        if len(strides) != 1:
            raise ValueError(f"detect.build: mask_roi_extractor must have one stride, got {strides}")
        self.stride = strides[0]
        self.grid = entries.roi_layer.output_size

    def forward(self, features: list[Tensor], rois: Tensor) -> Tensor:
        """Return features [R, C, grid, grid] at the centres of a grid over each region [R, 5]."""
        cells = (torch.arange(self.grid, device=rois.device) + 0.5) / self.grid
        x, y = cells.repeat(self.grid), cells.repeat_interleave(self.grid)  # [grid*grid], row by row
        pooled = self.at(features, rois, torch.stack([x, y], 1)[None])  # [R, C, grid*grid]
        return pooled.reshape(*pooled.shape[:2], self.grid, self.grid)

    def at(self, features: list[Tensor], rois: Tensor, points: Tensor) -> Tensor:
        """Return features [R, C, Q] at points [R, Q, 2], whose x and y go from 0 to 1 over each region."""
        level, every = features[0], torch.arange(rois.shape[0], device=rois.device)
        points = rel_roi_point_to_rel_img_point(rois, points, level, 1 / self.stride)  # over the whole map
        # The maps of all images are read at all points: a loop over the images could not be exported.
        sampled = point_sample(level, points.expand(level.shape[0], *points.shape))  # [N, C, R, Q]
        return sampled.transpose(1, 2)[rois[:, 0].long(), every]


class CoarseMaskHead(nn.Module):
    """One small mask for each class, from linear layers."""

    class_layers: ClassVar = {"fc_logits": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_convs: int = 0
        num_fcs: int = 2
        fc_out_channels: int = 1024
        downsample_factor: int = 2
        roi_feat_size: int = 14
        in_channels: int = 256
        conv_out_channels: int = 256
        num_classes: int = 80
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        width, factor = entries.conv_out_channels, entries.downsample_factor
        self.classes = entries.num_classes
        self.size = entries.roi_feat_size // factor
        layer: dict[str, Any] = {"conv_cfg": entries.conv_cfg, "norm_cfg": entries.norm_cfg}
        self.convs = tower(entries.in_channels, width, entries.num_convs, **layer)
        channels = width if entries.num_convs > 0 else entries.in_channels
        self.downsample_conv = ConvModule(channels, width, factor, stride=factor, **layer)
        self.fcs, features = linears(entries.num_fcs, width * self.size**2, entries.fc_out_channels)
        self.fc_logits = nn.Linear(features, self.classes * self.size**2)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [R, classes, h, w] of features [R, C, h', w']."""
        x = connected(self.fcs, self.downsample_conv(self.convs(features)).flatten(1))
        return self.fc_logits(x).reshape(-1, self.classes, self.size, self.size)


class MaskPointHead(nn.Module):
    """One logit for each class at a point, from the features and the coarse mask there."""

    class_layers: ClassVar = {"fc_logits": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_classes: int
        num_fcs: int = 3
        in_channels: int = 256
        fc_channels: int = 256
        class_agnostic: bool = False
        coarse_pred_each_layer: bool = True

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.repeat = entries.coarse_pred_each_layer
        channels = entries.in_channels + entries.num_classes
        self.fcs = nn.ModuleList()
        for _ in range(entries.num_fcs):
            self.fcs.append(ConvModule(channels, entries.fc_channels, 1, conv_cfg={"type": "Conv1d"}))
            channels = entries.fc_channels + (entries.num_classes if self.repeat else 0)
        self.fc_logits = nn.Conv1d(channels, 1 if entries.class_agnostic else entries.num_classes, 1)

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        """Return logits [R, classes, Q] of points whose features are [R, C, Q] and coarse logits [R, classes, Q]."""
        x = torch.cat([fine, coarse], 1)
        for layer in self.fcs:
            x = layer(x)
            if self.repeat:
                x = torch.cat([x, coarse], 1)
        return self.fc_logits(x)


@dataclass(frozen=True, kw_only=True)
class RefinementEntries(RCNNEntries):
    """The entries of ``test_cfg.rcnn``."""

    subdivision_steps: int
    subdivision_num_points: int
    scale_factor: int


class PointRendRoIHead(StandardRoIHead):
    """Faster R-CNN's second stage, and coarse masks that are refined."""

    TestCfg = RefinementEntries
    test_cfg: RefinementEntries
    mask_roi_extractor: PointExtractor
    mask_head: CoarseMaskHead

    @dataclass(frozen=True, kw_only=True)
    class Entries(StandardRoIHead.Entries):
        mask_roi_extractor: PointExtractor = part(
            "RoI extractor", types={"GenericRoIExtractor": PointExtractor, "SingleRoIExtractor": PointExtractor}
        )
        mask_head: CoarseMaskHead = part("mask_head", types={"CoarseMaskHead": CoarseMaskHead})
        point_head: MaskPointHead = part("point_head", types={"MaskPointHead": MaskPointHead})

    def __init__(self, entries: Entries, test_cfg: RCNNEntries) -> None:
        super().__init__(entries, test_cfg)
        if entries.shared_head is not None:
            raise ValueError("detect.build: roi_head 'PointRendRoIHead' with shared_head is not supported")
        self.point_head = entries.point_head

    def probabilities(self, features: list[Tensor], rois: Tensor, classes: Tensor) -> Tensor:
        """Return the masks [R, h, w] of regions [R, 5] whose classes [R] are known."""
        coarse = self.mask_head(self.mask_roi_extractor(features, rois))  # [R, classes, 7, 7]
        max_points, factor = self.test_cfg.subdivision_num_points, self.test_cfg.scale_factor
        steps = self.test_cfg.subdivision_steps
        mask = own_class(coarse, classes)[:, None]  # [R, 1, h, w]; the other classes' masks are never looked at
        for step in range(steps):
            mask = functional.interpolate(mask, scale_factor=factor, mode="bilinear", align_corners=False)
            height, width = mask.shape[2:]
            if max_points >= factor**2 * height * width and step < steps - 1:
                continue  # the next step refines as many points as this mask has
            indices = (-mask.abs()).flatten(1).topk(min(max_points, height * width)).indices  # [R, Q]
            points = torch.stack([(indices % width + 0.5) / width, (indices // width + 0.5) / height], 2)  # [R, Q, 2]
            fine = self.mask_roi_extractor.at(features, rois, points)  # [R, C, Q]
            logits = own_class(self.point_head(fine, point_sample(coarse, points)), classes)  # [R, Q]
            mask = mask.flatten(1).scatter(1, indices, logits).reshape(-1, 1, height, width)
        return mask[:, 0].sigmoid()


@PARTS.register("detector", "PointRendRoIHead")
class PointRend(TwoStageDetector):
    """PointRend."""

    family = family_with_masks = "PointRend"
    head = PointRendRoIHead
