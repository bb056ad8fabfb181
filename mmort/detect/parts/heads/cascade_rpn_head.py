"""Cascade RPN: proposals in stages, each of which looks at the boxes of the one before.

Source: T. Vu et al., "Cascade RPN: Delving into High-Quality Region Proposal Network with Adaptive Convolution",
NeurIPS 2019; MMDetection's ``CascadeRPNHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, nested, part, training_only
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, SigmoidLoss
from mmort.detect.parts.heads.rpn_head import Level, ProposalHead
from mmort.detect.parts.priors import Priors, shifts
from mmort.detect.parts.test_cfg import RPNEntries
from mmort.torch import DeformConv2d

_ANCHORS = {"type": "AnchorGenerator", "scales": [8], "ratios": [1.0], "strides": [4, 8, 16, 32, 64]}


@dataclass(frozen=True, kw_only=True)
class AdaptEntries(Schema):
    """The entries of ``adapt_cfg``: a dilated convolution, or one whose samples lie on the anchor."""

    type: Literal["dilation", "offset"]
    dilation: int = 3

    def __post_init__(self) -> None:
        if self.type not in ("dilation", "offset"):
            raise ValueError(f"detect.build: adapt_cfg.type must be 'dilation' or 'offset', got {self.type!r}")


class AdaptiveConv(nn.Module):
    """The convolution of a stage."""

    def __init__(self, channels: int, out_channels: int, adapt: AdaptEntries) -> None:
        super().__init__()
        self.conv: nn.Module
        if adapt.type == "offset":
            self.conv = DeformConv2d(channels, out_channels, 3, padding=1)
        else:
            self.conv = nn.Conv2d(channels, out_channels, 3, padding=adapt.dilation, dilation=adapt.dilation)

    def forward(self, x: Tensor, *offsets: Tensor) -> Tensor:
        return self.conv(x, *offsets)


class StageCascadeRPNHead(nn.Module):
    """A stage: its convolution, and the layers that read its output."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of a stage."""

        in_channels: int
        feat_channels: int = 256
        anchor_generator: Priors = part("prior generator", default=_ANCHORS)
        bbox_coder: BoxCoder = part("box coder", default={"type": "DeltaXYWHBBoxCoder"})
        adapt_cfg: AdaptEntries = nested(AdaptEntries)
        bridged_feature: bool = False
        with_cls: bool = True
        loss_cls: SigmoidLoss = nested(SigmoidLoss, default=WITH_SIGMOID)

        ignored: ClassVar = training_only("sampling", "reg_decoded_bbox")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        if any(count != 1 for count in entries.anchor_generator.num_base_priors):
            raise ValueError(
                "detect.build: rpn_head.stages.anchor_generator must have one anchor in a location, got "
                f"{entries.anchor_generator.num_base_priors} by level"
            )
        self.anchors, self.coder = entries.anchor_generator, entries.bbox_coder
        self.on_anchors, self.bridged = entries.adapt_cfg.type == "offset", entries.bridged_feature
        channels = entries.feat_channels
        self.rpn_conv = AdaptiveConv(entries.in_channels, channels, entries.adapt_cfg)
        if entries.with_cls:
            self.rpn_cls = nn.Conv2d(channels, 1, 1)
        self.rpn_reg = nn.Conv2d(channels, 4, 1)

    def hidden(self, features: Sequence[Tensor], anchors: Sequence[Tensor]) -> list[Tensor]:
        """Return the output of the convolution by level, [N, C, h, w], for anchors [N, h*w, 4]."""
        if not self.on_anchors:
            return [self.rpn_conv(x).relu() for x in features]
        strides = [stride for stride, _ in self.anchors.strides]
        levels = zip(features, anchors, strides, strict=True)
        return [self.rpn_conv(x, taps_on(boxes, x, stride)).relu() for x, boxes, stride in levels]


def taps_on(anchors: Tensor, map: Tensor, stride: float) -> Tensor:
    """Return the offsets [N, 18, h, w] that put the taps of a 3x3 kernel on anchors [N, h*w, 4].

    They lie on the corners, the middles of the sides and the centre.  The kernel samples `map` [N, C, h, w].
    """
    height, width = map.shape[2:]
    centre = (anchors[..., :2] + anchors[..., 2:]) * 0.5 / stride - shifts(map, (1, 1)).flatten(0, 1)  # x, y
    reach = (anchors[..., 2:] - anchors[..., :2]) / stride / 2 - 1
    taps = torch.tensor([(x, y) for y in (-1.0, 0, 1) for x in (-1.0, 0, 1)], device=map.device)  # [9, 2]
    offsets = centre[:, :, None] + reach[:, :, None] * taps  # [N, h*w, 9, 2]
    return torch.unflatten(offsets.flip(-1).flatten(2).transpose(1, 2), 2, (height, width))


@PARTS.register("rpn_head", "CascadeRPNHead")
class CascadeRPNHead(ProposalHead):
    """Stages, of which the last has the objectness."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_stages: int
        stages: list[StageCascadeRPNHead] = part(
            "stage of rpn_head", types={"StageCascadeRPNHead": StageCascadeRPNHead}, count="num_stages"
        )

        ignored: ClassVar = {"num_classes": "proposals have no classes"}

    def __init__(self, entries: Entries, test_cfg: RPNEntries) -> None:
        super().__init__(test_cfg)
        last = entries.stages[-1]
        self.stages = nn.ModuleList(entries.stages)
        self.priors, self.coder = entries.stages[0].anchors, last.coder
        moves = (f"stages.{index}.rpn_reg" for index in range(len(entries.stages)))
        self.outputs = f"stages.{len(entries.stages) - 1}.rpn_cls", *moves

    def levels(self, features: Sequence[Tensor], limits: Tensor) -> list[Level]:
        """Return the predictions of the last stage on each level."""
        anchors = [self.priors.level(index, x).expand(x.shape[0], -1, -1) for index, x in enumerate(features)]
        stages: list[Any] = list(self.stages)
        for stage in stages[:-1]:
            hidden = stage.hidden(features, anchors)
            deltas = [stage.rpn_reg(x).flatten(2).transpose(1, 2) for x in hidden]  # [N, h*w, 4]
            anchors = [stage.coder.decode(*both, limits) for both in zip(anchors, deltas, strict=True)]
            features = hidden if stage.bridged else features
        hidden = stages[-1].hidden(features, anchors)
        logits = [stages[-1].rpn_cls(x) for x in hidden]
        return list(map(Level, logits, [stages[-1].rpn_reg(x) for x in hidden], anchors))
