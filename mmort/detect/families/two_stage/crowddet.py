"""CrowdDet: a Faster R-CNN each of whose proposals finds two objects, neither of which suppresses the other.

Source: X. Chu et al., "Detection in Crowded Scenes: One Proposal, Multiple Predictions", CVPR 2020; MMDetection's
``MultiInstanceRoIHead``.  Box AP of MMDetection's R-50-FPN models on CrowdHuman: 90.0, and 90.3 with refinement.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, part
from mmort.detect.parts.boxes import regions
from mmort.detect.parts.heads.box_head import RegionHead, connected, linears
from mmort.detect.parts.roi_extractor import RoIExtractor
from mmort.detect.parts.selection import take_rows
from mmort.detect.parts.test_cfg import RCNNEntries
from mmort.detect.parts.two_stage import RoIHead, TwoStageDetector

INSTANCES = 2
"""The objects that a proposal finds; MMDetection knows no other number."""


class MultiInstanceBBoxHead(RegionHead):
    """Shared layers, and for each object of a proposal one layer for its score and one for its box."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RegionHead.Entries):
        num_instance: int = INSTANCES
        with_refine: bool = False
        num_shared_fcs: int = 2
        in_channels: int = 256
        roi_feat_size: int = 7
        fc_out_channels: int = 1024

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        if entries.num_classes != 1 or entries.num_instance != INSTANCES:
            raise ValueError(
                f"detect.build: MultiInstanceBBoxHead must have num_classes=1 and num_instance={INSTANCES}, as in "
                f"MMDetection, got {entries.num_classes} and {entries.num_instance}"
            )
        pixels = entries.roi_feat_size**2
        self.shared_fcs, width = linears(entries.num_shared_fcs, entries.in_channels * pixels, entries.fc_out_channels)
        self.fc_cls = nn.ModuleList(nn.Linear(width, 2) for _ in range(INSTANCES))
        self.fc_reg = nn.ModuleList(nn.Linear(width, 4) for _ in range(INSTANCES))
        self.refined = entries.with_refine
        if entries.with_refine:
            self.shared_fcs_ref = nn.Linear(width + 20, width)  # four times the box and the score
            self.fc_cls_ref = nn.ModuleList(nn.Linear(width, 2) for _ in range(INSTANCES))
            self.fc_reg_ref = nn.ModuleList(nn.Linear(width, 4) for _ in range(INSTANCES))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [R, 2, 2], the background first, and deltas [R, 2, 4] of regions [R, C, h, w]."""
        x = connected(self.shared_fcs, features.flatten(1))
        logits, deltas = [layer(x) for layer in self.fc_cls], [layer(x) for layer in self.fc_reg]
        if self.refined:
            rows = [torch.cat([box, score.softmax(1)[:, 1:]], 1) for box, score in zip(deltas, logits, strict=True)]
            refined = [self.shared_fcs_ref(torch.cat([x, each.repeat(1, 4)], 1)).relu() for each in rows]
            logits = [layer(each) for layer, each in zip(self.fc_cls_ref, refined, strict=True)]
            deltas = [layer(each) for layer, each in zip(self.fc_reg_ref, refined, strict=True)]
        return torch.stack(logits, 1), torch.stack(deltas, 1)


class MultiInstanceRoIHead(RoIHead):
    """The second stage."""

    with_mask = False

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_instance: int = INSTANCES
        bbox_roi_extractor: RoIExtractor = part("RoI extractor")
        bbox_head: MultiInstanceBBoxHead = part("bbox_head", types={"MultiInstanceBBoxHead": MultiInstanceBBoxHead})

    def __init__(self, entries: Entries, test_cfg: RCNNEntries) -> None:
        super().__init__(test_cfg)
        self.bbox_roi_extractor, self.bbox_head = entries.bbox_roi_extractor, entries.bbox_head
        if self.test_cfg.nms.type != "nms":
            raise ValueError(f"detect.build: nms.type of CrowdDet must be 'nms', got {self.test_cfg.nms.type!r}")

    def detect(self, features: list[Tensor], proposals: Tensor, used: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return dets [N, K, 5] and labels [N, K], all 0, of proposals [N, P, 4], those that are `used` [N, P]."""
        logits, deltas = self.bbox_head(self.bbox_roi_extractor(features, regions(proposals)))
        batch = proposals.shape[:2]
        scores = logits.softmax(2)[..., 1].reshape(*batch, INSTANCES)
        boxes = self.bbox_head.coder.decode(
            proposals[:, :, None], deltas.reshape(*batch, INSTANCES, 4), limits[:, None]
        )  # [N, P, 2, 4]
        return select(boxes.flatten(1, 2), torch.where(used[..., None], scores, 0).flatten(1), self.test_cfg)


