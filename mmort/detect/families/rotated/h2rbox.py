"""H2RBox: Rotated FCOS that learned angles from upright boxes; objects of some classes get upright boxes.

Source: X. Yang et al., "H2RBox: Horizontal Box Annotation is All You Need for Oriented Object Detection", ICLR 2023;
MMRotate 1's ``H2RBoxHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mmort.detect.entries import PARTS, training_only
from mmort.detect.families.rotated.rotated_fcos import RotatedFCOSHead
from mmort.detect.parts.rotated.dense import RotatedDenseDetector
from mmort.detect.parts.rotated.geometry import bounding_boxes, upright_boxes
from mmort.detect.parts.single_stage import SingleStageModel


class H2RBoxHead(RotatedFCOSHead):
    """Rotated FCOS's head."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedFCOSHead.Entries):
        """The entries of ``bbox_head``."""

        square_classes: Sequence[int] | None = None

        ignored: ClassVar = {
            **RotatedFCOSHead.Entries.ignored,
            **training_only("crop_size", "rotation_agnostic_classes", "weak_supervised"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.square_classes = tuple(entries.square_classes or ())


@PARTS.register("detector", "H2RBoxHead")
class H2RBox(RotatedDenseDetector):
    """H2RBox."""

    family = "H2RBox"
    head = H2RBoxHead
    bbox_head: H2RBoxHead

    @dataclass(frozen=True, kw_only=True)
    class Model(SingleStageModel):
        """The entries of ``model``."""

        ignored: ClassVar = {**SingleStageModel.ignored, **training_only("crop_size", "padding")}

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        dets, labels = super().forward(input, img_shape)
        square = torch.zeros_like(labels, dtype=torch.bool)
        for label in self.bbox_head.square_classes:
            square = square | (labels == label)
        upright = torch.cat([upright_boxes(bounding_boxes(dets[..., :5])), dets[..., 5:]], -1)
        return torch.where(square[..., None], upright, dets), labels
