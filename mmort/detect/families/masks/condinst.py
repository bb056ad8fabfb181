"""CondInst and BoxInst: FCOS whose every location also predicts the weights of a small network that makes its mask.

Source: Z. Tian et al., "Conditional Convolutions for Instance Segmentation", ECCV 2020; "BoxInst: High-Performance
Instance Segmentation with Box Annotations", CVPR 2021; MMDetection's ``CondInstBboxHead`` and ``CondInstMaskHead``.
Mask AP of MMDetection's R-50 models on COCO val2017: 36.0 (CondInst) and 30.8 (BoxInst).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.contract import WITH_MASKS, MaskFormat
from mmort.detect.entries import PARTS, Parts, Schema, nested, part, training_only
from mmort.detect.families.dense.fcos import FCOSHead
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.dynamic_masks import DynamicMasks, of_priors, points_and_strides, relative_coordinates
from mmort.detect.parts.image_masks import enlarged_from_corners
from mmort.detect.parts.layers import ConvModule, tower
from mmort.detect.parts.priors import Points
from mmort.detect.parts.selection import indexed_detections
from mmort.detect.parts.single_stage import DenseDetector, SingleStageModel
from mmort.detect.parts.test_cfg import DenseEntries


class CondInstBboxHead(FCOSHead):
    """FCOS's head; the tower for the boxes also predicts the weights of the masks' networks."""

    raw_kinds: ClassVar[tuple[str, ...]] = ("cls_score", "bbox_pred", "centerness", "param_pred")

    @dataclass(frozen=True, kw_only=True)
    class Entries(FCOSHead.Entries):
        num_params: int = 169

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.controller = nn.Conv2d(entries.feat_channels, entries.num_params, 3, padding=1)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return FCOS's maps, and the weights [N, weights, h, w] by level."""
        weights = [self.controller(self.reg_convs(x)) for x in features]
        return (*super().forward(features), *weights)


@dataclass(frozen=True, kw_only=True)
class MaskFeatureEntries(Schema):
    """The entries of ``mask_head.mask_feature_head``."""

    in_channels: int
    feat_channels: int
    start_level: int
    end_level: int
    out_channels: int
    mask_stride: int = 4
    num_stacked_convs: int = 4
    conv_cfg: Config | None = None
    norm_cfg: Config | None = None


class MaskFeatModule(nn.Module):
    """Features of several levels at the finest one's size, from which the masks are made."""

    def __init__(self, entries: MaskFeatureEntries) -> None:
        super().__init__()
        self.first, self.last, channels = entries.start_level, entries.end_level, entries.feat_channels
        layer: dict[str, Any] = {"conv_cfg": entries.conv_cfg, "norm_cfg": entries.norm_cfg, "bias": False}
        self.convs_all_levels = nn.ModuleList()
        for level in range(self.first, self.last + 1):
            convs = nn.Sequential()
            convs.add_module(f"conv{level}", ConvModule(entries.in_channels, channels, 3, padding=1, **layer))
            self.convs_all_levels.append(convs)
        self.conv_branch = tower(channels, channels, entries.num_stacked_convs, **layer)
        self.conv_pred = nn.Conv2d(channels, entries.out_channels, 1)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        used = features[self.first : self.last + 1]
        first, *remaining = (convs(x) for convs, x in zip(self.convs_all_levels, used, strict=True))
        for level, x in enumerate(remaining, 1):
            enlarged = enlarged_from_corners(x, 2**level)
            if enlarged.shape != first.shape:
                raise ValueError(
                    "detect: mask_feature_head reads levels of which each must have half the rows and columns of the "
                    f"one before, by the strides of the backbone, got maps of {[tuple(x.shape[2:]) for x in used]}"
                )
            first = first + enlarged
        return self.conv_pred(self.conv_branch(first))


class CondInstMaskHead(nn.Module):
    """The masks' features, and the networks that read them."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        mask_feature_head: MaskFeatureEntries = nested(MaskFeatureEntries, "mask_head.mask_feature_head")
        num_layers: int = 3
        feat_channels: int = 8
        mask_out_stride: int = 4
        size_of_interest: int = 8

        ignored: ClassVar = training_only(
            "max_masks_to_train", "topk_masks_per_img", "pairwise_size", "pairwise_dilation", "warmup_iters"
        )

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        features, self.out_stride = entries.mask_feature_head, entries.mask_out_stride
        if features.out_channels != entries.feat_channels:
            raise ValueError(
                f"detect.build: mask_head.feat_channels must be mask_feature_head.out_channels, "
                f"{features.out_channels}, got {entries.feat_channels}"
            )
        self.factor, rest = divmod(features.mask_stride, self.out_stride)
        if rest:
            raise ValueError(
                f"detect.build: mask_head.mask_out_stride must divide mask_stride, {features.mask_stride}, "
                f"got {self.out_stride}"
            )
        self.mask_feature_head = MaskFeatModule(features)
        self.networks = DynamicMasks(features.out_channels, entries.feat_channels, entries.num_layers)
        self.grid, self.size_of_interest = Points([features.mask_stride]), entries.size_of_interest

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        return self.mask_feature_head(features)

    def masks(self, weights: Tensor, features: Tensor, points: Tensor, strides: Tensor) -> Tensor:
        """Return mask probabilities [N, K, h, w] of weights [N, K, W], predicted at points [N, K, 2] of strides."""
        grid = torch.unflatten(self.grid.level(0, features), 0, features.shape[2:])  # [h, w, 2]
        x, y = relative_coordinates(points, strides * self.size_of_interest, grid)
        logits = self.networks(weights, features, x, y)
        return (enlarged_from_corners(logits, self.factor) if self.factor > 1 else logits).sigmoid()


@PARTS.register("detector", "CondInstBboxHead", "BoxInstBboxHead")
class CondInst(DenseDetector):
    """CondInst, and BoxInst, which differs in training only."""

    family = "CondInst"
    head = CondInstBboxHead
    heads = ("bbox_head", "mask_head")
    mask_head: CondInstMaskHead
    test_cfg: TestCfg

    @dataclass(frozen=True, kw_only=True)
    class Model(SingleStageModel):
        mask_head: CondInstMaskHead = part(
            "mask_head", types={"CondInstMaskHead": CondInstMaskHead, "BoxInstMaskHead": CondInstMaskHead}
        )

    @dataclass(frozen=True, kw_only=True)
    class TestCfg(DenseEntries):
        mask_thr: float = 0.5

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.output_names = WITH_MASKS
        self.mask_format = MaskFormat("image", self.test_cfg.mask_thr, self.mask_head.out_stride, alignment="corners")

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the heads' maps."""
        return *super().raw_names, "mask_feat"

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the heads' maps, those of the masks' features last."""
        features = self.levels(input)
        return *self.bbox_head(features), self.mask_head(features)

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        *maps, features = self.raw(input)
        levels = len(self.bbox_head.priors.strides)
        boxes, scores, priors = self.candidates(maps[: 3 * levels], image_limits(input, img_shape))
        dets, labels, chosen = indexed_detections(boxes, scores, self.test_cfg)  # [N, K, 5], [N, K], [N, K]
        indices = priors.gather(1, chosen.clamp(min=0))
        points, strides = points_and_strides(self.bbox_head.priors, maps[3 * levels :])
        weights = of_priors(maps[3 * levels :], indices)
        masks = self.mask_head.masks(weights, features, points[indices], strides[indices])  # [N, K, h, w]
        return dets, labels, torch.where(labels[..., None, None] < 0, 0, masks)
