"""FSAF: RetinaNet's network with one square prior for every place, and distances of the sides.

Source: C. Zhu et al., "Feature Selective Anchor-Free Module for Single-Shot Object Detection", CVPR 2019; MMDetection's
``FSAFHead``.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from mmort.detect.dense import DenseDetector
from mmort.detect.detector import Config
from mmort.detect.retinanet import RetinaHead


class FSAFHead(RetinaHead):
    """RetinaNet's head; distances cannot be negative."""

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:  # noqa: D102
        maps = super().forward(features)
        return (*maps[: len(features)], *(distances.relu() for distances in maps[len(features) :]))


class FSAF(DenseDetector):
    """FSAF."""

    family = "FSAF"

    def __init__(self, config: Config) -> None:
        super().__init__(config, {"FSAFHead": FSAFHead})
