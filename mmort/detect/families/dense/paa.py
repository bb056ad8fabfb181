"""PAA: ATSS whose scores are the geometric mean of class and overlap, and whose boxes are a vote of their neighbours.

Source: K. Kim, H. S. Lee, "Probabilistic Anchor Assignment with IoU Prediction for Object Detection", ECCV 2020;
MMDetection's ``PAAHead``.  C. H. Nguyen et al., "Improving Object Detection by Label Assignment Distillation", WACV
2022, trains the same network with a teacher: ``LADHead``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mmort.detect.entries import PARTS, nested, training_only
from mmort.detect.families.dense.atss import ATSSHead
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, SigmoidLoss
from mmort.detect.parts.selection import best_priors, detections, of_all_levels, take
from mmort.detect.parts.single_stage import DenseDetector, SingleStageModel
from mmort.detect.parts.test_cfg import DenseEntries

MIN_OVERLAP = 0.01  # of boxes that vote
VARIANCE = 0.025  # of 1 - overlap in the weights of votes


class PAAHead(ATSSHead):
    """ATSS's head, with overlaps instead of the centerness."""

    raw_kinds: ClassVar = ("cls_score", "bbox_pred", "iou_pred")

    @dataclass(frozen=True, kw_only=True)
    class Entries(ATSSHead.Entries):
        score_voting: bool = True
        loss_cls: SigmoidLoss = nested(SigmoidLoss, default=WITH_SIGMOID)

        ignored: ClassVar = {**ATSSHead.Entries.ignored, **training_only("covariance_type", "topk")}

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.score_voting = entries.score_voting


@PARTS.register("detector", "PAAHead")
class PAA(DenseDetector):
    """PAA."""

    family = "PAA"
    head = PAAHead
    bbox_head: PAAHead

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        head, maps = self.bbox_head, self.raw(input)

        def choose(level: int, logits: Tensor, deltas: Tensor, overlap: Tensor) -> tuple[Tensor, ...]:
            by_anchor = torch.unflatten(logits.sigmoid(), 1, (-1, head.classes))  # [N, A, classes, h, w]
            probabilities = (by_anchor * overlap.sigmoid()[:, :, None]).sqrt().flatten(1, 2)
            scores, indices = best_priors(probabilities, head.classes, self.test_cfg.nms_pre, "none")
            return scores, take(deltas, indices, 4), head.priors.level(level, logits)[indices]

        scores, deltas, priors = of_all_levels(choose, maps, len(head.priors.strides))  # [N, P, ...]
        boxes = head.decode(priors, deltas, image_limits(input, img_shape))
        scores = torch.where(scores > self.test_cfg.score_thr, scores, 0)
        dets, labels = detections(boxes, scores, self.test_cfg)
        return (vote(dets, labels, boxes, scores) if head.score_voting else dets), labels


def vote(dets: Tensor, labels: Tensor, boxes: Tensor, scores: Tensor) -> Tensor:
    """Move detections [N, K, 5] to the weighted mean of the boxes [N, P, 4] of their class that they overlap.

    A weight is the box's score, of `scores` [N, P, C], times a factor that decreases with the distance.
    """
    overlaps = iou(dets[..., :4], boxes)  # [N, K, P]
    index = labels.clamp(min=0)[..., None].expand(-1, -1, scores.shape[1])
    of_class = scores.transpose(1, 2).gather(1, index)  # [N, K, P]
    weights = torch.where(overlaps > MIN_OVERLAP, (-((1 - overlaps) ** 2) / VARIANCE).exp() * of_class, 0)
    total = weights.sum(2, keepdim=True)
    moved = torch.where(total > 0, weights @ boxes / total.clamp(min=1e-30), dets[..., :4])
    moved = torch.where(labels[..., None] < 0, 0, moved)
    return torch.cat([moved, dets[..., 4:]], 2)


def iou(boxes: Tensor, other_boxes: Tensor) -> Tensor:
    """Return the overlap of each pair of boxes [N, K, 4] and [N, P, 4], as [N, K, P]."""
    first, second = boxes[:, :, None], other_boxes[:, None]
    inner = (first[..., 2:].minimum(second[..., 2:]) - first[..., :2].maximum(second[..., :2])).clamp(min=0)
    shared = inner[..., 0] * inner[..., 1]
    areas = [(sides[..., 2] - sides[..., 0]) * (sides[..., 3] - sides[..., 1]) for sides in (first, second)]
    return shared / (areas[0] + areas[1] - shared).clamp(min=1e-6)


@PARTS.register("detector", "LADHead")
class LAD(PAA):
    """Label Assignment Distillation: at inference the student alone."""

    family = "LAD"

    @dataclass(frozen=True, kw_only=True)
    class Model(SingleStageModel):
        ignored: ClassVar = {
            **SingleStageModel.ignored,
            **training_only("teacher_backbone", "teacher_neck", "teacher_bbox_head", "teacher_ckpt", "eval_teacher"),
        }

    @dataclass(frozen=True, kw_only=True)
    class TestCfg(DenseEntries):
        ignored: ClassVar = {"score_voting": "read from the head"}
