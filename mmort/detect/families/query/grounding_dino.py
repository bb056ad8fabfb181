"""Grounding DINO: DINO that finds what words describe, since image and text change each other in its encoder.

The language model sees no image.  `GroundingDINO.set_texts` runs it once, and words are constants of the detector; or
`GroundingDINO.text_encoder` makes further inputs of them.

Source: S. Liu et al., "Grounding DINO: Marrying DINO with Grounded Pre-Training for Open-Set Object Detection", ECCV
2024; X. Zhao et al., "An Open and Comprehensive Pipeline for Unified Object Grounding and Detection", 2024.  Box AP of
MMDetection's Swin-T models on COCO val2017 without training on it: 48.5 and, of MM-Grounding-DINO, 50.6.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.captions import Prompt
from mmort.configs.layout import DetectorConfig
from mmort.configs.tokens import bert_inputs
from mmort.detect.entries import PARTS, Parts, Schema, at_least, nested, part, training_only
from mmort.detect.families.query.deformable_detr import DeformableDETRHead
from mmort.detect.families.query.dino import DINO, DINODecoder, DINOHead
from mmort.detect.parts.bert import DTYPES, Bert, TextEncoder, other_sub_sentences
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.deformable_transformer import (
    DeformableDecoderEntries,
    DeformableDecoderLayer,
    DeformableDecoderLayerEntries,
    DeformableEncoder,
    DeformableEncoderEntries,
    Pyramid,
)
from mmort.detect.parts.fusion import FusionEntries, FusionLayer
from mmort.detect.parts.positions import waves_of_coordinates
from mmort.detect.parts.queries import QueryHeadEntries, QueryModelEntries, QueryTestCfg, best_pairs, moved
from mmort.detect.parts.selection import merged
from mmort.detect.parts.transformer import ATTENTION, AttentionEntries, EncoderLayer, EncoderLayerEntries

WORD_DIMS = 256
"""The channels of the positions of words, whatever the config has."""


@dataclass(frozen=True, kw_only=True)
class GroundingEncoderEntries(DeformableEncoderEntries):
    """The entries of ``encoder``."""

    text_layer_cfg: EncoderLayerEntries = nested(EncoderLayerEntries)
    fusion_layer_cfg: FusionEntries = nested(FusionEntries)


@dataclass(frozen=True, kw_only=True)
class GroundingDecoderLayerEntries(DeformableDecoderLayerEntries):
    """The entries of ``decoder.layer_cfg``."""

    attentions = ("self_attn", "cross_attn_text", "cross_attn")

    cross_attn_text_cfg: AttentionEntries = nested(AttentionEntries, default=ATTENTION)


@dataclass(frozen=True, kw_only=True)
class GroundingDecoderEntries(DeformableDecoderEntries):
    """The entries of ``decoder``."""

    layer_cfg: GroundingDecoderLayerEntries = nested(GroundingDecoderLayerEntries)


@dataclass(frozen=True)
class EncodedCaption:
    """A caption of T tokens as the detector reads it.

    Attributes
    ----------
    features : Tensor, [1, T, D]
    positions : Tensor, [1, T, D]
        What is added to the features where they are compared.
    hidden : Tensor of bool, [1, T, T]
        From which words others are hidden in the encoder.
    padding : Tensor of bool, [1, T]
        Which tokens are none, after all others.
    shares : Tensor, [S, C]
        For each class the weight of the score of each of the S other tokens.
    """

    features: Tensor
    positions: Tensor
    hidden: Tensor
    padding: Tensor
    shares: Tensor

    @classmethod
    def of(cls, features: Tensor, positions: Tensor, shares: Tensor) -> EncodedCaption:
        """Return the words of features [1, T, D] of tokens, their positions [1, T] in sub-sentences, and shares."""
        return cls(
            features=features,
            positions=waves_of_coordinates(positions.to(features.dtype), WORD_DIMS),
            hidden=other_sub_sentences(positions),
            padding=torch.arange(features.shape[1], device=features.device)[None] >= shares.shape[0],
            shares=shares,
        )


class GroundingEncoder(DeformableEncoder):
    """Encoder layers, each after a fusion of cells and words, and a layer for the words."""

    def __init__(self, entries: GroundingEncoderEntries) -> None:
        super().__init__(entries)
        count = entries.num_layers
        self.text_layers = nn.ModuleList(EncoderLayer(entries.text_layer_cfg) for _ in range(count))
        self.fusion_layers = nn.ModuleList(FusionLayer(entries.fusion_layer_cfg) for _ in range(count))

    def fused(self, pyramid: Pyramid, words: EncodedCaption) -> tuple[Tensor, Tensor]:
        """Return the memory of the cells [N, P, D] and that of the words [N, T, D]."""
        x, references = pyramid.cells, pyramid.references(pyramid.centres)
        text = words.features.expand(x.shape[0], -1, -1)
        for layer, text_layer, fusion in zip(self.layers, self.text_layers, self.fusion_layers, strict=True):
            x, text = fusion(x, text, pyramid.padding)  # MMDetection's mask of words adds the same to all logits
            text = text_layer(text, words.positions, words.hidden)
            x = layer(x, pyramid, references)
        return x, text


class GroundingDecoderLayer(DeformableDecoderLayer):
    """Every query attends to all others, to the words, and to a few points of all maps."""

    cross_attn_text: nn.Module

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        positions: Tensor,
        memory: Tensor,
        pyramid: Pyramid,
        references: Tensor,
        text: Tensor,
        located_text: Tensor,
        padding: Tensor,
    ) -> Tensor:
        """Return the queries [N, Q, D].

        `references` are relative to the images, [N, Q, 4]; `located_text` is how queries compare the words, `text`
        [N, T, D], of which `padding` [1, T] are none.
        """
        located = x + positions
        x = self.norms[0](self.self_attn(x, located, located, x))
        x = self.norms[1](self.cross_attn_text(x, x + positions, located_text, text, padding))
        x = self.norms[2](self.attend(x, positions, memory, pyramid, references))
        return self.norms[3](self.ffn(x))


class GroundingDecoder(DINODecoder):
    """DINO's decoder with layers that also attend to words."""

    layer_class = GroundingDecoderLayer


