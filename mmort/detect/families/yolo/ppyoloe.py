"""PP-YOLOE and PP-YOLOE+: a class and distributions of the distances to the sides for every location.

Source: S. Xu et al., "PP-YOLOE: An evolved version of YOLO", 2022; MMYOLO's configs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, part
from mmort.detect.parts.backbones.ppyoloe import PLAIN_NORM
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.yolo.detector import MODEL, HeadModule, YOLODetector
from mmort.detect.parts.yolo.distances import DistanceHead, DistributionModule
from mmort.detect.parts.yolo.scaling import RoundedDown


class ChannelWeights(nn.Module):
    """A factor for each channel, from the channels' means over the map, and a 1x1 convolution."""

    def __init__(self, channels: int, **layer: Any) -> None:
        super().__init__()
        self.fc = nn.Conv2d(channels, channels, 1)
        self.conv = ConvModule(channels, channels, 1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x * self.fc(x.mean((2, 3), keepdim=True)).sigmoid())


class PPYOLOEHeadModule(DistributionModule):
    """For every level weighted channels for the classes, beside a shortcut, and for the box."""

    class_layers: ClassVar = {"cls_preds": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(RoundedDown, DistributionModule.Entries):
        in_channels: Sequence[int]
        reg_max: int = 16
        norm_cfg: Config | None = default(PLAIN_NORM)

    def __init__(self, entries: Any) -> None:
        super().__init__(entries)
        self.set_bins(entries.reg_max + 1)
        levels = [entries.channels(channels) for channels in entries.in_channels]
        self.cls_stems, self.reg_stems = (
            nn.ModuleList(ChannelWeights(inner, **entries.layer) for inner in levels) for _ in range(2)
        )
        self.cls_preds, self.reg_preds = (
            nn.ModuleList(nn.Conv2d(inner, numbers, 3, padding=1) for inner in levels)
            for numbers in (self.classes, self.bins * 4)
        )

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return logits of classes [N, C, h, w], and what is regressed [N, 4 * bins, h, w], each by level."""
        for_classes = [x + stem(x) for stem, x in zip(self.cls_stems, features, strict=True)]
        for_boxes = [stem(x) for stem, x in zip(self.reg_stems, features, strict=True)]
        logits = [predict(x) for predict, x in zip(self.cls_preds, for_classes, strict=True)]
        return (*logits, *(predict(x) for predict, x in zip(self.reg_preds, for_boxes, strict=True)))


class PPYOLOEHead(DistanceHead):
    """Distances to the sides from the middle of each location."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(DistanceHead.Entries):
        head_module: HeadModule = part("head_module", types={"PPYOLOEHeadModule": PPYOLOEHeadModule})


@PARTS.register("detector", "PPYOLOEHead", model=MODEL)
class PPYOLOE(YOLODetector):
    """PP-YOLOE and PP-YOLOE+ of MMYOLO."""

    family = "PP-YOLOE"
    head = PPYOLOEHead
