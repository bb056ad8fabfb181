"""EfficientDet: towers of separable convolutions, which the levels share, with normalizations of each level's own.

Source: M. Tan et al., "EfficientDet: Scalable and Efficient Object Detection", CVPR 2020; MMDetection's
``projects/EfficientDet``.  Box AP of its EfficientDet-D3 on COCO val2017: 47.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, default, nested, part, training_only
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, DenseLoss
from mmort.detect.parts.layers import normalization
from mmort.detect.parts.necks.bifpn import separable_convolution
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.single_stage import DenseDetector, DenseHead


class EfficientDetSepBNHead(DenseHead):
    """A tower for the classes and a tower for the boxes."""

    class_layers: ClassVar = {"cls_header.pointwise_conv": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_classes: int
        num_ins: int
        in_channels: int
        feat_channels: int
        stacked_convs: int = 3
        norm_cfg: Config = default({"type": "BN", "eps": 1e-3})
        anchor_generator: Priors = part("prior generator")
        bbox_coder: BoxCoder = part("box coder", default={"type": "DeltaXYWHBBoxCoder"})
        loss_cls: DenseLoss = nested(DenseLoss, default=WITH_SIGMOID)

        ignored: ClassVar = training_only("reg_decoded_bbox")

        def check(self, name: str) -> None:
            """Raise a ValueError if towers and maps do not fit what reads them."""
            levels = len(self.anchor_generator.strides)
            if self.num_ins != levels:
                raise ValueError(
                    f"detect.build: num_ins of {name} must be the number of strides, {levels}, got {self.num_ins}"
                )
            if self.stacked_convs > 0 and self.in_channels != self.feat_channels:
                raise ValueError(
                    f"detect.build: in_channels of {name} must be feat_channels, {self.feat_channels}, as its last "
                    f"layers read both, got {self.in_channels}"
                )

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes, self.activation = entries.num_classes, entries.loss_cls.activation
        self.priors, self.coder = entries.anchor_generator, entries.bbox_coder
        channels, anchors = entries.in_channels, self.priors.num_base_priors[0]
        self.cls_conv_list, self.reg_conv_list = (
            nn.ModuleList(separable_convolution(channels, channels) for _ in range(entries.stacked_convs))
            for _ in range(2)
        )
        self.cls_bn_list, self.reg_bn_list = (
            nn.ModuleList(
                nn.ModuleList(normalization(entries.norm_cfg, channels)[1] for _ in range(entries.num_ins))
                for _ in range(entries.stacked_convs)
            )
            for _ in range(2)
        )
        self.swish = nn.SiLU()
        self.cls_header = separable_convolution(channels, anchors * self.class_channels)
        self.reg_header = separable_convolution(channels, anchors * self.box_channels)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits, deltas = [], []
        for level, x in enumerate(features):  # [N, C, h, w]
            classes = self.tower(self.cls_conv_list, self.cls_bn_list, level, x)
            boxes = self.tower(self.reg_conv_list, self.reg_bn_list, level, x)
            logits.append(self.cls_header(classes))  # [N, A * classes, h, w]
            deltas.append(self.reg_header(boxes))  # [N, A * 4, h, w]
        return (*logits, *deltas)

    def tower(self, convolutions: nn.ModuleList, norms: Any, level: int, x: Tensor) -> Tensor:
        """Apply a tower to a level's map [N, C, h, w]."""
        for convolution, norms_of_levels in zip(convolutions, norms, strict=True):
            x = self.swish(norms_of_levels[level](convolution(x)))
        return x


@PARTS.register("detector", "EfficientDetSepBNHead")
class EfficientDet(DenseDetector):
    """EfficientDet."""

    family = "EfficientDet"
    head = EfficientDetSepBNHead
