"""RetinaNet: two towers of convolutions, shared by all levels, over anchors.

Source: T.-Y. Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017; MMDetection's ``RetinaHead``.

Variants: FreeAnchor, trained with other assignments (X. Zhang et al., NeurIPS 2019); FSAF, with one square prior at
every location and distances to the sides of the box (C. Zhu et al., CVPR 2019); and MMDetection's ``RetinaSepBNHead``,
whose levels share the convolutions and have normalizations of their own (G. Ghiasi et al., "NAS-FPN", CVPR 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, part, training_only
from mmort.detect.parts.heads.towers import TowerHead, tower_pair
from mmort.detect.parts.layers import shared_towers
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.single_stage import DenseDetector

ANCHORS = {
    "type": "AnchorGenerator",
    "octave_base_scale": 4,
    "scales_per_octave": 3,
    "ratios": [0.5, 1.0, 2.0],
    "strides": [8, 16, 32, 64, 128],
}


class RetinaHead(TowerHead):
    """A tower for the classes and a tower for the boxes."""

    class_layers: ClassVar = {"retina_cls": 0}
    cls_convs: Any
    reg_convs: Any

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerHead.Entries):
        norm_cfg: Config | None = None
        anchor_generator: Priors = part("prior generator", default=ANCHORS)

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.cls_convs, self.reg_convs = tower_pair(entries)
        anchors = self.priors.num_base_priors[0]
        self.retina_cls = nn.Conv2d(entries.feat_channels, anchors * self.class_channels, 3, padding=1)
        self.retina_reg = nn.Conv2d(entries.feat_channels, anchors * self.box_channels, 3, padding=1)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits, deltas = [], []
        for x in features:  # [N, C, h, w]
            logits.append(self.retina_cls(self.cls_convs(x)))  # [N, A * classes, h, w]
            deltas.append(self.retina_reg(self.reg_convs(x)))  # [N, A * 4, h, w]
        return (*logits, *deltas)


@PARTS.register("detector", "RetinaHead", "AscendRetinaHead", "PISARetinaHead")
class RetinaNet(DenseDetector):
    """RetinaNet."""

    family = "RetinaNet"
    head = RetinaHead


_TRAINING = training_only("pre_anchor_topk", "bbox_thr", "gamma", "alpha")


class FreeAnchorRetinaHead(RetinaHead):
    """RetinaNet's head."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RetinaHead.Entries):
        ignored: ClassVar = {**RetinaHead.Entries.ignored, **_TRAINING}


@PARTS.register("detector", "FreeAnchorRetinaHead")
class FreeAnchor(DenseDetector):
    """FreeAnchor."""

    family = "FreeAnchor"
    head = FreeAnchorRetinaHead


class FSAFHead(RetinaHead):
    """RetinaNet's head, with distances that are not negative."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RetinaHead.Entries):
        ignored: ClassVar = {**RetinaHead.Entries.ignored, **training_only("score_threshold")}

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        maps = super().forward(features)
        return (*maps[: len(features)], *(distances.relu() for distances in maps[len(features) :]))


@PARTS.register("detector", "FSAFHead")
class FSAF(DenseDetector):
    """FSAF."""

    family = "FSAF"
    head = FSAFHead


class RetinaSepBNHead(RetinaHead):
    """RetinaNet's head with a tower for each level."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RetinaHead.Entries):
        num_ins: int

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        levels = len(self.priors.strides)
        if entries.num_ins < levels:
            raise ValueError(
                f"detect.build: num_ins of bbox_head 'RetinaSepBNHead' must be at least the number of strides, "
                f"{levels}, got {entries.num_ins}"
            )
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
        logits = [self.retina_cls(self.cls_convs[level](x)) for level, x in enumerate(features)]
        deltas = [self.retina_reg(self.reg_convs[level](x)) for level, x in enumerate(features)]
        return (*logits, *deltas)


@PARTS.register("detector", "RetinaSepBNHead")
class RetinaSepBN(DenseDetector):
    """RetinaNet with normalizations of each level's own."""

    family = "RetinaNet"
    head = RetinaSepBNHead
