"""Layers of transformers: attention, the fully connected layers after it, and what a config says about both."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from mmort.detect.versions import Config


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
        own = slice(index * size, (index + 1) * size)
        return by_head(nn.functional.linear(x, self.in_proj_weight[own], self.in_proj_bias[own]), self.num_heads)


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
    """Two fully connected layers for each row."""

    def __init__(self, embed_dims: int, feedforward_channels: int, activation: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Sequential(nn.Linear(embed_dims, feedforward_channels), activation()),
            nn.Linear(feedforward_channels, embed_dims),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


_ORDERS = {
    "encoder": ("self_attn", "norm", "ffn", "norm"),
    "decoder": ("self_attn", "norm", "cross_attn", "norm", "ffn", "norm"),
}


def layer_arguments(part: str, config: Config, activation: str = "ReLU") -> dict[str, int]:
    """Return the arguments of a layer for an encoder's or decoder's config, of MMDetection 2 or 3.

    Raises
    ------
    ValueError
        If the config asks for other layers: another order, another activation or other normalization.
    """
    layer: dict[str, Any] = config.get("layer_cfg") or config["transformerlayers"]
    attention = layer.get("self_attn_cfg") or layer.get("attn_cfgs") or {}
    if isinstance(attention, (list, tuple)):
        attention = attention[0]
    ffn: dict[str, Any] = layer.get("ffn_cfg") or layer.get("ffn_cfgs") or {}
    checked = (
        ("operation_order", tuple(layer.get("operation_order", _ORDERS[part])), _ORDERS[part]),
        ("num_fcs", ffn.get("num_fcs", layer.get("ffn_num_fcs", 2)), 2),
        ("act_cfg", (ffn.get("act_cfg") or layer.get("act_cfg") or {"type": "ReLU"})["type"], activation),
        ("norm_cfg", (layer.get("norm_cfg") or {"type": "LN"})["type"], "LN"),
        ("post_norm_cfg", (config.get("post_norm_cfg") or {"type": "LN"})["type"], "LN"),
    )
    for name, value, supported in checked:
        if value != supported:
            raise ValueError(f"detect.build: {part}.{name} must be {supported!r}, got {value!r}")
    return {
        "embed_dims": attention.get("embed_dims", 256),
        "num_heads": attention.get("num_heads", 8),
        "feedforward_channels": layer.get("feedforward_channels") or ffn.get("feedforward_channels", 1024),
    }
