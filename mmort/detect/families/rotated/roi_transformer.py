"""RoI Transformer: a first head turns upright proposals, a second one classifies the rotated ones.

Source: J. Ding et al., "Learning RoI Transformer for Oriented Object Detection in Aerial Images", CVPR 2019;
MMRotate's ``RoITransRoIHead``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mmort.configs.layout import DetectorConfig
from mmort.detect.entries import PARTS, Parts, part
from mmort.detect.families.two_stage.cascade_rcnn import BoxCascade
from mmort.detect.parts.backbones.resnet import ReResNet
from mmort.detect.parts.rotated.box_head import RotatedBoxHead
from mmort.detect.parts.rotated.test_cfg import RotatedRCNNEntries
from mmort.detect.parts.two_stage import TwoStageDetector


class RoITransRoIHead(BoxCascade):
    """A head for rotated boxes for each stage."""

    TestCfg = RotatedRCNNEntries
    with_mask = False

    @dataclass(frozen=True, kw_only=True)
    class Entries(BoxCascade.Entries):
        bbox_head: list[RotatedBoxHead] = part("rotated bbox_head", count="num_stages")

        ignored: ClassVar = {**BoxCascade.Entries.ignored, "version": "the coders'"}


@PARTS.register("detector", "RoITransRoIHead")
@PARTS.register("detector", "CascadeRoIHead", coder="rotated box coder")
class RoITransformer(TwoStageDetector):
    """RoI Transformer, or ReDet if its backbone is equivariant to rotations."""

    model_types = ("RoITransformer", "ReDet", "CascadeRCNN")
    head = RoITransRoIHead
    roi_head: RoITransRoIHead

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.family = "ReDet" if isinstance(self.backbone, ReResNet) else "RoI Transformer"
        heads: list[RotatedBoxHead] = list(self.roi_head.bbox_head)  # type: ignore[arg-type]
        self.angle_version = heads[-1].coder.version