@dataclass(frozen=True, kw_only=True)
class ContrastiveEntries(Schema):
    """The entries of ``bbox_head.contrastive_cfg``."""

    max_text_len: int = at_least(1, default=256)
    log_scale: float | str | None = None
    bias: bool = False

    def check(self, name: str) -> None:
        """Raise a ValueError if the scale is neither a float nor a known word."""
        if not isinstance(self.log_scale, float) and self.log_scale not in ("auto", "none", None):
            raise ValueError(
                f"detect.build: log_scale of {name} must be a float, 'auto', 'none' or None, got {self.log_scale!r}"
            )


class ContrastiveEmbed(nn.Module):
    """The logit of each query and word: how alike their features are."""

    def __init__(self, entries: ContrastiveEntries, dims: int) -> None:
        super().__init__()
        self.fixed_scale = 1 / math.sqrt(dims) if entries.log_scale == "auto" else None
        self.log_scale = nn.Parameter(torch.zeros(1)) if isinstance(entries.log_scale, float) else None
        self.bias = nn.Parameter(torch.zeros(1)) if entries.bias else None

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        """Return logits [N, Q, T] for queries [N, Q, D] and words [N, T, D]."""
        logits = x @ text.transpose(1, 2)
        if self.log_scale is not None:
            logits = logits * self.log_scale.exp()
        elif self.fixed_scale is not None:
            logits = logits * self.fixed_scale
        return logits if self.bias is None else logits + self.bias


