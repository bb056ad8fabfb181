"""RetinaNet whose levels share the convolutions and have normalizations of their own.

Source: G. Ghiasi et al., "NAS-FPN", CVPR 2019; MMDetection's ``RetinaSepBNHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from mmort.detect.families.retinanet import RetinaHead
from mmort.detect.parts.layers import shared_towers
from mmort.detect.parts.single_stage import DenseDetector


class RetinaSepBNHead(RetinaHead):
    """RetinaNet's head with a tower for each level."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RetinaHead.Entries):
        """The entries of ``bbox_head``."""

        num_ins: int

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.cls_convs, self.reg_convs = (
            shared_towers(
                entries.num_ins,
                entries.in_channels,
                entries.feat_channels,
                entries.stacked_convs,
                conv_cfg=entries.conv_cfg,
                norm_cfg=entries.norm_cfg,
            )
            for _ in range(2)
        )

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits = [self.retina_cls(convs(x)) for convs, x in zip(self.cls_convs, features, strict=True)]
        deltas = [self.retina_reg(convs(x)) for convs, x in zip(self.reg_convs, features, strict=True)]
        return (*logits, *deltas)


class RetinaSepBN(DenseDetector):
    """RetinaNet with normalizations of each level's own."""

    family = "RetinaNet"
    head = RetinaSepBNHead
