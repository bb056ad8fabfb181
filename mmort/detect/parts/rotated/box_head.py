"""Second stages' heads that regress rotated boxes.

Source: MMRotate's ``RotatedBBoxHead`` and ``RotatedConvFCBBoxHead``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmort.detect.entries import PARTS, part
from mmort.detect.parts.heads.box_head import BoxHead
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.selection import rotated_detections

_CODER = {"type": "DeltaXYWHAOBBoxCoder", "target_stds": [0.1, 0.1, 0.2, 0.2, 0.1]}


@PARTS.register("rotated bbox_head", "RotatedBBoxHead", "RotatedConvFCBBoxHead")
class RotatedBoxHead(BoxHead):
    """A `BoxHead` with five numbers for each box."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(BoxHead.Entries):
        bbox_coder: RotatedBoxCoder = part("rotated box coder", default=_CODER)

    coder: RotatedBoxCoder

    @property
    def outputs(self) -> tuple[int, int]:
        """The numbers of logits and of regressed numbers of a region."""
        numbers = self.coder.numbers
        return self.classes + self.loss_cls.other_logits, numbers if self.class_agnostic else numbers * self.classes

    def refine(self, boxes: Tensor, logits: Tensor, deltas: Tensor, limits: Tensor) -> Tensor:
        """Return rotated boxes [N, P, 5], not clipped, of the best class of regions [N, P, 4 or 5]."""
        if not self.class_agnostic:
            best = logits[..., : self.classes].argmax(-1)[..., None, None].expand(-1, -1, 1, self.coder.numbers)
            deltas = torch.unflatten(deltas, 2, (self.classes, -1)).gather(2, best)[:, :, 0]
        return self.coder.decode(boxes, deltas, None)

    def detect(
        self, boxes: Tensor, used: Tensor, logits: Tensor, deltas: Tensor, limits: Tensor, test_cfg: Any
    ) -> tuple[Tensor, Tensor]:
        """Choose detections; the arguments are those of `RegionHead.detect`, dets are [N, K, 6]."""
        scores = torch.where(used[..., None], self.loss_cls(logits), 0)  # [N, P, classes]
        scores = torch.where(scores > test_cfg.score_thr, scores, 0)
        if not self.class_agnostic:
            deltas = torch.unflatten(deltas, 2, (self.classes, -1))
            boxes, limits = boxes[:, :, None], limits[:, None]
        return rotated_detections(self.coder.decode(boxes, deltas, limits), scores, test_cfg)


@PARTS.register("rotated bbox_head", "RotatedKFIoUShared2FCBBoxHead", "RotatedShared2FCBBoxHead", "Shared2FCBBoxHead")
class RotatedShared2FCBoxHead(RotatedBoxHead):
    """A `RotatedBoxHead` with two shared linear layers, unless the config has another number."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedBoxHead.Entries):
        num_shared_fcs: int = 2
