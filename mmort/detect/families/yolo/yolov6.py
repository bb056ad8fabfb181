"""YOLOv6: a class and the distances to the sides for every location, without anchors or objectness.

Sources: C. Li et al., "YOLOv6: A Single-Stage Object Detection Framework for Industrial Applications", 2022; C. Li et
al., "YOLOv6 v3.0: A Full-Scale Reloading", 2023; MMYOLO's configs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.detect.entries import PARTS, part
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.yolo.detector import MODEL, HeadModule, YOLODetector
from mmort.detect.parts.yolo.distances import DistanceHead, DistributionModule


class YOLOv6HeadModule(DistributionModule):
    """For every level a 1x1 convolution, and after it a convolution for the classes and one for the box."""

    class_layers: ClassVar = {"cls_preds": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(DistributionModule.Entries):
        in_channels: Sequence[int]
        reg_max: int = 0  # the largest distance; 0: distances are predicted themselves

        def check(self, name: str) -> None:
            if self.reg_max == 1:
                raise ValueError(f"detect.build: reg_max of {name} must be 0 or at least 2: MMYOLO decodes no 1")

    def __init__(self, entries: Any) -> None:
        super().__init__(entries)
        self.set_bins(entries.reg_max + 1)
        levels = [entries.channels(channels) for channels in entries.in_channels]

        def layers(size: int) -> nn.ModuleList:
            padding = size // 2
            return nn.ModuleList(ConvModule(inner, inner, size, padding=padding, **entries.layer) for inner in levels)

        self.stems, self.cls_convs, self.reg_convs = layers(1), layers(3), layers(3)
        self.cls_preds, self.reg_preds = (
            nn.ModuleList(nn.Conv2d(inner, numbers, 1) for inner in levels) for numbers in (self.classes, self.bins * 4)
        )

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return logits of classes [N, C, h, w], and what is regressed [N, 4 * bins, h, w], each by level."""
        stems = [stem(x) for stem, x in zip(self.stems, features, strict=True)]
        for_classes = [conv(x) for conv, x in zip(self.cls_convs, stems, strict=True)]
        for_boxes = [conv(x) for conv, x in zip(self.reg_convs, stems, strict=True)]
        logits = [predict(x) for predict, x in zip(self.cls_preds, for_classes, strict=True)]
        return (*logits, *(predict(x) for predict, x in zip(self.reg_preds, for_boxes, strict=True)))


class YOLOv6Head(DistanceHead):
    """Distances to the sides from the middle of each location."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(DistanceHead.Entries):
        head_module: HeadModule = part("head_module", types={"YOLOv6HeadModule": YOLOv6HeadModule})


@PARTS.register("detector", "YOLOv6Head", model=MODEL)
class YOLOv6(YOLODetector):
    """YOLOv6 of MMYOLO, versions 2 and 3."""

    family = "YOLOv6"
    head = YOLOv6Head
