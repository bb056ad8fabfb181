"""FCOS: no anchors; every place tells how far the sides of its object are, and how central it is.

Source: Z. Tian et al., "FCOS: Fully Convolutional One-Stage Object Detection", ICCV 2019; MMDetection's ``FCOSHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmort.detect.boxes import build_box_coder
from mmort.detect.dense import DenseDetector, DenseHead
from mmort.detect.detector import Config
from mmort.detect.layers import tower
from mmort.detect.priors import Points


class Scale(nn.Module):
    """One learned factor."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x * self.scale


class FCOSHead(DenseHead):
    """Parameters have the names of the config's entries."""

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        feat_channels: int = 256,
        stacked_convs: int = 4,
        strides: Sequence[Any] = (8, 16, 32, 64, 128),
        dcn_on_last_conv: bool = False,
        conv_bias: bool | str = "auto",
        norm_on_bbox: bool = False,
        centerness_on_reg: bool = False,
        conv_cfg: dict[str, Any] | None = None,
        norm_cfg: dict[str, Any] | None = {"type": "GN", "num_groups": 32},  # noqa: B006 - never written to
        bbox_coder: dict[str, Any] = {"type": "DistancePointBBoxCoder"},  # noqa: B006
        loss_cls: dict[str, Any] = {"use_sigmoid": True},  # noqa: B006
    ) -> None:
        super().__init__()
        self.classes = num_classes
        self.softmax = not loss_cls.get("use_sigmoid", False)
        self.norm_on_bbox, self.centerness_on_reg = norm_on_bbox, centerness_on_reg
        self.priors = Points(strides)
        self.strides = list(strides)
        self.coder = build_box_coder(bbox_coder)
        self.cls_convs, self.reg_convs = (
            tower(
                in_channels,
                feat_channels,
                stacked_convs,
                conv_cfg=conv_cfg,
                last_conv_cfg={"type": "DCNv2"} if dcn_on_last_conv else None,
                norm_cfg=norm_cfg,
                bias=conv_bias,
            )
            for _ in range(2)
        )
        self.conv_cls = nn.Conv2d(feat_channels, num_classes + self.softmax, 3, padding=1)
        self.conv_reg = nn.Conv2d(feat_channels, 4, 3, padding=1)
        self.conv_centerness = nn.Conv2d(feat_channels, 1, 3, padding=1)
        self.scales = nn.ModuleList(Scale() for _ in strides)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:  # noqa: D102
        logits, distances, centerness = [], [], []
        for x, scale, stride in zip(features, self.scales, self.strides, strict=True):  # [N, C, h, w]
            for_classes, for_boxes = self.cls_convs(x), self.reg_convs(x)
            logits.append(self.conv_cls(for_classes))  # [N, classes, h, w]
            far = scale(self.conv_reg(for_boxes))  # [N, 4, h, w]
            distances.append(far.relu() * stride if self.norm_on_bbox else far.exp())
            centerness.append(
                self.conv_centerness(for_boxes if self.centerness_on_reg else for_classes)
            )  # [N, 1, h, w]
        return (*logits, *distances, *centerness)


class FCOS(DenseDetector):
    """FCOS."""

    family = "FCOS"

    def __init__(self, config: Config) -> None:
        super().__init__(config, {"FCOSHead": FCOSHead})
