"""Generalized Focal Loss: each side of a box is a distribution over distances; no factor of the scores.

Source: X. Li et al., "Generalized Focal Loss", NeurIPS 2020; MMDetection's ``GFLHead``.  Z. Zheng et al., "Localization
Distillation for Dense Object Detection", CVPR 2022, trains the same network with a teacher: ``LDHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, nested, part, training_only
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, SigmoidLoss
from mmort.detect.parts.heads.towers import TowerHead, tower_pair
from mmort.detect.parts.layers import Scale
from mmort.detect.parts.priors import Centres
from mmort.detect.parts.single_stage import DenseDetector, SingleStageModel


class Integral(nn.Module):
    """The mean of a distribution over 0, 1, ..., `maximum`."""

    project: Tensor

    def __init__(self, maximum: int) -> None:
        super().__init__()
        self.register_buffer("project", torch.linspace(0, maximum, maximum + 1))

    def forward(self, logits: Tensor) -> Tensor:
        """Return means [..., 4] of logits [..., 4 * (maximum + 1)]."""
        # A matrix of one column: OpenVINO 2026.4 cannot load a product with a vector that is multiplied by a constant.
        return (torch.unflatten(logits, -1, (4, -1)).softmax(-1) @ self.project[:, None])[..., 0]


class GFLHead(TowerHead):
    """A tower for the classes and a tower for the boxes."""

    class_layers: ClassVar = {"gfl_cls": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerHead.Entries):
        bbox_coder: BoxCoder = part("box coder", default={"type": "DistancePointBBoxCoder"})
        reg_max: int = 16
        loss_cls: SigmoidLoss = nested(SigmoidLoss, default=WITH_SIGMOID)

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.priors = Centres(self.priors)
        self.cls_convs, self.reg_convs = tower_pair(entries)
        self.box_channels = 4 * (entries.reg_max + 1)
        self.gfl_cls = nn.Conv2d(entries.feat_channels, self.class_channels, 3, padding=1)
        self.gfl_reg = nn.Conv2d(entries.feat_channels, self.box_channels, 3, padding=1)
        self.scales = nn.ModuleList(Scale() for _ in self.priors.strides)
        self.integral = Integral(entries.reg_max)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits = [self.gfl_cls(self.cls_convs(x)) for x in features]  # [N, classes, h, w]
        sides = [scale(self.gfl_reg(self.reg_convs(x))) for scale, x in zip(self.scales, features, strict=True)]
        return (*logits, *sides)

    def for_coder(self, level: int, regressed: Tensor) -> Tensor:
        """Return the distances to the sides, [N, K, 4]."""
        return self.integral(regressed) * self.priors.strides[level][0]


@PARTS.register("detector", "GFLHead")
class GFL(DenseDetector):
    """Generalized Focal Loss."""

    family = "GFL"
    head = GFLHead


@PARTS.register("detector", "LDHead")
class LD(GFL):
    """Localization Distillation: at inference the student alone."""

    family = "LD"

    @dataclass(frozen=True, kw_only=True)
    class Model(SingleStageModel):
        ignored: ClassVar = {
            **SingleStageModel.ignored,
            **training_only("teacher_config", "teacher_ckpt", "eval_teacher"),
        }
