"""RetinaNet: two towers of convolutions, shared by all levels, over anchors.

Source: T.-Y. Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017; MMDetection's ``RetinaHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from mmort.detect.boxes import build_box_coder
from mmort.detect.dense import DenseDetector, DenseHead
from mmort.detect.detector import Config
from mmort.detect.layers import tower
from mmort.detect.priors import build_priors

_ANCHORS = {
    "type": "AnchorGenerator",
    "octave_base_scale": 4,
    "scales_per_octave": 3,
    "ratios": [0.5, 1.0, 2.0],
    "strides": [8, 16, 32, 64, 128],
}


class RetinaHead(DenseHead):
    """Parameters have the names of the config's entries."""

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        feat_channels: int = 256,
        stacked_convs: int = 4,
        conv_cfg: dict[str, Any] | None = None,
        norm_cfg: dict[str, Any] | None = None,
        anchor_generator: dict[str, Any] = _ANCHORS,
        bbox_coder: dict[str, Any] = {"type": "DeltaXYWHBBoxCoder"},  # noqa: B006 - never written to
        loss_cls: dict[str, Any] = {"use_sigmoid": True},  # noqa: B006
    ) -> None:
        super().__init__()
        self.classes = num_classes
        self.softmax = not loss_cls.get("use_sigmoid", False)
        self.priors = build_priors(anchor_generator)
        self.coder = build_box_coder(bbox_coder)
        self.cls_convs, self.reg_convs = (
            tower(in_channels, feat_channels, stacked_convs, conv_cfg=conv_cfg, norm_cfg=norm_cfg) for _ in range(2)
        )
        anchors = self.priors.num_base_priors[0]
        self.retina_cls = nn.Conv2d(feat_channels, anchors * (num_classes + self.softmax), 3, padding=1)
        self.retina_reg = nn.Conv2d(feat_channels, anchors * 4, 3, padding=1)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:  # noqa: D102
        logits, deltas = [], []
        for x in features:  # [N, C, h, w]
            logits.append(self.retina_cls(self.cls_convs(x)))  # [N, A * classes, h, w]
            deltas.append(self.retina_reg(self.reg_convs(x)))  # [N, A * 4, h, w]
        return (*logits, *deltas)


class RetinaNet(DenseDetector):
    """RetinaNet."""

    family = "RetinaNet"

    def __init__(self, config: Config) -> None:
        super().__init__(config, {"RetinaHead": RetinaHead, "AscendRetinaHead": RetinaHead})
