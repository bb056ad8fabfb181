"""Networks from an image to feature maps, with the names of MMDetection's in a ``state_dict``."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from mmort.detect.backbones.darknet import Darknet
from mmort.detect.backbones.hourglass import HourglassNet
from mmort.detect.backbones.mobilenet_v2 import MobileNetV2
from mmort.detect.backbones.resnet import ResNet
from mmort.detect.backbones.ssd_vgg import SSDVGG
from mmort.detect.detector import construct

_BACKBONES: dict[str, Any] = {
    "HourglassNet": HourglassNet,
    "ResNet": ResNet,
    "ResNetV1d": partial(ResNet, deep_stem=True, avg_down=True),
    "ResNeXt": ResNet,
    "MobileNetV2": MobileNetV2,
    "Darknet": Darknet,
    "SSDVGG": SSDVGG,
}


def build_backbone(config: dict[str, Any]) -> nn.Module:
    """Build ``model.backbone``: a module from images [N, 3, H, W] to a tuple of maps [N, C, h, w], finest first."""
    return construct("backbone", config, _BACKBONES)  # type: ignore[no-any-return]
