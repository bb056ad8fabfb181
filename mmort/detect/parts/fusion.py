"""Fusion of an image with words: cells of its maps and words attend to each other.

Source: L. H. Li et al., "Grounded Language-Image Pre-training", CVPR 2022; Grounding DINO has it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import Schema, at_least, training_only
from mmort.detect.parts.transformer import by_head

MAX_LOGIT = 50_000
"""The limit to which logits of the fusion are clamped."""


@dataclass(frozen=True, kw_only=True)
class FusionEntries(Schema):
    """The entries of ``encoder.fusion_layer_cfg``."""

    ignored: ClassVar = {**training_only("dropout", "drop_path"), "init_values": "weights come from the checkpoint"}

    v_dim: int = at_least(1)
    l_dim: int = at_least(1)
    embed_dim: int = at_least(1)
    num_heads: int = at_least(1)

    def check(self, name: str) -> None:
        """Raise a ValueError if the channels cannot be divided among the heads."""
        if self.embed_dim % self.num_heads:
            raise ValueError(
                f"detect.build: embed_dim of {name} must be a multiple of num_heads, "
                f"got {self.embed_dim} and {self.num_heads}"
            )


class BiAttention(nn.Module):
    """Attention of cells to words and of words to cells, by the same logits."""

    def __init__(self, entries: FusionEntries) -> None:
        super().__init__()
        dims, self.num_heads = entries.embed_dim, entries.num_heads
        self.v_proj, self.values_v_proj = nn.Linear(entries.v_dim, dims), nn.Linear(entries.v_dim, dims)
        self.l_proj, self.values_l_proj = nn.Linear(entries.l_dim, dims), nn.Linear(entries.l_dim, dims)
        self.out_v_proj, self.out_l_proj = nn.Linear(dims, entries.v_dim), nn.Linear(dims, entries.l_dim)
        self.scale = (dims // self.num_heads) ** -0.5

    def forward(self, cells: Tensor, words: Tensor, padding: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the updates of cells [N, P, D] and words [N, T, D]; words do not attend to `padding` [N, P].

        Cells attend to all tokens.
        """
        q = by_head(self.v_proj(cells) * self.scale, self.num_heads)
        k = by_head(self.l_proj(words), self.num_heads)
        logits = (q @ k.transpose(2, 3)).clamp(-MAX_LOGIT, MAX_LOGIT)  # [N, heads, P, T]
        visible = logits if padding is None else torch.where(padding[:, None, :, None], -math.inf, logits)
        of_words = visible.softmax(2).transpose(2, 3)
        to_cells = logits.softmax(3) @ by_head(self.values_l_proj(words), self.num_heads)
        to_words = of_words @ by_head(self.values_v_proj(cells), self.num_heads)
        return tuple(
            layer(values.transpose(1, 2).flatten(2))
            for layer, values in ((self.out_v_proj, to_cells), (self.out_l_proj, to_words))
        )


class FusionLayer(nn.Module):
    """Cells and words change each other; the shortcuts begin after the normalizations."""

    def __init__(self, entries: FusionEntries) -> None:
        super().__init__()
        self.layer_norm_v, self.layer_norm_l = nn.LayerNorm(entries.v_dim), nn.LayerNorm(entries.l_dim)
        self.attn = BiAttention(entries)
        self.gamma_v, self.gamma_l = nn.Parameter(torch.ones(entries.v_dim)), nn.Parameter(torch.ones(entries.l_dim))

    def forward(self, cells: Tensor, words: Tensor, padding: Tensor | None = None) -> tuple[Tensor, Tensor]:
        cells, words = self.layer_norm_v(cells), self.layer_norm_l(words)
        to_cells, to_words = self.attn(cells, words, padding)
        return cells + self.gamma_v * to_cells, words + self.gamma_l * to_words
