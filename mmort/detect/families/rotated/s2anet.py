"""S2ANet: the boxes of a first head turn a deformable convolution, whose features a second head reads.

Source: J. Han et al., "Align Deep Features for Oriented Object Detection", TGRS 2021; MMRotate 0's ``S2ANet``,
``AlignConv`` and ``ODMRefineHead``, MMRotate 1's ``S2ARefineHead``, of which there may be several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, nested, only, part, training_only
from mmort.detect.families.rotated.rotated_retinanet import RotatedRetinaHead
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, DenseLoss
from mmort.detect.parts.layers import tower
from mmort.detect.parts.priors import Priors, shifts
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.refinement import (
    LOCATIONS,
    FeatureRefinement,
    RefiningDetector,
    RefiningModel,
    Stages,
    renamed,
)
from mmort.detect.parts.single_stage import DenseHead
from mmort.torch import DeformConv2d, active_rotated_filter

ORIENTATIONS = 8
"""Of the filters of `ORConv`; MMRotate's heads have no other number."""


class ORConv(nn.Module):
    """A 3x3 convolution whose filters are turned into eight orientations, as MMRotate's ``ORConv2d``.

    Source: Y. Zhou et al., "Oriented Response Networks", CVPR 2017.
    """

    def __init__(self, in_channels: int, filters: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(filters, in_channels, 1, 3, 3))
        self.bias = nn.Parameter(torch.zeros(filters * ORIENTATIONS))
        # Where each weight goes in each orientation, counted from 1: on to the next around the centre.
        around = torch.tensor([0, 1, 2, 5, 8, 7, 6, 3])
        positions = torch.arange(1, 10, dtype=torch.int32)[:, None].repeat(1, ORIENTATIONS)
        for orientation in range(ORIENTATIONS):
            positions[around, orientation] = around.roll(-orientation).int() + 1
        self.register_buffer("indices", positions.reshape(1, 3, 3, ORIENTATIONS))

    def forward(self, x: Tensor) -> Tensor:
        filters = active_rotated_filter(self.weight, self.get_buffer("indices"))
        return nn.functional.conv2d(x, filters, self.bias, padding=1)


class AlignConv(nn.Module):
    """A deformable 3x3 convolution whose taps lie in the boxes of the locations."""

    taps: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.deform_conv = DeformConv2d(channels, channels, 3, padding=1)
        steps = [(float(x), float(y)) for y in (-1, 0, 1) for x in (-1, 0, 1)]
        self.register_buffer("taps", torch.tensor(steps), persistent=False)

    def forward(self, x: Tensor, boxes: Tensor, stride: float) -> Tensor:
        """Return features [N, C, h, w] of a level's features [N, C, h, w] and their boxes [N, h * w, 5]."""
        return self.deform_conv(x, self.offsets(x, boxes, stride)).relu()

    def offsets(self, x: Tensor, boxes: Tensor, stride: float) -> Tensor:
        """Return how far each tap lies from that of a plain convolution, y before x, [N, 18, h, w]."""
        cos, sin = boxes[..., 4:].cos(), boxes[..., 4:].sin()  # [N, h * w, 1]
        scaled = boxes[..., :4] / stride
        steps = scaled[..., None, 2:] / 3 * self.taps  # [N, h * w, 9, 2]
        across, along = steps.unbind(-1)
        turned = torch.stack([across * cos - along * sin, across * sin + along * cos], -1)
        plain = shifts(x, (1, 1)).flatten(0, 1)[:, None] + self.taps  # [h * w, 9, 2]
        offsets = (turned + scaled[..., None, :2] - plain).flip(-1)  # [N, h * w, 9, 2]
        return offsets.flatten(2).transpose(1, 2).reshape(x.shape[0], 18, *x.shape[2:])


