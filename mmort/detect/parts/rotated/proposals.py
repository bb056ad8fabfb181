"""First stages of rotated detectors: MMRotate's region proposal networks.

Source: MMRotate's ``RotatedRPNHead``, whose proposals are upright, and ``OrientedRPNHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, part
from mmort.detect.parts.heads.rpn_head import MIN_SCORE, RPNHead
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.geometry import bounding_boxes
from mmort.detect.parts.selection import take_rows
from mmort.detect.parts.test_cfg import RPNEntries
from mmort.torch import multiclass_nms


@PARTS.register("rpn_head", "RotatedRPNHead")
class RotatedRPNHead(RPNHead):
    """MMDetection's head, which here keeps boxes without area."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RPNHead.Entries):
        ignored: ClassVar = {**RPNHead.Entries.ignored, "version": "its proposals are upright"}

    def valid(self, boxes: Tensor) -> Tensor:
        """Return which boxes [N, P, 4] may be proposals, [N, P, 1]."""
        return _large(boxes[..., 2:] - boxes[..., :2], self.test_cfg.min_bbox_size)


@PARTS.register("rpn_head", "OrientedRPNHead")
class OrientedRPNHead(RPNHead):
    """A head that proposes rotated boxes; their upright bounding boxes suppress each other."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RPNHead.Entries):
        bbox_coder: RotatedBoxCoder = part("rotated box coder", default={"type": "MidpointOffsetCoder"})

        ignored: ClassVar = {**RPNHead.Entries.ignored, "version": "the coder's"}

    drops_empty: bool = False
    """Whether boxes without area are no proposals, as in MMRotate 1."""

    def __init__(self, entries: Entries, test_cfg: RPNEntries) -> None:
        super().__init__(entries, test_cfg)
        self.numbers = entries.bbox_coder.numbers
        self.rpn_reg = nn.Conv2d(entries.feat_channels, self.priors.num_base_priors[0] * self.numbers, 1)

    def forward(self, features: Sequence[Tensor], limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return rotated proposals [N, P, 5] and which of them are used [N, P]."""
        boxes, by_level = self.candidates(features, limits)
        settings = self.test_cfg.nms.arguments
        _, labels, kept = multiclass_nms(
            bounding_boxes(boxes), by_level, MIN_SCORE, max_per_image=self.test_cfg.max_per_img, **settings
        )
        used = labels >= 0
        return torch.where(used[..., None], take_rows(boxes, kept.clamp(min=0)), 0), used

    def valid(self, boxes: Tensor) -> Tensor:
        """Return which boxes [N, P, 5] may be proposals, [N, P, 1]."""
        sizes, min_size = boxes[..., 2:4], self.test_cfg.min_bbox_size
        if self.drops_empty:
            return (sizes > (min_size if min_size >= 0 else -torch.inf)).all(-1, keepdim=True)
        return _large(sizes, min_size)


def _large(sizes: Tensor, min_size: float) -> Tensor:
    """Return which sizes [N, P, 2] are at least `min_size`, all if it is not positive, [N, P, 1]."""
    return (sizes >= (min_size if min_size > 0 else -torch.inf)).all(-1, keepdim=True)
