"""CenterNet as MMDetection 3 retrains it: a dense head without anchors, and no centerness as FCOS has it.

Source: X. Zhou et al., "Probabilistic two-stage detection", 2021, its first stage; MMDetection's
``CenterNetUpdateHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mmort.detect.entries import PARTS, training_only
from mmort.detect.parts.heads.towers import AnchorFreeHead
from mmort.detect.parts.single_stage import DenseDetector


class CenterNetUpdateHead(AnchorFreeHead):
    """A tower for the classes, which are heatmaps, and a tower for the boxes."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(AnchorFreeHead.Entries):
        ignored: ClassVar = {
            **AnchorFreeHead.Entries.ignored,
            **training_only(
                "hm_min_radius", "hm_min_overlap", "more_pos_thresh", "more_pos_topk", "soft_weight_on_reg"
            ),
        }

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits = [self.conv_cls(self.cls_convs(x)) for x in features]  # [N, classes, h, w]
        distances = [
            scale(self.conv_reg(self.reg_convs(x))).relu() * stride  # [N, 4, h, w]
            for x, scale, stride in zip(features, self.scales, self.strides, strict=True)
        ]
        return (*logits, *distances)


@PARTS.register("detector", "CenterNetUpdateHead")
class CenterNetUpdate(DenseDetector):
    """CenterNet with a feature pyramid."""

    family = "CenterNet-update"
    head = CenterNetUpdateHead
