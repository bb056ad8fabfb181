"""DETR: a set of boxes from a transformer, without anchors and without suppression.

Source: N. Carion et al., "End-to-End Object Detection with Transformers", ECCV 2020.  Box AP of MMDetection's R-50
model on COCO val2017: 40.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import Parts, Schema, at_least, read_entries, require
from mmort.detect.parts.boxes import clip, image_limits
from mmort.detect.parts.isolation import SingleMapDetector
from mmort.detect.parts.positions import SinePositionalEncoding, padding_cells
from mmort.detect.parts.queries import corners
from mmort.detect.parts.selection import take_rows
from mmort.detect.parts.transformer import FFN, Attention, layer_arguments
from mmort.detect.versions import Config, test_config


class Layer(nn.Module):
    """Base of the layers of encoder and decoder: attentions, an `FFN`, and a normalization after each.

    The arguments are those of `layer_arguments`.
    """

    attentions_per_layer: int

    def __init__(self, embed_dims: int, num_heads: int, feedforward_channels: int) -> None:
        super().__init__()
        count = self.attentions_per_layer
        self.attentions = nn.ModuleList(nn.ModuleDict({"attn": Attention(embed_dims, num_heads)}) for _ in range(count))
        self.ffns = nn.ModuleList([FFN(embed_dims, feedforward_channels)])
        self.norms = nn.ModuleList(nn.LayerNorm(embed_dims) for _ in range(count + 1))

    def attend(self, index: int, x: Tensor, *inputs: Tensor | None) -> Tensor:
        """Add the output of an attention to `x`, and normalize."""
        return self.norms[index](x + self.attentions[index]["attn"](*inputs))  # type: ignore[index]

    def feed(self, x: Tensor) -> Tensor:
        """Add the output of the `FFN` to `x`, and normalize."""
        return self.norms[-1](x + self.ffns[0](x))


class EncoderLayer(Layer):
    """Every location of the image attends to all others."""

    attentions_per_layer = 1

    def forward(self, x: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        located = x + positions
        return self.feed(self.attend(0, x, located, located, x, padding))


class DecoderLayer(Layer):
    """Every query attends to all others, then to the image."""

    attentions_per_layer = 2

    def forward(self, x: Tensor, queries: Tensor, memory: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        x = self.attend(0, x, x + queries, x + queries, x)
        x = self.attend(1, x, x + queries, memory + positions, memory, padding)
        return self.feed(x)


class Encoder(nn.Module):
    """Encoder layers in a row."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        arguments = layer_arguments("encoder", config)
        self.layers = nn.ModuleList(EncoderLayer(**arguments) for _ in range(config["num_layers"]))

    def forward(self, x: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, positions, padding)
        return x


class Decoder(nn.Module):
    """Decoder layers in a row, and a normalization."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        arguments = layer_arguments("decoder", config)
        self.layers = nn.ModuleList(DecoderLayer(**arguments) for _ in range(config["num_layers"]))
        self.post_norm = nn.LayerNorm(arguments["embed_dims"])

    def forward(self, queries: Tensor, memory: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        x = torch.zeros_like(queries)
        for layer in self.layers:
            x = layer(x, queries, memory, positions, padding)
        return self.post_norm(x)


class Transformer(nn.Module):
    """Encoder and decoder: from the locations of an image, in any order, to one row for each query."""

    def __init__(self, encoder: Config, decoder: Config) -> None:
        super().__init__()
        self.encoder = Encoder(encoder)
        self.decoder = Decoder(decoder)

    def forward(self, x: Tensor, positions: Tensor, padding: Tensor, queries: Tensor) -> Tensor:
        """Return [N, Q, D] for locations and their positions [N, P, D], which are padding [N, P] and queries [Q, D]."""
        memory = self.encoder(x, positions, padding)  # [N, P, D]
        return self.decoder(queries.expand(x.shape[0], -1, -1), memory, positions, padding)


class DETRHead(nn.Module):
    """The transformer; for each query the logits of the classes and a box."""

    class_layers: ClassVar = {"fc_cls": 1}

    def __init__(
        self, in_channels: int, num_classes: int, num_queries: int, transformer: Transformer, positions: nn.Module
    ) -> None:
        super().__init__()
        dims: int = transformer.decoder.post_norm.normalized_shape[0]
        self.positional_encoding = positions
        self.transformer = transformer
        self.input_proj = nn.Conv2d(in_channels, dims, 1)
        self.fc_cls = nn.Linear(dims, num_classes + 1)
        self.reg_ffn = FFN(dims, dims)
        self.fc_reg = nn.Linear(dims, 4)
        self.query_embedding = nn.Embedding(num_queries, dims)

    def forward(self, x: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits and boxes for features [N, C, h, w]; see `DETR.raw`.

        `rows` [N, h] and `columns` [N, w] are true where the image is.
        """
        cells = self.input_proj(x).flatten(2).transpose(1, 2)  # [N, h*w, D]
        padding = padding_cells(rows, columns)  # [N, h*w]
        positions = self.positional_encoding(rows, columns)  # [N, h*w, D]
        found = self.transformer(cells, positions, padding, self.query_embedding.weight)  # [N, Q, D]
        return self.fc_cls(found), self.fc_reg(torch.relu(self.reg_ffn(found))).sigmoid()


