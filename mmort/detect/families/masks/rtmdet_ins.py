"""RTMDet-Ins: RTMDet whose every location also predicts the weights of a small network that makes its mask.

Source: C. Lyu et al., "RTMDet: An Empirical Study of Designing Real-Time Object Detectors", 2022; MMDetection's
``RTMDetInsSepBNHead``.  Box and mask AP of MMDetection's RTMDet-Ins-s on COCO val2017: 44.0 and 38.7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.contract import WITH_MASKS, MaskFormat
from mmort.detect.detector import require_proportions
from mmort.detect.entries import PARTS, Parts, default, only, training_only
from mmort.detect.families.dense.rtmdet import RTMDetSepBNHead, level_towers
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.dynamic_masks import DynamicMasks, of_priors, points_and_strides, relative_coordinates
from mmort.detect.parts.layers import tower
from mmort.detect.parts.selection import indexed_detections
from mmort.detect.parts.single_stage import DenseDetector
from mmort.detect.parts.test_cfg import DenseEntries


class MaskFeatModule(nn.Module):
    """Features of all levels at the finest one's size, from which the masks are made."""

    def __init__(self, in_channels: int, channels: int, levels: int, prototypes: int, **layer: Any) -> None:
        super().__init__()
        self.fusion_conv = nn.Conv2d(levels * in_channels, in_channels, 1)
        self.stacked_convs = tower(in_channels, channels, 4, **layer)
        self.projection = nn.Conv2d(channels, prototypes, 1)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        finest, size = features[0], features[0].shape[2:]
        enlarged = [functional.interpolate(x, size, mode="bilinear") for x in features[1:]]
        return self.projection(self.stacked_convs(self.fusion_conv(torch.cat([finest, *enlarged], 1))))


class RTMDetInsSepBNHead(RTMDetSepBNHead):
    """RTMDet's head with one tower for classes and boxes, and one for the weights of the masks' networks."""

    raw_kinds: ClassVar = ("cls_score", "bbox_pred", "kernel_pred")

    @dataclass(frozen=True, kw_only=True)
    class Entries(RTMDetSepBNHead.Entries):
        with_objectness: bool = only(False)
        num_prototypes: int = 8
        dyconv_channels: int = 8
        num_dyconvs: int = 3
        norm_cfg: Config | None = default({"type": "BN"})

        ignored: ClassVar = training_only("mask_loss_stride")

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        levels = len(self.priors.strides)
        self.dynamic_masks = DynamicMasks(entries.num_prototypes, entries.dyconv_channels, entries.num_dyconvs)
        self.kernel_convs = level_towers(entries, levels, shared=False)
        self.rtm_kernel = self.build_predictors(entries, self.dynamic_masks.weights)
        layer = {"norm_cfg": entries.norm_cfg, "act_cfg": entries.act_cfg}  # MMDetection reads no conv_cfg here
        self.mask_head = MaskFeatModule(
            entries.in_channels, entries.feat_channels, levels, entries.num_prototypes, **layer
        )

    def build_towers(self, entries: RTMDetSepBNHead.Entries) -> tuple[nn.ModuleList, nn.ModuleList]:
        """Return one tower for the classes and the boxes, by level, as MMDetection does."""
        towers = level_towers(entries, len(self.priors.strides), entries.share_conv)
        return towers, towers

    def distances(self, raw: Tensor) -> Tensor:
        """Return distances to the sides, in strides."""
        return raw.relu()

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return logits and distances as RTMDet, weights of masks' networks by level, and the masks' features."""
        convs = zip(self.rtm_kernel, self.kernel_convs, features, strict=True)
        weights = [predict(tower(x)) for predict, tower, x in convs]  # [N, weights, h, w]
        return (*super().forward(features), *weights, self.mask_head(features))

    def masks(self, maps: Sequence[Tensor], indices: Tensor) -> Tensor:
        """Return mask logits [N, K, h, w] of the priors with some `indices` [N, K], from all maps of the head."""
        levels = len(self.priors.strides)
        weight_maps, features = maps[2 * levels : 3 * levels], maps[3 * levels]
        points, strides = points_and_strides(self.priors, weight_maps)
        grid = torch.unflatten(self.priors.level(0, features), 0, features.shape[2:])  # [h, w, 2]
        x, y = relative_coordinates(points[indices], 8 * strides[indices], grid)
        return self.dynamic_masks(of_priors(weight_maps, indices), features, x, y)


@PARTS.register("detector", "RTMDetInsSepBNHead")
class RTMDetIns(DenseDetector):
    """RTMDet-Ins; its masks are logits over the whole input."""

    family = "RTMDet-Ins"
    head = RTMDetInsSepBNHead
    bbox_head: RTMDetInsSepBNHead
    test_cfg: TestCfg

    @dataclass(frozen=True, kw_only=True)
    class TestCfg(DenseEntries):
        mask_thr_binary: float = 0.5

        def __post_init__(self) -> None:
            super().__post_init__()
            if not 0 < self.mask_thr_binary < 1:
                raise ValueError(
                    f"detect.build: test_cfg.mask_thr_binary must be between 0 and 1, got {self.mask_thr_binary}"
                )

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        require_proportions(config, "MMDetection gives masks of RTMDet-Ins another size than the image otherwise")
        probability, stride = self.test_cfg.mask_thr_binary, self.bbox_head.priors.strides[0][0]
        self.output_names = WITH_MASKS
        self.mask_format = MaskFormat("image", math.log(probability / (1 - probability)), int(stride), "scale")

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the head's maps."""
        return *super().raw_names, "mask_feat"

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        maps = self.raw(input)
        levels = len(self.bbox_head.priors.strides)
        boxes, scores, priors = self.candidates(maps[: 2 * levels], image_limits(input, img_shape))
        dets, labels, chosen = indexed_detections(boxes, scores, self.test_cfg)  # [N, K, 5], [N, K], [N, K]
        masks = self.bbox_head.masks(maps, priors.gather(1, chosen.clamp(min=0)))  # [N, K, h, w]
        return dets, labels, torch.where(labels[..., None, None] < 0, 0, masks)
