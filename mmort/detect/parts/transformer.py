"""Layers of transformers: attention, the fully connected layers after it, and the schemas that they are built from.

The schemas have MMDetection 3's names.  Those of MMDetection 2, ``transformerlayers`` with ``attn_cfgs`` and
``operation_order``, are read through `TransformerLayers` and translated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config, plain_type
from mmort.detect.entries import Schema, at_least, default, nested, only, read_entries, training_only
from mmort.detect.parts.layers import LayerNormEntries, activation
from mmort.torch import MultiScaleDeformableAttention

_DROPOUTS = training_only("attn_drop", "proj_drop", "dropout", "dropout_layer")


@dataclass(frozen=True, kw_only=True)
class NormEntries(LayerNormEntries):
    """The entries of a transformer's ``norm_cfg``."""

    types = ("LN",)

    def build(self, channels: int) -> nn.LayerNorm:
        """Return the layer for rows of so many channels."""
        return nn.LayerNorm(channels, self.eps, self.elementwise_affine, self.bias)


@dataclass(frozen=True, kw_only=True)
class FFNEntries(Schema):
    """The entries of ``ffn_cfg``."""

    types = ("FFN",)
    ignored: ClassVar = training_only("dropout", "dropout_layer", "ffn_drop")

    embed_dims: int = at_least(1, default=256)
    feedforward_channels: int = at_least(1, default=1024)
    num_fcs: int = at_least(2, default=2)
    act_cfg: Config = default({"type": "ReLU"})
    add_identity: bool = True
    layer_scale_init_value: float = only(0.0)

    @classmethod
    def respelled(cls, name: str, config: Config) -> Config:
        """Rename ``add_residual``, MMCV's older name."""
        if "add_residual" not in config or "add_identity" in config:
            return config
        return {"add_identity" if key == "add_residual" else key: value for key, value in config.items()}


@dataclass(frozen=True, kw_only=True)
class AttentionEntries(Schema):
    """The entries of the ``attn_cfg`` of an attention to all keys."""

    types: ClassVar[tuple[str, ...]] = ("MultiheadAttention",)
    ignored: ClassVar = _DROPOUTS

    embed_dims: int = at_least(1)
    num_heads: int = at_least(1)
    batch_first: bool = only(True)
    bias: bool = only(True)
    add_bias_kv: bool = only(False)
    add_zero_attn: bool = only(False)

    def check(self, name: str) -> None:
        """Raise a ValueError if the channels cannot be divided among the heads."""
        if self.embed_dims % self.num_heads:
            raise ValueError(
                f"detect.build: embed_dims of {name} must be a multiple of num_heads, "
                f"got {self.embed_dims} and {self.num_heads}"
            )

    def build(self) -> nn.Module:
        """Return the attention and its shortcut."""
        return MultiheadAttention(self.embed_dims, self.num_heads)


@dataclass(frozen=True, kw_only=True)
class DeformableAttentionEntries(AttentionEntries):
    """The entries of the ``attn_cfg`` of an attention to a few points."""

    types = ("MultiScaleDeformableAttention",)
    ignored: ClassVar = {
        "im2col_step": "how MMCV divides its work",
        "norm_cfg": "MMCV does not read it either",
        **training_only("dropout"),
    }

    embed_dims: int = at_least(1, default=256)
    num_heads: int = at_least(1, default=8)
    num_levels: int = at_least(1, default=4)
    num_points: int = at_least(1, default=4)
    value_proj_ratio: float = 1.0

    def build(self) -> MultiScaleDeformableAttention:
        """Return the attention, which adds its shortcut."""
        return MultiScaleDeformableAttention(
            self.embed_dims,
            self.num_heads,
            self.num_levels,
            self.num_points,
            batch_first=True,
            value_proj_ratio=self.value_proj_ratio,
        )


ATTENTION: Config = {"embed_dims": 256, "num_heads": 8}
"""MMDetection's default of an attention in a layer."""


@dataclass(frozen=True, kw_only=True)
class TransformerLayers(Schema):
    """The entries of ``transformerlayers``, in which MMDetection 2 describes a layer."""

    types = ("BaseTransformerLayer", "DetrTransformerDecoderLayer")
    ignored: ClassVar = {"act_cfg": "MMCV does not read it", **training_only("ffn_dropout")}

    attn_cfgs: Config | Sequence[Config]
    operation_order: Sequence[str] | None = None
    ffn_cfgs: Config = default({})
    feedforward_channels: int | None = None
    ffn_num_fcs: int | None = None
    norm_cfg: Config = default({"type": "LN"})
    batch_first: bool = only(False)

    def configs_of(self, name: str, attentions: Sequence[str]) -> list[Config]:
        """Return the configs of the `attentions`, which must be the layer's, in their order."""
        order = (*(step for attention in attentions for step in (attention, "norm")), "ffn", "norm")
        if self.operation_order is not None and tuple(self.operation_order) != order:
            raise ValueError(
                f"detect.build: operation_order of {name} must be {order!r}, got {tuple(self.operation_order)!r}"
            )
        configs = [self.attn_cfgs] * len(attentions) if isinstance(self.attn_cfgs, dict) else [*self.attn_cfgs]
        if len(configs) != len(attentions):
            raise ValueError(
                f"detect.build: attn_cfgs of {name} must have {len(attentions)} entries, got {len(configs)}"
            )
        return configs

    @property
    def ffn_cfg(self) -> Config:
        """Settings of the fully connected layers, from the layer and its ``ffn_cfgs``."""
        sizes = {"feedforward_channels": self.feedforward_channels, "num_fcs": self.ffn_num_fcs}
        return {**self.ffn_cfgs, **{key: size for key, size in sizes.items() if size is not None}}


