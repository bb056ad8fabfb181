"""Sparse R-CNN, whose few proposals are learned and refined stage by stage, and QueryInst, which adds masks.

Source: P. Sun et al., "Sparse R-CNN", CVPR 2021; Y. Fang et al., "Instances as Queries", ICCV 2021.  Box AP (and mask
AP) of MMDetection's R-50-FPN models on COCO val2017 after 12 epochs: 37.9; 42.0 (37.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.contract import WITH_MASKS, MaskFormat
from mmort.detect.detector import Detector, ModelEntries
from mmort.detect.entries import PARTS, Parts, Schema, at_least, default, nested, only, part, training_only
from mmort.detect.parts.boxes import image_limits, regions
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.heads.class_scores import ClassScores, CustomScores, SigmoidScores
from mmort.detect.parts.heads.mask_head import FCNMaskHead
from mmort.detect.parts.layers import activation
from mmort.detect.parts.roi_extractor import RoIExtractor
from mmort.detect.parts.selection import take_rows
from mmort.detect.parts.transformer import FFN, AttentionEntries, FFNEntries, NormEntries

_RELU: Config = {"type": "ReLU"}


class EmbeddingRPNHead(nn.Module):
    """Boxes and features that are the same for every image."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_proposals: int = 100
        proposal_feature_channel: int = 256

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.init_proposal_bboxes = nn.Embedding(entries.num_proposals, 4)
        self.init_proposal_features = nn.Embedding(entries.num_proposals, entries.proposal_feature_channel)

    def forward(self, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes [N, P, 4] and features [N, P, D] for images of the sizes [N, 1, 4]."""
        shares = self.init_proposal_bboxes.weight  # of the image's sides
        centre, size = shares[:, :2], shares[:, 2:]
        boxes = torch.cat([centre - 0.5 * size, centre + 0.5 * size], 1) * limits
        return boxes, self.init_proposal_features.weight.expand(limits.shape[0], -1, -1)


class DynamicConv(nn.Module):
    """Two 1x1 convolutions of a region's features, whose weights come from the features of its object."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: int = 256
        feat_channels: int = 64
        out_channels: int | None = None
        input_feat_shape: int = 7
        with_proj: bool = True
        act_cfg: Config = default(_RELU)
        norm_cfg: NormEntries = nested(NormEntries, "norm_cfg of DynamicConv", default={})

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.channels, self.width = entries.in_channels, entries.feat_channels
        out = entries.out_channels or entries.in_channels
        self.dynamic_layer = nn.Linear(self.channels, self.width * (self.channels + out))
        self.norm_in, self.norm_out = entries.norm_cfg.build(self.width), entries.norm_cfg.build(out)
        self.activation = activation(entries.act_cfg)
        self.projects = entries.with_proj
        if self.projects:
            self.fc_layer = nn.Linear(out * entries.input_feat_shape**2, out)
            self.fc_norm = entries.norm_cfg.build(out)

    def forward(self, objects: Tensor, features: Tensor) -> Tensor:
        """Return [R, C], or [R, h * w, C] without projection, for objects [R, D] and features [R, D, h, w]."""
        weights = self.dynamic_layer(objects)  # [R, D * width + width * C]
        split = self.channels * self.width
        first, second = weights[:, :split], weights[:, split:]
        x = features.flatten(2).transpose(1, 2)  # [R, h * w, D]
        x = self.activation(self.norm_in(x @ torch.unflatten(first, 1, (self.channels, self.width))))
        x = self.activation(self.norm_out(x @ torch.unflatten(second, 1, (self.width, -1))))
        return self.activation(self.fc_norm(self.fc_layer(x.flatten(1)))) if self.projects else x


class DIIHead(nn.Module):
    """A stage: objects attend to each other, then read their regions' features, then have a class and a box."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_classes: int = 80
        num_ffn_fcs: int = at_least(2, default=2)
        num_heads: int = at_least(1, default=8)
        num_cls_fcs: int = 1
        num_reg_fcs: int = 3
        feedforward_channels: int = 2048
        in_channels: int = 256
        ffn_act_cfg: Config = default(_RELU)
        dynamic_conv_cfg: DynamicConv = part(
            "dynamic_conv_cfg", types={"DynamicConv": DynamicConv}, default={"type": "DynamicConv"}
        )
        bbox_coder: BoxCoder = part("box coder")
        loss_cls: ClassScores = part("loss_cls", types={"FocalLoss": SigmoidScores, "CrossEntropyLoss": CustomScores})

        ignored: ClassVar = {
            "hidden_channels": "MMDetection does not read it either",
            "num_fcs": "MMDetection does not read it either",
            "roi_feat_size": "MMDetection does not read it either",
            **training_only("dropout"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels = entries.in_channels
        self.classes, self.coder, self.loss_cls = entries.num_classes, entries.bbox_coder, entries.loss_cls
        self.class_layers = {"fc_cls": self.loss_cls.other_logits}
        self.attention = AttentionEntries(embed_dims=channels, num_heads=entries.num_heads).build()
        self.attention_norm = nn.LayerNorm(channels)
        self.instance_interactive_conv = entries.dynamic_conv_cfg
        self.instance_interactive_conv_norm = nn.LayerNorm(channels)
        self.ffn = FFN(
            FFNEntries(
                embed_dims=channels,
                feedforward_channels=entries.feedforward_channels,
                num_fcs=entries.num_ffn_fcs,
                act_cfg=entries.ffn_act_cfg,
            )
        )
        self.ffn_norm = nn.LayerNorm(channels)
        self.cls_fcs = _normalized_linears(channels, entries.num_cls_fcs)
        self.reg_fcs = _normalized_linears(channels, entries.num_reg_fcs)
        self.fc_cls = nn.Linear(channels, self.classes + self.loss_cls.other_logits)
        self.fc_reg = nn.Linear(channels, 4)

    def forward(self, pooled: Tensor, objects: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Run the stage.

        Parameters
        ----------
        pooled : Tensor, [N * P, D, h, w]
            Features of the regions.
        objects : Tensor, [N, P, D]
            Features of the objects.

        Returns
        -------
        logits, deltas : Tensor, [N, P, classes + others], [N, P, 4]
        objects : Tensor, [N, P, D]
            The next stage's.
        attended : Tensor, [N, P, D]
            The objects after their attention: what masks are made of.
        """
        attended = self.attention_norm(self.attention(objects, objects, objects, objects))
        rows = attended.flatten(0, 1)  # [N * P, D]
        rows = self.instance_interactive_conv_norm(rows + self.instance_interactive_conv(rows, pooled))
        rows = self.ffn_norm(self.ffn(rows))
        objects = rows.reshape(objects.shape)
        return self.fc_cls(self.cls_fcs(objects)), self.fc_reg(self.reg_fcs(objects)), objects, attended


class DynamicMaskHead(FCNMaskHead):
    """A mask head whose features an object has changed first."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(FCNMaskHead.Entries):
        class_agnostic: bool = only(False)
        dynamic_conv_cfg: DynamicConv = part(
            "dynamic_conv_cfg",
            types={"DynamicConv": DynamicConv},
            default={"type": "DynamicConv", "input_feat_shape": 14, "with_proj": False},
        )

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.num_classes = entries.num_classes
        self.instance_interactive_conv = entries.dynamic_conv_cfg

    def of_objects(self, objects: Tensor, features: Tensor, classes: Tensor) -> Tensor:
        """Return logits [R, h, w] of objects [R, D] with features [R, D, h', w'] and classes [R]."""
        changed = self.instance_interactive_conv(objects, features).transpose(1, 2)
        return self(changed.reshape(features.shape), classes)


@dataclass(frozen=True, kw_only=True)
class SparseTestCfg(Schema):
    """The entries of ``test_cfg.rcnn``."""

    name: ClassVar = "test_cfg.rcnn"

    max_per_img: int = at_least(1)
    mask_thr_binary: float = 0.5


@dataclass(frozen=True, kw_only=True)
class SparseTestCfgs(Schema):
    """The entries of ``test_cfg``."""

    rcnn: Config
    rpn: None = None


class SparseRoIHead(nn.Module):
    """The stages; only the last one's mask head is used."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_stages: int = 6
        bbox_roi_extractor: list[RoIExtractor] = part("RoI extractor", count="num_stages")
        bbox_head: list[DIIHead] = part("bbox_head", types={"DIIHead": DIIHead}, count="num_stages")
        mask_roi_extractor: list[RoIExtractor] | None = part("RoI extractor", default=None, count="num_stages")
        mask_head: list[DynamicMaskHead] | None = part(
            "mask_head", types={"DynamicMaskHead": DynamicMaskHead}, default=None, count="num_stages"
        )

        ignored: ClassVar = {"proposal_feature_channel": "that of rpn_head", **training_only("stage_loss_weights")}

        def check(self, name: str) -> None:
            """Raise a ValueError if masks are of other classes than boxes."""
            if self.mask_head is not None and self.mask_head[-1].num_classes != self.bbox_head[-1].classes:
                raise ValueError(
                    f"detect.build: num_classes of mask_head must be that of bbox_head, {self.bbox_head[-1].classes}, "
                    f"got {self.mask_head[-1].num_classes}"
                )

    TestCfg = SparseTestCfg

    def __init__(self, entries: Entries, test_cfg: SparseTestCfg) -> None:
        super().__init__()
        self.test_cfg = test_cfg
        self.bbox_roi_extractor = nn.ModuleList(entries.bbox_roi_extractor)
        self.bbox_head = nn.ModuleList(entries.bbox_head)
        self.with_mask = entries.mask_head is not None
        if entries.mask_head is not None:
            self.mask_roi_extractor = nn.ModuleList(entries.mask_roi_extractor or entries.bbox_roi_extractor)
            self.mask_head = nn.ModuleList(entries.mask_head)

    def forward(
        self, features: list[Tensor], boxes: Tensor, objects: Tensor, limits: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the last stage's logits [N, P, classes + others], boxes [N, P, 4] and attended objects [N, P, D]."""
        heads: list[Any] = list(self.bbox_head)
        for extractor, head in zip(self.bbox_roi_extractor, heads, strict=True):
            logits, deltas, objects, attended = head(extractor(features, regions(boxes)), objects)
            boxes = head.coder.decode(boxes, deltas, limits)
        return logits, boxes, attended

    def detect(self, logits: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return dets [N, K, 5], labels [N, K] and indices [N, K] of the best pairs of box and class."""
        head: Any = self.bbox_head[-1]
        scores = head.loss_cls(logits).flatten(1)
        best = scores.topk(min(self.test_cfg.max_per_img, scores.shape[1]))
        indices = best.indices // head.classes
        chosen = take_rows(boxes, indices)
        return torch.cat([chosen, best.values[..., None]], 2), best.indices % head.classes, indices

    def masks(self, features: list[Tensor], dets: Tensor, labels: Tensor, objects: Tensor) -> Tensor:
        """Return probabilities [N, K, h, w] of detections of objects [N, K, D]."""
        head: Any = self.mask_head[-1]
        pooled = self.mask_roi_extractor[-1](features, regions(dets[..., :4]))
        logits: Tensor = head.of_objects(objects.flatten(0, 1), pooled, labels.flatten())
        return logits.sigmoid().reshape(*labels.shape, *logits.shape[1:])


@PARTS.register("detector", "SparseRoIHead")
class SparseRCNN(Detector):
    """Sparse R-CNN, or QueryInst if the config has mask heads."""

    head_entries = ("roi_head",)
    heads = ("roi_head.bbox_head",)
    rpn_head: EmbeddingRPNHead
    roi_head: SparseRoIHead

    @dataclass(frozen=True, kw_only=True)
    class Model(ModelEntries):
        types = ("SparseRCNN", "QueryInst")

        rpn_head: EmbeddingRPNHead = part("rpn_head", types={"EmbeddingRPNHead": EmbeddingRPNHead})
        roi_head: Config

    TestCfg = SparseTestCfgs
    entries: Model
    test_cfg: SparseTestCfgs

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.roi_head = parts.construct("roi_head", SparseRoIHead, self.entries.roi_head, test_cfg=self.test_cfg.rcnn)
        self.family = "QueryInst" if self.roi_head.with_mask else "Sparse R-CNN"
        if self.roi_head.with_mask:
            self.output_names = WITH_MASKS
            self.mask_format = MaskFormat(threshold=self.roi_head.test_cfg.mask_thr_binary)

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of class logits and boxes."""
        return "cls_score", "bbox_pred"

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the last stage's class logits [N, P, classes + others] and boxes [N, P, 4] in pixels of `input`."""
        limits = image_limits(input, None)
        return self.roi_head(self.levels(input), *self.rpn_head(limits), limits)[:2]

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        limits = image_limits(input, img_shape)  # [N, 1, 4]
        features = self.levels(input)  # by level, [N, C, h, w]
        logits, boxes, attended = self.roi_head(features, *self.rpn_head(limits), limits)
        dets, labels, indices = self.roi_head.detect(logits, boxes)  # [N, K, 5], [N, K]
        if not self.roi_head.with_mask:
            return dets, labels
        objects = take_rows(attended, indices)  # [N, K, D]
        return dets, labels, self.roi_head.masks(features, dets, labels, objects)  # [N, K, h, w]


def _normalized_linears(channels: int, count: int) -> nn.Sequential:
    """Return linear layers in a row, each with a normalization and a ReLU."""
    layers = [(nn.Linear(channels, channels, bias=False), nn.LayerNorm(channels), nn.ReLU()) for _ in range(count)]
    return nn.Sequential(*(layer for group in layers for layer in group))
