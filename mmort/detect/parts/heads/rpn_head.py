"""The region proposal network: the first stage of every two-stage detector.

Source: S. Ren et al., "Faster R-CNN", NeurIPS 2015; MMDetection's ``RPNHead``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import Schema, default, nested, part
from mmort.detect.parts.boxes import larger
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.layers import tower
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.selection import best_indices
from mmort.detect.parts.test_cfg import RPNEntries
from mmort.detect.versions import Config
from mmort.torch import multiclass_nms

_MIN_SCORE = torch.finfo(torch.float32).min


class RPNHead(nn.Module):
    """One objectness and one box for every anchor; the best boxes are proposals."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``rpn_head``."""

        in_channels: int
        anchor_generator: Priors = part("prior generator")
        bbox_coder: BoxCoder = part("box coder")
        test_cfg: RPNEntries = nested(RPNEntries, "test_cfg.rpn")
        feat_channels: int = 256
        num_convs: int = 1
        loss_cls: Config = default({"use_sigmoid": True})

        ignored: ClassVar = {"num_classes": "proposals have no classes", "reg_decoded_bbox": "training only"}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        if not entries.loss_cls.get("use_sigmoid", True):
            raise ValueError("detect.build: rpn_head.loss_cls.use_sigmoid must be true: softmax is not supported")
        self.priors, self.coder = entries.anchor_generator, entries.bbox_coder
        in_channels, channels = entries.in_channels, entries.feat_channels
        if entries.num_convs == 1:
            self.rpn_conv: nn.Module = nn.Conv2d(in_channels, channels, 3, padding=1)
        else:
            self.rpn_conv = tower(in_channels, channels, entries.num_convs)
        anchors = self.priors.num_base_priors[0]
        self.rpn_cls = nn.Conv2d(channels, anchors, 1)
        self.rpn_reg = nn.Conv2d(channels, anchors * 4, 1)
        self.test_cfg = entries.test_cfg

    def raw(self, features: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the objectness logits [N, A, h, w] and the deltas [N, A*4, h, w] of each level."""
        hidden = [torch.relu(self.rpn_conv(level)) for level in features]
        return [self.rpn_cls(level) for level in hidden], [self.rpn_reg(level) for level in hidden]

    def forward(self, features: list[Tensor], limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the boxes of `proposals` [N, P, 4] and which of them are used [N, P]."""
        dets, used = self.proposals(features, limits)
        return dets[..., :4], used

    def proposals(self, features: list[Tensor], limits: Tensor) -> tuple[Tensor, Tensor]:
        """Propose boxes.

        Parameters
        ----------
        features : list of Tensor, [N, C, h, w]
            By level, finest first.
        limits : Tensor, [N, 1, 4]
            What boxes are clipped to, as `image_limits` returns it.

        Returns
        -------
        proposals : Tensor, [N, P, 5]
            The best boxes by descending logit, which is last; zeros in unused rows.  P is ``max_per_img``.
        used : Tensor of bool, [N, P]
        """
        scores, priors, moves, levels = [], [], [], []
        for level, (logits, deltas) in enumerate(zip(*self.raw(features), strict=True)):
            # Only the order of scores matters, and logits have it without the rounding of a sigmoid: MMDetection's
            # makes ties of large ones, ONNX Runtime's of all below -18.
            score = logits.permute(0, 2, 3, 1).flatten(1)  # [N, h*w*A]
            # With so few numbers a prior, reordering whole maps takes less time than the indices of `take`: in ONNX
            # Runtime 115 ms against 128 ms for a small Faster R-CNN at 800 x 1216.
            deltas = deltas.permute(0, 2, 3, 1).reshape(deltas.shape[0], -1, 4)  # [N, h*w*A, 4]
            indices = best_indices(score, self.test_cfg.nms_pre)  # [N, K]
            scores.append(score.gather(1, indices))
            priors.append(self.priors.level(level, logits)[indices])  # [N, K, 4]
            moves.append(deltas.gather(1, indices[..., None].expand(-1, -1, 4)))
            levels.append(torch.full_like(indices, level))
        boxes = self.coder.decode(torch.cat(priors, 1), torch.cat(moves, 1), limits)  # [N, all levels' K, 4]
        valid = larger(boxes, self.test_cfg.min_bbox_size)
        # Boxes of one level suppress each other, as those of one class do elsewhere.
        own = torch.cat(levels, 1)[..., None] == torch.arange(len(features), device=boxes.device)
        by_level = torch.where(valid & own, torch.cat(scores, 1)[..., None], -torch.inf)  # [N, all levels' K, levels]
        dets, kept, _ = multiclass_nms(
            boxes, by_level, _MIN_SCORE, max_per_image=self.test_cfg.max_per_img, **self.test_cfg.nms.arguments
        )
        return dets, kept >= 0