@dataclass(frozen=True, kw_only=True)
class EncoderLayerEntries(Schema):
    """The entries of an encoder's ``layer_cfg``."""

    attentions: ClassVar[tuple[str, ...]] = ("self_attn",)
    """The attentions in their order."""

    self_attn_cfg: AttentionEntries = nested(AttentionEntries, default=ATTENTION)
    ffn_cfg: FFNEntries = nested(FFNEntries, default={})
    norm_cfg: NormEntries = nested(NormEntries, default={})

    @classmethod
    def respelled(cls, name: str, config: Config) -> Config:
        """Translate what MMDetection 2 describes."""
        if not config.keys() & {"attn_cfgs", "operation_order"}:
            return config
        if plain_type(config.get("type")) == "DetrTransformerDecoderLayer":
            config = {"ffn_num_fcs": 2, **config}  # MMDetection's default, whatever ffn_cfgs has
        layer = read_entries(name, TransformerLayers, config)
        configs = layer.configs_of(name, cls.attentions)
        if any(config.get("batch_first") for config in configs):
            raise ValueError(f"detect.build: batch_first of {name}.attn_cfgs must be False, got True")
        by_attention = {
            f"{attention}_cfg": {key: value for key, value in config.items() if key != "batch_first"}
            for attention, config in zip(cls.attentions, configs, strict=True)
        }
        dims = configs[0].get("embed_dims", 256)
        return {**by_attention, "ffn_cfg": {"embed_dims": dims, **layer.ffn_cfg}, "norm_cfg": layer.norm_cfg}

    @property
    def embed_dims(self) -> int:
        """The channels of what the layer reads and returns."""
        return self.self_attn_cfg.embed_dims

    def check(self, name: str) -> None:
        """Raise a ValueError if not all parts of the layer have the same channels."""
        for key in (*(f"{attention}_cfg" for attention in self.attentions), "ffn_cfg"):
            channels = getattr(self, key).embed_dims
            if channels != self.embed_dims:
                raise ValueError(
                    f"detect.build: embed_dims of {name}.{key} must be that of self_attn_cfg, {self.embed_dims}, "
                    f"got {channels}"
                )

    def norms(self) -> nn.ModuleList:
        """Return the normalizations: one after each attention and one after the `FFN`."""
        return nn.ModuleList(self.norm_cfg.build(self.embed_dims) for _ in range(len(self.attentions) + 1))


@dataclass(frozen=True, kw_only=True)
class DecoderLayerEntries(EncoderLayerEntries):
    """The entries of a decoder's ``layer_cfg``."""

    attentions: ClassVar[tuple[str, ...]] = ("self_attn", "cross_attn")

    cross_attn_cfg: AttentionEntries = nested(AttentionEntries, default=ATTENTION)


@dataclass(frozen=True, kw_only=True)
class EncoderEntries(Schema):
    """The entries of ``encoder``."""

    types = ("DetrTransformerEncoder",)
    ignored: ClassVar = training_only("num_cp")

    num_layers: int = at_least(1)
    layer_cfg: EncoderLayerEntries = nested(EncoderLayerEntries)

    @classmethod
    def respelled(cls, name: str, config: Config) -> Config:
        """Rename ``transformerlayers``, which MMDetection 2 has instead of ``layer_cfg``."""
        if "transformerlayers" not in config or "layer_cfg" in config:
            return config
        return {"layer_cfg" if key == "transformerlayers" else key: value for key, value in config.items()}

    @property
    def embed_dims(self) -> int:
        """The channels of what the layers read and return."""
        return self.layer_cfg.embed_dims


@dataclass(frozen=True, kw_only=True)
class DecoderEntries(EncoderEntries):
    """The entries of ``decoder``."""

    types = ("DetrTransformerDecoder",)
    ignored: ClassVar = {"return_intermediate": "detections come from the last layer"}

    layer_cfg: DecoderLayerEntries = nested(DecoderLayerEntries)
    post_norm_cfg: NormEntries = nested(NormEntries, default={})

    def post_norm(self) -> nn.LayerNorm:
        """Return the normalization after the last layer."""
        return self.post_norm_cfg.build(self.embed_dims)


