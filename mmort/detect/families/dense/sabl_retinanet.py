"""SABL RetinaNet: each side of a box is first found among buckets, then moved within its bucket.

Source: J. Wang et al., "Side-Aware Boundary Localization for More Precise Object Detection", ECCV 2020; MMDetection's
``SABLRetinaHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, nested, part, training_only
from mmort.detect.parts.boxes import clip
from mmort.detect.parts.buckets import BucketingBBoxCoder
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, DenseLoss
from mmort.detect.parts.heads.towers import TowerEntries, tower_pair
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.single_stage import DenseDetector, DenseHead

_SQUARES = {"type": "AnchorGenerator", "ratios": [1.0], "scales": [4], "strides": [8, 16, 32, 64, 128]}


class SABLRetinaHead(DenseHead):
    """A tower for the classes, and one for the buckets of the sides and the shifts within them."""

    coder: BucketingBBoxCoder
    class_layers: ClassVar = {"retina_cls": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerEntries):
        square_anchor_generator: Priors = part("prior generator", default=_SQUARES)
        bbox_coder: BucketingBBoxCoder = part("box coder", types={"BucketingBBoxCoder": BucketingBBoxCoder})
        loss_cls: DenseLoss = nested(DenseLoss, default=WITH_SIGMOID)

        ignored: ClassVar = training_only("approx_anchor_generator", "reg_decoded_bbox")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes, self.activation = entries.num_classes, entries.loss_cls.activation
        self.priors, self.coder = entries.square_anchor_generator, entries.bbox_coder
        sides = self.coder.side_count
        self.box_channels = 8 * sides
        channels = entries.feat_channels
        self.cls_convs, self.reg_convs = tower_pair(entries)
        self.retina_cls = nn.Conv2d(channels, self.class_channels, 3, padding=1)
        self.retina_bbox_reg, self.retina_bbox_cls = (nn.Conv2d(channels, sides * 4, 3, padding=1) for _ in range(2))

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return logits of classes, and by level [N, 8 * buckets, h, w]: logits of buckets, then shifts."""
        for_boxes = [self.reg_convs(x) for x in features]
        logits = [self.retina_cls(self.cls_convs(x)) for x in features]
        return (*logits, *(torch.cat([self.retina_bbox_cls(x), self.retina_bbox_reg(x)], 1) for x in for_boxes))

    def confidence(self, regressed: Tensor) -> Tensor:
        return self.coder.confidence(regressed)

    def for_coder(self, level: int, regressed: Tensor) -> Tensor:
        """Return the few numbers of each box that are left once its buckets are known, [N, K, 4]."""
        return self.coder.steps(regressed)

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor) -> Tensor:
        """Return boxes whose last coordinates are those of the last pixel."""
        boxes = self.coder.moved(priors, regressed)
        return clip(boxes, limits - 1) if self.coder.clip_border else boxes


@PARTS.register("detector", "SABLRetinaHead")
class SABLRetinaNet(DenseDetector):
    """RetinaNet with SABL."""

    family = "SABL RetinaNet"
    head = SABLRetinaHead
