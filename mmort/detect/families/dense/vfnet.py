"""VarifocalNet: boxes that are regressed twice, the second time from features at nine points of the first box.

Source: H. Zhang et al., "VarifocalNet: An IoU-aware Dense Object Detector", CVPR 2021; MMDetection's ``VFNetHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, nested, part, training_only
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, DenseLoss
from mmort.detect.parts.heads.towers import TowerEntries, tower_pair
from mmort.detect.parts.layers import ConvModule, Scale
from mmort.detect.parts.priors import AnchorGenerator, Points
from mmort.detect.parts.single_stage import DenseDetector, DenseHead
from mmort.torch import DeformConv2d

_ANCHORS = {
    "type": "AnchorGenerator",
    "ratios": [1.0],
    "octave_base_scale": 8,
    "scales_per_octave": 1,
    "strides": [8, 16, 32, 64, 128],
}
_RANGES = ((-1, 64), (64, 128), (128, 256), (256, 512), (512, 1024))


class VFNetHead(DenseHead):
    """Two towers, and deformable convolutions over the points of the first boxes."""

    class_layers: ClassVar = {"vfnet_cls": 0}
    offsets: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Entries(TowerEntries):
        strides: Sequence[float] = (4, 8, 16, 32, 64)
        regress_ranges: Sequence[Sequence[float]] = _RANGES
        dcn_on_last_conv: bool = False
        conv_bias: bool | str = "auto"
        anchor_generator: AnchorGenerator = part(
            "prior generator", types={"AnchorGenerator": AnchorGenerator}, default=_ANCHORS
        )
        norm_cfg: Config | None = default({"type": "GN", "num_groups": 32})
        bbox_coder: BoxCoder = part("box coder", default={"type": "DistancePointBBoxCoder"})
        use_atss: bool = True
        loss_cls: DenseLoss = nested(DenseLoss, default=WITH_SIGMOID)

        ignored: ClassVar = training_only(
            "center_sample_radius", "center_sampling", "gradient_mul", "reg_decoded_bbox", "sync_num_pos", "use_vfl"
        )

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes, self.activation = entries.num_classes, entries.loss_cls.activation
        # With ATSS's assignment the points are the centres of anchors.
        anchors, self.strides = entries.anchor_generator, tuple(entries.strides)
        self.priors = Points(anchors.strides, anchors.center_offset if entries.use_atss else 0.5)
        self.coder = entries.bbox_coder
        counts = [len(levels) for levels in (self.strides, anchors.strides, entries.regress_ranges)]
        if len(set(counts)) != 1:
            raise ValueError(
                "detect.build: strides, anchor_generator.strides and regress_ranges of bbox_head must have one entry a "
                f"level, got {counts}"
            )
        lengths = [high for _, high in entries.regress_ranges]
        self.lengths = [*lengths[:-1], 2 * lengths[-2]]
        channels = entries.feat_channels
        layer: dict[str, Any] = {"conv_cfg": entries.conv_cfg, "norm_cfg": entries.norm_cfg, "bias": entries.conv_bias}
        last = {"type": "DCNv2"} if entries.dcn_on_last_conv else None
        self.cls_convs, self.reg_convs = tower_pair(entries, last_conv_cfg=last, bias=entries.conv_bias)
        self.vfnet_reg_conv = ConvModule(channels, channels, 3, padding=1, **layer)
        self.vfnet_reg = nn.Conv2d(channels, 4, 3, padding=1)
        self.vfnet_reg_refine_dconv = DeformConv2d(channels, channels, 3, padding=1)
        self.vfnet_reg_refine = nn.Conv2d(channels, 4, 3, padding=1)
        self.vfnet_cls_dconv = DeformConv2d(channels, channels, 3, padding=1)
        self.vfnet_cls = nn.Conv2d(channels, self.class_channels, 3, padding=1)
        self.scales, self.scales_refine = (nn.ModuleList(Scale() for _ in entries.strides) for _ in range(2))
        taps = [(float(y), float(x)) for y in (-1, 0, 1) for x in (-1, 0, 1)]
        self.register_buffer("offsets", torch.tensor(taps).reshape(1, 18, 1, 1), persistent=False)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits, distances = [], []
        for x, *scales, length, stride in zip(
            features, self.scales, self.scales_refine, self.lengths, self.strides, strict=True
        ):
            for_classes, for_boxes = self.cls_convs(x), self.reg_convs(x)  # [N, C, h, w]
            first = scales[0](self.vfnet_reg(self.vfnet_reg_conv(for_boxes))).exp() * length  # [N, 4, h, w]
            offsets = self.star(first / stride)
            refined = self.vfnet_reg_refine(self.vfnet_reg_refine_dconv(for_boxes, offsets).relu())
            distances.append(scales[1](refined).exp() * first)
            logits.append(self.vfnet_cls(self.vfnet_cls_dconv(for_classes, offsets).relu()))
        return (*logits, *distances)

    def star(self, distances: Tensor) -> Tensor:
        """Return offsets [N, 18, h, w] from a kernel's taps to the centre, corners and sides of boxes [N, 4, h, w]."""
        left, top, right, bottom = distances.unbind(1)
        none = torch.zeros_like(left)
        points = [(y, x) for y in (-top, none, bottom) for x in (-left, none, right)]
        return torch.stack([coordinate for point in points for coordinate in point], 1) - self.offsets


@PARTS.register("detector", "VFNetHead")
class VFNet(DenseDetector):
    """VarifocalNet."""

    family = "VFNet"
    head = VFNetHead
