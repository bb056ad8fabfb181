"""Grid R-CNN: a Faster R-CNN whose boxes are those of a grid of points, each found on a map of its own.

Source: X. Lu et al., "Grid R-CNN", CVPR 2019; "Grid R-CNN Plus", 2019.  Box AP of MMDetection's R-50-FPN model on COCO
val2017 after 24 epochs: 40.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, default, part
from mmort.detect.families.two_stage.faster_rcnn import StandardRoIHead
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.roi_extractor import RoIExtractor
from mmort.detect.parts.test_cfg import RCNNEntries
from mmort.detect.parts.two_stage import TwoStageDetector, to_rows, used_rows


class GridHead(nn.Module):
    """A map for each point of the grid; neighbours in the grid exchange their features twice.

    The points go column by column, from the upper left.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        grid_points: int = 9
        num_convs: int = 8
        roi_feat_size: int = 14
        in_channels: int = 256
        conv_kernel_size: int = 3
        point_feat_channels: int = 64
        deconv_kernel_size: int = 4
        conv_cfg: Config | None = None
        norm_cfg: Config | None = default({"type": "GN", "num_groups": 36})

        ignored: ClassVar = {"class_agnostic": "MMDetection does not read it either"}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        points, each = entries.grid_points, entries.point_feat_channels
        self.side, self.width = math.isqrt(points), each
        if self.side**2 != points or points < 4:
            raise ValueError(f"detect.build: grid_head.grid_points must be a square of at least 4, got {points}")
        self.whole = entries.roi_feat_size * 4  # a map shows a half of it
        channels, kernel = points * each, entries.conv_kernel_size
        self.convs = nn.Sequential(
            *(
                ConvModule(
                    channels if index else entries.in_channels,
                    channels,
                    kernel,
                    stride=1 if index else 2,
                    padding=(kernel - 1) // 2,
                    bias=True,
                    conv_cfg=entries.conv_cfg,
                    norm_cfg=entries.norm_cfg,
                )
                for index in range(entries.num_convs)
            )
        )
        kernel = entries.deconv_kernel_size
        layer: dict[str, Any] = {"stride": 2, "padding": (kernel - 2) // 2, "groups": points}
        self.deconv1 = nn.ConvTranspose2d(channels, channels, kernel, **layer)
        self.norm1 = nn.GroupNorm(points, channels)
        self.deconv2 = nn.ConvTranspose2d(channels, points, kernel, **layer)
        self.neighbors = [self._neighbors(*divmod(point, self.side)) for point in range(points)]
        self.forder_trans, self.sorder_trans = (
            nn.ModuleList(nn.ModuleList(_transition(each) for _ in points) for points in self.neighbors)
            for _ in range(2)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [R, points, n, n] of features [R, C, h, w] of regions."""
        point_maps = list(self.convs(features).split(self.width, 1))
        first = self._exchanged(point_maps, point_maps, self.forder_trans)
        x = torch.cat(self._exchanged(point_maps, first, self.sorder_trans), 1)
        return self.deconv2(self.norm1(self.deconv1(x)).relu())

    def boxes(self, boxes: Tensor, logits: Tensor) -> Tensor:
        """Return the boxes [R, 4] of the grids in the logits [R, points, n, n] of boxes [R, 4].

        A side is the mean of the points on it, weighted by their probabilities; as in MMDetection it may be outside the
        image.
        """
        count = logits.shape[3]
        best = logits.flatten(2).max(2)
        probabilities = torch.unflatten(best.values.sigmoid(), 1, (self.side, self.side))  # [R, column, row]
        starts = torch.tensor([self._start(index) for index in range(self.side)], device=boxes.device)
        cells = torch.unflatten(best.indices, 1, (self.side, self.side))
        x, y = cells % count + starts[:, None], cells // count + starts
        size = boxes[:, 2:] - boxes[:, :2]  # that of one map; the whole is twice as large, around the same centre
        first = boxes[:, :2] - size / 2
        points = (torch.stack([x, y], 3) + 0.5) / count * size[:, None, None] + first[:, None, None]
        weighted, last = points * probabilities[..., None], self.side - 1  # [R, column, row, 2]
        sides = [
            weighted[:, 0, :, 0].sum(1) / probabilities[:, 0].sum(1),
            weighted[:, :, 0, 1].sum(1) / probabilities[:, :, 0].sum(1),
            weighted[:, last, :, 0].sum(1) / probabilities[:, last].sum(1),
            weighted[:, :, last, 1].sum(1) / probabilities[:, :, last].sum(1),
        ]
        return torch.stack(sides, 1)

    def _exchanged(self, point_maps: list[Tensor], sources: list[Tensor], layers: nn.ModuleList) -> list[Tensor]:
        """Return each point's features plus what layers make of its neighbours' features."""
        exchanged = []
        for x, neighbors, transitions in zip(point_maps, self.neighbors, layers, strict=True):
            for neighbor, transition in zip(neighbors, transitions, strict=True):  # type: ignore[call-overload]
                x = x + transition(sources[neighbor])
            exchanged.append(x)
        return exchanged

    def _neighbors(self, column: int, row: int) -> list[int]:
        """Return the points to the left, above, below and to the right of a point."""
        around = ((column - 1, row), (column, row - 1), (column, row + 1), (column + 1, row))
        inside = range(self.side)
        return [x * self.side + y for x, y in around if x in inside and y in inside]

    def _start(self, index: int) -> int:
        """Return where in the whole map the part begins that a column or row of points is searched in."""
        if index == self.side - 1:
            return self.whole // 4 * 2
        return max(int((index / (self.side - 1) - 0.25) * self.whole), 0)


class GridRoIHead(StandardRoIHead):
    """Faster R-CNN's second stage, whose boxes are replaced by those of the grids."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(StandardRoIHead.Entries):
        grid_roi_extractor: RoIExtractor = part("RoI extractor")
        grid_head: GridHead = part("grid_head", types={"GridHead": GridHead})

    def __init__(self, entries: Entries, test_cfg: RCNNEntries) -> None:
        super().__init__(entries, test_cfg)
        self.grid_roi_extractor, self.grid_head = entries.grid_roi_extractor, entries.grid_head

    def detect(self, features: list[Tensor], proposals: Tensor, used: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        dets, labels = super().detect(features, proposals, used, limits)
        rows, rois, _ = used_rows(dets, labels)
        logits = self.grid_head(self.shared_head(self.grid_roi_extractor(features, rois)))
        boxes = to_rows(self.grid_head.boxes(rois[:, 1:], logits), rows, labels)
        return torch.cat([boxes, dets[..., 4:]], 2), labels


@PARTS.register("detector", "GridRoIHead")
class GridRCNN(TwoStageDetector):
    """Grid R-CNN."""

    family = family_with_masks = "Grid R-CNN"
    model_types = ("GridRCNN",)
    head = GridRoIHead

    @property
    def heads(self) -> tuple[str, ...]:
        """The compared layers: of the box head only that of the classes, as it moves no boxes."""
        return *super().heads[:-1], "roi_head.bbox_head.fc_cls"


def _transition(channels: int) -> nn.Sequential:
    """Return a 5x5 convolution of each channel alone, and a 1x1 convolution."""
    return nn.Sequential(nn.Conv2d(channels, channels, 5, padding=2, groups=channels), nn.Conv2d(channels, channels, 1))
