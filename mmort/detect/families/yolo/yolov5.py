"""YOLOv5: classes, an objectness and a box for every anchor; its boxes are at most four times as long as anchors.

Source: ultralytics' documentation of YOLOv5; MMYOLO's ``YOLOv5Head``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, nested, part
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.yolo.detector import MODEL, HeadModule, YOLODetector, YOLOHead

_ANCHORS = {
    "type": "YOLOAnchorGenerator",
    "base_sizes": [
        [(10, 13), (16, 30), (33, 23)],
        [(30, 61), (62, 45), (59, 119)],
        [(116, 90), (156, 198), (373, 326)],
    ],
    "strides": [8, 16, 32],
}


@dataclass(frozen=True, kw_only=True)
class YOLOv5CoderEntries(Schema):
    """The entries of ``bbox_coder``."""

    types: ClassVar = ("YOLOv5BBoxCoder",)
    ignored: ClassVar = {"use_box_type": "a wrapper around the same numbers"}


class YOLOv5HeadModule(HeadModule):
    """A 1x1 convolution for every level."""

    class_layers: ClassVar = {"convs_pred": 5}

    @dataclass(frozen=True, kw_only=True)
    class Entries(HeadModule.Entries):
        in_channels: Sequence[int]
        num_base_priors: int = 3

    def __init__(self, entries: Any) -> None:
        super().__init__(entries)
        numbers = self.numbers(entries)
        self.convs_pred = nn.ModuleList(
            self.predictor(channels, numbers) for channels in map(entries.channels, entries.in_channels)
        )

    def numbers(self, entries: Any) -> int:
        """Return how many numbers are predicted in a location."""
        return self.anchors * (5 + self.classes)

    def predictor(self, channels: int, numbers: int) -> nn.Module:
        """Return the layer that predicts the numbers of a level."""
        return nn.Conv2d(channels, numbers, 1)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return x, y, w, h, objectness and classes, [N, A * (5 + classes), h, w], by level."""
        return tuple(predict(x) for predict, x in zip(self.convs_pred, features, strict=True))


class YOLOv5Head(YOLOHead):
    """Boxes over anchors."""

    raw_kinds: ClassVar = ("pred_map",)

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOHead.Entries):
        head_module: HeadModule = part("head_module", types={"YOLOv5HeadModule": YOLOv5HeadModule})
        prior_generator: Priors = part("prior generator", default=_ANCHORS)
        bbox_coder: YOLOv5CoderEntries = nested(YOLOv5CoderEntries, default={})

    def by_anchor(self, map: Tensor) -> Tensor:
        """Return the numbers of each anchor [N, h*w*A, 5 + C ...] of a level's map."""
        return torch.unflatten(map.permute(0, 2, 3, 1), 3, (self.head_module.anchors, -1)).flatten(1, 3)

    def decoded(self, level: int, *maps: Tensor) -> tuple[Tensor, ...]:
        (map,) = maps
        numbers = self.by_anchor(map)[..., : 5 + self.head_module.classes].sigmoid()
        priors = self.priors.level(level, map)  # [h*w*A, 4]
        shift = (numbers[..., :2] - 0.5) * 2 * self.head_module.strides[level]
        centre = (priors[:, :2] + priors[:, 2:]) * 0.5 + shift
        half = (numbers[..., 2:4] * 2) ** 2 * (priors[:, 2:] - priors[:, :2]) / 2
        return torch.cat([centre - half, centre + half], -1), numbers[..., 5:], numbers[..., 4:5]


@PARTS.register("detector", "YOLOv5Head", model=MODEL)
class YOLOv5(YOLODetector):
    """YOLOv5 of MMYOLO."""

    family = "YOLOv5"
    head = YOLOv5Head
