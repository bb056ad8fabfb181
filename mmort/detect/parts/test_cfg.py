"""Schemas of ``test_cfg``: the thresholds and limits by which detections are selected.

A family that reads further entries extends the schema here; its detector or RoI head names the extended one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from mmort.detect.entries import Schema, at_least, nested

Method = Literal["linear", "gaussian", "naive"]


@dataclass(frozen=True, kw_only=True)
class NMS(Schema):
    """The entries of ``nms``."""

    type: str = "nms"
    iou_threshold: float | None = at_least(0, default=None)
    iou_thr: float | None = at_least(0, default=None)  # the name that MMCV gave it first
    class_agnostic: bool = False
    max_output_boxes_per_class: int = at_least(0, default=0)
    offset: int = 0
    sigma: float = 0.5
    min_score: float = 1e-3
    method: str = "linear"

    ignored: ClassVar = {"split_thr": "how MMCV divides the work"}

    def __post_init__(self) -> None:
        if self.type not in ("nms", "soft_nms"):
            raise ValueError(f"detect.build: nms.type must be 'nms' or 'soft_nms', got {self.type!r}")
        if self.method not in get_args(Method):
            raise ValueError(f"detect.build: nms.method must be one of {get_args(Method)}, got {self.method!r}")
        if self.class_agnostic and self.max_output_boxes_per_class:
            raise ValueError("detect.build: nms cannot have both 'class_agnostic' and 'max_output_boxes_per_class'")

    @property
    def threshold(self) -> float:
        """The overlap above which a box suppresses another; MMCV's defaults differ."""
        threshold = self.iou_thr if self.iou_threshold is None else self.iou_threshold
        return {"nms": 0.5, "soft_nms": 0.3}[self.type] if threshold is None else threshold

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `multiclass_nms`."""
        return {
            "method": "nms" if self.type == "nms" else f"soft_nms_{self.method}",
            "iou_threshold": self.threshold,
            "class_agnostic": self.class_agnostic,
            "offset": self.offset,
            "sigma": self.sigma,
            "min_score": self.min_score,
        }


NO_SUPPRESSION = NMS(iou_threshold=2)
"""The threshold for ``nms=None``: no overlap is above 1."""


@dataclass(frozen=True, kw_only=True)
class SuppressionEntries(Schema):
    """The entries that every ``test_cfg`` with suppression has."""

    nms: NMS = nested(NMS, optional=True)
    max_per_img: int = at_least(1)

    def __post_init__(self) -> None:
        if self.nms is None:
            object.__setattr__(self, "nms", NO_SUPPRESSION)


def check_preselection(nms_pre: int) -> None:
    """Refuse what leaves some pairs of a level, or all, out in MMDetection."""
    if nms_pre < 1:
        raise ValueError(
            "detect.build: test_cfg.nms_pre of a dense detector must be at least 1: with -1 MMDetection drops the "
            f"worst pair of each level, with 0 all, got {nms_pre}"
        )


def check_size_of_original(name: str, size: float) -> None:
    """Refuse a size above 0 that MMDetection compares with boxes in pixels of the image before it was resized."""
    if size > 0:
        raise ValueError(
            f"detect.build: {name} must be 0: MMDetection takes it in pixels of the original image, which the network "
            f"does not know, got {size}"
        )


@dataclass(frozen=True, kw_only=True)
class SelectionEntries(SuppressionEntries):
    """The entries that `detections` reads, and the threshold before it."""

    score_thr: float
    deploy_nms_pre: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size_of_original("nms.offset", self.nms.offset)


@dataclass(frozen=True, kw_only=True)
class DenseEntries(SelectionEntries):
    """The entries of ``test_cfg`` of one-stage detectors."""

    nms_pre: int = -1
    min_bbox_size: float = -1


@dataclass(frozen=True, kw_only=True)
class RPNEntries(SuppressionEntries):
    """The entries of ``test_cfg.rpn``."""

    name: ClassVar = "test_cfg.rpn"

    nms_pre: int = -1
    min_bbox_size: float = -1

    ignored: ClassVar = {
        "nms_post": "MMDetection 2.28 and 3 do not read it",
        "nms_across_levels": "MMDetection 2.28 and 3 do not read it",
        "deploy_nms_pre": "of the second stage",
    }


@dataclass(frozen=True, kw_only=True)
class RCNNEntries(SelectionEntries):
    """The entries of ``test_cfg.rcnn``."""

    name: ClassVar = "test_cfg.rcnn"

    mask_thr_binary: float = at_least(0, default=0.5)
