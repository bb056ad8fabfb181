"""Conditional DETR: DETR whose queries look for what is near a point of reference that each of them has.

Source: D. Meng et al., "Conditional DETR for Fast Training Convergence", ICCV 2021.  Box AP of MMDetection's R-50 model
on COCO val2017: 40.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, nested
from mmort.detect.families.query.detr import DETR, DETRHead
from mmort.detect.parts.conditional_transformer import ConditionalDecoder, ConditionalDecoderEntries
from mmort.detect.parts.positions import waves_of_references
from mmort.detect.parts.queries import MLP, QueryModelEntries, moved
from mmort.detect.parts.transformer import Encoder


class ReferencePointDecoder(ConditionalDecoder):
    """Decoder layers whose references are points, the same ones in all layers."""

    def __init__(self, entries: ConditionalDecoderEntries) -> None:
        super().__init__(entries)
        self.ref_point_head = MLP(self.embed_dims, self.embed_dims, 2)

    def forward(
        self, queries: Tensor, memory: Tensor, cells: Tensor, padding: Tensor, head: nn.Module
    ) -> tuple[Tensor, Tensor]:
        """Return normalized queries [N, Q, D] and their references [N, Q, 2], for the queries' positions [N, Q, D]."""
        references = self.ref_point_head(queries).sigmoid()
        waves = waves_of_references(references, self.embed_dims // 2)
        x = torch.zeros_like(queries)
        for index, layer in enumerate(self.layers):
            weighted = waves if index == 0 else waves * self.query_scale(x)
            x = layer(x, queries, weighted, memory, cells, padding)
        return self.post_norm(x), references


class ConditionalDETRHead(DETRHead):
    """For each query the logits of the classes, and a box relative to its reference."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(DETRHead.Entries):
        types = ("ConditionalDETRHead",)

    eps: ClassVar[float] = 1e-5  # of the references' logits

    def forward(self, x: Tensor, references: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return class logits [N, Q, C] and boxes [N, Q, 4] for queries [N, Q, D] and their references."""
        return self.fc_cls(x), moved(references, self.deltas(x), self.eps)


@PARTS.register("detector", "ConditionalDETRHead")
class ConditionalDETR(DETR):
    """Conditional DETR."""

    family = "Conditional DETR"

    @dataclass(frozen=True, kw_only=True)
    class Model(QueryModelEntries):
        types = ("ConditionalDETR",)

        decoder: ConditionalDecoderEntries = nested(ConditionalDecoderEntries, "decoder")
        bbox_head: ConditionalDETRHead.Entries = nested(ConditionalDETRHead.Entries, "bbox_head")

    def build_transformer(self, model: QueryModelEntries) -> None:
        assert isinstance(model, ConditionalDETR.Model)
        dims = model.encoder.embed_dims
        self.encoder = Encoder(model.encoder)
        self.decoder = ReferencePointDecoder(model.decoder)
        self.query_embedding = nn.Embedding(model.num_queries, dims)
        self.bbox_head = ConditionalDETRHead(model.bbox_head, dims)

    def boxes(self, queries: Tensor, memory: Tensor, positions: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        return self.bbox_head(*self.decoder(queries, memory, positions, padding, self.bbox_head))
