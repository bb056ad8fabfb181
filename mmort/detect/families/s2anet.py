"""S2ANet: the boxes of a first head turn a deformable convolution, whose features a second head reads.

Source: J. Han et al., "Align Deep Features for Oriented Object Detection", TGRS 2021; MMRotate's ``S2ANet``,
``AlignConv`` and ``ODMRefineHead``, in MMRotate 1 ``S2ARefineHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import Parts, Schema, part
from mmort.detect.families.rotated_retinanet import RotatedRetinaHead
from mmort.detect.parts.layers import tower
from mmort.detect.parts.priors import Priors, shifts
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.dense import version_of
from mmort.detect.parts.rotated.refinement import (
    LOCATIONS,
    REFINING_ENTRIES,
    RefiningDetector,
    first_boxes,
    refining_heads,
)
from mmort.detect.parts.single_stage import DenseHead
from mmort.detect.versions import Config
from mmort.torch import DeformConv2d

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
        # Where each weight goes in each orientation, counted from 1: a column is a permutation.
        positions = torch.arange(1, 10, dtype=torch.int32).reshape(1, 3, 3, 1)
        self.register_buffer("indices", positions.repeat(1, 1, 1, ORIENTATIONS))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv2d(x, self.turned(), self.bias, padding=1)

    def turned(self) -> Tensor:
        """Return the filters in all orientations, [filters * 8, in_channels, 3, 3]; orientations vary fastest."""
        sources = self.get_buffer("indices").reshape(9, ORIENTATIONS).to(torch.int64).argsort(0)
        weights = self.weight.flatten(2)[:, :, sources]  # [filters, in_channels, 9, 8]
        return torch.unflatten(weights.permute(0, 3, 1, 2).flatten(0, 1), 2, (3, 3))


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


class AlignConvs(nn.Module):
    """An `AlignConv` for each level, or, as in MMRotate 1, one for all."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``align_cfgs``."""

        channels: int
        featmap_strides: Sequence[float]
        kernel_size: int = 3
        shared: bool = False

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        if entries.kernel_size != 3:
            raise ValueError(f"detect.build: align_cfgs.kernel_size must be 3, got {entries.kernel_size}")
        self.strides = list(entries.featmap_strides)
        self.ac = nn.ModuleList(AlignConv(entries.channels) for _ in self.strides[: 1 if entries.shared else None])

    def forward(self, features: Sequence[Tensor], boxes: Sequence[Tensor]) -> list[Tensor]:
        """Return features [N, C, h, w] of features [N, C, h, w] and their boxes [N, h * w, 5], by level."""
        own = [self.ac[level % len(self.ac)] for level in range(len(self.strides))]
        return [layer(*level) for layer, *level in zip(own, features, boxes, self.strides, strict=True)]


class ODMRefineHead(DenseHead):
    """A convolution of many orientations; all of them give the boxes, the strongest of each filter the classes."""

    class_layers: ClassVar = {"odm_cls": 0}
    box_channels = 5

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``odm_head``."""

        num_classes: int
        anchor_generator: Priors = part("prior generator", default=LOCATIONS)
        bbox_coder: RotatedBoxCoder = part("rotated box coder", default={"type": "DeltaXYWHAOBBoxCoder"})
        feat_channels: int = 256
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None

        ignored: ClassVar = {
            "in_channels": "those of the features",
            "stacked_convs": "MMRotate 0's head has two convolutions, whatever its config says",
            **dict.fromkeys(("assign_by_circumhbbox", "reg_decoded_bbox"), "training only"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels, filters = entries.feat_channels, entries.feat_channels // ORIENTATIONS
        self.classes = entries.num_classes
        self.priors, self.coder = entries.anchor_generator, entries.bbox_coder
        self.or_conv = ORConv(channels, filters)
        layer: dict[str, Any] = {"conv_cfg": entries.conv_cfg, "norm_cfg": entries.norm_cfg}
        self.cls_convs, self.reg_convs = tower(filters, channels, 2, **layer), tower(channels, channels, 2, **layer)
        self.odm_cls = nn.Conv2d(channels, self.classes, 3, padding=1)
        self.odm_reg = nn.Conv2d(channels, self.box_channels, 3, padding=1)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        oriented = [self.or_conv(x) for x in features]  # [N, C, h, w]
        strongest = [torch.unflatten(x, 1, (-1, ORIENTATIONS)).amax(2) for x in oriented]  # [N, C / 8, h, w]
        logits = [self.odm_cls(self.cls_convs(x)) for x in strongest]  # [N, classes, h, w]
        return (*logits, *(self.odm_reg(self.reg_convs(x)) for x in oriented))  # [N, 5, h, w]


class S2ANet(RefiningDetector):
    """S2ANet."""

    family = "S2ANet"
    model_entries = ("backbone", "neck", "fam_head", "align_cfgs", "odm_head", *REFINING_ENTRIES)
    renamed_keys = (
        (r"^bbox_head_init\.", "fam_head."),
        (r"^bbox_head_refine\.0\.feat_refine_module\.", "align_conv.ac.0."),
        (r"^bbox_head_refine\.0\.retina_", "odm_head.odm_"),
        (r"^bbox_head_refine\.0\.", "odm_head."),
    )

    def __init__(self, config: Config, parts: Parts) -> None:
        super().__init__(config, parts)
        model = _entries_of_version_0(config["model"])
        self.fam_head: RotatedRetinaHead = parts.construct("fam_head", RotatedRetinaHead, model["fam_head"])
        self.align_conv: AlignConvs = parts.construct("align_cfgs", AlignConvs, model["align_cfgs"])
        self.odm_head: ODMRefineHead = parts.construct("odm_head", ODMRefineHead, model["odm_head"])
        self.angle_version = version_of(self.odm_head)

    @property
    def heads(self) -> tuple[str, ...]:
        """The head whose outputs are compared where there are few detections."""
        return ("odm_head",)

    @property
    def last_head(self) -> ODMRefineHead:
        """The head whose boxes are detected."""
        return self.odm_head

    def refined(self, input: Tensor) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """Return the first head's boxes, [N, h * w, 5] by level, and the second head's maps."""
        features = self.neck(self.backbone(input))
        boxes = first_boxes(self.fam_head, self.fam_head(features))
        return boxes, self.odm_head(self.align_conv(features, boxes))


def _entries_of_version_0(model: Config) -> Config:
    """Return the entries of a model by the names that MMRotate 0 gives them."""
    if REFINING_ENTRIES[0] not in model:
        return model
    first, modules, heads = refining_heads(model)
    if len(heads) != 1 or heads[0].get("stacked_convs", 2) != 2:
        raise ValueError("detect.build: S2ANet must have one of bbox_head_refine, with stacked_convs=2")
    names = {"feat_channels": "channels", "strides": "featmap_strides"}
    align = {names.get(key, key): value for key, value in modules[0].items()}
    return {"fam_head": first, "align_cfgs": {**align, "shared": True}, "odm_head": heads[0]}
