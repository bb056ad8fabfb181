"""SSD and SSDLite: for every level a head of its own, over anchors; classes exclude each other.

Source: W. Liu et al., "SSD: Single Shot MultiBox Detector", ECCV 2016; M. Sandler et al., "MobileNetV2", CVPR 2018
(SSDLite); MMDetection's ``SSDHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from mmort.detect.boxes import build_box_coder
from mmort.detect.dense import DenseDetector, DenseHead
from mmort.detect.detector import Config
from mmort.detect.layers import ConvModule, DepthwiseSeparableConvModule
from mmort.detect.priors import build_priors

_ANCHORS = {
    "type": "SSDAnchorGenerator",
    "scale_major": False,
    "input_size": 300,
    "strides": [8, 16, 32, 64, 100, 300],
    "ratios": ([2], [2, 3], [2, 3], [2, 3], [2], [2]),
    "basesize_ratio_range": (0.1, 0.9),
}


class SSDHead(DenseHead):
    """Parameters have the names of the config's entries."""

    softmax = True

    def __init__(
        self,
        num_classes: int = 80,
        in_channels: Sequence[int] = (512, 1024, 512, 256, 256, 256),
        stacked_convs: int = 0,
        feat_channels: int = 256,
        use_depthwise: bool = False,
        conv_cfg: dict[str, Any] | None = None,
        norm_cfg: dict[str, Any] | None = None,
        act_cfg: dict[str, Any] | None = None,
        anchor_generator: dict[str, Any] = _ANCHORS,
        bbox_coder: dict[str, Any] = {"type": "DeltaXYWHBBoxCoder"},  # noqa: B006 - never written to
    ) -> None:
        super().__init__()
        self.classes = num_classes
        self.priors = build_priors(anchor_generator)
        self.coder = build_box_coder(bbox_coder)
        common: dict[str, Any] = {"padding": 1, "conv_cfg": conv_cfg, "norm_cfg": norm_cfg, "act_cfg": act_cfg}
        stacked = DepthwiseSeparableConvModule if use_depthwise else ConvModule

        def branch(channels: int, out_channels: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for _ in range(stacked_convs):
                layers.append(stacked(channels, feat_channels, 3, **common))
                channels = feat_channels
            if use_depthwise:
                layers.append(ConvModule(channels, channels, 3, groups=channels, **common))
                layers.append(nn.Conv2d(channels, out_channels, 1))
            else:
                layers.append(nn.Conv2d(channels, out_channels, 3, padding=1))
            return nn.Sequential(*layers)

        levels = list(zip(in_channels, self.priors.num_base_priors, strict=True))
        self.cls_convs = nn.ModuleList(branch(channels, count * (num_classes + 1)) for channels, count in levels)
        self.reg_convs = nn.ModuleList(branch(channels, count * 4) for channels, count in levels)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:  # noqa: D102
        logits = [conv(x) for conv, x in zip(self.cls_convs, features, strict=True)]  # [N, A * (classes + 1), h, w]
        deltas = [conv(x) for conv, x in zip(self.reg_convs, features, strict=True)]  # [N, A * 4, h, w]
        return (*logits, *deltas)


class SSD(DenseDetector):
    """SSD and SSDLite."""

    family = "SSD"

    def __init__(self, config: Config) -> None:
        super().__init__(config, {"SSDHead": SSDHead, "AscendSSDHead": SSDHead})
