"""TOOD: one tower whose features are weighted for each task, and boxes that are sampled at learned offsets.

Source: C. Feng et al., "TOOD: Task-aligned One-stage Object Detection", ICCV 2021; MMDetection's ``TOODHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, nested, training_only
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, SigmoidLoss
from mmort.detect.parts.heads.towers import TowerHead
from mmort.detect.parts.layers import ConvModule, Scale
from mmort.detect.parts.priors import Centres
from mmort.detect.parts.single_stage import DenseDetector
from mmort.torch import deform_conv2d


class TaskDecomposition(nn.Module):
    """The features of all layers of the tower, weighted by what they contribute to a task."""

    def __init__(self, channels: int, layers: int, norm_cfg: Config | None, conv_cfg: Config | None) -> None:
        super().__init__()
        self.channels, self.layers = channels, layers
        hidden = channels // 8
        self.layer_attention = nn.Sequential(
            nn.Conv2d(channels * layers, hidden, 1), nn.ReLU(), nn.Conv2d(hidden, layers, 1), nn.Sigmoid()
        )
        self.reduction_conv: Any = ConvModule(channels * layers, channels, 1, conv_cfg=conv_cfg, norm_cfg=norm_cfg)

    def forward(self, features: Tensor, mean: Tensor) -> Tensor:
        """Return [N, C, h, w] of features [N, layers * C, h, w] and their mean over the map."""
        weights = self.layer_attention(mean).flatten(1)[:, None, :, None]  # [N, 1, layers, 1]
        convolution = self.reduction_conv.conv
        kernel = weights * torch.unflatten(convolution.weight[:, :, 0, 0], 1, (self.layers, self.channels))
        reduced = torch.unflatten(kernel.flatten(2) @ features.flatten(2), 2, features.shape[2:])
        if self.reduction_conv.norm_name is not None:
            reduced = getattr(self.reduction_conv, self.reduction_conv.norm_name)(reduced)
        return self.reduction_conv.activate(reduced)


class TOODHead(TowerHead):
    """A tower for both tasks, decomposed, aligned."""

    class_layers: ClassVar = {"tood_cls": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerHead.Entries):
        num_dcn: int = 0
        anchor_type: str = "anchor_free"
        loss_cls: SigmoidLoss = nested(SigmoidLoss, default=WITH_SIGMOID)

        ignored: ClassVar = {**TowerHead.Entries.ignored, **training_only("initial_loss_cls")}

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        if entries.anchor_type not in ("anchor_free", "anchor_based"):
            raise ValueError(
                f"detect.build: bbox_head.anchor_type must be 'anchor_free' or 'anchor_based', "
                f"got {entries.anchor_type!r}"
            )
        self.activation = "none"  # the maps are probabilities already
        self.anchor_free, self.centres = entries.anchor_type == "anchor_free", Centres(self.priors)
        channels, layers = entries.feat_channels, entries.stacked_convs
        deformable: Config = {"type": "DCNv2", "deform_groups": 4}
        self.inter_convs = nn.ModuleList(
            ConvModule(
                channels if index else entries.in_channels,
                channels,
                3,
                padding=1,
                conv_cfg=deformable if index < entries.num_dcn else entries.conv_cfg,
                norm_cfg=entries.norm_cfg,
            )
            for index in range(layers)
        )
        self.cls_decomp, self.reg_decomp = (
            TaskDecomposition(channels, layers, entries.norm_cfg, entries.conv_cfg) for _ in range(2)
        )
        self.tood_cls = nn.Conv2d(channels, self.classes, 3, padding=1)
        self.tood_reg = nn.Conv2d(channels, 4, 3, padding=1)
        self.cls_prob_module, self.reg_offset_module = (
            nn.Sequential(
                nn.Conv2d(channels * layers, channels // 4, 1), nn.ReLU(), nn.Conv2d(channels // 4, count, 3, padding=1)
            )
            for count in (1, 8)
        )
        self.scales = nn.ModuleList(Scale() for _ in self.priors.strides)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return probabilities [N, classes, h, w] and boxes in units of the stride [N, 4, h, w], each by level."""
        scores, boxes = [], []
        for level, (x, scale) in enumerate(zip(features, self.scales, strict=True)):
            outputs = []
            for conv in self.inter_convs:
                x = conv(x)
                outputs.append(x)
            joined = torch.cat(outputs, 1)  # [N, layers * C, h, w]
            mean = joined.mean((2, 3), keepdim=True)
            logits, alignment = self.tood_cls(self.cls_decomp(joined, mean)), self.cls_prob_module(joined)
            scores.append((logits.sigmoid() * alignment.sigmoid()).sqrt())
            regressed = self.tood_reg(self.reg_decomp(joined, mean))
            box = self.boxes(level, scale(regressed.exp()) if self.anchor_free else scale(regressed))
            sampled = sample(box, self.reg_offset_module(joined))
            inverted = (sampled[:, :2] > sampled[:, 2:]).any(1, keepdim=True)
            boxes.append(torch.where(inverted, box, sampled))
        return (*scores, *boxes)

    def boxes(self, level: int, regressed: Tensor) -> Tensor:
        """Return boxes [N, 4, h, w], in units of the stride, from a level's regression."""
        stride = self.priors.strides[level][0]
        if self.anchor_free:
            centres = torch.unflatten(self.centres.level(level, regressed).T / stride, 1, regressed.shape[2:])
            return torch.cat([centres - regressed[:, :2], centres + regressed[:, 2:]], 1)
        deltas = regressed.flatten(2).transpose(1, 2)  # [N, h*w, 4]
        boxes = self.coder.boxes(self.priors.level(level, regressed), deltas) / stride
        return torch.unflatten(boxes.transpose(1, 2), 2, regressed.shape[2:])

    def for_coder(self, level: int, regressed: Tensor) -> Tensor:
        """Return boxes [N, K, 4] in pixels."""
        return regressed * self.priors.strides[level][0]

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor) -> Tensor:
        """Return the boxes, which are not clipped."""
        return regressed


def sample(boxes: Tensor, offsets: Tensor) -> Tensor:
    """Return boxes [N, 4, h, w], each coordinate from its map at its own offset, [N, 4 * (y, x), h, w]."""
    return deform_conv2d(boxes, offsets, boxes.new_ones(4, 1, 1, 1), stride=1, padding=0, groups=4, deform_groups=4)


@PARTS.register("detector", "TOODHead")
class TOOD(DenseDetector):
    """TOOD."""

    family = "TOOD"
    head = TOODHead
