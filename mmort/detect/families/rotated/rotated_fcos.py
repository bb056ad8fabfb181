"""Rotated FCOS: FCOS that also regresses an angle, for the distances along the sides of a turned box.

H2RBox and H2RBox-v2 learned angles from upright boxes.  Sources: X. Yang et al., "H2RBox: Horizontal Box Annotation is
All You Need for Oriented Object Detection", ICLR 2023; Y. Yu et al., "H2RBox-v2: Incorporating Symmetry for Boosting
Horizontal Box Supervised Oriented Object Detection", NeurIPS 2023; MMRotate's ``RotatedFCOSHead``, MMRotate 1's
``H2RBoxHead``, onedl-mmrotate's ``H2RBoxV2Head``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.detect.entries import PARTS, Parts, part, training_only
from mmort.detect.families.dense.fcos import FCOSHead
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.layers import Scale
from mmort.detect.parts.rotated.angle_coder import ANGLE_CODERS, AngleCoder
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.dense import RotatedDenseDetector, candidates, of_large_boxes
from mmort.detect.parts.rotated.geometry import bounding_boxes, upright_boxes
from mmort.detect.parts.rotated.selection import rotated_detections
from mmort.detect.parts.single_stage import SingleStageModel


class RotatedFCOSHead(FCOSHead):
    """FCOS's head with an angle for each box."""

    box_channels = 5

    @dataclass(frozen=True, kw_only=True)
    class Entries(FCOSHead.Entries):
        scale_angle: bool = True
        angle_coder: AngleCoder = part("angle coder", types=ANGLE_CODERS, default={"type": "PseudoAngleCoder"})
        bbox_coder: RotatedBoxCoder = part("rotated box coder", default={"type": "DistanceAnglePointCoder"})

        ignored: ClassVar = {
            **FCOSHead.Entries.ignored,
            "angle_version": "the coder's",
            **training_only("separate_angle", "h_bbox_coder", "use_hbbox_loss"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.angle_coder = entries.angle_coder
        self.conv_angle = nn.Conv2d(entries.feat_channels, self.angle_coder.channels, 3, padding=1)
        self.scale_angle: nn.Module = Scale() if entries.scale_angle else nn.Identity()

    def regressed(self, for_boxes: Tensor, scale: nn.Module, stride: int) -> Tensor:
        """Return the distances, with the angle in radians as fifth channel."""
        angle = self.angle_coder.decode(self.scale_angle(self.conv_angle(for_boxes)), 1)  # [N, 1, h, w]
        return torch.cat([super().regressed(for_boxes, scale, stride), angle], 1)


@PARTS.register("detector", "RotatedFCOSHead")
class RotatedFCOS(RotatedDenseDetector):
    """Rotated FCOS, or CSL or PSC FCOS by its angle coder."""

    head = RotatedFCOSHead
    bbox_head: RotatedFCOSHead

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.family = f"{self.bbox_head.angle_coder.name} FCOS"


class H2RBoxHead(RotatedFCOSHead):
    """Rotated FCOS's head."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedFCOSHead.Entries):
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
    """Rotated FCOS in which objects of some classes get upright boxes."""

    family = "H2RBox"
    head = H2RBoxHead
    bbox_head: H2RBoxHead

    @dataclass(frozen=True, kw_only=True)
    class Model(SingleStageModel):
        ignored: ClassVar = {**SingleStageModel.ignored, **training_only("crop_size", "padding")}

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        dets, labels = super().forward(input, img_shape)
        square = torch.zeros_like(labels, dtype=torch.bool)
        for label in self.bbox_head.square_classes:
            square = square | (labels == label)
        upright = torch.cat([upright_boxes(bounding_boxes(dets[..., :5])), dets[..., 5:]], -1)
        return torch.where(square[..., None], upright, dets), labels


RESIZED = 0.85
"""By what the sides of boxes of some round objects are multiplied, as H2RBox-v2 finds them too large."""


class H2RBoxV2Head(RotatedFCOSHead):
    """Rotated FCOS's head, with the factors of each class's boxes."""

    factors: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedFCOSHead.Entries):
        scale_angle: bool = False
        rotation_agnostic_classes: Sequence[int] | None = None
        agnostic_resize_classes: Sequence[int] | None = None

        ignored: ClassVar = {
            **RotatedFCOSHead.Entries.ignored,
            **training_only("use_circumiou_loss", "use_standalone_angle", "use_reweighted_loss_bbox"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        upright = entries.rotation_agnostic_classes or ()
        resized = (upright and entries.agnostic_resize_classes) or ()  # read only if some class is upright
        factors = [[1, 1, *[RESIZED if i in resized else 1] * 2, i not in upright] for i in range(entries.num_classes)]
        self.register_buffer("factors", torch.tensor(factors, dtype=torch.float32), persistent=False)


@PARTS.register("detector", "H2RBoxV2Head")
class H2RBoxV2(RotatedDenseDetector):
    """Rotated FCOS in which boxes of some classes have no angle, before boxes are suppressed."""

    family = "H2RBox-v2"
    head = H2RBoxV2Head
    bbox_head: H2RBoxV2Head

    @dataclass(frozen=True, kw_only=True)
    class Model(SingleStageModel):
        ignored: ClassVar = {**SingleStageModel.ignored, **training_only("crop_size", "padding", "view_range")}

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        limits = image_limits(input, img_shape)
        boxes, scores = candidates(self.bbox_head, self.test_cfg, self.raw(input), limits, by_pairs=self.by_pairs)
        of_classes = boxes[:, :, None] * self.bbox_head.factors  # [N, P, C, 5]
        scores = of_large_boxes(scores, of_classes, self.test_cfg)  # those of some classes are smaller now
        return rotated_detections(of_classes, scores, self.test_cfg)
