"""DETR: a set of boxes from a transformer, without anchors and without suppression.

Source: N. Carion et al., "End-to-End Object Detection with Transformers", ECCV 2020.  Box AP of MMDetection's R-50
model on COCO val2017: 40.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Parts, Schema, at_least, nested, read_entries
from mmort.detect.parts.isolation import SingleMapDetector
from mmort.detect.parts.positions import SinePositionalEncoding, padding_cells
from mmort.detect.parts.queries import HeadWithTransformer, QueryHeadEntries, QueryModelEntries
from mmort.detect.parts.transformer import FFN, Decoder, Encoder, EncoderEntries, FFNEntries


@dataclass(frozen=True, kw_only=True)
class Transformer(Schema):
    """The entries of ``bbox_head.transformer``, which MMDetection 2 has."""

    types = ("Transformer",)

    encoder: Config
    decoder: Config


@dataclass(frozen=True, kw_only=True)
class DETRHeadWithTransformer(HeadWithTransformer):
    """The entries of MMDetection 2's ``bbox_head`` that MMDetection 3 has in the model, or in the neck."""

    transformer: Transformer = nested(Transformer, "bbox_head.transformer")
    positional_encoding: Config
    in_channels: int = at_least(1)
    num_query: int = at_least(1, default=100)

    def model(self) -> Config:
        """Return the same as MMDetection 3 has it."""
        encoder = read_entries("bbox_head.transformer.encoder", EncoderEntries, self.transformer.encoder)
        return {
            "neck": {
                "type": "ChannelMapper",
                "in_channels": [self.in_channels],
                "kernel_size": 1,
                "out_channels": encoder.embed_dims,
                "act_cfg": None,
            },
            "num_queries": self.num_query,
            "encoder": self.transformer.encoder,
            "decoder": self.transformer.decoder,
            "positional_encoding": self.positional_encoding,
        }


class DETRHead(nn.Module):
    """For each query the logits of the classes and a box."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(QueryHeadEntries):
        types = ("DETRHead",)

        num_reg_fcs: int = at_least(2, default=2)

    def __init__(self, entries: QueryHeadEntries, dims: int) -> None:
        super().__init__()
        other_logits = entries.loss_cls.other_logits
        self.class_layers = {"fc_cls": other_logits}
        self.fc_cls = nn.Linear(dims, entries.num_classes + other_logits)
        self.build_boxes(entries, dims)

    def build_boxes(self, entries: QueryHeadEntries, dims: int) -> None:
        """Create the layers that `deltas` uses."""
        layers = FFNEntries(embed_dims=dims, feedforward_channels=dims, num_fcs=entries.num_reg_fcs, add_identity=False)
        self.reg_ffn = FFN(layers)
        self.fc_reg: nn.Module = nn.Linear(dims, 4)

    def deltas(self, x: Tensor) -> Tensor:
        """Return the logits of the boxes of queries [N, Q, D], or what moves their references, [N, Q, 4]."""
        return self.fc_reg(torch.relu(self.reg_ffn(x)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits [N, Q, C] and boxes [N, Q, 4] for queries [N, Q, D]."""
        return self.fc_cls(x), self.deltas(x).sigmoid()


@PARTS.register("detector", "DETRHead")
class DETR(SingleMapDetector):
    """DETR."""

    family = "DETR"
    entries: QueryModelEntries

    @dataclass(frozen=True, kw_only=True)
    class Model(QueryModelEntries):
        types = ("DETR",)
        head_with_transformer = DETRHeadWithTransformer

        bbox_head: DETRHead.Entries = nested(DETRHead.Entries, "bbox_head")

        @classmethod
        def respelled(cls, name: str, config: Config) -> Config:
            """Keep a neck beside the projection in the head of MMDetection 2, which is a neck."""
            neck = config.get("neck")
            config = super().respelled(name, config)
            return {**config, "neck": neck} if neck else config

    renamed_keys = (
        # before MMDetection 3
        (r"^bbox_head\.transformer\.(\w+\.layers\.\d+)\.attentions\.0\.", r"\1.self_attn."),
        (r"^bbox_head\.transformer\.(\w+\.layers\.\d+)\.attentions\.1\.", r"\1.cross_attn."),
        (r"^bbox_head\.transformer\.(\w+\.layers\.\d+)\.ffns\.0\.", r"\1.ffn."),
        (r"^bbox_head\.transformer\.", ""),
        (r"^bbox_head\.query_embedding\.", "query_embedding."),
        (r"^bbox_head\.input_proj\.", "neck.convs.0.conv."),
        # before MMDetection 2.11
        (r"^bbox_head\.transformer\.(\w+\.layers\.\d+)\.multihead_attn\.", r"\1.cross_attn."),
        (r"^bbox_head\.transformer\.decoder\.norm\.", "decoder.post_norm."),
    )

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        model = self.entries
        self.positional_encoding = SinePositionalEncoding(model.positional_encoding)
        self.build_transformer(model)
        self.scores = model.bbox_head.loss_cls
        self.max_per_image = self.test_cfg.max_per_img or model.num_queries

    def build_transformer(self, model: QueryModelEntries) -> None:
        """Create the layers after the neck."""
        dims = model.encoder.embed_dims
        self.encoder = Encoder(model.encoder)
        self.decoder: nn.Module = Decoder(model.decoder)
        self.query_embedding = nn.Embedding(model.num_queries, dims)
        self.bbox_head: DETRHead = DETRHead(model.bbox_head, dims)

    def _raw(self, input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the result of `raw` for images that end at `limits`, [N, 1, 4]."""
        map, rows, columns = self.last_map(input, limits)
        return self.decode(map.flatten(2).transpose(1, 2), rows, columns)

    def decode(self, contents: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits and boxes for cells [N, h*w, D]; `rows` [N, h] and `columns` [N, w] are the images'."""
        padding = padding_cells(rows, columns)  # [N, h*w]
        positions = self.positional_encoding(rows, columns)  # [N, h*w, D]
        memory = self.encoder(contents, positions, padding)
        queries = self.query_embedding.weight.expand(contents.shape[0], -1, -1)
        return self.boxes(queries, memory, positions, padding)

    def boxes(self, queries: Tensor, memory: Tensor, positions: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits and boxes for queries [N, Q, D] and a memory [N, h*w, D]."""
        return self.bbox_head(self.decoder(queries, memory, positions, padding))
