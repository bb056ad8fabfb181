"""FCOS: no anchors; every location predicts the distances to the sides of its object, and how central it is.

Source: Z. Tian et al., "FCOS: Fully Convolutional One-Stage Object Detection", ICCV 2019; MMDetection's ``FCOSHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.detect.entries import Schema, default, part
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.layers import Scale, convolution, tower_pair
from mmort.detect.parts.priors import Points
from mmort.detect.parts.single_stage import DenseDetector, DenseHead, class_activation
from mmort.detect.versions import Config


class FCOSHead(DenseHead):
    """A tower for the classes and a tower for the boxes; one of them predicts the centerness too."""

    class_layers: ClassVar = {"conv_cls": 0}
    raw_kinds: ClassVar[tuple[str, ...]] = ("cls_score", "bbox_pred", "centerness")

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``bbox_head``."""

        num_classes: int
        in_channels: int
        feat_channels: int = 256
        stacked_convs: int = 4
        strides: Sequence[Any] = (8, 16, 32, 64, 128)
        dcn_on_last_conv: bool = False
        conv_bias: bool | str = "auto"
        norm_on_bbox: bool = False
        centerness_on_reg: bool = False
        cls_predictor_cfg: Config | None = None
        conv_cfg: Config | None = None
        norm_cfg: Config | None = default({"type": "GN", "num_groups": 32})
        bbox_coder: BoxCoder = part("box coder", default={"type": "DistancePointBBoxCoder"})
        loss_cls: Config = default({"use_sigmoid": True})

        ignored: ClassVar = {
            "center_sample_radius": "training only",
            "center_sampling": "training only",
            "regress_ranges": "training only",
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes, channels = entries.num_classes, entries.feat_channels
        self.activation = class_activation(entries.loss_cls)
        self.norm_on_bbox, self.centerness_on_reg = entries.norm_on_bbox, entries.centerness_on_reg
        self.strides = list(entries.strides)
        self.priors, self.coder = Points(self.strides), entries.bbox_coder
        self.cls_convs, self.reg_convs = self.build_towers(entries)
        class_channels = self.classes + (self.activation == "softmax")
        self.conv_cls: nn.Module = nn.Conv2d(channels, class_channels, 3, padding=1)
        if entries.cls_predictor_cfg is not None:  # MMDetection builds this layer whatever its type
            self.conv_cls = convolution(
                {**entries.cls_predictor_cfg, "type": "NormedConv2d"}, channels, class_channels, 1
            )
        self.conv_reg = nn.Conv2d(channels, 4, 3, padding=1)
        self.conv_centerness = nn.Conv2d(channels, 1, 3, padding=1)
        self.scales = nn.ModuleList(Scale() for _ in self.strides)

    def build_towers(self, entries: Entries) -> tuple[nn.Sequential, nn.Sequential]:
        """Return the towers for the classes and for the boxes."""
        return tower_pair(
            entries.in_channels,
            entries.feat_channels,
            entries.stacked_convs,
            conv_cfg=entries.conv_cfg,
            last_conv_cfg={"type": "DCNv2"} if entries.dcn_on_last_conv else None,
            norm_cfg=entries.norm_cfg,
            bias=entries.conv_bias,
        )

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits, distances, centerness = [], [], []
        for x, scale, stride in zip(features, self.scales, self.strides, strict=True):  # [N, C, h, w]
            for_classes, for_boxes = self.cls_convs(x), self.reg_convs(x)
            logits.append(self.conv_cls(for_classes))  # [N, classes, h, w]
            distance = scale(self.conv_reg(for_boxes))  # [N, 4, h, w]
            distances.append(distance.relu() * stride if self.norm_on_bbox else distance.exp())
            for_centerness = for_boxes if self.centerness_on_reg else for_classes
            centerness.append(self.conv_centerness(for_centerness))  # [N, 1, h, w]
        return (*logits, *distances, *centerness)


class FCOS(DenseDetector):
    """FCOS."""

    family = "FCOS"
    head = FCOSHead
