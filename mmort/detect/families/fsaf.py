"""FSAF: RetinaNet's network with one square prior at every location, and distances to the sides of the box.

Source: C. Zhu et al., "Feature Selective Anchor-Free Module for Single-Shot Object Detection", CVPR 2019; MMDetection's
``FSAFHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mmort.detect.families.retinanet import RetinaHead
from mmort.detect.parts.single_stage import DenseDetector


class FSAFHead(RetinaHead):
    """RetinaNet's head, with distances that are not negative."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RetinaHead.Entries):
        """The entries of ``bbox_head``."""

        ignored: ClassVar = {**RetinaHead.Entries.ignored, "score_threshold": "training only"}

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        maps = super().forward(features)
        return (*maps[: len(features)], *(distances.relu() for distances in maps[len(features) :]))


class FSAF(DenseDetector):
    """FSAF."""

    family = "FSAF"
    head = FSAFHead