def select(boxes: Tensor, scores: Tensor, test_cfg: RCNNEntries) -> tuple[Tensor, Tensor]:
    """Return dets [N, K, 5] and labels [N, K] of boxes [N, B, 4] with scores [N, B], those of a proposal in a row."""
    scores = torch.where(scores > test_cfg.score_thr, scores, 0)
    best, order = scores.topk(scores.shape[1])
    proposal, rank = order // INSTANCES, torch.arange(order.shape[1], device=order.device)
    competing = (rank[:, None] < rank) & (proposal[:, :, None] != proposal[:, None]) & (best > 0)[:, None]
    overlaps = overlap(take_rows(boxes, order)) > test_cfg.nms.threshold
    kept = left_by(overlaps & competing) & (best > 0)
    # If there are too many, MMDetection keeps the first proposals', whatever their scores.
    kept = torch.zeros_like(kept).scatter(1, order, kept)
    kept = kept & (kept.to(torch.int64).cumsum(1) <= test_cfg.max_per_img)
    best, chosen = torch.where(kept, scores, 0).topk(min(test_cfg.max_per_img, scores.shape[1]))
    dets = torch.cat([take_rows(boxes, chosen), best[..., None]], 2)
    return torch.where(best[..., None] > 0, dets, 0), torch.where(best > 0, 0, -1)


def overlap(boxes: Tensor) -> Tensor:
    """Return the IoU [N, B, B] of each pair of boxes [N, B, 4]."""
    x1, y1, x2, y2 = boxes.unbind(2)
    width = torch.minimum(x2[:, :, None], x2[:, None]) - torch.maximum(x1[:, :, None], x1[:, None])
    height = torch.minimum(y2[:, :, None], y2[:, None]) - torch.maximum(y1[:, :, None], y1[:, None])
    shared, areas = width.clamp(min=0) * height.clamp(min=0), (x2 - x1) * (y2 - y1)
    return shared / (areas[:, :, None] + areas[:, None] - shared).clamp(min=1e-6)


def left_by(suppresses: Tensor) -> Tensor:
    """Return which boxes [N, B], the best first, are left if a box that is left suppresses others, [N, B, B].

    Of all boxes, those are dropped that one of the last round's suppresses, until nothing changes.  That is what
    suppression one by one leaves: the first box stays after one round, the second after two, and so on.
    """
    pairs = suppresses.to(torch.float32)

    def step(left: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        # Sums of ones, which are far from a half however they are rounded.
        return (left[:, None] @ pairs < 0.5)[:, 0].to(left.dtype), left.clone()

    def changed(left: Tensor, before: Tensor) -> Tensor:
        return (left != before).any()

    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        raise ValueError("export: CrowdDet has a loop, so opset_version must be 18 or later")
    both = torch.ones_like(pairs[:, 0]), torch.zeros_like(pairs[:, 0])
    if torch.compiler.is_exporting():
        left: Tensor = torch.while_loop(changed, step, both)[0]  # type: ignore[no-untyped-call]
        return left > 0
    while changed(*both):
        both = step(*both)
    return both[0] > 0


@PARTS.register("detector", "MultiInstanceRoIHead")
class CrowdDet(TwoStageDetector):
    """CrowdDet."""

    family = "CrowdDet"
    head = MultiInstanceRoIHead
    model_types = ("CrowdDet",)
