"""RetinaNet: two towers of convolutions, shared by all levels, over anchors.

Source: T.-Y. Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017; MMDetection's ``RetinaHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.detect.entries import Schema, default, part
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.layers import tower
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.single_stage import DenseDetector, DenseHead, class_activation
from mmort.detect.versions import Config

_ANCHORS = {
    "type": "AnchorGenerator",
    "octave_base_scale": 4,
    "scales_per_octave": 3,
    "ratios": [0.5, 1.0, 2.0],
    "strides": [8, 16, 32, 64, 128],
}


class RetinaHead(DenseHead):
    """A tower for the classes and a tower for the boxes."""

    class_layers: ClassVar = {"retina_cls": 0}
    cls_convs: Any
    reg_convs: Any

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``bbox_head``."""

        num_classes: int
        in_channels: int
        feat_channels: int = 256
        stacked_convs: int = 4
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None
        anchor_generator: Priors = part("prior generator", default=_ANCHORS)
        bbox_coder: BoxCoder = part("box coder", default={"type": "DeltaXYWHBBoxCoder"})
        loss_cls: Config = default({"use_sigmoid": True})

        ignored: ClassVar = {"reg_decoded_bbox": "training only"}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes, channels = entries.num_classes, entries.feat_channels
        self.activation = class_activation(entries.loss_cls)
        self.priors, self.coder = entries.anchor_generator, entries.bbox_coder
        self.cls_convs, self.reg_convs = (
            tower(
                entries.in_channels,
                channels,
                entries.stacked_convs,
                conv_cfg=entries.conv_cfg,
                norm_cfg=entries.norm_cfg,
            )
            for _ in range(2)
        )
        anchors = self.priors.num_base_priors[0]
        self.retina_cls = nn.Conv2d(channels, anchors * (self.classes + (self.activation == "softmax")), 3, padding=1)
        self.retina_reg = nn.Conv2d(channels, anchors * 4, 3, padding=1)

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
