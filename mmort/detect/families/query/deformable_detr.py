"""Deformable DETR: a set of boxes from a transformer that samples several feature maps at a few points.

Source: X. Zhu et al., "Deformable DETR", ICLR 2021.  Box AP of MMDetection's R-50 models on COCO val2017: 44.3; 46.2
with refined boxes; 47.0 with two stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Parts, Schema, at_least, nested
from mmort.detect.parts.deformable_transformer import (
    DeformableDecoder,
    DeformableDecoderEntries,
    DeformableEncoder,
    DeformableEncoderEntries,
    Pyramid,
)
from mmort.detect.parts.positions import SinePositionalEncoding, waves_of_coordinates
from mmort.detect.parts.queries import HeadWithTransformer, QueryDetector, QueryHeadEntries, QueryModelEntries, moved
from mmort.detect.parts.selection import take_rows


@dataclass(frozen=True, kw_only=True)
class Transformer(Schema):
    """The entries of ``bbox_head.transformer``, which MMDetection 2 has."""

    types: ClassVar[tuple[str, ...]] = ("DeformableDetrTransformer",)

    encoder: Config
    decoder: Config
    num_feature_levels: int = at_least(1, default=4)
    two_stage_num_proposals: int = at_least(1, default=300)


@dataclass(frozen=True, kw_only=True)
class DeformableHeadWithTransformer(HeadWithTransformer):
    """The entries of MMDetection 2's ``bbox_head`` that MMDetection 3 has in the model."""

    ignored: ClassVar = {"in_channels": "the neck's"}

    transformer: Transformer = nested(Transformer, "bbox_head.transformer")
    positional_encoding: Config
    num_query: int = at_least(1, default=100)
    with_box_refine: bool = False
    as_two_stage: bool = False

    @property
    def queries(self) -> int:
        """The number of queries."""
        return self.transformer.two_stage_num_proposals if self.as_two_stage else self.num_query

    def model(self) -> Config:
        """Return the same as MMDetection 3 has it."""
        transformer = self.transformer
        return {
            "num_queries": self.queries,
            "encoder": transformer.encoder,
            "decoder": transformer.decoder,
            "num_feature_levels": transformer.num_feature_levels,
            "positional_encoding": self.positional_encoding,
            "with_box_refine": self.with_box_refine,
            "as_two_stage": self.as_two_stage,
        }


class DeformableDETRHead(nn.Module):
    """For each query the logits of the classes, and a box relative to a reference; layers for each decoder layer."""

    eps: ClassVar[float] = 1e-5
    """The distance to 0 and 1 that `moved` keeps references at."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(QueryHeadEntries):
        types = ("DeformableDETRHead",)

    def __init__(self, entries: QueryHeadEntries, dims: int, count: int, *, shared: bool) -> None:
        super().__init__()
        made = 1 if shared else count
        other_logits = entries.loss_cls.other_logits
        self.class_layers = {"cls_branches": other_logits}

        def boxes() -> nn.Sequential:
            hidden = [layer for _ in range(entries.num_reg_fcs) for layer in (nn.Linear(dims, dims), nn.ReLU())]
            return nn.Sequential(*hidden, nn.Linear(dims, 4))

        # Shared layers have a key in the state_dict for each of their uses, as in MMDetection.
        classes = [self.class_layer(entries, dims) for _ in range(made)]
        self.cls_branches = nn.ModuleList(classes * (count // made))
        self.reg_branches = nn.ModuleList([boxes() for _ in range(made)] * (count // made))

    def class_layer(self, entries: QueryHeadEntries, dims: int) -> nn.Module:
        """Return a layer that makes class logits of queries."""
        return nn.Linear(dims, entries.num_classes + entries.loss_cls.other_logits)

    def forward(self, x: Tensor, references: Tensor, layer: int, *words: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits [N, Q, C] and boxes [N, Q, 4] for queries [N, Q, D] and references of a layer.

        `words` are further inputs of the layers of classes.
        """
        return self.cls_branches[layer](x, *words), moved(references, self.reg_branches[layer](x), self.eps)


def keys_of_transformer(head: str) -> tuple[tuple[str, str], ...]:
    """Return patterns and replacements for the keys of a detector whose transformer is a part of its `head`."""
    return (
        (rf"^{head}\.transformer\.(\w+coder\.layers\.\d+)\.attentions\.0\.", r"\1.self_attn."),
        (rf"^{head}\.transformer\.(\w+coder\.layers\.\d+)\.attentions\.1\.", r"\1.cross_attn."),
        (rf"^{head}\.transformer\.(\w+coder\.layers\.\d+)\.ffns\.0\.", r"\1.ffn."),
        (rf"^{head}\.transformer\.(\w+coder\.layers\.\d+\.norms\.)", r"\1"),
        (rf"^{head}\.transformer\.level_embeds$", "level_embed"),
        (rf"^{head}\.transformer\.reference_points\.", "reference_points_fc."),
        (rf"^{head}\.transformer\.enc_output\.", "memory_trans_fc."),
        (rf"^{head}\.transformer\.enc_output_norm\.", "memory_trans_norm."),
        (rf"^{head}\.transformer\.pos_trans\.", "pos_trans_fc."),
        (rf"^{head}\.transformer\.pos_trans_norm\.", "pos_trans_norm."),
        (rf"^{head}\.query_embedding\.", "query_embedding."),
    )


