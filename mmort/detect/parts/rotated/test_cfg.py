"""Schemas of ``test_cfg`` of rotated detectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mmort.detect.entries import Schema, at_least, nested
from mmort.detect.parts.test_cfg import check_preselection, check_size_of_original


@dataclass(frozen=True, kw_only=True)
class RotatedNMS(Schema):
    """The entries of ``nms``."""

    iou_thr: float | None = at_least(0, default=None)
    iou_threshold: float | None = at_least(0, default=None)  # its name in MMRotate 1

    type: str = "nms_rotated"  # MMRotate 0 does not read it, and its configs have other words

    ignored: ClassVar = {"split_thr": "how MMCV divides the work"}

    def __post_init__(self) -> None:
        if self.type == "nms_quadri":
            raise ValueError("detect.build: nms.type 'nms_quadri', of general quadrilaterals, is not supported")

    @property
    def threshold(self) -> float:
        """The overlap from which on a box is suppressed."""
        return next((value for value in (self.iou_thr, self.iou_threshold) if value is not None), 0.1)


@dataclass(frozen=True, kw_only=True)
class RotatedSelectionEntries(Schema):
    """The entries of ``test_cfg``, or ``test_cfg.rcnn``, by which detections are selected."""

    score_thr: float
    nms: RotatedNMS = nested(RotatedNMS)
    max_per_img: int = at_least(1)


@dataclass(frozen=True, kw_only=True)
class RotatedDenseEntries(RotatedSelectionEntries):
    """The entries of ``test_cfg`` of one-stage detectors."""

    nms_pre: int = -1
    min_bbox_size: float = -1

    def check_version(self, version: int) -> None:
        """Refuse what MMRotate 1, whose configs have version 3, makes of entries as MMDetection 3 does."""
        if version == 3:
            check_preselection(self.nms_pre)
            check_size_of_original("test_cfg.min_bbox_size", self.min_bbox_size)


@dataclass(frozen=True, kw_only=True)
class RotatedRCNNEntries(RotatedSelectionEntries):
    """The entries of ``test_cfg.rcnn``."""

    name: ClassVar = "test_cfg.rcnn"

    ignored: ClassVar = {
        "nms_pre": "MMRotate's second stages do not read it",
        "min_bbox_size": "MMRotate's second stages do not read it",
    }
