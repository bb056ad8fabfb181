"""Rotated RTMDet of MMYOLO: MMRotate's layers and boxes, with MMYOLO's selection.

Source: C. Lyu et al., "RTMDet: An Empirical Study of Designing Real-Time Object Detectors", 2022; MMYOLO's configs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mmort.configs.layout import DetectorConfig
from mmort.detect.entries import PARTS, Parts, only, part, training_only
from mmort.detect.families.yolo.rtmdet import RTMDetSepBNHeadModule
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.rotated.angle_coder import PlainAngle
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.dense import of_large_boxes
from mmort.detect.parts.rotated.selection import rotated_detections
from mmort.detect.parts.rotated.test_cfg import RotatedSelectionEntries
from mmort.detect.parts.yolo.detector import MODEL, HeadModule, YOLODetector, YOLOHead, YOLOSelection
from mmort.detect.parts.yolo.distances import points


class RTMDetRotatedSepBNHeadModule(RTMDetSepBNHeadModule):
    """The layers of RTMDet's head, and one that predicts an angle."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RTMDetSepBNHeadModule.Entries):
        angle_out_dim: int = only(1)

    def __init__(self, entries: Any) -> None:
        super().__init__(entries)
        self.rtm_ang = self.build_predictors(entries, 1)

    def regressed(self, features: Sequence[Tensor]) -> list[Tensor]:
        for_boxes = [convs(x) for convs, x in zip(self.reg_convs, features, strict=True)]
        distances = [predict(x) for predict, x in zip(self.rtm_reg, for_boxes, strict=True)]
        return [*distances, *(predict(x) for predict, x in zip(self.rtm_ang, for_boxes, strict=True))]


class RTMDetRotatedHead(YOLOHead):
    """Distances along the sides of a turned box from the corner of each location."""

    raw_kinds: ClassVar = ("cls_score", "bbox_pred", "angle_pred")

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOHead.Entries):
        head_module: HeadModule = part(
            "head_module", types={"RTMDetRotatedSepBNHeadModule": RTMDetRotatedSepBNHeadModule}
        )
        prior_generator: Priors = part("prior generator", default=points(0))
        bbox_coder: RotatedBoxCoder = part("rotated box coder", default={"type": "DistanceAnglePointCoder"})
        angle_coder: PlainAngle = part(
            "angle coder", types={"PseudoAngleCoder": PlainAngle}, default={"type": "PseudoAngleCoder"}
        )

        ignored: ClassVar = {
            **YOLOHead.Entries.ignored,
            **training_only("use_hbbox_loss"),
            "angle_version": "the coder's",
        }

    def __init__(self, entries: Any) -> None:
        super().__init__(entries)
        self.coder, self.angle_coder = entries.bbox_coder, entries.angle_coder

    def decoded(self, level: int, *maps: Tensor) -> tuple[Tensor, ...]:
        # [N, h*w, C], [N, h*w, 4], [N, h*w, 1]
        logits, distances, angle = (map.flatten(2).transpose(1, 2) for map in maps)
        distances = distances * self.head_module.strides[level]
        regressed = torch.cat([distances, self.angle_coder.decode(angle, 2)], -1)
        return self.coder.decode(self.priors.level(level, maps[0]), regressed, None), logits.sigmoid()


@PARTS.register("detector", "RTMDetRotatedHead", model=MODEL)
class RotatedRTMDetOfMMYOLO(YOLODetector):
    """Rotated RTMDet of MMYOLO."""

    family = "Rotated RTMDet"
    head = RTMDetRotatedHead
    bbox_head: RTMDetRotatedHead

    @dataclass(frozen=True, kw_only=True)
    class TestCfg(YOLOSelection, RotatedSelectionEntries):
        decode_with_angle: bool = only(True)
        yolox_style: bool = only(False)

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.nms.type != "nms_rotated":
                raise ValueError(
                    f"detect.build: nms.type of rotated boxes must be 'nms_rotated', got {self.nms.type!r}"
                )

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.angle_version = self.bbox_head.coder.version

    def suppressed(self, boxes: Tensor, scores: Tensor) -> tuple[Tensor, ...]:
        return rotated_detections(boxes, of_large_boxes(scores, boxes, self.test_cfg), self.test_cfg)
