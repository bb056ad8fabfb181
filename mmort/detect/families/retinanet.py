"""RetinaNet: two towers of convolutions, shared by all levels, over anchors.

Source: T.-Y. Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017; MMDetection's ``RetinaHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import part
from mmort.detect.parts.heads.tower_head import TowerHead
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
        """The entries of ``bbox_head``."""

        norm_cfg: Config | None = None
        anchor_generator: Priors = part("prior generator", default=ANCHORS)

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.cls_convs, self.reg_convs = self.build_towers(entries)
        anchors = self.priors.num_base_priors[0]
        self.retina_cls = nn.Conv2d(entries.feat_channels, anchors * self.class_channels, 3, padding=1)
        self.retina_reg = nn.Conv2d(entries.feat_channels, anchors * self.box_channels, 3, padding=1)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits, deltas = [], []
        for x in features:  # [N, C, h, w]
            logits.append(self.retina_cls(self.cls_convs(x)))  # [N, A * classes, h, w]
            deltas.append(self.retina_reg(self.reg_convs(x)))  # [N, A * 4, h, w]
        return (*logits, *deltas)


class RetinaNet(DenseDetector):
    """RetinaNet."""

    family = "RetinaNet"
    head = RetinaHead
