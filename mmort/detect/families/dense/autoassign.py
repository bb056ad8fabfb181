"""AutoAssign: FCOS's network with distances that are not negative, and points in the corners of the locations.

Source: B. Zhu et al., "AutoAssign: Differentiable Label Assignment for Dense Object Detection", 2020; MMDetection's
``AutoAssignHead``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from mmort.detect.entries import PARTS, training_only
from mmort.detect.families.dense.fcos import FCOSHead
from mmort.detect.parts.priors import Points
from mmort.detect.parts.single_stage import DenseDetector

_TRAINING = training_only("force_topk", "topk", "pos_loss_weight", "neg_loss_weight", "center_loss_weight")


class CenterPrior(nn.Module):
    """Weights of the assignment, which only the training uses: a checkpoint has them."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.mean, self.sigma = (nn.Parameter(torch.zeros(classes, 2)) for _ in range(2))


class AutoAssignHead(FCOSHead):
    """FCOS's head; the boxes' tower predicts the centerness too."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(FCOSHead.Entries):
        """The entries of ``bbox_head``."""

        conv_bias: bool | str = True
        norm_on_bbox: bool = True
        centerness_on_reg: bool = True

        ignored: ClassVar = {**FCOSHead.Entries.ignored, **_TRAINING}

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.priors = Points(self.strides, offset=0)
        self.center_prior = CenterPrior(self.classes)


@PARTS.register("detector", "AutoAssignHead")
class AutoAssign(DenseDetector):
    """AutoAssign."""

    family = "AutoAssign"
    head = AutoAssignHead
