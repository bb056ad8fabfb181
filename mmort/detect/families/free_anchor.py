"""FreeAnchor: RetinaNet's network, trained with other assignments.

Source: X. Zhang et al., "FreeAnchor: Learning to Match Anchors for Visual Object Detection", NeurIPS 2019;
MMDetection's ``FreeAnchorRetinaHead``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mmort.detect.families.retinanet import RetinaHead
from mmort.detect.parts.single_stage import DenseDetector

_TRAINING = dict.fromkeys(("pre_anchor_topk", "bbox_thr", "gamma", "alpha"), "training only")


class FreeAnchorRetinaHead(RetinaHead):
    """RetinaNet's head."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RetinaHead.Entries):
        """The entries of ``bbox_head``."""

        ignored: ClassVar = {**RetinaHead.Entries.ignored, **_TRAINING}


class FreeAnchor(DenseDetector):
    """FreeAnchor."""

    family = "FreeAnchor"
    head = FreeAnchorRetinaHead
