"""The heads that classify a region and correct its box from its features.

Source: MMDetection's ``BBoxHead`` and ``ConvFCBBoxHead``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, default, part, training_only
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.heads.class_scores import ClassScores, CustomScores, SeesawScores, SoftmaxScores
from mmort.detect.parts.layers import linear, tower
from mmort.detect.parts.selection import detections
from mmort.detect.parts.test_cfg import RCNNEntries

_CODER = {"type": "DeltaXYWHBBoxCoder", "target_means": [0.0] * 4, "target_stds": [0.1, 0.1, 0.2, 0.2]}

_SCORES = {
    "CrossEntropyLoss": SoftmaxScores,
    "CrossEntropyCustomLoss": CustomScores,
    "SeesawLoss": SeesawScores,
}


class RegionHead(nn.Module):
    """Base of the heads that classify regions and correct their boxes: what is done with their outputs."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``bbox_head`` that every such head has."""

        num_classes: int = 80
        bbox_coder: BoxCoder = part("box coder", default=_CODER)
        reg_class_agnostic: bool = False
        loss_cls: ClassScores = part("loss_cls", types=_SCORES, default={"type": "CrossEntropyLoss"})

        ignored: ClassVar = {
            "predict_box_type": "a wrapper of MMDetection 3 around the same numbers",
            **training_only("reg_decoded_bbox"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes = entries.num_classes
        self.loss_cls = entries.loss_cls
        self.class_layers = {"fc_cls": self.loss_cls.other_logits}
        self.class_agnostic = entries.reg_class_agnostic
        self.coder = entries.bbox_coder

    @property
    def outputs(self) -> tuple[int, int]:
        """The numbers of logits and of deltas of a region."""
        return self.classes + self.loss_cls.other_logits, 4 if self.class_agnostic else 4 * self.classes

    def refine(self, boxes: Tensor, logits: Tensor, deltas: Tensor, limits: Tensor) -> Tensor:
        """Move boxes [N, P, 4] by the deltas of their best class [N, P, 4 or classes * 4], clipped to `limits`."""
        if not self.class_agnostic:
            best = logits[..., : self.classes].argmax(-1)[..., None, None].expand(-1, -1, 1, 4)  # [N, P, 1, 4]
            deltas = deltas.reshape(*deltas.shape[:2], self.classes, 4).gather(2, best)[:, :, 0]
        return self.coder.decode(boxes, deltas, limits)

    def detect(
        self, boxes: Tensor, used: Tensor, logits: Tensor, deltas: Tensor, limits: Tensor, test_cfg: RCNNEntries
    ) -> tuple[Tensor, Tensor]:
        """Choose detections.

        Parameters
        ----------
        boxes : Tensor, [N, P, 4]
            The boxes of the regions.
        used : Tensor of bool, [N, P]
            Which of them take part.
        logits, deltas : Tensor, [N, P, classes + others], [N, P, 4 or classes * 4]
        limits : Tensor, [N, 1, 4]
        test_cfg : RCNNEntries
            ``test_cfg.rcnn``.

        Returns
        -------
        dets, labels : Tensor, [N, K, 5], [N, K]
            As the detector returns them.
        """
        scores = torch.where(used[..., None], self.loss_cls(logits), 0)  # [N, P, classes]
        scores = self.rescored(torch.where(scores > test_cfg.score_thr, scores, 0), deltas)
        return detections(self.moved(boxes, deltas, limits), scores, test_cfg)

    def moved(self, boxes: Tensor, deltas: Tensor, limits: Tensor) -> Tensor:
        """Return boxes [N, P, 4] or [N, P, classes, 4], clipped to `limits`; the arguments are those of `detect`."""
        if not self.class_agnostic:
            deltas = deltas.reshape(*deltas.shape[:2], self.classes, 4)
            boxes, limits = boxes[:, :, None], limits[:, None]
        return self.coder.decode(boxes, deltas, limits)

    def rescored(self, scores: Tensor, regressed: Tensor) -> Tensor:
        """Return the scores [N, P, classes] of boxes whose regressed numbers are [N, P, ...]."""
        return scores


@PARTS.register("bbox_head", "BBoxHead", "ConvFCBBoxHead")
class BoxHead(RegionHead):
    """Shared layers, then layers for the classes and for the boxes, then one linear layer for each."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RegionHead.Entries):
        num_shared_convs: int = 0
        num_shared_fcs: int = 0
        num_cls_convs: int = 0
        num_cls_fcs: int = 0
        num_reg_convs: int = 0
        num_reg_fcs: int = 0
        conv_out_channels: int = 256
        fc_out_channels: int = 1024
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None
        with_avg_pool: bool = False
        roi_feat_size: int = 7
        in_channels: int = 256
        with_reg: bool = True
        cls_predictor_cfg: Config = default({"type": "Linear"})
        reg_predictor_cfg: Config = default({"type": "Linear"})

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.class_agnostic = self.class_agnostic or not entries.with_reg
        self.pool = nn.AvgPool2d(entries.roi_feat_size) if entries.with_avg_pool else nn.Identity()

        def convolutions(count: int, channels: int) -> tuple[nn.Sequential, int]:
            """Return `count` convolutions of maps with `channels`, and the channels of what they return."""
            width = entries.conv_out_channels
            layers = tower(channels, width, count, conv_cfg=entries.conv_cfg, norm_cfg=entries.norm_cfg)
            return layers, width if count else channels

        pixels = 1 if entries.with_avg_pool else entries.roi_feat_size**2  # of what is flattened
        self.shared_convs, channels = convolutions(entries.num_shared_convs, entries.in_channels)
        has_shared, width = entries.num_shared_fcs > 0, entries.fc_out_channels
        self.shared_fcs, shared = linears(entries.num_shared_fcs, channels * pixels, width)
        self.cls_convs, cls_channels = convolutions(entries.num_cls_convs, channels)
        self.reg_convs, reg_channels = convolutions(entries.num_reg_convs, channels)
        self.cls_fcs, cls_features = linears(
            entries.num_cls_fcs, shared if has_shared else cls_channels * pixels, width
        )
        self.reg_fcs, reg_features = linears(
            entries.num_reg_fcs, shared if has_shared else reg_channels * pixels, width
        )
        logits, deltas = self.outputs
        self.fc_cls = linear(entries.cls_predictor_cfg, cls_features, logits)
        self.fc_reg = None
        if entries.with_reg:
            self.fc_reg = linear(entries.reg_predictor_cfg, reg_features, deltas)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [R, classes + others] (background last) and deltas [R, 4 or classes * 4] for [R, C, h, w].

        A head without layers for the boxes leaves them where they are, so that its deltas are not read.
        """
        x = self.shared(features)
        for_classes, for_boxes = x, x
        if not self.shared_fcs:
            for_classes, for_boxes = self._flat(self.cls_convs(x)), self._flat(self.reg_convs(x))
        logits = self.fc_cls(connected(self.cls_fcs, for_classes))
        if self.fc_reg is None:
            return logits, logits.new_zeros(logits.shape[0], self.outputs[1])
        return logits, self.fc_reg(connected(self.reg_fcs, for_boxes))

    def moved(self, boxes: Tensor, deltas: Tensor, limits: Tensor) -> Tensor:
        """Return the boxes of `RegionHead.moved`, or `boxes` if the head moves none."""
        return boxes if self.fc_reg is None else super().moved(boxes, deltas, limits)

    def shared(self, features: Tensor) -> Tensor:
        """Return the layers that classes and boxes share, for features [R, C, h, w]: rows [R, D], or maps."""
        x = self.shared_convs(features)
        return connected(self.shared_fcs, self._flat(x)) if self.shared_fcs else x

    def _flat(self, x: Tensor) -> Tensor:
        """Return one row for each region, [R, C] or [R, C * h * w]."""
        return self.pool(x).flatten(1)


@PARTS.register("bbox_head", "Shared2FCBBoxHead")
class Shared2FCBoxHead(BoxHead):
    """A `BoxHead` with two shared linear layers, unless the config has another number."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(BoxHead.Entries):
        num_shared_fcs: int = 2


@PARTS.register("bbox_head", "Shared4Conv1FCBBoxHead")
class Shared4Conv1FCBoxHead(BoxHead):
    """A `BoxHead` with four shared convolutions and a linear layer, unless the config has other numbers."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(BoxHead.Entries):
        num_shared_convs: int = 4
        num_shared_fcs: int = 1


def linears(count: int, features: int, width: int) -> tuple[nn.ModuleList, int]:
    """Return `count` linear layers of `width` outputs for rows of `features`, and the length of what they return."""
    sizes = [features, *[width] * count]
    return nn.ModuleList(nn.Linear(size, width) for size in sizes[:-1]), sizes[-1]


def connected(layers: nn.ModuleList, x: Tensor) -> Tensor:
    """Run linear layers in a row, each with a ReLU."""
    for layer in layers:
        x = layer(x).relu()
    return x