@PARTS.register("detector", "DeformableDETRHead")
class DeformableDETR(QueryDetector):
    """Deformable DETR."""

    family = "Deformable DETR"
    encoder_class: ClassVar[type[nn.Module]] = DeformableEncoder
    decoder_class: ClassVar[type[DeformableDecoder]] = DeformableDecoder
    head_class: ClassVar[type[DeformableDETRHead]] = DeformableDETRHead
    decoder: DeformableDecoder
    entries: Model

    @dataclass(frozen=True, kw_only=True)
    class Model(QueryModelEntries):
        types = ("DeformableDETR",)
        head_with_transformer = DeformableHeadWithTransformer

        num_feature_levels: int = at_least(1, default=4)
        with_box_refine: bool = False
        as_two_stage: bool = False
        encoder: DeformableEncoderEntries = nested(DeformableEncoderEntries, "encoder")
        decoder: DeformableDecoderEntries = nested(DeformableDecoderEntries, "decoder")  # type: ignore[assignment]
        bbox_head: DeformableDETRHead.Entries = nested(DeformableDETRHead.Entries, "bbox_head")

    renamed_keys = keys_of_transformer("bbox_head")  # MMDetection 2's

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        model = self.entries
        self.queries, self.refines, self.two_stages = model.num_queries, model.with_box_refine, model.as_two_stage
        self.positional_encoding = SinePositionalEncoding(model.positional_encoding)
        self.encoder = self.encoder_class(model.encoder)
        self.decoder = self.decoder_class(model.decoder)
        dims, layers = model.encoder.embed_dims, model.decoder.num_layers
        self.level_embed = nn.Parameter(torch.zeros(model.num_feature_levels, dims))
        self.bbox_head = self.head_class(model.bbox_head, dims, layers + self.two_stages, shared=not self.refines)
        if self.two_stages:
            self.memory_trans_fc, self.memory_trans_norm = nn.Linear(dims, dims), nn.LayerNorm(dims)
        self.build_queries(model)
        self.scores = model.bbox_head.loss_cls
        self.max_per_image = self.test_cfg.max_per_img or self.queries

    def build_queries(self, model: QueryModelEntries) -> None:
        """Create the layers that queries are made with."""
        dims = model.encoder.embed_dims
        if self.two_stages:
            self.pos_trans_fc, self.pos_trans_norm = nn.Linear(2 * dims, 2 * dims), nn.LayerNorm(2 * dims)
        else:
            self.query_embedding = nn.Embedding(self.queries, 2 * dims)
            self.reference_points_fc = nn.Linear(dims, 2)

    def _raw(self, input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the result of `raw` for images that end at `limits`, [N, 1, 4]."""
        features = self.levels(input)
        return self.decode(*self.encoded(features, input, limits))

    def encoded(self, features: Sequence[Tensor], input: Tensor, limits: Tensor) -> tuple[Tensor, Pyramid]:
        """Encode the maps; return the memory [N, P, D], and the pyramid of its levels."""
        pyramid = Pyramid.of(features, input, limits, self.positional_encoding, self.level_embed)
        return self.encoder(pyramid), pyramid

    def decode(self, memory: Tensor, pyramid: Pyramid) -> tuple[Tensor, Tensor]:
        """Return class logits and boxes of an encoded pyramid, [N, P, D]."""
        if self.two_stages:
            references = self.best_proposals(memory, pyramid)
            positions, x = self.proposed_queries(references)
        else:
            positions, x = self.query_embedding.weight.expand(memory.shape[0], -1, -1).chunk(2, 2)
            references = self.reference_points_fc(positions).sigmoid()
        last = len(self.decoder.layers) - 1
        for index, layer in enumerate(self.decoder.layers):
            x = layer(x, positions, memory, pyramid, references)
            if self.refines and index < last:
                references = moved(references, self.bbox_head.reg_branches[index](x))
        return self.bbox_head(x, references, last)

    def proposed_queries(self, references: Tensor) -> tuple[Tensor, Tensor]:
        """Return positions and contents [N, Q, D] of the queries of proposed boxes [N, Q, 4]."""
        embedded = waves_of_coordinates(references, self.decoder.embed_dims // 2).flatten(2)
        positions, x = self.pos_trans_norm(self.pos_trans_fc(embedded)).chunk(2, 2)
        return positions, x

    def best_proposals(self, memory: Tensor, pyramid: Pyramid, *words: Tensor) -> Tensor:
        """Return the boxes [N, Q, 4] that the head predicts for the best cells, by descending score.

        `words` are further inputs of the head's layers of classes.
        """
        cells, proposals = self.proposals(memory, pyramid)
        scores = self.proposal_scores(self.bbox_head.cls_branches[-1](cells, *words))  # [N, P]
        best = scores.topk(min(self.queries, scores.shape[1])).indices  # [N, Q]
        deltas = self.bbox_head.reg_branches[-1](take_rows(cells, best))
        return (deltas + take_rows(proposals, best)).sigmoid()

    def proposals(self, memory: Tensor, pyramid: Pyramid) -> tuple[Tensor, Tensor]:
        """Return the head's features for proposals, [N, P, D], and the logits of the boxes that it moves, [N, P, 4]."""
        proposals, usable = pyramid.proposals()
        return self.memory_trans_norm(self.memory_trans_fc(torch.where(usable, memory, 0))), proposals

    def proposal_scores(self, logits: Tensor) -> Tensor:
        """Return by what cells are chosen, [N, P], for class logits: here there is one class, the first."""
        return logits[..., 0]
