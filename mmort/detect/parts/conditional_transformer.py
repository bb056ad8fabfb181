"""The conditional transformer: queries attend to the image's contents and to its positions in separate halves.

Source: D. Meng et al., "Conditional DETR for Fast Training Convergence", ICCV 2021.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmort.detect.parts.queries import MLP
from mmort.detect.parts.transformer import FFN, Attention, attended, by_head, layer_arguments
from mmort.detect.versions import Config


class EncoderLayer(nn.Module):
    """Every cell of the image attends to all others."""

    def __init__(self, embed_dims: int, num_heads: int, feedforward_channels: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.self_attn = nn.ModuleDict({"attn": Attention(embed_dims, num_heads)})
        self.ffn = FFN(embed_dims, feedforward_channels, activation)
        self.norms = nn.ModuleList(nn.LayerNorm(embed_dims) for _ in range(2))

    def forward(self, x: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        located = x + positions
        x = self.norms[0](x + self.self_attn["attn"](located, located, x, padding))
        normalized: Tensor = self.norms[1](x + self.ffn(x))
        return normalized


class ConditionalEncoder(nn.Module):
    """Encoder layers in a row."""

    def __init__(self, config: Config, activation: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        arguments = layer_arguments("encoder", config, activation.__name__)
        self.embed_dims: int = arguments["embed_dims"]
        self.layers = nn.ModuleList(
            EncoderLayer(**arguments, activation=activation) for _ in range(config["num_layers"])
        )

    def forward(self, x: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        """Return the memory [N, P, D] for cells and their positions [N, P, D], which are padding [N, P]."""
        for layer in self.layers:
            x = layer(x, self.scaled(positions, x), padding)
        return x

    def scaled(self, positions: Tensor, x: Tensor) -> Tensor:
        """Return what is added to the cells `x` where they are compared."""
        return positions


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
        output: Tensor = self.out_proj(attended(*heads))
        return output


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
        output: Tensor = self.out_proj(
            attended(torch.cat([q, q_positions], 3), torch.cat([k, k_positions], 3), v, padding)
        )
        return output


class ConditionalDecoderLayer(nn.Module):
    """Every query attends to all others, then to the image."""

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        feedforward_channels: int,
        activation: type[nn.Module],
        *,
        first: bool,
    ) -> None:
        super().__init__()
        self.self_attn = ConditionalSelfAttention(embed_dims, num_heads)
        self.cross_attn = ConditionalCrossAttention(embed_dims, num_heads, first=first)
        self.ffn = FFN(embed_dims, feedforward_channels, activation)
        self.norms = nn.ModuleList(nn.LayerNorm(embed_dims) for _ in range(3))

    def forward(
        self, x: Tensor, positions: Tensor, waves: Tensor, memory: Tensor, cells: Tensor, padding: Tensor
    ) -> Tensor:
        """Return the queries [N, Q, D]; the arguments are those of `ConditionalCrossAttention`."""
        x = self.norms[0](x + self.self_attn(x, positions))
        x = self.norms[1](x + self.cross_attn(x, positions, waves, memory, cells, padding))
        normalized: Tensor = self.norms[2](x + self.ffn(x))
        return normalized


class ConditionalDecoder(nn.Module):
    """Decoder layers, and what weights the waves of references; where references come from is the family's."""

    def __init__(self, config: Config, activation: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        arguments = layer_arguments("decoder", config, activation.__name__)
        if config["layer_cfg"]["cross_attn_cfg"].get("keep_query_pos", False):
            raise ValueError("detect.build: decoder.layer_cfg.cross_attn_cfg.keep_query_pos must be False, got True")
        self.embed_dims: int = arguments["embed_dims"]
        self.layers = nn.ModuleList(
            ConditionalDecoderLayer(**arguments, activation=activation, first=index == 0)
            for index in range(config["num_layers"])
        )
        self.post_norm = nn.LayerNorm(self.embed_dims)
        self.query_scale = MLP(self.embed_dims, self.embed_dims, self.embed_dims)
