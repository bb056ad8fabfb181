"""RepPoints: nine points of each object, regressed twice; their extent is the box.

Source: Z. Yang et al., "RepPoints: Point Set Representation for Object Detection", ICCV 2019; MMDetection's
``RepPointsHead``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, nested, training_only
from mmort.detect.parts.boxes import clip
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, DenseLoss
from mmort.detect.parts.heads.towers import TowerEntries, tower_pair
from mmort.detect.parts.priors import Points
from mmort.detect.parts.single_stage import DenseDetector, DenseHead
from mmort.torch import DeformConv2d


class RepPointsHead(DenseHead):
    """Two towers; deformable convolutions over the first points give the classes and the second points."""

    class_layers: ClassVar = {"reppoints_cls_out": 0}
    methods: ClassVar[tuple[str, ...]] = ("moment", "minmax", "partial_minmax")
    taps: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerEntries):
        point_feat_channels: int = 256
        num_points: int = 9
        point_strides: Sequence[Any] = (8, 16, 32, 64, 128)
        point_base_scale: float = 4
        use_grid_points: bool = False
        center_init: bool = True
        transform_method: str = "moment"
        loss_cls: DenseLoss = nested(DenseLoss, default=WITH_SIGMOID)

        ignored: ClassVar = training_only("gradient_mul", "moment_mul")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        side = math.isqrt(entries.num_points)
        if side**2 != entries.num_points or side % 2 == 0:
            raise ValueError(
                f"detect.build: bbox_head.num_points must be the square of an odd number, got {entries.num_points}"
            )
        if entries.transform_method not in self.methods:
            raise ValueError(
                f"detect.build: bbox_head.transform_method must be one of {', '.join(self.methods)}, "
                f"got {entries.transform_method!r}"
            )
        self.classes, self.activation = entries.num_classes, entries.loss_cls.activation
        self.priors, self.method = Points(entries.point_strides, offset=0), entries.transform_method
        self.half_scale, self.side = entries.point_base_scale / 2, side
        self.use_grid_points, self.center_init = entries.use_grid_points, entries.center_init
        channels, width, reach = entries.feat_channels, entries.point_feat_channels, side // 2
        self.cls_convs, self.reg_convs = tower_pair(entries)
        numbers = 4 if self.use_grid_points else 2 * entries.num_points
        self.reppoints_cls_conv = DeformConv2d(channels, width, side, padding=reach)
        self.reppoints_cls_out = nn.Conv2d(width, self.class_channels, 1)
        self.reppoints_pts_init_conv = nn.Conv2d(channels, width, 3, padding=1)
        self.reppoints_pts_init_out = nn.Conv2d(width, numbers, 1)
        self.reppoints_pts_refine_conv = DeformConv2d(channels, width, side, padding=reach)
        self.reppoints_pts_refine_out = nn.Conv2d(width, numbers, 1)
        if self.method == "moment":
            self.moment_transfer = nn.Parameter(torch.zeros(2))
        steps = [float(step) for step in range(-reach, reach + 1)]
        taps = torch.tensor([(y, x) for y in steps for x in steps]).reshape(1, -1, 1, 1)
        self.register_buffer("taps", taps, persistent=False)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return logits and boxes around the location, in units of the stride, each by level."""
        logits, boxes = [], []
        for x in features:
            for_classes, for_points = self.cls_convs(x), self.reg_convs(x)  # [N, C, h, w]
            numbers = self.reppoints_pts_init_out(self.reppoints_pts_init_conv(for_points).relu())
            points, box = self.first_points(numbers)  # [N, 2 * points, h, w], y and x in turn; [N, 4, h, w]
            offsets = points - self.taps
            numbers = self.reppoints_pts_refine_out(self.reppoints_pts_refine_conv(for_points, offsets).relu())
            logits.append(self.reppoints_cls_out(self.reppoints_cls_conv(for_classes, offsets).relu()))
            points = grid(numbers, box, self.side)[0] if self.use_grid_points else numbers + points
            boxes.append(self.extent(points))
        return (*logits, *boxes)

    def first_points(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return points of regressed numbers, and the box of a grid of them."""
        corners = torch.tensor([-1.0, -1.0, 1.0, 1.0], device=numbers.device) * self.half_scale
        box = corners.reshape(1, 4, 1, 1)
        if self.use_grid_points:
            return grid(numbers, box, self.side)
        if not self.center_init:
            numbers = numbers + self.taps / (self.side // 2) * self.half_scale
        return numbers, box

    def extent(self, points: Tensor) -> Tensor:
        """Return boxes [N, 4, h, w] of points [N, 2 * points, h, w]."""
        y, x = torch.unflatten(points, 1, (-1, 2)).unbind(2)  # [N, points, h, w]
        if self.method == "moment":
            means = [values.mean(1) for values in (x, y)]
            halves = [
                values.var(1).sqrt() * factor
                for values, factor in zip((x, y), self.moment_transfer.exp().unbind(), strict=True)
            ]
            first = [mean - half for mean, half in zip(means, halves, strict=True)]
            return torch.stack([*first, *(mean + half for mean, half in zip(means, halves, strict=True))], 1)
        if self.method == "partial_minmax":
            x, y = x[:, :4], y[:, :4]
        return torch.stack([x.amin(1), y.amin(1), x.amax(1), y.amax(1)], 1)

    def for_coder(self, level: int, regressed: Tensor) -> Tensor:
        """Return the box around the location in pixels, [N, K, 4]."""
        return regressed * self.priors.strides[level][0]

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor) -> Tensor:
        """Return boxes [N, P, 4]."""
        return clip(regressed + torch.cat([priors, priors], -1), limits)


def grid(numbers: Tensor, boxes: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Return a grid of points [N, 2 * side**2, h, w] over boxes moved by `numbers` [N, 4, h, w], and these boxes."""
    centre, size = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]).clamp(min=1e-6)
    extent = size * numbers[:, 2:].exp()
    first = centre + size * numbers[:, :2] - 0.5 * extent
    (left, top), (width, height) = first.unbind(1), extent.unbind(1)
    shares = [index / (side - 1) for index in range(side)]
    points = [(top + height * down, left + width * across) for down in shares for across in shares]
    return torch.stack([value for point in points for value in point], 1), torch.cat([first, first + extent], 1)


@PARTS.register("detector", "RepPointsHead")
class RepPoints(DenseDetector):
    """RepPoints."""

    family = "RepPoints"
    head = RepPointsHead
