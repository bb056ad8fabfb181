"""Oriented R-CNN, whose proposals are rotated, and Rotated Faster R-CNN, whose proposals are upright.

Source: X. Xie et al., "Oriented R-CNN for Object Detection", ICCV 2021; MMRotate's ``OrientedStandardRoIHead`` and
``RotatedStandardRoIHead``, in MMRotate 1 MMDetection's ``StandardRoIHead`` with coders of rotated boxes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mmort.configs.layout import DetectorConfig
from mmort.detect.entries import PARTS, Parts, part
from mmort.detect.parts.boxes import regions
from mmort.detect.parts.rotated.box_head import RotatedBoxHead
from mmort.detect.parts.rotated.proposals import OrientedRPNHead
from mmort.detect.parts.rotated.roi_head import RotatedRoIHead
from mmort.detect.parts.two_stage import TwoStageDetector


class RotatedStandardRoIHead(RotatedRoIHead):
    """One head for rotated boxes."""

    bbox_head: RotatedBoxHead

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedRoIHead.Entries):
        bbox_head: RotatedBoxHead = part("rotated bbox_head")

        ignored: ClassVar = {"version": "the coder's"}

    def detect(self, features: list[Tensor], proposals: Tensor, used: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return dets [N, K, 6] and labels [N, K] of proposals [N, P, 4 or 5], those that are `used` [N, P]."""
        outputs = self.bbox_head(self.bbox_roi_extractor(features, regions(proposals)))
        logits, deltas = (output.reshape(*proposals.shape[:2], -1) for output in outputs)
        return self.bbox_head.detect(proposals, used, logits, deltas, limits, self.test_cfg)


@PARTS.register("detector", "OrientedStandardRoIHead", "RotatedStandardRoIHead")
@PARTS.register("detector", "StandardRoIHead", coder="rotated box coder")
class OrientedRCNN(TwoStageDetector):
    """Oriented R-CNN, or Rotated Faster R-CNN if the proposals are upright."""

    model_types = ("OrientedRCNN", "RotatedFasterRCNN", "FasterRCNN")
    head = RotatedStandardRoIHead
    roi_head: RotatedStandardRoIHead

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.angle_version = self.roi_head.bbox_head.coder.version
        self.family = "Rotated Faster R-CNN"
        if isinstance(self.rpn_head, OrientedRPNHead):
            self.family = "Oriented R-CNN"
            self.rpn_head.drops_empty = config.version == 3
            if config.version == 3 and self.rpn_head.coder.version == "oc":
                raise ValueError(
                    "detect.build: angle_version of rpn_head.bbox_coder must be 'le90' or 'le135': the angles of "
                    "MMRotate 1's 'oc' have another range there than in its other coders"
                )
