"""The conditional transformer: queries attend to the image's contents and to its positions in separate halves.

Source: D. Meng et al., "Conditional DETR for Fast Training Convergence", ICCV 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import nested, only
from mmort.detect.parts.queries import MLP
from mmort.detect.parts.transformer import (
    ATTENTION,
    FFN,
    AttentionEntries,
    DecoderEntries,
    DecoderLayerEntries,
    attended,
    by_head,
)


@dataclass(frozen=True, kw_only=True)
class ConditionalSelfAttentionEntries(AttentionEntries):
    """The entries of ``self_attn_cfg``."""

    types = ()
    ignored: ClassVar = {**AttentionEntries.ignored, "keep_query_pos": "of the other attention"}

    cross_attn: bool = only(False)


@dataclass(frozen=True, kw_only=True)
class ConditionalCrossAttentionEntries(AttentionEntries):
    """The entries of ``cross_attn_cfg``."""

    types = ()

    cross_attn: bool = only(True, required=True)
    keep_query_pos: bool = only(False)


@dataclass(frozen=True, kw_only=True)
class ConditionalDecoderLayerEntries(DecoderLayerEntries):
    """The entries of ``decoder.layer_cfg``."""

    self_attn_cfg: ConditionalSelfAttentionEntries = nested(ConditionalSelfAttentionEntries, default=ATTENTION)
    cross_attn_cfg: ConditionalCrossAttentionEntries = nested(ConditionalCrossAttentionEntries)


@dataclass(frozen=True, kw_only=True)
class ConditionalDecoderEntries(DecoderEntries):
    """The entries of ``decoder``."""

    layer_cfg: ConditionalDecoderLayerEntries = nested(ConditionalDecoderLayerEntries)


class ConditionalSelfAttention(nn.Module):
    """Attention among queries, whose contents and positions are projected separately and added."""

    def __init__(self, embed_dims: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qcontent_proj, self.qpos_proj, self.kcontent_proj, self.kpos_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dims, embed_dims) for _ in range(6)
        )

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return [N, Q, D] for queries and their positions [N, Q, D]."""
        q = self.qcontent_proj(x) + self.qpos_proj(positions)
        k = self.kcontent_proj(x) + self.kpos_proj(positions)
        heads = (by_head(values, self.num_heads) for values in (q, k, self.v_proj(x)))
        return self.out_proj(attended(*heads))


class ConditionalCrossAttention(nn.Module):
    """Attention of queries to cells: the products of their contents and those of their positions are added.

    In the first layer, where the contents of the queries are empty, their positions are added to them.
    """

    def __init__(self, embed_dims: int, num_heads: int, *, first: bool) -> None:
        super().__init__()
        self.num_heads, self.first = num_heads, first
        self.qcontent_proj, self.kcontent_proj, self.kpos_proj, self.v_proj, self.qpos_sine_proj, self.out_proj = (
            nn.Linear(embed_dims, embed_dims) for _ in range(6)
        )
        if first:
            self.qpos_proj = nn.Linear(embed_dims, embed_dims)

    def forward(
        self, x: Tensor, positions: Tensor, waves: Tensor, memory: Tensor, cells: Tensor, padding: Tensor
    ) -> Tensor:
        """Return [N, Q, D] for queries [N, Q, D], their positions and the waves of their references.

        `memory` has the contents and `cells` the positions of the image [N, P, D], which are padding [N, P].
        """
        q, k, k_positions = self.qcontent_proj(x), self.kcontent_proj(memory), self.kpos_proj(cells)
        if self.first:
            q, k = q + self.qpos_proj(positions), k + k_positions
        q, q_positions, k, k_positions, v = (
            by_head(values, self.num_heads)
            for values in (q, self.qpos_sine_proj(waves), k, k_positions, self.v_proj(memory))
        )
        return self.out_proj(attended(torch.cat([q, q_positions], 3), torch.cat([k, k_positions], 3), v, padding))


class ConditionalDecoderLayer(nn.Module):
    """Every query attends to all others, then to the image."""

    def __init__(self, entries: ConditionalDecoderLayerEntries, *, first: bool) -> None:
        super().__init__()
        dims = entries.embed_dims
        self.self_attn = ConditionalSelfAttention(dims, entries.self_attn_cfg.num_heads)
        self.cross_attn = ConditionalCrossAttention(dims, entries.cross_attn_cfg.num_heads, first=first)
        self.ffn = FFN(entries.ffn_cfg)
        self.norms = entries.norms()

    def forward(
        self, x: Tensor, positions: Tensor, waves: Tensor, memory: Tensor, cells: Tensor, padding: Tensor
    ) -> Tensor:
        """Return the queries [N, Q, D]; the arguments are those of `ConditionalCrossAttention`."""
        x = self.norms[0](x + self.self_attn(x, positions))
        x = self.norms[1](x + self.cross_attn(x, positions, waves, memory, cells, padding))
        return self.norms[2](self.ffn(x))


class ConditionalDecoder(nn.Module):
    """Decoder layers, and what weights the waves of references; where references come from is the family's."""

    def __init__(self, entries: ConditionalDecoderEntries) -> None:
        super().__init__()
        self.embed_dims = entries.embed_dims
        self.layers = nn.ModuleList(
            ConditionalDecoderLayer(entries.layer_cfg, first=index == 0) for index in range(entries.num_layers)
        )
        self.post_norm = entries.post_norm()
        self.query_scale = MLP(self.embed_dims, self.embed_dims, self.embed_dims)
