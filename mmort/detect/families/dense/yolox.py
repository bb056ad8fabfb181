"""YOLOX: a class, an objectness and a box for every location, without anchors; a head for every level.

Source: Z. Ge et al., "YOLOX: Exceeding YOLO Series in 2021"; MMDetection's ``YOLOXHead``.  Box AP of MMDetection's
YOLOX-s on COCO val2017: 40.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, training_only
from mmort.detect.parts.csp import convolution_block
from mmort.detect.parts.layers import LayerEntries
from mmort.detect.parts.priors import Points
from mmort.detect.parts.selection import detections, of_all_levels
from mmort.detect.parts.single_stage import Head, SingleStageDetector, SingleStageModel
from mmort.detect.parts.test_cfg import DenseEntries


class YOLOXLayers(nn.Module):
    """For every level a tower for the classes, and one for the box and the objectness."""

    class_layers: ClassVar = {"multi_level_conv_cls": 0}
    raw_kinds: ClassVar[tuple[str, ...]] = ("cls_score", "bbox_pred", "objectness")

    def add_layers(
        self,
        in_channels: int,
        channels: int,
        classes: int,
        *,
        levels: int,
        stacked_convs: int,
        use_depthwise: bool,
        **layer: Any,
    ) -> None:
        """Make the layers, with the arguments `layer` of `ConvModule`."""
        block = convolution_block(use_depthwise)
        inputs = [in_channels] + [channels] * (stacked_convs - 1)
        self.multi_level_cls_convs, self.multi_level_reg_convs = (
            nn.ModuleList(
                nn.Sequential(*(block(inner, channels, 3, padding=1, **layer) for inner in inputs))
                for _ in range(levels)
            )
            for _ in range(2)
        )
        self.multi_level_conv_cls, self.multi_level_conv_reg, self.multi_level_conv_obj = (
            nn.ModuleList(nn.Conv2d(channels, numbers, 1) for _ in range(levels)) for numbers in (classes, 4, 1)
        )

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return logits of classes [N, C, h, w], regressed x, y, w, h, and logits of objectness, each by level."""
        for_classes = [convs(x) for convs, x in zip(self.multi_level_cls_convs, features, strict=True)]
        for_boxes = [convs(x) for convs, x in zip(self.multi_level_reg_convs, features, strict=True)]
        logits = [predict(x) for predict, x in zip(self.multi_level_conv_cls, for_classes, strict=True)]
        regressed = [predict(x) for predict, x in zip(self.multi_level_conv_reg, for_boxes, strict=True)]
        objectness = [predict(x) for predict, x in zip(self.multi_level_conv_obj, for_boxes, strict=True)]
        return (*logits, *regressed, *objectness)


def decoded_boxes(regressed: Tensor, points: Tensor, stride: float) -> Tensor:
    """Return boxes [N, P, 4] of regressed x, y, w, h at points [P, 2] of a level."""
    centre = regressed[..., :2] * stride + points
    half = regressed[..., 2:].exp() * stride / 2
    return torch.cat([centre - half, centre + half], -1)


class YOLOXHead(YOLOXLayers, Head):
    """MMDetection's head: a box has the class with the best score only."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        num_classes: int
        in_channels: int
        feat_channels: int = 256
        stacked_convs: int = 2
        strides: Sequence[int] = (8, 16, 32)
        use_depthwise: bool = False
        norm_cfg: Config | None = default({"type": "BN", "momentum": 0.03, "eps": 0.001})
        act_cfg: Config | None = default({"type": "Swish"})

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes = entries.num_classes
        self.priors = Points(entries.strides, offset=0)
        self.add_layers(
            entries.in_channels,
            entries.feat_channels,
            self.classes,
            levels=len(entries.strides),
            stacked_convs=entries.stacked_convs,
            use_depthwise=entries.use_depthwise,
            **entries.layer,
        )

    def decode(self, maps: Sequence[Tensor], score_threshold: float) -> tuple[Tensor, Tensor]:
        """Return boxes [N, P, 4], not clipped, and scores [N, P, C], 0 for all but the best class and if low."""

        def decoded(level: int, *maps_of_level: Tensor) -> tuple[Tensor, ...]:
            stride = self.priors.strides[level][0]
            # [N, h*w, C], [N, h*w, 4], [N, h*w, 1]
            logits, regressed, objectness = (map.flatten(2).transpose(1, 2) for map in maps_of_level)
            boxes = decoded_boxes(regressed, self.priors.level(level, maps_of_level[0]), stride)
            best = logits.sigmoid().max(2, keepdim=True)
            score = best.values * objectness.sigmoid()  # [N, h*w, 1]
            score = torch.where(score >= score_threshold, score, 0)
            is_best = torch.arange(self.classes, device=logits.device) == best.indices
            return boxes, torch.where(is_best, score, 0)

        boxes, scores = of_all_levels(decoded, maps, len(self.priors.strides))
        return boxes, scores


@PARTS.register("detector", "YOLOXHead")
class YOLOX(SingleStageDetector):
    """YOLOX.  By default its detections are not limited: K is their number in the image with the most."""

    family = "YOLOX"
    head = YOLOXHead
    bbox_head: YOLOXHead

    @dataclass(frozen=True, kw_only=True)
    class Model(SingleStageModel):
        ignored: ClassVar = {
            **SingleStageModel.ignored,
            **training_only("input_size", "random_size_range", "random_size_interval"),
        }

    @dataclass(frozen=True, kw_only=True)
    class TestCfg(DenseEntries):
        max_per_img: int = 0  # all

        ignored: ClassVar = {"max_per_img": "MMDetection does not read it"}

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        # Nothing here is clipped to the image, so its shape does not matter.
        boxes, scores = self.bbox_head.decode(self.raw(input), self.test_cfg.score_thr)
        return detections(boxes, scores, self.test_cfg)
