"""RetinaNet with guided anchors: one in a location, of a predicted size.

Source: J. Wang et al., "Region Proposal by Guided Anchoring", CVPR 2019; MMDetection's ``GARetinaHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.guided_anchors import GuidedAnchorEntries, MaskedConv2d, guided_anchors, likely
from mmort.detect.parts.heads.towers import TowerEntries, tower_pair
from mmort.detect.parts.layers import FeatureAdaption
from mmort.detect.parts.selection import best_priors, detections, of_all_levels, take, take_rows
from mmort.detect.parts.single_stage import DenseDetector, DenseHead


class GARetinaHead(DenseHead):
    """RetinaNet's towers, whose features are adapted to the anchors that they predict first."""

    class_layers: ClassVar = {"retina_cls": 0}
    raw_kinds: ClassVar = ("cls_score", "bbox_pred", "shape_pred", "loc_pred")

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerEntries, GuidedAnchorEntries):
        """The entries of ``bbox_head``."""

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes, self.threshold = entries.num_classes, entries.loc_filter_thr
        self.priors, self.coder, self.anchor_coder = (
            entries.square_anchor_generator,
            entries.bbox_coder,
            entries.anchor_coder,
        )
        channels = entries.feat_channels
        self.cls_convs, self.reg_convs = tower_pair(entries)
        self.conv_loc = nn.Conv2d(channels, 1, 1)
        self.conv_shape = nn.Conv2d(channels, 2, 1)
        self.feature_adaption_cls, self.feature_adaption_reg = (
            FeatureAdaption(2, channels, channels, entries.deform_groups) for _ in range(2)
        )
        self.retina_cls = MaskedConv2d(channels, self.classes, 3, padding=1)
        self.retina_reg = MaskedConv2d(channels, 4, 3, padding=1)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return logits, deltas, logarithms of the anchors' sizes, and logits of locations with an anchor, by level."""
        levels = []
        for x in features:
            for_classes, for_boxes = self.cls_convs(x), self.reg_convs(x)  # [N, C, h, w]
            locations, shapes = self.conv_loc(for_classes), self.conv_shape(for_boxes)  # [N, 1, h, w], [N, 2, h, w]
            mask = likely(locations, self.threshold)
            logits = self.retina_cls(self.feature_adaption_cls(for_classes, shapes), mask)  # [N, classes, h, w]
            deltas = self.retina_reg(self.feature_adaption_reg(for_boxes, shapes), mask)  # [N, 4, h, w]
            levels.append((logits, deltas, shapes, locations))
        return tuple(map for kind in zip(*levels, strict=True) for map in kind)


@PARTS.register("detector", "GARetinaHead")
class GARetinaNet(DenseDetector):
    """RetinaNet with guided anchors."""

    family = "GA-RetinaNet"
    head = GARetinaHead
    bbox_head: GARetinaHead

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        head, maps = self.bbox_head, self.raw(input)

        def choose(level: int, logits: Tensor, deltas: Tensor, shapes: Tensor, locations: Tensor) -> tuple[Tensor, ...]:
            logits = torch.where(likely(locations, head.threshold), logits, -torch.inf)
            # The best priors rather than pairs, as they are chosen before the threshold.
            scores, indices = best_priors(logits, head.classes, self.test_cfg.nms_pre)  # [N, K, C], [N, K]
            anchors = guided_anchors(head.priors.level(level, logits), shapes, head.anchor_coder)
            return scores, take(deltas, indices, 4), take_rows(anchors, indices)

        scores, deltas, anchors = of_all_levels(choose, maps, len(head.priors.strides))  # [N, P, ...]
        boxes = head.decode(anchors, deltas, image_limits(input, img_shape))
        return detections(boxes, torch.where(scores > self.test_cfg.score_thr, scores, 0), self.test_cfg)
