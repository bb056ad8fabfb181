"""FCOS: no anchors; every location predicts the distances to the sides of its object, and how central it is.

AutoAssign and NAS-FCOS have other layers.  Sources: Z. Tian et al., "FCOS: Fully Convolutional One-Stage Object
Detection", ICCV 2019; B. Zhu et al., "AutoAssign: Differentiable Label Assignment for Dense Object Detection", 2020; N.
Wang et al., "NAS-FCOS: Fast Neural Architecture Search for Object Detection", CVPR 2020; MMDetection's ``FCOSHead``,
``AutoAssignHead``, ``NASFCOSHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, nested, training_only
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, DenseLoss
from mmort.detect.parts.heads.towers import AnchorFreeHead
from mmort.detect.parts.layers import ConvModule, convolution
from mmort.detect.parts.priors import Points
from mmort.detect.parts.single_stage import DenseDetector

_DEFORMABLE: Config = {"type": "DCNv2", "deform_groups": 2}

_SEARCHED_LAYERS: tuple[tuple[int, Config | None, bool], ...] = (
    (3, _DEFORMABLE, True),
    (3, None, False),
    (3, _DEFORMABLE, True),
    (1, None, False),
)
"""Size and ``conv_cfg`` of the layers of NAS-FCOS's towers, and whether they have a bias."""


class FCOSHead(AnchorFreeHead):
    """A tower for the classes and a tower for the boxes; one of them predicts the centerness too."""

    raw_kinds: ClassVar[tuple[str, ...]] = ("cls_score", "bbox_pred", "centerness")

    @dataclass(frozen=True, kw_only=True)
    class Entries(AnchorFreeHead.Entries):
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
        if entries.cls_predictor_cfg is not None:  # MMDetection builds this layer whatever its type
            predictor = {**entries.cls_predictor_cfg, "type": "NormedConv2d"}
            self.conv_cls = convolution(predictor, channels, self.class_channels, 1)
        elif self.class_channels > self.classes:
            self.conv_cls = nn.Conv2d(channels, self.class_channels, 3, padding=1)
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


class CenterPrior(nn.Module):
    """Weights of AutoAssign's assignment, which only the training uses: a checkpoint has them."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.mean, self.sigma = (nn.Parameter(torch.zeros(classes, 2)) for _ in range(2))


class AutoAssignHead(FCOSHead):
    """FCOS's head with points in the corners of the locations; the boxes' tower predicts the centerness too."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(FCOSHead.Entries):
        conv_bias: bool | str = True
        norm_on_bbox: bool = True
        centerness_on_reg: bool = True

        ignored: ClassVar = {
            **FCOSHead.Entries.ignored,
            **training_only("force_topk", "topk", "pos_loss_weight", "neg_loss_weight", "center_loss_weight"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.priors = Points(self.strides, offset=0)
        self.center_prior = CenterPrior(self.classes)


@PARTS.register("detector", "AutoAssignHead")
class AutoAssign(DenseDetector):
    """FCOS's network with distances that are not negative."""

    family = "AutoAssign"
    head = AutoAssignHead


class NASFCOSHead(FCOSHead):
    """FCOS's head with the towers that the search found."""

    def build_towers(self, entries: AnchorFreeHead.Entries) -> tuple[nn.Sequential, nn.Sequential]:
        """Return the towers for the classes and for the boxes."""
        return self._tower(entries), self._tower(entries)

    def _tower(self, entries: AnchorFreeHead.Entries) -> nn.Sequential:
        """Return one of them."""
        inputs = [entries.in_channels, *[entries.feat_channels] * (len(_SEARCHED_LAYERS) - 1)]
        return nn.Sequential(
            *(
                ConvModule(
                    channels,
                    entries.feat_channels,
                    size,
                    padding=size // 2,
                    bias=bias,
                    conv_cfg=conv_cfg,
                    norm_cfg=entries.norm_cfg,
                )
                for channels, (size, conv_cfg, bias) in zip(inputs, _SEARCHED_LAYERS, strict=True)
            )
        )


@PARTS.register("detector", "NASFCOSHead")
class NASFCOS(FCOS):
    """FCOS whose towers were searched for; two of their four layers are deformable."""

    family = "NAS-FCOS"
    head = NASFCOSHead
