"""YOLOF: one level, five anchors in a location, and classes weighted by an objectness that is not supervised.

Source: Q. Chen et al., "You Only Look One-level Feature", CVPR 2021; MMDetection's ``YOLOFHead``, ``DilatedEncoder``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, default, nested, part, training_only
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, SigmoidLoss
from mmort.detect.parts.layers import tower
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.single_stage import DenseDetector, DenseHead

MAX_EXPONENTIAL = 1e8


class YOLOFHead(DenseHead):
    """A tower for the classes, and one for the boxes and the objectness."""

    class_layers: ClassVar = {"cls_score": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_classes: int
        in_channels: int
        num_cls_convs: int = 2
        num_reg_convs: int = 4
        norm_cfg: Config | None = default({"type": "BN"})
        anchor_generator: Priors = part("prior generator")
        bbox_coder: BoxCoder = part("box coder", default={"type": "DeltaXYWHBBoxCoder"})
        loss_cls: SigmoidLoss = nested(SigmoidLoss, default=WITH_SIGMOID)

        ignored: ClassVar = training_only("reg_decoded_bbox")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes, self.priors, self.coder = entries.num_classes, entries.anchor_generator, entries.bbox_coder
        channels, anchors = entries.in_channels, self.priors.num_base_priors[0]
        self.cls_subnet = tower(channels, channels, entries.num_cls_convs, norm_cfg=entries.norm_cfg)
        self.bbox_subnet = tower(channels, channels, entries.num_reg_convs, norm_cfg=entries.norm_cfg)
        self.cls_score = nn.Conv2d(channels, anchors * self.classes, 3, padding=1)
        self.bbox_pred = nn.Conv2d(channels, anchors * 4, 3, padding=1)
        self.object_pred = nn.Conv2d(channels, anchors, 3, padding=1)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits, deltas = [], []
        for x in features:
            for_boxes = self.bbox_subnet(x)
            classes = torch.unflatten(self.cls_score(self.cls_subnet(x)), 1, (-1, self.classes))  # [N, A, C, h, w]
            objectness = self.object_pred(for_boxes)[:, :, None]  # [N, A, 1, h, w]
            # The logit of the product of both probabilities.
            exponentials = [values.exp().clamp(max=MAX_EXPONENTIAL) for values in (classes, objectness)]
            joint = classes + objectness - torch.log(1.0 + exponentials[0] + exponentials[1])
            logits.append(joint.flatten(1, 2))
            deltas.append(self.bbox_pred(for_boxes))
        return (*logits, *deltas)


@PARTS.register("detector", "YOLOFHead")
class YOLOF(DenseDetector):
    """YOLOF."""

    family = "YOLOF"
    head = YOLOFHead
