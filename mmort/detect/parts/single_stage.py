"""One-stage detectors: a backbone, a neck and a dense head, which predicts at every location of every level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.detect.detector import Detector, ModelEntries, level_names
from mmort.detect.entries import Parts, Schema
from mmort.detect.parts.boxes import image_limits, larger
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.selection import Activation, best_priors, detections, of_all_levels, take
from mmort.detect.parts.test_cfg import DenseEntries, check_preselection, check_size_of_original
from mmort.torch import filter_scores


class Head(nn.Module):
    """A head that predicts maps for every level.

    Attributes
    ----------
    priors : Priors
    raw_kinds : tuple of str
        MMDetection's names of the kinds of maps.
    """

    priors: Priors
    raw_kinds: ClassVar[tuple[str, ...]] = ("cls_score", "bbox_pred")


@dataclass(frozen=True, kw_only=True)
class SingleStageModel(ModelEntries):
    """The entries of ``model``."""

    bbox_head: Config


class SingleStageDetector(Detector):
    """A backbone, a neck and a head of the class `head`, which the family sets."""

    Model: ClassVar[type[ModelEntries]] = SingleStageModel
    entries: SingleStageModel
    TestCfg: ClassVar[type[Schema]] = DenseEntries
    head: ClassVar[type[Head]]
    test_cfg: DenseEntries
    bbox_head: Head

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.bbox_head = parts.construct("bbox_head", self.head_of(config.version), self.entries.bbox_head)

    @classmethod
    def head_of(cls, version: int) -> type[Head]:
        """Return the class of the head in a version of MMDetection."""
        return cls.head

    @property
    def level_counts(self) -> Mapping[str, int]:
        """That of the head's priors."""
        return {"bbox_head": len(self.bbox_head.priors.strides)}

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the head's maps: its `raw_kinds` with the level."""
        return level_names(self.bbox_head.raw_kinds, len(self.bbox_head.priors.strides))

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the head's maps, by kind and level."""
        return self.bbox_head(self.levels(input))


class DenseHead(Head):
    """A head that predicts class scores and a box for every prior of every level.

    Attributes
    ----------
    classes : int
        Number of classes, without the background.
    activation : {"sigmoid", "softmax", "none"}
        What turns the class maps into probabilities; see `best_priors`.
    coder : BoxCoder
    box_channels : int
        Numbers that are regressed for a box.
    """

    classes: int
    activation: Activation = "sigmoid"
    coder: BoxCoder
    box_channels: int = 4

    @property
    def class_channels(self) -> int:
        """The number of logits of a prior: softmax has one more, for the background."""
        return self.classes + (self.activation == "softmax")

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return logits of the classes [N, A*C, h, w] by level, then the regressed numbers [N, A*4, h, w] by level.

        After them, if the head has it, the logit of a factor of the scores [N, A, h, w] by level.
        """
        raise NotImplementedError

    def for_coder(self, level: int, regressed: Tensor) -> Tensor:
        """Return the numbers for the coder, [N, K, 4], from those regressed on a level, [N, K, box_channels]."""
        return regressed

    def decode(self, priors: Tensor, regressed: Tensor, limits: Tensor) -> Tensor:
        """Return boxes [N, P, 4], clipped to `limits` [N, 1, 4], from what `for_coder` returned."""
        return self.coder.decode(priors, regressed, limits)

    def confidence(self, regressed: Tensor) -> Tensor | None:
        """Return a factor of the scores [N, K, 1] that follows from regressed numbers [N, K, box_channels]."""
        return None

    def with_factor(self, scores: Tensor, factor: Tensor) -> Tensor:
        """Return the scores [N, K, C] that follow from those of classes and the head's factor [N, K, 1]."""
        return scores * factor


class DenseDetector(SingleStageDetector):
    """A detector with a `DenseHead`: the best pairs of prior and class of each level, then suppression."""

    head: ClassVar[type[DenseHead]]
    bbox_head: DenseHead

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        # Before version 3 MMDetection kept the dense heads' boxes without area.
        self.min_size: float = self.test_cfg.min_bbox_size if config.version == 3 else -1
        check_size_of_original("test_cfg.min_bbox_size", self.min_size)
        check_preselection(self.test_cfg.nms_pre)

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        boxes, scores, _ = self.candidates(self.raw(input), image_limits(input, img_shape))
        return detections(boxes, scores, self.test_cfg)

    def candidates(
        self, maps: Sequence[Tensor], limits: Tensor, classes: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best pairs of prior and class of all levels.

        Parameters
        ----------
        maps : sequence of Tensor
            The head's.
        limits : Tensor, [N, 1, 4]
            What boxes are clipped to.
        classes : int, optional
            The number of classes, by default that of the head.

        Returns
        -------
        boxes, scores : Tensor, [N, P, 4], [N, P, C]
            Scores are 0 for the other pairs of these priors.
        indices : Tensor, [N, P]
            Indices of the priors among those of all levels.
        """
        head, test_cfg = self.bbox_head, self.test_cfg
        levels = len(head.priors.strides)
        priors = [head.priors.level(level, map) for level, map in enumerate(maps[:levels])]
        first = [0, *accumulate(boxes.shape[0] for boxes in priors)]

        def choose(level: int, logits: Tensor, regressed: Tensor, factor: Tensor | None = None) -> tuple[Tensor, ...]:
            scores, indices = best_priors(logits, classes or head.classes, test_cfg.nms_pre, head.activation)
            scores = filter_scores(scores, test_cfg.score_thr, test_cfg.nms_pre)  # [N, K, C]
            if factor is not None:
                # After the threshold, so a detection's score may be below it.
                scores = head.with_factor(scores, take(factor, indices, 1).sigmoid())
            numbers = take(regressed, indices, head.box_channels)
            confidence = head.confidence(numbers)
            if confidence is not None:
                scores = scores * confidence
            return scores, head.for_coder(level, numbers), priors[level][indices], indices + first[level]

        scores, regressed, chosen, indices = of_all_levels(choose, maps, levels)
        boxes = head.decode(chosen, regressed, limits)  # [N, P, 4]
        if self.min_size >= 0:
            scores = torch.where(larger(boxes, self.min_size), scores, 0)
        return boxes, scores, indices
