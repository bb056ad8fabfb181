"""ReResNet: a ResNet whose convolutions are equivariant to rotations.

Source: J. Han et al., "ReDet: A Rotation-equivariant Detector for Aerial Object Detection", CVPR 2021; MMRotate's
``ReResNet``.
"""

from __future__ import annotations

from dataclasses import replace

from mmort.detect.entries import PARTS
from mmort.detect.parts.backbones.resnet import ResNet


@PARTS.register("backbone", "ReResNet")
class ReResNet(ResNet):
    """A `ResNet` whose layers have no other settings than MMRotate gives them."""

    def __init__(self, entries: ResNet.Entries) -> None:
        super().__init__(replace(entries, conv_cfg={"type": "R2Conv"}, norm_cfg={"type": "InnerBatchNorm"}))
