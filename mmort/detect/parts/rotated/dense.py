"""One-stage detectors of rotated boxes: what differs from `mmort.detect.parts.single_stage`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from mmort.configs.layout import DetectorConfig
from mmort.detect.entries import Parts
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.rotated.geometry import AngleVersion
from mmort.detect.parts.rotated.selection import rotated_detections
from mmort.detect.parts.rotated.test_cfg import RotatedDenseEntries
from mmort.detect.parts.selection import best_indices, best_priors, of_all_levels, take, take_rows
from mmort.detect.parts.single_stage import DenseHead, SingleStageDetector
from mmort.torch import filter_scores


class RotatedDenseDetector(SingleStageDetector):
    """A detector with a `DenseHead` of rotated boxes: the best priors of each level, then suppression."""

    TestCfg = RotatedDenseEntries
    head: ClassVar[type[DenseHead]]
    bbox_head: DenseHead
    test_cfg: RotatedDenseEntries  # type: ignore[assignment]

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.angle_version = version_of(self.bbox_head)
        self.by_pairs = config.version == 3
        self.test_cfg.check_version(config.version)
        if not self.by_pairs:
            require_sigmoid("bbox_head", self.bbox_head)

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        limits = image_limits(input, img_shape)
        chosen = candidates(self.bbox_head, self.test_cfg, self.raw(input), limits, by_pairs=self.by_pairs)
        return rotated_detections(*chosen, self.test_cfg)


def require_sigmoid(entry: str, head: DenseHead) -> None:
    """Refuse a head, the config's `entry`, whose classes exclude each other."""
    if head.activation != "sigmoid":
        raise ValueError(f"detect.build: {entry}.loss_cls.use_sigmoid must be true: softmax is not supported")


def version_of(head: DenseHead) -> AngleVersion:
    """Return the version of a head's boxes: its own, or that of its coder."""
    version: AngleVersion = head.version if hasattr(head, "version") else head.coder.version  # type: ignore[assignment]
    return version


def candidates(
    head: DenseHead,
    test_cfg: RotatedDenseEntries,
    maps: Sequence[Tensor],
    limits: Tensor,
    priors: Sequence[Tensor] | None = None,
    *,
    by_pairs: bool,
) -> tuple[Tensor, Tensor]:
    """Return the boxes of the best priors of all levels, and their scores.

    Parameters
    ----------
    head : DenseHead
    test_cfg : RotatedDenseEntries
    maps : sequence of Tensor
        What the head returns.
    limits : Tensor, [N, 1, 4]
        Width, height, width, height of each image.
    priors : sequence of Tensor, [N, h*w*A, 5], optional
        Those of each image, by level.  By default the head's.
    by_pairs : bool
        Whether to choose the best pairs of prior and class above the threshold, and no boxes that are too small, as
        MMRotate 1 does, and not the priors with the best class.

    Returns
    -------
    boxes, scores : Tensor, [N, P, 5], [N, P, C]
        Scores are 0 if not above the threshold.
    """

    def choose(level: int, logits: Tensor, regressed: Tensor, *factor: Tensor) -> tuple[Tensor, ...]:
        if by_pairs:
            scores, indices = _best_pairs(head, test_cfg, logits, *factor)
        else:
            scores, indices = _best_priors(head.classes, test_cfg, logits, *factor)
        numbers = head.for_coder(level, take(regressed, indices, head.box_channels))
        chosen = head.priors.level(level, logits)[indices] if priors is None else take_rows(priors[level], indices)
        return scores, numbers, chosen

    scores, numbers, chosen = of_all_levels(choose, maps, len(head.priors.strides))
    boxes = head.decode(chosen, numbers, limits)  # [N, P, 5]
    return boxes, of_large_boxes(scores, boxes, test_cfg) if by_pairs else scores


def of_large_boxes(scores: Tensor, boxes: Tensor, test_cfg: RotatedDenseEntries) -> Tensor:
    """Return scores [N, P, C], 0 where boxes [N, P, 5] or [N, P, C, 5] are too small."""
    if test_cfg.min_bbox_size < 0:
        return scores
    large = (boxes[..., 2:4] > test_cfg.min_bbox_size).all(-1, keepdim=boxes.ndim == 3)
    return torch.where(large, scores, 0)


def _best_pairs(
    head: DenseHead, test_cfg: RotatedDenseEntries, logits: Tensor, factor: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Choose the priors of the best pairs of prior and class; see `_best_priors`, which returns the same."""
    scores, indices = best_priors(logits, head.classes, test_cfg.nms_pre, head.activation)
    scores = filter_scores(scores, test_cfg.score_thr, test_cfg.nms_pre)
    return scores if factor is None else scores * take(factor, indices, 1).sigmoid(), indices


def _best_priors(
    classes: int, test_cfg: RotatedDenseEntries, logits: Tensor, factor: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Choose the priors with the best class of a level, whose scores may have a further factor.

    Returns
    -------
    scores : Tensor, [N, K, C]
        0 if not above the threshold.  The threshold does not see the factor, so a score may be below it.
    indices : Tensor of int64, [N, K]
        The priors, counted by row, column and anchor.
    """
    best = torch.unflatten(logits, 1, (-1, classes)).amax(2)  # [N, A, h, w]
    if factor is not None:
        best = best.sigmoid() * factor.sigmoid()
    indices = best_indices(best.permute(0, 2, 3, 1).flatten(1), test_cfg.nms_pre)
    scores = take(logits, indices, classes).sigmoid()
    scores = torch.where(scores > test_cfg.score_thr, scores, 0)
    return scores if factor is None else scores * take(factor, indices, 1).sigmoid(), indices
