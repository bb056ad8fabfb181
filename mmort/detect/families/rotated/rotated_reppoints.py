"""Rotated RepPoints: nine points of each object, and the smallest rectangle around them.

CFA, SASM and Oriented RepPoints are other ways to train the same network.  Source: MMRotate's
``RotatedRepPointsHead``, ``SAMRepPointsHead``, ``OrientedRepPointsHead``, and in MMRotate 1 ``CFAHead``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mmort.detect.entries import PARTS, training_only
from mmort.detect.families.dense.reppoints import RepPointsHead
from mmort.detect.parts.rotated.dense import RotatedDenseDetector
from mmort.detect.parts.rotated.geometry import AngleVersion, angle_version, boxes_of_points, smallest_rectangles


class RotatedRepPointsHead(RepPointsHead):
    """RepPoints' head, whose second points are decoded as they are."""

    methods = ("rotrect",)

    @dataclass(frozen=True, kw_only=True)
    class Entries(RepPointsHead.Entries):
        stacked_convs: int = 3
        transform_method: str = "rotrect"
        version: str = "oc"  # MMRotate's configs name another in their pipelines, but not here

        ignored: ClassVar = {
            **RepPointsHead.Entries.ignored,
            **training_only("anti_factor", "init_qua_weight", "top_ratio", "topk", "use_reassign"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.version: AngleVersion = angle_version("bbox_head", entries.version)
        self.box_channels = 2 * entries.num_points

    def extent(self, points: Tensor) -> Tensor:
        """Return points [N, 2 * points, h, w] as they are."""
        return points

    def for_coder(self, level: int, regressed: Tensor) -> Tensor:
        """Return the corners of the rectangle around points [N, K, 2 * points], y before x, in pixels: [N, K, 4, 2]."""
        points = torch.unflatten(regressed, 2, (-1, 2)).flip(-1)  # [N, K, points, 2]
        return smallest_rectangles(points) * self.priors.strides[level][0]

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor) -> Tensor:
        """Return boxes [N, P, 5], which are not clipped."""
        return boxes_of_points(regressed + priors[:, :, None], self.version)


@PARTS.register("detector", "CFAHead", "OrientedRepPointsHead", "RotatedRepPointsHead", "SAMRepPointsHead")
class RotatedRepPoints(RotatedDenseDetector):
    """Rotated RepPoints."""

    family = "Rotated RepPoints"
    head = RotatedRepPointsHead
