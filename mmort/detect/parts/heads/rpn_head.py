"""The region proposal network: the first stage of every two-stage detector.

Source: S. Ren et al., "Faster R-CNN", NeurIPS 2015; MMDetection's ``RPNHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, nested, part, training_only
from mmort.detect.parts.boxes import larger
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.heads.class_scores import WITH_SIGMOID, DenseLoss
from mmort.detect.parts.layers import tower
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.selection import best_indices
from mmort.detect.parts.test_cfg import RPNEntries
from mmort.torch import multiclass_nms

MIN_SCORE = torch.finfo(torch.float32).min
"""Below every logit; pairs that take no part have a score below it."""


class Level(NamedTuple):
    """The predictions of a head on one level of the pyramid."""

    logits: Tensor  # of objects, [N, A, h, w]
    deltas: Tensor  # [N, A * 4, h, w]
    anchors: Tensor  # [h * w * A, 4], or [N, h * w * A, 4] if images have their own
    mask: Tensor | None = None  # which locations take part, [N, 1, h, w]; by default all


class ProposalHead(nn.Module):
    """Base of the first stages: the best boxes of all levels are proposals.

    Attributes
    ----------
    priors : Priors
        Their strides are those of the levels.
    coder : BoxCoder
    TestCfg : subclass of RPNEntries
        The schema of ``test_cfg.rpn``.
    outputs : tuple of str
        The layers that return objectness logits and deltas, and perhaps more.
    numbers : int
        Deltas of a box.
    """

    priors: Priors
    coder: BoxCoder
    TestCfg: ClassVar[type[RPNEntries]] = RPNEntries
    outputs: tuple[str, ...] = ("rpn_cls", "rpn_reg")
    numbers: int = 4

    def __init__(self, test_cfg: RPNEntries) -> None:
        super().__init__()
        self.test_cfg = test_cfg

    def levels(self, features: Sequence[Tensor], limits: Tensor) -> list[Level]:
        """Return the predictions on each level; the arguments are those of `proposals`."""
        raise NotImplementedError

    def raw(self, features: Sequence[Tensor], limits: Tensor) -> tuple[Tensor, ...]:
        """Return the objectness logits [N, A, h, w] of all levels, and then the deltas [N, A*4, h, w]."""
        levels = self.levels(features, limits)
        return *(level.logits for level in levels), *(level.deltas for level in levels)

    def forward(self, features: Sequence[Tensor], limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the boxes of `proposals` [N, P, 4] and which of them are used [N, P]."""
        dets, used = self.proposals(features, limits)
        return dets[..., :4], used

    def proposals(self, features: Sequence[Tensor], limits: Tensor) -> tuple[Tensor, Tensor]:
        """Propose boxes.

        Parameters
        ----------
        features : sequence of Tensor, [N, C, h, w]
            By level, finest first.
        limits : Tensor, [N, 1, 4]
            What boxes are clipped to, as `image_limits` returns it.

        Returns
        -------
        proposals : Tensor, [N, P, 5]
            The best boxes by descending score, which is last; zeros in unused rows.  P is ``max_per_img``.
        used : Tensor of bool, [N, P]
        """
        boxes, by_level = self.candidates(features, limits)
        dets, kept, _ = multiclass_nms(
            boxes, by_level, MIN_SCORE, max_per_image=self.test_cfg.max_per_img, **self.test_cfg.nms.arguments
        )
        return dets, kept >= 0

    def candidates(self, features: Sequence[Tensor], limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the boxes of the best anchors, [N, P, ...], and their scores by level [N, P, levels].

        Boxes of one level suppress each other, as those of one class do elsewhere: scores of others are -inf.
        """
        scores, priors, moves, levels = [], [], [], []
        for level, (logits, deltas, anchors, mask) in enumerate(self.levels(features, limits)):
            # If only their order matters, logits have it without the rounding of a sigmoid: MMDetection's makes ties of
            # large ones, ONNX Runtime's of all below -18.
            score = logits if mask is None else torch.where(mask, logits, -torch.inf)
            score = score.permute(0, 2, 3, 1).flatten(1)  # [N, h*w*A]
            # With so few numbers a prior, reordering whole maps takes less time than the indices of `take`: in ONNX
            # Runtime 115 ms against 128 ms for a small Faster R-CNN at 800 x 1216.
            deltas = deltas.permute(0, 2, 3, 1).reshape(deltas.shape[0], -1, self.numbers)  # [N, h*w*A, 4]
            indices = best_indices(score, self.test_cfg.nms_pre)  # [N, K]
            rows = indices[..., None]
            scores.append(score.gather(1, indices))
            priors.append(anchors[indices] if anchors.ndim == 2 else anchors.gather(1, rows.expand(-1, -1, 4)))
            moves.append(deltas.gather(1, rows.expand(-1, -1, self.numbers)))
            levels.append(torch.full_like(indices, level))
        boxes = self.coder.decode(torch.cat(priors, 1), torch.cat(moves, 1), limits)
        is_of_level = torch.cat(levels, 1)[..., None] == torch.arange(len(features), device=boxes.device)
        score = torch.cat(scores, 1)[..., None]
        score = score if self.ranks else score.sigmoid()
        return boxes, torch.where(self.valid(boxes) & is_of_level, score, -torch.inf)

    @property
    def ranks(self) -> bool:
        """Whether proposals are only ranked by their scores, which are then logits; otherwise these are lowered."""
        return self.test_cfg.nms.type == "nms"

    def valid(self, boxes: Tensor) -> Tensor:
        """Return which boxes [N, P, 4] may be proposals, [N, P, 1]."""
        return larger(boxes, self.test_cfg.min_bbox_size)


@PARTS.register("rpn_head", "RPNHead")
class RPNHead(ProposalHead):
    """One objectness and one box for every anchor; the best boxes are proposals."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: int
        anchor_generator: Priors = part("prior generator")
        bbox_coder: BoxCoder = part("box coder")
        feat_channels: int = 256
        num_convs: int = 1
        loss_cls: DenseLoss = nested(DenseLoss, default=WITH_SIGMOID)

        ignored: ClassVar = {"num_classes": "proposals have no classes", **training_only("reg_decoded_bbox")}

    def __init__(self, entries: Entries, test_cfg: RPNEntries) -> None:
        super().__init__(test_cfg)
        self.softmax = entries.loss_cls.activation == "softmax"
        self.priors, self.coder = entries.anchor_generator, entries.bbox_coder
        in_channels, channels = entries.in_channels, entries.feat_channels
        if entries.num_convs <= 1:
            self.rpn_conv: nn.Module = nn.Conv2d(in_channels, channels, 3, padding=1)
        else:
            self.rpn_conv = tower(in_channels, channels, entries.num_convs)
        anchors = self.priors.num_base_priors[0]
        self.rpn_cls = nn.Conv2d(channels, anchors * (2 if self.softmax else 1), 1)
        self.rpn_reg = nn.Conv2d(channels, anchors * 4, 1)

    def levels(self, features: Sequence[Tensor], limits: Tensor) -> list[Level]:
        """Return the predictions on each level."""
        hidden = [torch.relu(self.rpn_conv(level)) for level in features]
        logits = [self.rpn_cls(level) for level in hidden]
        if self.softmax:  # of object and background, each anchor's in a row: the sigmoid of their difference
            logits = [level[:, ::2] - level[:, 1::2] for level in logits]
        deltas = [self.rpn_reg(level) for level in hidden]
        anchors = [self.priors.level(index, map) for index, map in enumerate(logits)]
        return list(map(Level, logits, deltas, anchors))
