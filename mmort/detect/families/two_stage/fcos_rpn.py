"""FCOS as a first stage: its boxes, without their classes, are the proposals of a two-stage detector.

Source: MMDetection 3's ``FCOSHead`` instead of an ``RPNHead``.  It suppresses across levels, by the product of class
score and centerness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mmort.detect.entries import PARTS
from mmort.detect.families.dense.fcos import FCOSHead
from mmort.detect.parts.heads.rpn_head import ProposalHead
from mmort.detect.parts.selection import best_indices, of_all_levels, take
from mmort.detect.parts.test_cfg import RPNEntries


@PARTS.register("rpn_head", "FCOSHead")
class FCOSRPNHead(ProposalHead):
    """The best locations of each level are proposals."""

    renamed_keys = ((r"^rpn_head\.", "rpn_head.head."),)
    outputs = ("head.conv_cls", "head.conv_reg", "head.conv_centerness")

    @dataclass(frozen=True, kw_only=True)
    class Entries(FCOSHead.Entries):
        num_classes: int = 1

    def __init__(self, entries: Entries, test_cfg: RPNEntries) -> None:
        super().__init__(test_cfg)
        self.head = FCOSHead(replace(entries, num_classes=1))  # MMDetection sets it, whatever the config has
        self.priors, self.coder = self.head.priors, self.head.coder

    def raw(self, features: Sequence[Tensor], limits: Tensor) -> tuple[Tensor, ...]:
        return self.maps(features)[: 2 * len(features)]

    def maps(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the head's maps; of two classes that exclude each other, the logits are of the first."""
        maps: tuple[Tensor, ...] = self.head(features)
        if self.head.activation == "sigmoid":
            return maps
        logits = [level[:, :1] - level[:, 1:] for level in maps[: len(features)]]
        return (*logits, *maps[len(features) :])

    def candidates(self, features: Sequence[Tensor], limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the boxes of the best locations, [N, P, 4], and their scores, [N, P, 1]."""

        def choose(level: int, logits: Tensor, distances: Tensor, centerness: Tensor) -> tuple[Tensor, ...]:
            indices = best_indices(logits.flatten(1), self.test_cfg.nms_pre)  # [N, K]
            scores = take(logits, indices, 1).sigmoid() * take(centerness, indices, 1).sigmoid()  # [N, K, 1]
            return scores, take(distances, indices, 4), self.priors.level(level, logits)[indices]

        scores, moves, points = of_all_levels(choose, self.maps(features), len(features))
        boxes = self.coder.decode(points, moves, limits)
        return boxes, torch.where(self.valid(boxes), scores, -torch.inf)
