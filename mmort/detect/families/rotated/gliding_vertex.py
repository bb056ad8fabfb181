"""Gliding Vertex: how far each corner of an upright box slides along a side, and how full the box is.

Source: Y. Xu et al., "Gliding Vertex on the Horizontal Bounding Box for Multi-Oriented Object Detection", TPAMI 2020;
MMRotate's ``GVRatioRoIHead``, ``GVBBoxHead`` and ``GVFixCoder``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.detect.entries import PARTS, Parts, Schema, nested, part, training_only
from mmort.detect.parts.boxes import regions
from mmort.detect.parts.heads.box_head import BoxHead
from mmort.detect.parts.rotated.geometry import (
    AngleVersion,
    angle_version,
    boxes_of_points,
    smallest_rectangles,
    upright_boxes,
)
from mmort.detect.parts.rotated.roi_head import RotatedRoIHead
from mmort.detect.parts.rotated.selection import rotated_detections
from mmort.detect.parts.two_stage import TwoStageDetector


@dataclass(frozen=True, kw_only=True)
class VertexCoder(Schema):
    """The entries of ``fix_coder``."""

    angle_range: str = "oc"


class GVBoxHead(BoxHead):
    """A `BoxHead` that also regresses the corners' shares of the sides, and the share of its box that an object has."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(BoxHead.Entries):
        num_shared_fcs: int = 2
        ratio_thr: float = 0.8
        version: str = "oc"
        fix_coder: VertexCoder = nested(VertexCoder)
        predict_box_type: str | None = None

        ignored: ClassVar = training_only("ratio_coder", "reg_decoded_bbox")

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.min_ratio = entries.ratio_thr
        self.version: AngleVersion = angle_version("bbox_head", entries.version)
        self.points_version: AngleVersion = angle_version("fix_coder", entries.fix_coder.angle_range)
        # MMRotate 1 takes the smallest rectangle around the corners, MMRotate 0 two of their sides.
        self.around_corners = entries.predict_box_type is not None
        if entries.predict_box_type not in (None, "rbox"):
            raise ValueError(
                "detect.build: predict_box_type of bbox_head 'GVBBoxHead' must be 'rbox', got "
                f"{entries.predict_box_type!r}: general quadrilaterals are not supported"
            )
        boxes, width = self.outputs[1] // 4, entries.fc_out_channels
        self.fc_fix, self.fc_ratio = nn.Linear(width, 4 * boxes), nn.Linear(width, boxes)

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        """Return logits, deltas, and logits of the corners' shares and of the box's share of regions [R, C, h, w]."""
        x = self.shared(features)
        assert self.fc_reg is not None
        return self.fc_cls(x), self.fc_reg(x), self.fc_fix(x), self.fc_ratio(x)

    def rotated(self, boxes: Tensor, shares: Tensor, full: Tensor) -> Tensor:
        """Return rotated boxes [..., 5] of upright ones [..., 4], their corners' shares [..., 4] and own [..., 1]."""
        x1, y1, x2, y2 = boxes.unbind(-1)
        width, height = x2 - x1, y2 - y1
        top, right, bottom, left = shares.unbind(-1)
        xs = [x1 + width * top, x2, x2 - width * bottom, x1]
        ys = [y1, y1 + height * right, y2, y2 - height * left]
        points = torch.stack([torch.stack(xs, -1), torch.stack(ys, -1)], -1)  # [..., 4, 2]
        if self.around_corners:
            points = smallest_rectangles(points)
        return torch.where(full > self.min_ratio, self.upright(boxes), boxes_of_points(points, self.points_version))

    def upright(self, boxes: Tensor) -> Tensor:
        """Return upright boxes [..., 4] as rotated ones."""
        rotated = upright_boxes(boxes)
        size = rotated[..., 2:4]
        quarter = rotated[..., 4:] + (-math.pi / 2 if self.version == "le90" else math.pi / 2)
        turned = torch.cat([rotated[..., :2], size.flip(-1), quarter], -1)
        if self.version == "oc":
            return turned
        return torch.where(size[..., :1] >= size[..., 1:], rotated, turned)


class GVRatioRoIHead(RotatedRoIHead):
    """One head for the vertices."""

    bbox_head: GVBoxHead

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedRoIHead.Entries):
        bbox_head: GVBoxHead = part("bbox_head", types={"GVBBoxHead": GVBoxHead})

        ignored: ClassVar = {"version": "the head's"}

    def detect(self, features: list[Tensor], proposals: Tensor, used: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return dets [N, K, 6] and labels [N, K] of proposals [N, P, 4], those that are `used` [N, P]."""
        head, test_cfg = self.bbox_head, self.test_cfg
        outputs = head(self.bbox_roi_extractor(features, regions(proposals)))
        logits, deltas, shares, full = (output.reshape(*proposals.shape[:2], -1) for output in outputs)
        scores = torch.where(used[..., None], head.loss_cls(logits), 0)  # [N, P, classes]
        scores = torch.where(scores > test_cfg.score_thr, scores, 0)
        if not head.class_agnostic:
            deltas, shares = (torch.unflatten(values, 2, (-1, 4)) for values in (deltas, shares))
            proposals, limits, full = proposals[:, :, None], limits[:, None], full[..., None]
        boxes = head.coder.decode(proposals, deltas, limits)  # [N, P, 4] or [N, P, classes, 4]
        return rotated_detections(head.rotated(boxes, shares.sigmoid(), full.sigmoid()), scores, test_cfg)


@PARTS.register("detector", "GVRatioRoIHead")
class GlidingVertex(TwoStageDetector):
    """Gliding Vertex."""

    family = "Gliding Vertex"
    model_types = ("GlidingVertex", "FasterRCNN")
    head = GVRatioRoIHead
    roi_head: GVRatioRoIHead

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.angle_version = self.roi_head.bbox_head.points_version
        is_of_mmrotate_1 = config.version == 3 and self.entries.type != "GlidingVertex"
        if is_of_mmrotate_1 and not self.roi_head.bbox_head.around_corners:
            raise ValueError(
                "detect.build: predict_box_type of bbox_head 'GVBBoxHead' must be 'rbox', got none, which means 'qbox' "
                "in MMRotate 1: general quadrilaterals are not supported"
            )
