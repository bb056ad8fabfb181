"""MMYOLO's ``YOLODetector``: a head whose layers are a module of their own, and how all its detectors select boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, part, training_only
from mmort.detect.parts.backbones.yolo import CSPNeXt
from mmort.detect.parts.boxes import larger
from mmort.detect.parts.necks.yolo_pafpn import YOLOXPAFPN, CSPNeXtPAFPN
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.selection import indexed_detections, of_all_levels
from mmort.detect.parts.single_stage import Head, SingleStageDetector, SingleStageModel
from mmort.detect.parts.test_cfg import SelectionEntries, check_preselection, check_size_of_original
from mmort.detect.parts.yolo.scaling import scaled_channels
from mmort.torch import filter_scores

BACKBONES = PARTS.replacing("backbone", CSPNeXt=CSPNeXt)
NECKS = PARTS.replacing("neck", CSPNeXtPAFPN=CSPNeXtPAFPN, YOLOXPAFPN=YOLOXPAFPN)
"""The parts that MMYOLO's types name, some of which are MMDetection's under the same names, with other layers."""

MODEL = "YOLODetector"
"""The ``model.type`` of MMYOLO's detectors, whose heads have names that mean other families elsewhere."""


class HeadModule(nn.Module):
    """The layers of a head.

    Attributes
    ----------
    classes : int
    strides : list of int
        By level.
    anchors : int
        At each location.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_classes: int
        widen_factor: float = 1.0
        num_base_priors: int = 1
        featmap_strides: Sequence[int] = (8, 16, 32)

        def channels(self, full: int) -> int:
            """Return the channels of a layer that has `full` in the full-sized network."""
            return scaled_channels(full, self.widen_factor)

    def __init__(self, entries: Any) -> None:
        super().__init__()
        self.classes, self.anchors = entries.num_classes, entries.num_base_priors
        self.strides = list(entries.featmap_strides)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the head's maps by kind and level."""
        raise NotImplementedError


class YOLOHead(Head):
    """A head with layers in `head_module`; `decoded` says what its maps mean."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        head_module: HeadModule
        prior_generator: Priors

        ignored: ClassVar = training_only(
            *("ignore_iof_thr", "near_neighbor_thr", "obj_level_weights", "prior_match_thr"),
        )

    head_module: HeadModule

    def __init__(self, entries: Any) -> None:
        super().__init__()
        self.head_module, self.priors = entries.head_module, entries.prior_generator
        anchors, strides = self.priors.num_base_priors, self.head_module.strides
        if anchors != [self.head_module.anchors] * len(strides):
            raise ValueError(
                f"detect.build: prior_generator must have num_base_priors = {self.head_module.anchors} priors in a "
                f"location of each of {len(strides)} levels, got {anchors}"
            )

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the maps of `head_module`."""
        return self.head_module(features)

    def decode(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the results of `decoded` for all levels, joined."""
        return of_all_levels(self.decoded, maps, len(self.head_module.strides))

    def decoded(self, level: int, *maps: Tensor) -> tuple[Tensor, ...]:
        """Return boxes [N, P, 4], probabilities of classes [N, P, C], and of objects [N, P, 1] if the head has them."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class YOLOModel(SingleStageModel):
    """The entries of ``model``."""

    backbone: nn.Module = part("backbone", types=BACKBONES)
    neck: nn.Module = part("neck", types=NECKS)

    ignored: ClassVar = {**SingleStageModel.ignored, **training_only("use_syncbn")}


@dataclass(frozen=True, kw_only=True)
class YOLOSelection(Schema):
    """The entries of ``test_cfg`` by which pairs of box and class are chosen before suppression."""

    multi_label: bool
    score_thr: float = -1
    nms_pre: int = 100_000
    min_bbox_size: float = -1
    yolox_style: bool = False

    def __post_init__(self) -> None:
        check_size_of_original("test_cfg.min_bbox_size", self.min_bbox_size)
        check_preselection(self.nms_pre)


@dataclass(frozen=True, kw_only=True)
class YOLOTestEntries(YOLOSelection, SelectionEntries):
    """The entries of ``test_cfg``."""

    def __post_init__(self) -> None:
        YOLOSelection.__post_init__(self)
        SelectionEntries.__post_init__(self)


class YOLODetector(SingleStageDetector):
    """A detector of MMYOLO, which clips no boxes before they are mapped to the original image."""

    clip_boxes = True
    Model = YOLOModel
    TestCfg = YOLOTestEntries
    head: ClassVar[type[YOLOHead]]
    bbox_head: YOLOHead
    test_cfg: Any

    @property
    def level_counts(self) -> Mapping[str, int]:
        """That of the head's layers."""
        return {"bbox_head.head_module": len(self.bbox_head.head_module.strides)}

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        boxes, scores, *objectness = self.bbox_head.decode(self.raw(input))
        return self.select(boxes, scores, objectness[0] if objectness else None)[:2]

    def select(self, boxes: Tensor, scores: Tensor, objectness: Tensor | None) -> tuple[Tensor, ...]:
        """Return the detections among boxes [N, P, 4] with scores [N, P, C], and perhaps objectness [N, P, 1].

        Upright ones have their indices [N, K] among the boxes as a third result.
        """
        test_cfg = self.test_cfg
        if objectness is not None:
            if test_cfg.score_thr > 0 and not test_cfg.yolox_style:
                scores = torch.where(objectness > test_cfg.score_thr, scores, 0)
            scores = scores * objectness
        if not test_cfg.multi_label:
            is_best = torch.arange(scores.shape[2], device=scores.device) == scores.argmax(2, keepdim=True)
            scores = torch.where(is_best, scores, 0)
        scores = filter_scores(scores, test_cfg.score_thr, test_cfg.nms_pre)
        return self.suppressed(boxes, scores)

    def suppressed(self, boxes: Tensor, scores: Tensor) -> tuple[Tensor, ...]:
        """Return the detections that are left of those with scores above 0."""
        test_cfg = self.test_cfg
        if test_cfg.min_bbox_size >= 0:
            scores = torch.where(larger(boxes, test_cfg.min_bbox_size), scores, 0)
        # With yolox_style MMYOLO keeps all that is not suppressed.
        limited = replace(test_cfg, max_per_img=0) if test_cfg.yolox_style else test_cfg
        return indexed_detections(boxes, scores, limited)
