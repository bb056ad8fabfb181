"""FCOS: no anchors; every location predicts the distances to the sides of its object, and how central it is.

Source: Z. Tian et al., "FCOS: Fully Convolutional One-Stage Object Detection", ICCV 2019; MMDetection's ``FCOSHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, nested, training_only
from mmort.detect.parts.heads.anchor_free_head import AnchorFreeHead
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, DenseLoss
from mmort.detect.parts.layers import convolution
from mmort.detect.parts.single_stage import DenseDetector


class FCOSHead(AnchorFreeHead):
    """A tower for the classes and a tower for the boxes; one of them predicts the centerness too."""

    raw_kinds: ClassVar[tuple[str, ...]] = ("cls_score", "bbox_pred", "centerness")

    @dataclass(frozen=True, kw_only=True)
    class Entries(AnchorFreeHead.Entries):
        """The entries of ``bbox_head``."""

        norm_on_bbox: bool = False
        centerness_on_reg: bool = False
        cls_predictor_cfg: Config | None = None
        loss_cls: DenseLoss = nested(DenseLoss, default=WITH_SIGMOID)

        ignored: ClassVar = {
            **AnchorFreeHead.Entries.ignored,
            **training_only("center_sample_radius", "center_sampling"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        channels = entries.feat_channels
        self.activation = entries.loss_cls.activation
        self.norm_on_bbox, self.centerness_on_reg = entries.norm_on_bbox, entries.centerness_on_reg
        class_channels = self.classes + (self.activation == "softmax")
        if entries.cls_predictor_cfg is not None:  # MMDetection builds this layer whatever its type
            predictor = {**entries.cls_predictor_cfg, "type": "NormedConv2d"}
            self.conv_cls = convolution(predictor, channels, class_channels, 1)
        elif class_channels > self.classes:
            self.conv_cls = nn.Conv2d(channels, class_channels, 3, padding=1)
        self.conv_centerness = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits, distances, centerness = [], [], []
        for x, scale, stride in zip(features, self.scales, self.strides, strict=True):  # [N, C, h, w]
            for_classes, for_boxes = self.cls_convs(x), self.reg_convs(x)
            logits.append(self.conv_cls(for_classes))  # [N, classes, h, w]
            distances.append(self.regressed(for_boxes, scale, stride))
            for_centerness = for_boxes if self.centerness_on_reg else for_classes
            centerness.append(self.conv_centerness(for_centerness))  # [N, 1, h, w]
        return (*logits, *distances, *centerness)

    def regressed(self, for_boxes: Tensor, scale: nn.Module, stride: int) -> Tensor:
        """Return the numbers of each box, [N, box_channels, h, w], of the features [N, C, h, w] for boxes."""
        distances: Tensor = scale(self.conv_reg(for_boxes))
        return distances.relu() * stride if self.norm_on_bbox else distances.exp()


@PARTS.register("detector", "FCOSHead")
class FCOS(DenseDetector):
    """FCOS."""

    family = "FCOS"
    head = FCOSHead
