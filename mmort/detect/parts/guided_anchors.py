"""Guided anchoring: one anchor in a location, whose size the network predicts, at locations that it finds likely.

Source: J. Wang et al., "Region Proposal by Guided Anchoring", CVPR 2019; MMDetection's ``GuidedAnchorHead``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import Schema, nested, part, training_only
from mmort.detect.parts.coders import DeltaXYWHBBoxCoder
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, SigmoidLoss
from mmort.detect.parts.priors import Priors

_CODER = {"type": "DeltaXYWHBBoxCoder"}
_CODERS: Mapping[str, type[Any]] = {"DeltaXYWHBBoxCoder": DeltaXYWHBBoxCoder}
_SQUARES = {"type": "AnchorGenerator", "ratios": [1.0], "scales": [8], "strides": [4, 8, 16, 32, 64]}
_MAX_GROWTH = abs(math.log(1e-6))  # of a square's sides


@dataclass(frozen=True, kw_only=True)
class GuidedAnchorEntries(Schema):
    """The entries of every head with guided anchors."""

    in_channels: int
    feat_channels: int = 256
    square_anchor_generator: Priors = part("prior generator", default=_SQUARES)
    anchor_coder: DeltaXYWHBBoxCoder = part("box coder", types=_CODERS, default=_CODER)
    bbox_coder: DeltaXYWHBBoxCoder = part("box coder", types=_CODERS, default=_CODER)
    deform_groups: int = 4
    loc_filter_thr: float = 0.01
    loss_cls: SigmoidLoss = nested(SigmoidLoss, default=WITH_SIGMOID)

    ignored: ClassVar = training_only("approx_anchor_generator", "reg_decoded_bbox")

    def __post_init__(self) -> None:
        if any(count != 1 for count in self.square_anchor_generator.num_base_priors):
            raise ValueError(
                "detect.build: square_anchor_generator must have one anchor in a location, got "
                f"{self.square_anchor_generator.num_base_priors} by level"
            )


class MaskedConv2d(nn.Conv2d):
    """A convolution whose output is 0 where a mask [N, 1, h, w] is false."""

    def forward(self, input: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return torch.where(mask, super().forward(input), 0)


def guided_anchors(squares: Tensor, shapes: Tensor, coder: DeltaXYWHBBoxCoder) -> Tensor:
    """Return the anchors [N, h*w, 4] of predicted sizes [N, 2, h, w], around the centres of squares [h*w, 4]."""
    growth = shapes.flatten(2).transpose(1, 2)  # [N, h*w, 2]
    return coder.boxes(squares, torch.cat([torch.zeros_like(growth), growth], -1), _MAX_GROWTH)


def likely(locations: Tensor, threshold: float) -> Tensor:
    """Return which locations have an anchor, from logits [N, 1, h, w]."""
    return locations.sigmoid() >= threshold
