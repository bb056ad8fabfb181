"""YOLOv3: classes, an objectness and a box for every anchor of three levels.

Source: J. Redmon, A. Farhadi, "YOLOv3: An Incremental Improvement", 2018; MMDetection's ``YOLOV3Head``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Parts, Schema, default, nested, part, require, training_only
from mmort.detect.parts.boxes import larger
from mmort.detect.parts.layers import ConvModule, LayerEntries
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.selection import detections, of_all_levels
from mmort.detect.parts.single_stage import Head, SingleStageDetector
from mmort.detect.parts.test_cfg import DenseEntries, check_preselection, check_size_of_original
from mmort.torch import filter_scores

_ANCHORS = {
    "type": "YOLOAnchorGenerator",
    "base_sizes": [
        [(116, 90), (156, 198), (373, 326)],
        [(30, 61), (62, 45), (59, 119)],
        [(10, 13), (16, 30), (33, 23)],
    ],
    "strides": [32, 16, 8],
}


@dataclass(frozen=True, kw_only=True)
class YOLOCoderEntries(Schema):
    """The entries of ``bbox_coder``."""

    type: str = "YOLOBBoxCoder"

    ignored: ClassVar = {"eps": "of the encoding", "use_box_type": "a wrapper around the same numbers"}


class YOLOV3Head(Head):
    """For every level a convolution, and a 1x1 convolution that predicts."""

    class_layers: ClassVar = {"convs_pred": 5}
    raw_kinds: ClassVar = ("pred_map",)

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        num_classes: int
        in_channels: Sequence[int]
        out_channels: Sequence[int] = (1024, 512, 256)
        anchor_generator: Priors = part("prior generator", default=_ANCHORS)
        bbox_coder: YOLOCoderEntries = nested(YOLOCoderEntries, default={})
        featmap_strides: Sequence[int] = (32, 16, 8)
        norm_cfg: Config | None = default({"type": "BN"})
        act_cfg: Config | None = default({"type": "LeakyReLU", "negative_slope": 0.1})

        ignored: ClassVar = training_only("one_hot_smoother")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        require("bbox_head.bbox_coder", entries.bbox_coder.type, "YOLOBBoxCoder")
        self.classes = entries.num_classes
        self.strides = list(entries.featmap_strides)
        self.priors = entries.anchor_generator
        layer = entries.layer
        numbers = self.priors.num_base_priors[0] * (5 + self.classes)
        self.convs_bridge = nn.ModuleList(
            ConvModule(in_channels, out_channels, 3, padding=1, **layer)
            for in_channels, out_channels in zip(entries.in_channels, entries.out_channels, strict=True)
        )
        self.convs_pred = nn.ModuleList(nn.Conv2d(channels, numbers, 1) for channels in entries.out_channels)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return x, y, w, h, objectness and classes, [N, A * (5 + classes), h, w], by level, coarsest first."""
        levels = zip(self.convs_bridge, self.convs_pred, features, strict=True)
        return tuple(predict(bridge(x)) for bridge, predict, x in levels)

    def decode(self, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return boxes [N, P, 4], not clipped, and probabilities: objectness [N, P, 1], classes [N, P, C]."""

        def decoded(level: int, map: Tensor) -> tuple[Tensor, ...]:
            by_anchor = torch.unflatten(map.permute(0, 2, 3, 1), 3, (-1, 5 + self.classes))
            flat = by_anchor.flatten(1, 3)  # [N, h*w*A, 5 + C]
            priors = self.priors.level(level, map)  # [h*w*A, 4]
            centre = (priors[:, :2] + priors[:, 2:]) * 0.5 + (flat[..., :2].sigmoid() - 0.5) * self.strides[level]
            half = (priors[:, 2:] - priors[:, :2]) * 0.5 * flat[..., 2:4].exp()
            return torch.cat([centre - half, centre + half], -1), flat[..., 4:5].sigmoid(), flat[..., 5:].sigmoid()

        boxes, objectness, scores = of_all_levels(decoded, maps, len(self.strides))
        return boxes, objectness, scores


@PARTS.register("detector", "YOLOV3Head")
class YOLOv3(SingleStageDetector):
    """YOLOv3."""

    family = "YOLOv3"
    head = YOLOV3Head
    bbox_head: YOLOV3Head
    test_cfg: TestCfg

    @dataclass(frozen=True, kw_only=True)
    class TestCfg(DenseEntries):
        conf_thr: float = -1

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        # Only MMDetection 3 reads nms_pre and min_bbox_size here.
        version_3 = config.version == 3
        self.nms_pre: int = self.test_cfg.nms_pre if version_3 else -1
        self.min_size: float = self.test_cfg.min_bbox_size if version_3 else -1
        check_size_of_original("test_cfg.min_bbox_size", self.min_size)
        if version_3:
            check_preselection(self.nms_pre)

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        # Nothing here is clipped to the image, so its shape does not matter.
        test_cfg = self.test_cfg
        boxes, objectness, scores = self.bbox_head.decode(self.raw(input))
        if test_cfg.conf_thr > 0:
            scores = torch.where(objectness >= test_cfg.conf_thr, scores, 0)
        scores = filter_scores(scores, test_cfg.score_thr, self.nms_pre) * objectness
        if self.min_size >= 0:
            scores = torch.where(larger(boxes, self.min_size), scores, 0)
        return detections(boxes, scores, test_cfg)
