"""Conditional DETR: DETR whose queries look for what is near a point of reference that each of them has.

Source: D. Meng et al., "Conditional DETR for Fast Training Convergence", ICCV 2021.  Box AP of MMDetection's R-50 model
on COCO val2017: 40.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import Parts, Schema, at_least, read_entries
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.conditional_transformer import ConditionalDecoder, ConditionalEncoder
from mmort.detect.parts.isolation import SingleMapDetector
from mmort.detect.parts.positions import SinePositionalEncoding, padding_cells, waves_of_references
from mmort.detect.parts.queries import MLP, best_pairs_of_queries, moved
from mmort.detect.parts.transformer import FFN
from mmort.detect.versions import Config, test_config


class ReferencePointDecoder(ConditionalDecoder):
    """Decoder layers whose references are points, the same ones in all layers."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
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


class ConditionalDETRHead(nn.Module):
    """For each query the logits of the classes, and a box relative to its reference."""

    class_layers: ClassVar = {"fc_cls": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``bbox_head``."""

        ignored: ClassVar[Mapping[str, str]] = {"embed_dims": "the encoder's", "sync_cls_avg_factor": "training only"}

        num_classes: int

    eps: ClassVar[float] = 1e-5  # of the references' logits

    def __init__(self, entries: Entries, dims: int) -> None:
        super().__init__()
        self.fc_cls = nn.Linear(dims, entries.num_classes)
        self.build_boxes(dims)

    def build_boxes(self, dims: int) -> None:
        """Create the layers that `deltas` uses."""
        self.reg_ffn = FFN(dims, dims)
        self.fc_reg: nn.Module = nn.Linear(dims, 4)

    def deltas(self, x: Tensor) -> Tensor:
        """Return what moves the references of queries [N, Q, D], [N, Q, 4]."""
        moves: Tensor = self.fc_reg(torch.relu(self.reg_ffn(x)))
        return moves

    def forward(self, x: Tensor, references: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits [N, Q, C] and boxes [N, Q, 4] for queries [N, Q, D] and their references."""
        return self.fc_cls(x), moved(references, self.deltas(x), self.eps)


class ConditionalDETR(SingleMapDetector):
    """Conditional DETR."""

    @dataclass(frozen=True, kw_only=True)
    class TestCfg(Schema):
        """The entries of ``test_cfg``."""

        max_per_img: int | None = at_least(1, default=None)  # by default the number of queries

    family = "Conditional DETR"
    head_class: ClassVar[type[ConditionalDETRHead]] = ConditionalDETRHead
    encoder_class: ClassVar[type[ConditionalEncoder]] = ConditionalEncoder
    decoder_class: ClassVar[type[ConditionalDecoder]] = ReferencePointDecoder
    query_channels: ClassVar[int | None] = None
    """Channels of the queries' positions, by default those of the transformer."""
    model_entries = (
        *SingleMapDetector.model_entries,
        *("num_queries", "encoder", "decoder", "positional_encoding"),
    )

    def __init__(self, config: Config, parts: Parts) -> None:
        model = config["model"]
        super().__init__(parts.build("backbone", model["backbone"]))
        head = model["bbox_head"]
        if not head.get("loss_cls", {}).get("use_sigmoid", False):
            raise ValueError("detect.build: bbox_head.loss_cls.use_sigmoid must be true: softmax is not supported")
        self.neck: nn.Module = parts.build("neck", model["neck"])
        self.positional_encoding: SinePositionalEncoding = parts.build(
            "positional_encoding",
            {"type": "SinePositionalEncoding", **model["positional_encoding"]},
            {"SinePositionalEncoding": SinePositionalEncoding},
        )
        self.encoder = self.encoder_class(model["encoder"])
        self.decoder = self.decoder_class(model["decoder"])
        dims = self.encoder.embed_dims
        queries: int = model.get("num_queries") or 100
        self.query_embedding = nn.Embedding(queries, self.query_channels or dims)
        self.bbox_head = self.head_class(read_entries("bbox_head", self.head_class.Entries, head), dims)
        test_cfg = read_entries("test_cfg", self.TestCfg, test_config(config))
        self.max_per_image: int = test_cfg.max_per_img or queries

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        limits = image_limits(input, img_shape)  # [N, 1, 4]
        logits, boxes = self._raw(input, limits)
        return best_pairs_of_queries(logits, boxes, limits, self.max_per_image)

    def _raw(self, input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `raw` does, for images that end at `limits`, [N, 1, 4]."""
        map, rows, columns = self.last_map(input, limits)
        contents = self.neck([map])[0].flatten(2).transpose(1, 2)  # [N, h*w, D]
        return self.decode(contents, rows, columns)

    def decode(self, contents: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits and boxes for cells [N, h*w, D]; `rows` [N, h] and `columns` [N, w] are the images'."""
        padding = padding_cells(rows, columns)  # [N, h*w]
        positions = self.positional_encoding(rows, columns)  # [N, h*w, D]
        memory = self.encoder(contents, positions, padding)
        queries = self.query_embedding.weight.expand(contents.shape[0], -1, -1)
        found: tuple[Tensor, Tensor] = self.bbox_head(
            *self.decoder(queries, memory, positions, padding, self.bbox_head)
        )
        return found
