"""SABL: each side of a box is first found among buckets, then moved within its bucket.

Source: J. Wang et al., "Side-Aware Boundary Localization for More Precise Object Detection", ECCV 2020; MMDetection's
``SABLRetinaHead`` and ``BucketingBBoxCoder``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import Schema, default, nested, part
from mmort.detect.parts.boxes import clip
from mmort.detect.parts.layers import tower_pair
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.single_stage import DenseDetector, DenseHead, class_activation
from mmort.detect.versions import Config

_SQUARES = {"type": "AnchorGenerator", "ratios": [1.0], "scales": [4], "strides": [8, 16, 32, 64, 128]}


@dataclass(frozen=True, kw_only=True)
class BucketEntries(Schema):
    """The entries of ``bbox_coder``, of the type ``BucketingBBoxCoder``."""

    num_buckets: int
    scale_factor: float
    clip_border: bool = True

    ignored: ClassVar = {
        "offset_topk": "training only",
        "offset_upperbound": "training only",
        "cls_ignore_neighbor": "training only",
    }


class SABLRetinaHead(DenseHead):
    """A tower for the classes, and one for the buckets of the sides and the shifts within them."""

    class_layers: ClassVar = {"retina_cls": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``bbox_head``."""

        num_classes: int
        in_channels: int
        feat_channels: int = 256
        stacked_convs: int = 4
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None
        square_anchor_generator: Priors = part("prior generator", default=_SQUARES)
        bbox_coder: BucketEntries = nested(BucketEntries)
        loss_cls: Config = default({"use_sigmoid": True})

        ignored: ClassVar = {"approx_anchor_generator": "training only", "reg_decoded_bbox": "training only"}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes, self.activation = entries.num_classes, class_activation(entries.loss_cls)
        self.priors, self.bucket_entries = entries.square_anchor_generator, entries.bbox_coder
        self.side_count = (entries.bbox_coder.num_buckets + 1) // 2
        self.box_channels = 8 * self.side_count
        channels = entries.feat_channels
        self.cls_convs, self.reg_convs = tower_pair(
            entries.in_channels,
            channels,
            entries.stacked_convs,
            conv_cfg=entries.conv_cfg,
            norm_cfg=entries.norm_cfg,
        )
        self.retina_cls = nn.Conv2d(channels, self.classes + (self.activation == "softmax"), 3, padding=1)
        self.retina_bbox_reg, self.retina_bbox_cls = (
            nn.Conv2d(channels, self.side_count * 4, 3, padding=1) for _ in range(2)
        )

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return logits of classes, and by level [N, 8 * buckets, h, w]: logits of buckets, then shifts."""
        for_boxes = [self.reg_convs(x) for x in features]
        logits = [self.retina_cls(self.cls_convs(x)) for x in features]
        return (*logits, *(torch.cat([self.retina_bbox_cls(x), self.retina_bbox_reg(x)], 1) for x in for_boxes))

    def _buckets(self, regressed: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of buckets and shifts of numbers [N, K, 8 * buckets], each [N, K, 4, buckets] by side."""
        both = torch.unflatten(regressed, -1, (2, 4, self.side_count))
        return both[..., 0, :, :], both[..., 1, :, :]

    def confidence(self, regressed: Tensor) -> Tensor:
        """Return the mean probability of the sides' buckets, each with that of the second best if it is beside it."""
        probabilities = self._buckets(regressed)[0].softmax(-1)
        best = probabilities.topk(2)  # [N, K, 4, 2]
        beside = (best.indices[..., 0] - best.indices[..., 1]).abs() == 1
        return (best.values[..., 0] + best.values[..., 1] * beside).mean(-1, keepdim=True)

    def for_coder(self, level: int, regressed: Tensor) -> Tensor:
        """Return how far the sides (left, right, top, bottom) are inside the scaled anchor, in buckets, [N, K, 4]."""
        logits, shifts = self._buckets(regressed)
        bucket = logits.max(-1, keepdim=True).indices
        shift = shifts.gather(-1, bucket)[..., 0]
        inward = torch.tensor([-1.0, 1.0, -1.0, 1.0], device=shift.device)  # the shift goes left, and up
        return 0.5 + bucket[..., 0] + shift * inward

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor) -> Tensor:
        """Return boxes whose last coordinates are those of the last pixel."""
        centre, half = (priors[..., :2] + priors[..., 2:]) / 2, (priors[..., 2:] - priors[..., :2]) / 2
        half = half * self.bucket_entries.scale_factor
        bucket = 2 * half / self.bucket_entries.num_buckets
        first = centre - half + regressed[..., [0, 2]] * bucket
        last = centre + half - regressed[..., [1, 3]] * bucket
        boxes = torch.cat([first, last], -1)
        return clip(boxes, limits - 1) if self.bucket_entries.clip_border else boxes


class SABLRetinaNet(DenseDetector):
    """RetinaNet with SABL."""

    family = "SABL RetinaNet"
    head = SABLRetinaHead