class Attention(nn.Module):
    """Attention of several heads, with the parameters of `torch.nn.MultiheadAttention`.

    Written out, since that module's fast path cannot be exported.
    """

    def __init__(self, embed_dims: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj_weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(3 * embed_dims, embed_dims)))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dims))
        self.out_proj = nn.Linear(embed_dims, embed_dims)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None = None) -> Tensor:
        """Return [N, Q, D] for a query [N, Q, D], keys and values [N, K, D].

        `padding` [N, K] or [N, Q, K] says which keys are not used.
        """
        q, k, v = (self._project(index, x) for index, x in enumerate((query, key, value)))
        return self.out_proj(attended(q, k, v, padding))

    def _project(self, index: int, x: Tensor) -> Tensor:
        """Return [N, heads, L, D / heads] for [N, L, D]; one tensor has the weights for query, key and value."""
        size = x.shape[2]
        rows = slice(index * size, (index + 1) * size)
        return by_head(nn.functional.linear(x, self.in_proj_weight[rows], self.in_proj_bias[rows]), self.num_heads)


class MultiheadAttention(nn.Module):
    """An `Attention` and its shortcut, with MMCV's names."""

    def __init__(self, embed_dims: int, num_heads: int) -> None:
        super().__init__()
        self.attn = Attention(embed_dims, num_heads)

    def forward(self, x: Tensor, *inputs: Tensor | None) -> Tensor:
        """Return `x` and what `Attention` returns for the inputs, added."""
        return x + self.attn(*inputs)


def by_head(x: Tensor, num_heads: int) -> Tensor:
    """Return [N, heads, L, D / heads] for [N, L, D]."""
    return torch.unflatten(x, 2, (num_heads, x.shape[2] // num_heads)).transpose(1, 2)


def attended(q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
    """Return the values [N, Q, D] that queries, keys and values [N, heads, L, ...] give; see `Attention.forward`."""
    scores = (q / math.sqrt(q.shape[3])) @ k.transpose(2, 3)  # [N, heads, Q, K]
    if padding is not None:
        unused = padding[:, None] if padding.ndim == 3 else padding[:, None, None]
        scores = torch.where(unused, -math.inf, scores)
    return (scores.softmax(3) @ v).transpose(1, 2).flatten(2)


class FFN(nn.Module):
    """Fully connected layers for each row, beside a shortcut unless the entries leave it out."""

    def __init__(self, entries: FFNEntries) -> None:
        super().__init__()
        sizes = [entries.embed_dims, *[entries.feedforward_channels] * (entries.num_fcs - 1)]
        hidden = [
            nn.Sequential(nn.Linear(size, entries.feedforward_channels), activation(entries.act_cfg))
            for size in sizes[:-1]
        ]
        self.layers = nn.Sequential(*hidden, nn.Linear(sizes[-1], entries.embed_dims))
        self.add_identity = entries.add_identity

    def forward(self, x: Tensor, identity: Tensor | None = None) -> Tensor:
        """Transform rows [..., D]; the shortcut adds `identity`, by default `x`."""
        if not self.add_identity:
            return self.layers(x)
        return (x if identity is None else identity) + self.layers(x)


class TransformerLayer(nn.Module):
    """Base of layers: the attentions that the entries name, an `FFN`, and a normalization after each of them."""

    self_attn: nn.Module
    cross_attn: nn.Module

    def __init__(self, entries: EncoderLayerEntries) -> None:
        super().__init__()
        for attention in entries.attentions:
            self.add_module(attention, getattr(entries, f"{attention}_cfg").build())
        self.ffn = FFN(entries.ffn_cfg)
        self.norms = entries.norms()


class EncoderLayer(TransformerLayer):
    """Every cell of the image attends to all others."""

    def forward(self, x: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        located = x + positions
        x = self.norms[0](self.self_attn(x, located, located, x, padding))
        return self.norms[1](self.ffn(x))


class Encoder(nn.Module):
    """Encoder layers in a row."""

    def __init__(self, entries: EncoderEntries) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(entries.layer_cfg) for _ in range(entries.num_layers))

    def forward(self, x: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        """Return the memory [N, P, D] for cells and their positions [N, P, D], which are padding [N, P]."""
        for layer in self.layers:
            x = layer(x, self.scaled(positions, x), padding)
        return x

    def scaled(self, positions: Tensor, x: Tensor) -> Tensor:
        """Return the positions added to the cells `x` for their comparison."""
        return positions


class DecoderLayer(TransformerLayer):
    """Every query attends to all others, then to the image."""

    def forward(self, x: Tensor, queries: Tensor, memory: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        x = self.norms[0](self.self_attn(x, x + queries, x + queries, x))
        x = self.norms[1](self.cross_attn(x, x + queries, memory + positions, memory, padding))
        return self.norms[2](self.ffn(x))


class Decoder(nn.Module):
    """Decoder layers in a row, and a normalization."""

    def __init__(self, entries: DecoderEntries) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(entries.layer_cfg) for _ in range(entries.num_layers))
        self.post_norm = entries.post_norm()

    def forward(self, queries: Tensor, memory: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        """Return [N, Q, D] for the positions of queries [N, Q, D], a memory and its positions [N, P, D]."""
        x = torch.zeros_like(queries)
        for layer in self.layers:
            x = layer(x, queries, memory, positions, padding)
        return self.post_norm(x)
