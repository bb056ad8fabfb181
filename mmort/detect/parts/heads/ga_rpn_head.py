"""A region proposal network with guided anchors.

Source: J. Wang et al., "Region Proposal by Guided Anchoring", CVPR 2019; MMDetection's ``GARPNHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS
from mmort.detect.parts.guided_anchors import GuidedAnchorEntries, MaskedConv2d, guided_anchors, likely
from mmort.detect.parts.heads.rpn_head import Level, ProposalHead
from mmort.detect.parts.layers import FeatureAdaption
from mmort.detect.parts.test_cfg import RPNEntries


@dataclass(frozen=True, kw_only=True)
class GARPNEntries(RPNEntries):
    """The entries of ``test_cfg.rpn``; the best `nms_post` of each level and of them `max_per_img` are proposals."""

    nms_post: int
    nms_across_levels: bool = False

    ignored: ClassVar = {"deploy_nms_pre": "of the second stage"}

    def __post_init__(self) -> None:
        if self.nms is None or self.nms.type != "nms":
            raise ValueError("detect.build: test_cfg.rpn.nms.type of guided anchors must be 'nms'")
        names = "class_agnostic", "max_output_boxes_per_class", "offset"
        unread = [name for name in names if getattr(self.nms, name)]
        if unread:
            raise ValueError(
                "detect.build: test_cfg.rpn.nms of guided anchors must have only an iou_threshold, as MMDetection "
                f"reads nothing else there, got {', '.join(unread)}"
            )
        # Otherwise no proposal is beyond a level's limit and within the limit of all levels.
        if self.nms_post < self.max_per_img or self.nms_across_levels:
            raise ValueError(
                "detect.build: test_cfg.rpn of guided anchors must have nms_across_levels=False, and nms_post at least "
                f"max_per_img ({self.max_per_img}), got {self.nms_across_levels} and {self.nms_post}"
            )


@PARTS.register("rpn_head", "GARPNHead")
class GARPNHead(ProposalHead):
    """One objectness and one box for each guided anchor."""

    outputs = ("conv_cls", "conv_reg")
    TestCfg = GARPNEntries

    @dataclass(frozen=True, kw_only=True)
    class Entries(GuidedAnchorEntries):
        ignored: ClassVar = {**GuidedAnchorEntries.ignored, "num_classes": "proposals have no classes"}

    def __init__(self, entries: Entries, test_cfg: GARPNEntries) -> None:
        super().__init__(test_cfg)
        self.priors, self.coder, self.anchor_coder = (
            entries.square_anchor_generator,
            entries.bbox_coder,
            entries.anchor_coder,
        )
        self.threshold = entries.loc_filter_thr
        in_channels, channels = entries.in_channels, entries.feat_channels
        self.rpn_conv = nn.Conv2d(in_channels, channels, 3, padding=1)
        self.conv_loc = nn.Conv2d(in_channels, 1, 1)
        self.conv_shape = nn.Conv2d(in_channels, 2, 1)
        self.feature_adaption = FeatureAdaption(2, in_channels, channels, entries.deform_groups)
        self.conv_cls = MaskedConv2d(channels, 1, 1)
        self.conv_reg = MaskedConv2d(channels, 4, 1)

    def levels(self, features: Sequence[Tensor], limits: Tensor) -> list[Level]:
        """Return the predictions on each level."""
        hidden = [torch.relu(self.rpn_conv(x)) for x in features]  # [N, C, h, w]
        masks = [likely(self.conv_loc(x), self.threshold) for x in hidden]  # [N, 1, h, w]
        shapes = [self.conv_shape(x) for x in hidden]  # [N, 2, h, w]
        adapted = [self.feature_adaption(*both) for both in zip(hidden, shapes, strict=True)]
        logits, deltas = (
            [layer(*both) for both in zip(adapted, masks, strict=True)] for layer in (self.conv_cls, self.conv_reg)
        )
        squares = [self.priors.level(index, map) for index, map in enumerate(logits)]
        anchors = [guided_anchors(*both, self.anchor_coder) for both in zip(squares, shapes, strict=True)]
        return list(map(Level, logits, deltas, anchors, masks))