class DETR(SingleMapDetector):
    """DETR."""

    @dataclass(frozen=True, kw_only=True)
    class TestCfg(Schema):
        """The entries of ``test_cfg``."""

        max_per_img: int | None = at_least(1, default=None)  # by default the number of queries

    family = "DETR"
    # MMDetection 3 took the transformer out of the head.
    model_entries = (
        *SingleMapDetector.model_entries,
        *("num_queries", "num_query", "encoder", "decoder", "positional_encoding"),
    )
    renamed_keys = (
        # before MMDetection 2.11
        (r"(transformer\.\w+\.layers\.\d+)\.self_attn\.", r"\1.attentions.0."),
        (r"(transformer\.\w+\.layers\.\d+)\.multihead_attn\.", r"\1.attentions.1."),
        (r"(transformer\.\w+\.layers\.\d+)\.ffn\.", r"\1.ffns.0."),
        (r"(transformer\.decoder)\.norm\.", r"\1.post_norm."),
        # MMDetection 3
        (r"^(\w+\.layers\.\d+)\.self_attn\.", r"bbox_head.transformer.\1.attentions.0."),
        (r"^(\w+\.layers\.\d+)\.cross_attn\.", r"bbox_head.transformer.\1.attentions.1."),
        (r"^(\w+\.layers\.\d+)\.ffn\.", r"bbox_head.transformer.\1.ffns.0."),
        (r"^(encoder|decoder)\.", r"bbox_head.transformer.\1."),
        (r"^query_embedding\.", "bbox_head.query_embedding."),
        (r"^neck\.convs\.0\.conv\.", "bbox_head.input_proj."),
    )

    def __init__(self, config: Config, parts: Parts) -> None:
        model = config["model"]
        super().__init__(parts.build("backbone", model["backbone"]))
        require("model.type", model["type"], "DETR")
        head = model["bbox_head"]
        if head.get("loss_cls", {}).get("use_sigmoid", False):
            raise ValueError("detect.build: bbox_head.loss_cls.use_sigmoid must be false: sigmoid is not supported")
        if head.get("num_reg_fcs", 2) != 2:
            raise ValueError(f"detect.build: bbox_head.num_reg_fcs must be 2, got {head['num_reg_fcs']}")
        transformer = head.get("transformer") or model
        positions = head.get("positional_encoding") or model["positional_encoding"]
        queries: int = model.get("num_queries") or model.get("num_query") or head.get("num_query", 100)
        self.bbox_head = DETRHead(
            _projected_channels(model),
            head["num_classes"],
            queries,
            Transformer(transformer["encoder"], transformer["decoder"]),
            parts.build(
                "positional_encoding",
                {"type": "SinePositionalEncoding", **positions},
                {"SinePositionalEncoding": SinePositionalEncoding},
            ),
        )
        test_cfg = read_entries("test_cfg", self.TestCfg, test_config(config))
        self.max_per_image: int = min(test_cfg.max_per_img or queries, queries)

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        limits = image_limits(input, img_shape)  # [N, 1, 4]
        logits, boxes = self._raw(input, limits)  # [N, Q, C + 1], [N, Q, 4]
        scores, labels = logits.softmax(2)[..., :-1].max(2)  # [N, Q]
        scores, queries = scores.topk(self.max_per_image)  # [N, K]
        found = clip(corners(take_rows(boxes, queries)) * limits, limits)
        dets = torch.cat([found, scores[..., None]], 2)  # [N, K, 5]
        return dets, labels.gather(1, queries)

    def _raw(self, input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits [N, Q, C + 1], the background last, and boxes."""
        return self.bbox_head(*self.last_map(input, limits))


def _projected_channels(model: Config) -> int:
    """Return the channels of the features: the head's projection is a neck of one convolution in MMDetection 3."""
    neck = model.get("neck")
    if neck is None:
        return model["bbox_head"]["in_channels"]
    require("neck", neck["type"], "ChannelMapper")
    known = {"kernel_size": 1, "norm_cfg": None, "act_cfg": None, "num_outs": 1}
    for name, value in known.items():
        if name not in neck or neck[name] != value:
            raise ValueError(f"detect.build: neck.{name} must be {value}, got {neck.get(name)}")
    return neck["in_channels"][0]