class GroundingDINOHead(DeformableDETRHead):
    """For each query the logits of words, and a box relative to a reference; layers for each decoder layer."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(DINOHead.Entries):
        types = ("GroundingDINOHead",)

        contrastive_cfg: ContrastiveEntries = nested(ContrastiveEntries, "contrastive_cfg", default={})

    def __init__(self, entries: Entries, dims: int, count: int, *, shared: bool) -> None:
        super().__init__(entries, dims, count, shared=shared)
        self.class_layers = {}  # of words, not of classes

    def class_layer(self, entries: QueryHeadEntries, dims: int) -> nn.Module:
        assert isinstance(entries, GroundingDINOHead.Entries)
        return ContrastiveEmbed(entries.contrastive_cfg, dims)


@dataclass(frozen=True, kw_only=True)
class GroundingTestCfg(QueryTestCfg):
    """The entries of ``test_cfg``."""

    chunked_size: int = -1


@PARTS.register("detector", "GroundingDINOHead")
class GroundingDINO(DINO):
    """Grounding DINO.

    Attributes
    ----------
    words : tuple of dict of dtype to EncodedCaption
        Of each chunk of the names, for both dtypes that the detector may compute in; empty until `set_texts`.
    """

    family = "Grounding DINO"
    TestCfg = GroundingTestCfg
    takes_texts = True
    encoder_class = GroundingEncoder
    decoder_class = GroundingDecoder
    head_class = GroundingDINOHead
    encoder: GroundingEncoder
    language_model: Bert
    unused_weights = ("dn_query_generator.",)

    @dataclass(frozen=True, kw_only=True)
    class Model(DINO.Model):
        types = ("GroundingDINO",)

        language_model: Bert = part("language model")
        encoder: GroundingEncoderEntries = nested(GroundingEncoderEntries, "encoder")
        decoder: GroundingDecoderEntries = nested(GroundingDecoderEntries, "decoder")
        bbox_head: GroundingDINOHead.Entries = nested(GroundingDINOHead.Entries, "bbox_head")

        ignored: ClassVar = {**DINO.Model.ignored, **training_only("use_autocast")}

        def check(self, name: str) -> None:
            """Raise a ValueError if not all parts have the channels of the positions of words."""
            super().check(name)
            if not self.language_model.entries.use_sub_sentence_represent:
                raise ValueError(f"detect.build: use_sub_sentence_represent of {name}.language_model must be True")
            encoder = self.encoder
            numbers = {
                "embed_dims of encoder.layer_cfg": encoder.embed_dims,
                "embed_dims of encoder.text_layer_cfg": encoder.text_layer_cfg.embed_dims,
                "v_dim of encoder.fusion_layer_cfg": encoder.fusion_layer_cfg.v_dim,
                "l_dim of encoder.fusion_layer_cfg": encoder.fusion_layer_cfg.l_dim,
            }
            for entry, number in numbers.items():
                if number != WORD_DIMS:
                    raise ValueError(
                        f"detect.build: {entry} must be {WORD_DIMS}, as the positions of words have so many channels, "
                        f"got {number}"
                    )

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        model = self.entries
        assert isinstance(model, GroundingDINO.Model)
        self.text_feat_map = nn.Linear(model.language_model.dims, WORD_DIMS)
        self.limits = model.language_model.limits(
            self.test_cfg.chunked_size, model.bbox_head.contrastive_cfg.max_text_len
        )
        self.words: tuple[Mapping[torch.dtype, EncodedCaption], ...] = ()

    def build_queries(self, model: QueryModelEntries) -> None:
        self.query_embedding = nn.Embedding(model.num_queries, model.encoder.embed_dims)

    def set_texts(self, prompt: Prompt, vocabulary: str | os.PathLike[str] | None = None) -> None:
        inputs = bert_inputs(prompt, self.language_model.tokenizer(vocabulary), self.limits)
        self.words = tuple(
            {dtype: EncodedCaption.of(features.to(dtype), positions, shares.to(dtype)) for dtype in DTYPES}
            for features, positions, shares in map(self._text_encoder().text, inputs)
        )
        self.classes = prompt.names

    def text_encoder(self) -> TextEncoder:
        for name, number in (("max_tokens", self.limits.max_tokens + 1), ("max_per_img", self.max_per_image)):
            if number > self.queries:  # as many tokens as queries, or fewer pairs than detections, are special cases
                raise ValueError(
                    f"export: open_vocabulary needs num_queries of at least {number}, because of {name}, "
                    f"got {self.queries}"
                )
        return self._text_encoder()

    def _text_encoder(self) -> TextEncoder:
        """Return the language model and the layer after it."""
        return TextEncoder(self.language_model, self.text_feat_map, self.limits)

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the logits of words and the boxes, for each chunk of the names."""
        if len(self.words) <= 1:
            return "cls_score", "bbox_pred"
        return tuple(f"{name}_{chunk}" for chunk in range(len(self.words)) for name in ("cls_score", "bbox_pred"))

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return logits of words [N, Q, T] and boxes (x, y of the middle, w, h) in 0 ... 1, for each chunk."""
        pairs = self._found(input, image_limits(input, None), self._chunks(input.dtype))
        return tuple(output for pair in pairs for output in pair)

    def forward(self, input: Tensor, img_shape: Tensor | None = None, *text: Tensor) -> tuple[Tensor, ...]:
        """Detect objects in a batch of images; see `Detector.forward`.  `text` is what `set_texts` sets otherwise."""
        limits = image_limits(input, img_shape)  # [N, 1, 4]
        chunks = [EncodedCaption.of(*text)] if text else self._chunks(input.dtype)
        detections = []
        for words, (logits, boxes) in zip(chunks, self._found(input, limits, chunks), strict=True):
            scores = logits.sigmoid() @ words.shares
            detections.append((*best_pairs(scores, boxes, limits, self.max_per_image), scores.shape[2]))
        return merged(detections)

    def _chunks(self, dtype: torch.dtype) -> list[EncodedCaption]:
        """Return the words that are set."""
        if not self.words:
            raise ValueError("detect: texts must be set before Grounding DINO detects: set_texts")
        return [words[dtype] for words in self.words]

    def _found(self, input: Tensor, limits: Tensor, chunks: Sequence[EncodedCaption]) -> list[tuple[Tensor, Tensor]]:
        """Return the logits of words and the boxes, for each chunk of the names."""
        pyramid = Pyramid.of(self.levels(input), input, limits, self.positional_encoding, self.level_embed)
        return [self._found_words(pyramid, words) for words in chunks]

    def _found_words(self, pyramid: Pyramid, words: EncodedCaption) -> tuple[Tensor, Tensor]:
        """Return the logits of words [N, Q, T], without padding, and the boxes [N, Q, 4]."""
        memory, text = self.encoder.fused(pyramid, words)
        scored = text[:, : words.shares.shape[0]]
        boxes = self.best_proposals(memory, pyramid, scored)  # [N, Q, 4]
        x = self.query_embedding.weight[: boxes.shape[1]].expand(memory.shape[0], -1, -1)
        last = len(self.decoder.layers) - 1
        for index, layer in enumerate(self.decoder.layers):
            positions = self.decoder.positions(pyramid.references(boxes)[:, :, 0])
            # MMCV adds the positions of queries to keys that have none, if there are as many keys.
            located_text = text + positions if words.padding.shape[1] == self.queries else text
            x = layer(x, positions, memory, pyramid, boxes, text, located_text, words.padding)
            if index < last:  # MMDetection's head has another `eps`, and sees normalized queries
                boxes = moved(boxes, self.bbox_head.reg_branches[index](x), eps=1e-3)
        return self.bbox_head(self.decoder.norm(x), boxes, last, scored)
