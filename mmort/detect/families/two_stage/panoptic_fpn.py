"""Panoptic FPN: a Mask R-CNN with a branch for the semantic segmentation of the background.

Source: A. Kirillov et al., "Panoptic Feature Pyramid Networks", CVPR 2019; MMDetection's ``PanopticFPN``.  Panoptic
quality of MMDetection's R-50 model on COCO val2017: 40.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.contract import WITH_SEMANTIC
from mmort.detect.entries import PARTS, Parts, Schema, at_least, default, nested, part
from mmort.detect.families.two_stage.faster_rcnn import FasterRCNN
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.two_stage import TwoStageModel, TwoStageTestCfg
from mmort.detections import PanopticFormat


class ConvUpsample(nn.Module):
    """Convolutions, after each of the first of which a map is enlarged twofold."""

    def __init__(self, in_channels: int, channels: int, upsamplings: int, **layers: Any) -> None:
        super().__init__()
        self.upsamplings = upsamplings
        self.conv = nn.ModuleList(
            ConvModule(channels if index else in_channels, channels, 3, padding=1, **layers)
            for index in range(max(upsamplings, 1))
        )

    def forward(self, x: Tensor) -> Tensor:
        for index, conv in enumerate(self.conv):
            x = conv(x)
            if index < self.upsamplings:
                x = functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        return x


class PanopticFPNHead(nn.Module):
    """The sum of the pyramid's maps in the size of the finest one, and a logit for each kind of stuff, things last."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_stuff_classes: int = 53
        in_channels: int = 256
        inner_channels: int = 128
        start_level: int = 0
        end_level: int = 4
        conv_cfg: Config | None = None
        norm_cfg: Config | None = default({"type": "GN", "num_groups": 32})

        ignored: ClassVar = {
            "num_classes": "it follows from num_stuff_classes",
            "num_things_classes": "training only: the fusion head's counts",
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.stuff = entries.num_stuff_classes
        self.start_level = entries.start_level
        self.conv_upsample_layers = nn.ModuleList(
            ConvUpsample(
                entries.in_channels,
                entries.inner_channels,
                level,
                conv_cfg=entries.conv_cfg,
                norm_cfg=entries.norm_cfg,
            )
            for level in range(entries.start_level, entries.end_level)
        )
        self.conv_logits = nn.Conv2d(entries.inner_channels, entries.num_stuff_classes + 1, 1)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return logits [N, S + 1, h, w] of the pyramid's maps."""
        first, *remaining = (
            layer(features[self.start_level + index]) for index, layer in enumerate(self.conv_upsample_layers)
        )
        return self.conv_logits(sum(remaining, first))


@dataclass(frozen=True, kw_only=True)
class FusionHeadEntries(Schema):
    """The entries of ``panoptic_fusion_head``."""

    num_things_classes: int = at_least(0, default=80)
    num_stuff_classes: int = at_least(0, default=53)

    types = ("HeuristicFusionHead",)


@dataclass(frozen=True, kw_only=True)
class FusionEntries(Schema):
    """The entries of ``test_cfg.panoptic``; MMDetection 2's also has those that select instances."""

    mask_overlap: float = 0.5
    stuff_area_limit: int = 4096
    score_thr: float | None = None
    max_per_img: int | None = None
    mask_thr_binary: float | None = None
    nms: Config | None = None

    def selecting(self) -> Config:
        """Return the entries that replace those of ``test_cfg.rcnn``."""
        names = ("score_thr", "max_per_img", "mask_thr_binary", "nms")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@dataclass(frozen=True, kw_only=True)
class PanopticTestCfg(TwoStageTestCfg):
    """The entries of ``test_cfg``."""

    panoptic: FusionEntries = nested(FusionEntries)

    @property
    def second_stage(self) -> Config:
        """The entries by which the second stage selects."""
        return {**self.rcnn, **self.panoptic.selecting()}


@PARTS.register("detector", "PanopticFPNHead")
class PanopticFPN(FasterRCNN):
    """Panoptic FPN: instances, and logits of the stuff between them, of which segments are made."""

    @dataclass(frozen=True, kw_only=True)
    class Model(TwoStageModel):
        semantic_head: PanopticFPNHead = part("semantic_head", types={"PanopticFPNHead": PanopticFPNHead})
        panoptic_fusion_head: FusionHeadEntries = nested(FusionHeadEntries, "panoptic_fusion_head")

    head_entries, earlier_heads = ("semantic_head",), ("rpn_head", "roi_head")
    family = family_with_masks = "Panoptic FPN"
    family_without_rpn = None
    model_types = ("PanopticFPN",)
    entries: Model
    TestCfg = PanopticTestCfg
    test_cfg: PanopticTestCfg
    semantic_head: PanopticFPNHead

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        classes, fusion = self.entries.panoptic_fusion_head, self.test_cfg.panoptic
        if not self.roi_head.with_mask:
            raise ValueError("detect.build: Panoptic FPN must have a roi_head.mask_head, which makes its segments")
        things, stuff = classes.num_things_classes, classes.num_stuff_classes
        box_head: Any = self.roi_head.bbox_head
        expected = box_head.classes, self.semantic_head.stuff
        if (things, stuff) != expected:
            raise ValueError(
                "detect.build: num_things_classes and num_stuff_classes of panoptic_fusion_head must be num_classes of "
                f"roi_head.bbox_head and num_stuff_classes of semantic_head, {expected}, got {things, stuff}"
            )
        self.output_names = WITH_SEMANTIC
        self.mask_format = replace(
            self.mask_format,
            panoptic=PanopticFormat(
                "instances",
                things,
                things + stuff,
                max_overlap=fusion.mask_overlap,
                min_stuff_area=fusion.stuff_area_limit,
            ),
        )

    def forward(
        self, input: Tensor, img_shape: Tensor | None = None, proposals: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return dets, labels and masks of the instances, and logits [N, S + 1, h, w] of the stuff, things last."""
        features = self.levels(input)
        return *self.detect(features, image_limits(input, img_shape), proposals), self.semantic_head(features)
