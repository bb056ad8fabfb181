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

from mmort.detect.entries import Parts, default
from mmort.detect.families.rtmdet import RTMDetSepBNHead, level_towers
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.layers import tower
from mmort.detect.parts.selection import indexed_detections
from mmort.detect.parts.single_stage import DenseDetector
from mmort.detect.parts.test_cfg import DenseEntries
from mmort.detect.versions import Config
from mmort.predict import MaskFormat


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
        """The entries of ``bbox_head``."""

        with_objectness: bool = False
        num_prototypes: int = 8
        dyconv_channels: int = 8
        num_dyconvs: int = 3
        norm_cfg: Config | None = default({"type": "BN"})

        ignored: ClassVar = {"mask_loss_stride": "training only"}

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        width, levels = entries.dyconv_channels, len(self.priors.strides)
        # Inputs and outputs of the layers of a mask's network; its first inputs are the pixel's x and y.
        outputs = [width] * (entries.num_dyconvs - 1) + [1]
        self.dynamic_layers = list(zip([entries.num_prototypes + 2, *outputs[:-1]], outputs, strict=True))
        weights = sum(inputs * count + count for inputs, count in self.dynamic_layers)
        self.kernel_convs = level_towers(entries, levels, shared=False)
        self.rtm_kernel = self.build_predictors(entries, weights)
        layer: dict[str, Any] = entries.layer
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
        flat = torch.cat([map.flatten(2) for map in weight_maps], 2)  # [N, weights, priors of all levels]
        weights = flat.gather(2, indices[:, None].expand(-1, flat.shape[1], -1)).transpose(1, 2)  # [N, K, weights]
        points, units = self._points(weight_maps)
        x, y = self._relative(points[indices], units[indices], features)  # [N, K, 1, 1, w], [N, K, 1, h, 1]
        kernels, biases = self._split(weights)
        # The coordinates' terms are added to those of the features, which all masks share: no copies of the features.
        columns, rows = kernels[0][..., 0, None, None], kernels[0][..., 1, None, None]  # [N, K, 8, 1, 1]
        mixed = kernels[0][..., 2:].flatten(1, 2) @ features.flatten(2)  # [N, K * 8, h * w]
        mixed = torch.unflatten(torch.unflatten(mixed, 1, (-1, kernels[0].shape[2])), 3, features.shape[2:])
        hidden = (mixed + (columns * x + biases[0][..., None]) + rows * y).flatten(3)
        for kernel, bias in zip(kernels[1:], biases[1:], strict=True):
            hidden = kernel @ hidden.relu() + bias  # [N, K, C, h * w]
        return torch.unflatten(hidden[:, :, 0], 2, features.shape[2:])

    def _points(self, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the priors of all levels, [P, 2], and the length that their masks' coordinates are divided by, [P]."""
        points = [self.priors.level(level, map) for level, map in enumerate(maps)]
        strides = [stride for stride, _ in self.priors.strides]
        units = [level[:, 0].new_full((level.shape[0],), 8 * unit) for level, unit in zip(points, strides, strict=True)]
        return torch.cat(points), torch.cat(units)

    def _relative(self, points: Tensor, units: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return x [N, K, 1, 1, w] and y [N, K, 1, h, 1] from the masks' locations to points [N, K, 2]."""
        height, width = features.shape[2:]
        grid = torch.unflatten(self.priors.level(0, features), 0, (height, width))  # [h, w, 2]
        distances = (
            points[..., 0, None] - grid[0, :, 0],
            points[..., 1, None] - grid[:, 0, 1],
        )  # [N, K, w], [N, K, h]
        x, y = (distance / units[..., None] for distance in distances)
        return x[:, :, None, None], y[:, :, None, :, None]

    def _split(self, weights: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Split weights [N, K, W] into kernels [N, K, outputs, inputs] and biases [N, K, outputs, 1] by layer."""
        sizes = [inputs * count for inputs, count in self.dynamic_layers] + [count for _, count in self.dynamic_layers]
        parts = torch.split(weights, sizes, 2)
        depth = len(self.dynamic_layers)
        kernels = [
            torch.unflatten(values, 2, (count, inputs))
            for values, (inputs, count) in zip(parts[:depth], self.dynamic_layers, strict=True)
        ]
        return kernels, [bias[..., None] for bias in parts[depth:]]


class RTMDetIns(DenseDetector):
    """RTMDet-Ins; its masks are logits over the whole input."""

    family = "RTMDet-Ins"
    head = RTMDetInsSepBNHead
    bbox_head: RTMDetInsSepBNHead
    test_cfg: TestCfg

    @dataclass(frozen=True, kw_only=True)
    class TestCfg(DenseEntries):
        """The entries of ``test_cfg``."""

        mask_thr_binary: float = 0.5

    def __init__(self, config: Config, parts: Parts) -> None:
        super().__init__(config, parts)
        probability, stride = self.test_cfg.mask_thr_binary, self.bbox_head.priors.strides[0][0]
        self.output_names = ("dets", "labels", "masks")
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
