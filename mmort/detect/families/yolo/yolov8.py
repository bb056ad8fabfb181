"""YOLOv8: a class and distributions of the distances to the sides for every location, without anchors or objectness.

Source: ultralytics' documentation of YOLOv8; X. Li et al., "Generalized Focal Loss", 2020, for the distributions;
MMYOLO's ``YOLOv8Head``.
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


class YOLOv8HeadModule(DistributionModule):
    """For every level a tower for the classes, and one for the box, as wide at all levels."""

    class_layers: ClassVar = {"cls_preds": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(DistributionModule.Entries):
        in_channels: Sequence[int]
        reg_max: int = 16

    def __init__(self, entries: Any) -> None:
        super().__init__(entries)
        levels = [entries.channels(channels) for channels in entries.in_channels]
        for_boxes = max(16, levels[0] // 4, self.bins * 4)
        for_classes = max(levels[0], self.classes)
        layer = entries.layer

        def towers(channels: int, numbers: int) -> nn.ModuleList:
            return nn.ModuleList(
                nn.Sequential(
                    ConvModule(inputs, channels, 3, padding=1, **layer),
                    ConvModule(channels, channels, 3, padding=1, **layer),
                    nn.Conv2d(channels, numbers, 1),
                )
                for inputs in levels
            )

        self.cls_preds, self.reg_preds = towers(for_classes, self.classes), towers(for_boxes, self.bins * 4)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return logits of classes [N, C, h, w], and what is regressed [N, 4 * bins, h, w], each by level."""
        logits = (predict(x) for predict, x in zip(self.cls_preds, features, strict=True))
        return (*logits, *(predict(x) for predict, x in zip(self.reg_preds, features, strict=True)))


class YOLOv8Head(DistanceHead):
    """Distances to the sides from the middle of each location."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(DistanceHead.Entries):
        head_module: HeadModule = part("head_module", types={"YOLOv8HeadModule": YOLOv8HeadModule})


@PARTS.register("detector", "YOLOv8Head", model=MODEL)
class YOLOv8(YOLODetector):
    """YOLOv8 of MMYOLO, and YOLOv5u, which has YOLOv5's backbone and neck."""

    family = "YOLOv8"
    head = YOLOv8Head
