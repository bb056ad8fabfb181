"""The attention layer, with the arguments and the ``state_dict`` keys of its namesake in ``mmcv.ops``."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mmort.torch.dtypes import in_dtype
from mmort.torch.functions import multi_scale_deformable_attention

__all__ = ["MultiScaleDeformableAttention"]


class MultiScaleDeformableAttention(nn.Module):
    """Attend to a few points of several feature maps, and add the input, as Deformable DETR does.

    Parameters
    ----------
    embed_dims : int, default 256
        Channels of queries and results.
    num_heads : int, default 8
    num_levels : int, default 4
        Number of feature maps.
    num_points : int, default 4
        Points of each query in each map, for each head.
    dropout : float, default 0.1
        Of the results before the addition, in training.
    batch_first : bool, default False
        Whether tensors are (N, Q, C) instead of (Q, N, C).
    value_proj_ratio : float, default 1.0
        Channels of all heads, divided by `embed_dims`.

    Raises
    ------
    ValueError
        If the channels cannot be divided by `num_heads`.

    Notes
    -----
    Source: X. Zhu et al., "Deformable DETR", ICLR 2021.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> layer = mmort.torch.MultiScaleDeformableAttention(32, num_levels=1, batch_first=True)
    >>> cells, centres = torch.rand(2, 6, 32), torch.rand(2, 6, 1, 2)  # of one map of 2 x 3
    >>> layer(cells, reference_points=centres, spatial_shapes=torch.tensor([[2, 3]])).shape
    torch.Size([2, 6, 32])
    """

    def __init__(
        self,
        embed_dims: int = 256,
        num_heads: int = 8,
        num_levels: int = 4,
        num_points: int = 4,
        dropout: float = 0.1,
        batch_first: bool = False,
        value_proj_ratio: float = 1.0,
    ) -> None:
        super().__init__()
        channels = int(embed_dims * value_proj_ratio)
        if embed_dims % num_heads or channels % num_heads:
            raise ValueError(
                f"MultiScaleDeformableAttention: num_heads must divide embed_dims and embed_dims * value_proj_ratio, "
                f"got {num_heads}, {embed_dims} and {channels}"
            )
        self.num_heads, self.num_levels, self.num_points = num_heads, num_levels, num_points
        self.batch_first = batch_first
        points = num_heads * num_levels * num_points
        self.sampling_offsets = nn.Linear(embed_dims, 2 * points)
        self.attention_weights = nn.Linear(embed_dims, points)
        self.value_proj = nn.Linear(embed_dims, channels)
        self.output_proj = nn.Linear(channels, embed_dims)
        self.dropout = nn.Dropout(dropout)
        self.init_weights()

    def init_weights(self) -> None:
        """Initialize all parameters; the points then lie in another direction for each head, with equal weights."""
        for layer in (self.sampling_offsets, self.attention_weights):
            nn.init.zeros_(layer.weight)
        for layer in (self.value_proj, self.output_proj):
            nn.init.xavier_uniform_(layer.weight)
        for layer in (self.attention_weights, self.value_proj, self.output_proj):
            nn.init.zeros_(layer.bias)
        angles = torch.arange(self.num_heads) * (2 * math.pi / self.num_heads)
        directions = torch.stack([angles.cos(), angles.sin()], 1)  # (M, 2)
        directions = directions / directions.abs().amax(1, keepdim=True)
        offsets = directions[:, None] * torch.arange(1, self.num_points + 1)[:, None]  # (M, P, 2)
        with torch.no_grad():
            self.sampling_offsets.bias.copy_(offsets[:, None].expand(-1, self.num_levels, -1, -1).flatten())

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        identity: Tensor | None = None,
        query_pos: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        reference_points: Tensor | None = None,
        spatial_shapes: Tensor | None = None,
        level_start_index: Tensor | None = None,
    ) -> Tensor:
        """Return (Q, N, C) or, with `batch_first`, (N, Q, C).

        Parameters
        ----------
        query : Tensor of shape (Q, N, C) or (N, Q, C)
        key : None
            Not read, as in MMCV.
        value : Tensor of shape (S, N, C) or (N, S, C), optional
            The pixels of all maps, one map after another.  By default the queries.
        identity : Tensor of the shape of `query`, optional
            What is added to the result; by default the queries, without `query_pos`.
        query_pos : Tensor of the shape of `query`, optional
            Added to the queries.
        key_padding_mask : Tensor of bool, shape (N, S), optional
            Which pixels count as 0.
        reference_points : Tensor of shape (N, Q, L, 2) or (N, Q, L, 4)
            Point (x, y), or box (centre x, y, width, height), of each query in each map, from 0 to 1 over the map.
        spatial_shapes : Tensor of int64, shape (L, 2)
            Height and width of each map.
        level_start_index : Tensor of int64, shape (L,), optional
            Index in S of the first pixel of each map; by default it follows from `spatial_shapes`.

        Raises
        ------
        ValueError
            If `reference_points` or `spatial_shapes` is missing, or has another shape.
        """
        if reference_points is None or spatial_shapes is None:
            raise ValueError("MultiScaleDeformableAttention: reference_points and spatial_shapes must be given")
        if reference_points.shape[-1] not in (2, 4):
            raise ValueError(
                f"MultiScaleDeformableAttention: reference_points must have 2 or 4 coordinates, "
                f"got {reference_points.shape[-1]}"
            )
        value = query if value is None else value
        identity = query if identity is None else identity
        query = query if query_pos is None else query + query_pos
        if not self.batch_first:
            query, value = query.transpose(0, 1), value.transpose(0, 1)
        if level_start_index is None:
            sizes = spatial_shapes[:, 0] * spatial_shapes[:, 1]
            level_start_index = sizes.cumsum(0) - sizes
        pixels = self.value_proj(value)  # (N, S, D)
        if key_padding_mask is not None:
            pixels = torch.where(key_padding_mask[..., None], 0, pixels)
        weights = torch.unflatten(self.attention_weights(query), 2, (self.num_heads, -1)).softmax(3)
        attended = multi_scale_deformable_attention(
            torch.unflatten(pixels, 2, (self.num_heads, -1)),
            spatial_shapes,
            level_start_index,
            self._locations(query, reference_points, spatial_shapes),
            torch.unflatten(weights, 3, (self.num_levels, self.num_points)),
        )  # (N, Q, D)
        output = self.output_proj(in_dtype(attended, pixels.dtype))
        return identity + self.dropout(output if self.batch_first else output.transpose(0, 1))

    def _locations(self, query: Tensor, references: Tensor, spatial_shapes: Tensor) -> Tensor:
        """Return the points (N, Q, M, L, P, 2) to sample: offsets are in pixels, or in boxes' half sides / P.

        They are at least float32: in float16 a point of a large map is off by half a pixel.
        """
        sizes = self.num_heads, self.num_levels, self.num_points, 2
        dtype = torch.promote_types(references.dtype, torch.float32)
        references = in_dtype(references, dtype)
        offsets = in_dtype(torch.unflatten(self.sampling_offsets(query), 2, sizes), dtype)
        references = references[:, :, None, :, None]  # (N, Q, 1, L, 1, 2 or 4)
        if references.shape[-1] == 2:
            return references + offsets / spatial_shapes.flip(1)[:, None]
        return references[..., :2] + offsets / self.num_points * references[..., 2:] * 0.5
