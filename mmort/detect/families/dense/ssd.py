"""SSD and SSDLite: a head for every level, over anchors; classes exclude each other.

Source: W. Liu et al., "SSD: Single Shot MultiBox Detector", ECCV 2016; M. Sandler et al., "MobileNetV2", CVPR 2018
(SSDLite); MMDetection's ``SSDHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, part, training_only
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.layers import ConvModule, DepthwiseSeparableConvModule, LayerEntries
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.single_stage import DenseDetector, DenseHead

_ANCHORS = {
    "type": "SSDAnchorGenerator",
    "scale_major": False,
    "input_size": 300,
    "strides": [8, 16, 32, 64, 100, 300],
    "ratios": ([2], [2, 3], [2, 3], [2, 3], [2], [2]),
    "basesize_ratio_range": (0.1, 0.9),
}


class SSDHead(DenseHead):
    """For every level a branch for the classes and one for the boxes."""

    class_layers: ClassVar = {"cls_convs": 1}
    activation = "softmax"

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        num_classes: int = 80
        in_channels: Sequence[int] = (512, 1024, 512, 256, 256, 256)
        stacked_convs: int = 0
        feat_channels: int = 256
        use_depthwise: bool = False
        act_cfg: Config | None = None
        anchor_generator: Priors = part("prior generator", default=_ANCHORS)
        bbox_coder: BoxCoder = part("box coder", default={"type": "DeltaXYWHBBoxCoder"})

        ignored: ClassVar = training_only("reg_decoded_bbox")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes = entries.num_classes
        self.priors, self.coder = entries.anchor_generator, entries.bbox_coder
        layer: dict[str, Any] = {"padding": 1, **entries.layer}
        stacked = DepthwiseSeparableConvModule if entries.use_depthwise else ConvModule

        def branch(channels: int, out_channels: int) -> nn.Sequential:
            """Return the convolutions of one level, from maps with `channels` to maps with `out_channels`."""
            layers: list[nn.Module] = []
            for _ in range(entries.stacked_convs):
                layers.append(stacked(channels, entries.feat_channels, 3, **layer))
                channels = entries.feat_channels
            if entries.use_depthwise:
                layers.append(ConvModule(channels, channels, 3, groups=channels, **layer))
                layers.append(nn.Conv2d(channels, out_channels, 1))
            else:
                layers.append(nn.Conv2d(channels, out_channels, 3, padding=1))
            return nn.Sequential(*layers)

        levels = list(zip(entries.in_channels, self.priors.num_base_priors, strict=True))
        self.cls_convs = nn.ModuleList(branch(channels, count * (self.classes + 1)) for channels, count in levels)
        self.reg_convs = nn.ModuleList(branch(channels, count * 4) for channels, count in levels)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        logits = [conv(x) for conv, x in zip(self.cls_convs, features, strict=True)]  # [N, A * (classes + 1), h, w]
        deltas = [conv(x) for conv, x in zip(self.reg_convs, features, strict=True)]  # [N, A * 4, h, w]
        return (*logits, *deltas)


@PARTS.register("detector", "SSDHead", "AscendSSDHead", "PISASSDHead")
class SSD(DenseDetector):
    """SSD and SSDLite."""

    family = "SSD"
    head = SSDHead