class SharedAlignConv(FeatureRefinement):
    """The same `AlignConv` for all levels, as in MMRotate 1."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        feat_channels: int
        strides: Sequence[float]
        kernel_size: int = only(3)

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.strides = list(entries.strides)
        self.ac = nn.ModuleList(AlignConv(entries.feat_channels) for _ in range(self.layers))

    @property
    def layers(self) -> int:
        """The number of different convolutions."""
        return 1

    def forward(self, features: Sequence[Tensor], boxes: Sequence[Tensor]) -> list[Tensor]:
        aligners = [self.ac[level % self.layers] for level in range(len(self.strides))]
        return [layer(*level) for layer, *level in zip(aligners, features, boxes, self.strides, strict=True)]


class AlignConvs(SharedAlignConv):
    """An `AlignConv` for each level, as in MMRotate 0."""

    @property
    def layers(self) -> int:
        """The number of different convolutions."""
        return len(self.strides)


class S2ARefineHead(DenseHead):
    """A convolution of many orientations; all of them give the boxes, the strongest of each filter the classes."""

    class_layers: ClassVar = {"retina_cls": 0}
    box_channels = 5

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_classes: int
        frm_cfg: FeatureRefinement = part("frm_cfg", types={"AlignConv": SharedAlignConv, "AlignConvs": AlignConvs})
        anchor_generator: Priors = part("prior generator", default=LOCATIONS)
        bbox_coder: RotatedBoxCoder = part("rotated box coder", default={"type": "DeltaXYWHAOBBoxCoder"})
        feat_channels: int = 256
        stacked_convs: int = 4
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None
        loss_cls: DenseLoss = nested(DenseLoss, default=WITH_SIGMOID)

        ignored: ClassVar = {
            "in_channels": "those of the features",
            **training_only("assign_by_circumhbbox", "reg_decoded_bbox"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels, filters = entries.feat_channels, entries.feat_channels // ORIENTATIONS
        self.classes, self.activation = entries.num_classes, entries.loss_cls.activation
        self.priors, self.coder = entries.anchor_generator, entries.bbox_coder
        self.or_conv = ORConv(channels, filters)
        layer: dict[str, Any] = {"conv_cfg": entries.conv_cfg, "norm_cfg": entries.norm_cfg}
        self.cls_convs = tower(filters, channels, entries.stacked_convs, **layer)
        self.reg_convs = tower(channels, channels, entries.stacked_convs, **layer)
        self.retina_cls = nn.Conv2d(channels, self.classes, 3, padding=1)
        self.retina_reg = nn.Conv2d(channels, self.box_channels, 3, padding=1)
        self.feat_refine_module = entries.frm_cfg

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        oriented = [self.or_conv(x) for x in features]  # [N, C, h, w]
        strongest = [torch.unflatten(x, 1, (-1, ORIENTATIONS)).amax(2) for x in oriented]  # [N, C / 8, h, w]
        logits = [self.retina_cls(self.cls_convs(x)) for x in strongest]  # [N, classes, h, w]
        return (*logits, *(self.retina_reg(self.reg_convs(x)) for x in oriented))  # [N, 5, h, w]


@dataclass(frozen=True, kw_only=True)
class S2Stages(Stages):
    """The entries of MMRotate 0's ``model``, which has the convolutions of the second head beside it."""

    fam_head: Config
    align_cfgs: Config
    odm_head: Config

    def heads(self) -> tuple[Config, Sequence[Config]]:
        module = {**renamed(self.align_cfgs, channels="feat_channels"), "type": "AlignConvs"}
        # MMRotate 0 does not read stacked_convs.
        return self.fam_head, [{**self.odm_head, "frm_cfg": module, "stacked_convs": 2}]


@PARTS.register("detector", "KFIoUODMRefineHead", "ODMRefineHead", "S2ARefineHead")
class S2ANet(RefiningDetector):
    """S2ANet."""

    family = "S2ANet"
    head_entries = "bbox_head_refine", "odm_head"
    renamed_keys = (
        (r"\.feat_refine_module\.", ".feat_refine_module.ac.0."),
        (r"^fam_head\.", "bbox_head_init."),
        (r"^align_conv\.", "bbox_head_refine.0.feat_refine_module."),
        (r"^odm_head\.odm_", "bbox_head_refine.0.retina_"),
        (r"^odm_head\.", "bbox_head_refine.0."),
    )
    first_heads = dict.fromkeys(("S2AHead", "RotatedRetinaHead", "KFIoURRetinaHead"), RotatedRetinaHead)
    next_heads = dict.fromkeys(("S2ARefineHead", "ODMRefineHead", "KFIoUODMRefineHead"), S2ARefineHead)

    @dataclass(frozen=True, kw_only=True)
    class Model(RefiningModel):
        Stages = S2Stages
