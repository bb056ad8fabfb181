"""Two-stage detectors: a region proposal network, then the classes, boxes and masks of its proposals.

Without the network, as in Fast R-CNN, the proposals are an input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.contract import WITH_MASKS, MaskFormat
from mmort.detect.detector import Detector, ModelEntries, level_names
from mmort.detect.entries import Parts, Schema, require
from mmort.detect.parts.boxes import image_limits, regions
from mmort.detect.parts.heads.rpn_head import ProposalHead
from mmort.detect.parts.test_cfg import RCNNEntries


class RoIHead(nn.Module):
    """The second stage: classes, boxes and perhaps masks of proposals.

    Attributes
    ----------
    with_mask : bool
        Whether `mask` may be called.
    TestCfg : subclass of Schema
        That of ``test_cfg.rcnn``.
    """

    TestCfg: ClassVar[type[Schema]] = RCNNEntries
    test_cfg: Any
    with_mask: bool

    def __init__(self, test_cfg: Schema) -> None:
        super().__init__()
        self.test_cfg = test_cfg

    def prepare(self, features: list[Tensor]) -> list[Tensor]:
        """Return the `features` of the other methods: the pyramid's levels, perhaps with maps after them."""
        return features

    def detect(self, features: list[Tensor], proposals: Tensor, used: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return dets [N, K, 5] and labels [N, K] of proposals [N, P, 4], those that are `used` [N, P]."""
        raise NotImplementedError

    def probabilities(self, features: list[Tensor], rois: Tensor, classes: Tensor) -> Tensor:
        """Return the masks [R, h, w] of regions [R, 5] whose classes [R] are known."""
        raise NotImplementedError

    def mask(self, features: list[Tensor], dets: Tensor, labels: Tensor) -> Tensor:
        """Return the masks of detections, [N, K, h, w]: probabilities over the area of each box, 0 in unused rows."""
        rows, rois, classes = used_rows(dets, labels)
        return to_rows(self.probabilities(features, rois, classes), rows, labels)

    def with_masks(self, features: list[Tensor], dets: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return detections and their masks; a head may change the scores by the masks."""
        return dets, labels, self.mask(features, dets, labels)


def used_rows(dets: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows [R] of all detections that are used, their regions [R, 5] and their classes [R].

    The first row is always among them, so that no tensor is empty.
    """
    labels = labels.flatten()
    rows = torch.nonzero((labels >= 0) | (torch.arange(labels.shape[0], device=labels.device) == 0))[:, 0]
    return rows, regions(dets[..., :4]).index_select(0, rows), labels.index_select(0, rows).clamp(min=0)


def to_rows(values: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
    """Return values [R, ...] of some rows as [N, K, ...] of all detections, whose `labels` are [N, K]; 0 if unused."""
    used = (labels.flatten().index_select(0, rows) >= 0).reshape(-1, *[1] * (values.ndim - 1))
    values = torch.where(used, values, 0)
    placed = values.new_zeros(labels.numel(), *values.shape[1:]).index_copy(0, rows, values)
    return placed.reshape(*labels.shape, *values.shape[1:])


@dataclass(frozen=True, kw_only=True)
class TwoStageTestCfg(Schema):
    """The entries of ``test_cfg``; the stages' schemas have those of the entries."""

    rpn: Config | None = None
    rcnn: Config

    @property
    def second_stage(self) -> Config:
        """The entries by which the second stage selects."""
        return self.rcnn


@dataclass(frozen=True, kw_only=True)
class TwoStageModel(ModelEntries):
    """The entries of ``model``."""

    type: str
    rpn_head: Config | None = None
    roi_head: Config


class TwoStageDetector(Detector):
    """A backbone, a neck, perhaps an RPN, and a second stage of the class `head`, which the family sets.

    Attributes
    ----------
    family_with_masks : str
        The name of the detector if its config has a mask head.
    family_without_rpn : str or None
        Its name if its config has no RPN; None if it must have one.
    model_types : tuple of str
        The types that the config's model may have.
    """

    head_entries = ("roi_head",)
    Model: ClassVar[type[ModelEntries]] = TwoStageModel
    entries: TwoStageModel
    TestCfg: ClassVar[type[Schema]] = TwoStageTestCfg
    test_cfg: TwoStageTestCfg
    model_types: ClassVar[tuple[str, ...]] = ("FasterRCNN", "MaskRCNN", "CascadeRCNN", "PointRend", "TwoStageDetector")
    head: ClassVar[type[RoIHead]]
    family_with_masks: ClassVar[str]
    family_without_rpn: ClassVar[str | None] = None

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        model, test_cfg = self.entries, self.test_cfg
        kind = require("model.type", model.type, *self.model_types)
        self.rpn_head: ProposalHead | None = None
        if model.rpn_head is not None:
            if test_cfg.rpn is None:
                raise ValueError("detect.build: test_cfg must have rpn")
            self.rpn_head = parts.build("rpn_head", model.rpn_head, test_cfg=test_cfg.rpn)
        elif self.family_without_rpn is None:
            raise ValueError(f"detect.build: model.type {kind!r} must have an rpn_head")
        else:
            self.takes_proposals, self.family = True, self.family_without_rpn
        self.roi_head: RoIHead = parts.construct("roi_head", self.head, model.roi_head, test_cfg=test_cfg.second_stage)
        if self.roi_head.with_mask:
            self.family = self.family if self.takes_proposals else self.family_with_masks
            self.output_names = WITH_MASKS
            self.mask_format = MaskFormat(threshold=self.roi_head.test_cfg.mask_thr_binary)

    @property
    def heads(self) -> tuple[str, ...]:
        """The layers of both stages whose outputs are compared where there are few detections."""
        first = () if self.rpn_head is None else self.rpn_head.outputs
        return *(f"rpn_head.{layer}" for layer in first), "roi_head.bbox_head"

    @property
    def level_counts(self) -> Mapping[str, int]:
        """That of the first stage's priors."""
        return {} if self.rpn_head is None else {"rpn_head": len(self.rpn_head.priors.strides)}

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the first stage's maps."""
        if self.rpn_head is None:
            return ()
        return level_names(("rpn_cls_score", "rpn_bbox_pred"), len(self.rpn_head.priors.strides))

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the first stage's objectness logits, [N, A, h, w] of each level, and then its deltas, [N, A*4, h, w].

        The second stage's outputs depend on proposals, which are post-processing.
        """
        if self.rpn_head is None:
            raise ValueError(f"{self.family} has no outputs without post-processing: all of them depend on proposals")
        return self.rpn_head.raw(self.levels(input), image_limits(input, None))

    def forward(
        self, input: Tensor, img_shape: Tensor | None = None, proposals: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Detect objects; without an RPN, in proposals [N, P, 4], in pixels of `input`, of which rows of 0 are none."""
        if self.takes_proposals != (proposals is not None):
            needed = "needs proposals (N, P, 4) besides" if self.takes_proposals else "makes proposals itself, of"
            raise ValueError(f"{self.family} {needed} the images")
        limits = image_limits(input, img_shape)  # [N, 1, 4]
        return self.detect(self.levels(input), limits, proposals)

    def detect(self, features: list[Tensor], limits: Tensor, proposals: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return dets, labels and perhaps masks, as `forward` does, of the neck's maps [N, C, h, w]."""
        if self.rpn_head is not None:
            proposals, used = self.rpn_head(features, limits)  # [N, P, 4], [N, P]
        else:
            assert proposals is not None
            used = (proposals != 0).any(2)
        features = self.roi_head.prepare(features)
        dets, labels = self.roi_head.detect(features, proposals, used, limits)  # [N, K, 5], [N, K]
        if not self.roi_head.with_mask:
            return dets, labels
        return self.roi_head.with_masks(features, dets, labels)  # and [N, K, h, w]
