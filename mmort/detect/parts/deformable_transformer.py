"""The deformable transformer: queries attend to a few points of several maps instead of to all of their cells.

Source: X. Zhu et al., "Deformable DETR", ICLR 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import nested, only
from mmort.detect.parts.positions import SinePositionalEncoding, image_cells, padding_cells
from mmort.detect.parts.transformer import (
    DecoderLayerEntries,
    DeformableAttentionEntries,
    EncoderEntries,
    EncoderLayerEntries,
    TransformerLayer,
)


@dataclass(frozen=True)
class Pyramid:
    """The maps of all levels as one row of cells, level by level, for a batch of padded images.

    Attributes
    ----------
    cells, positions : Tensor, [N, P, D]
        Features and what is added to them where they are compared.
    padding : Tensor of bool, [N, P]
        Which cells are not the image's.
    centres : Tensor, [N, P, 2]
        x and y of each cell's centre, from 0 to 1 over the image.
    levels : Tensor of int64, [P]
    shapes : Tensor of int64, [L, 2]
        Height and width of each map.
    shares : Tensor, [N, L, 2]
        The share of each map's width and height that is the image's.
    """

    cells: Tensor
    positions: Tensor
    padding: Tensor
    centres: Tensor
    levels: Tensor
    shapes: Tensor
    shares: Tensor

    @classmethod
    def of(
        cls,
        features: Sequence[Tensor],
        input: Tensor,
        limits: Tensor,
        encoding: SinePositionalEncoding,
        level_embed: Tensor,
    ) -> Pyramid:
        """Return the pyramid of maps [N, D, h, w], for images in `input` that end at `limits`, [N, 1, 4]."""
        parts = [
            cls._level(level, map, input, limits, encoding, level_embed[level]) for level, map in enumerate(features)
        ]
        cells, positions, padding, centres = (
            torch.cat([getattr(part, name) for part in parts], 1)
            for name in ("cells", "positions", "padding", "centres")
        )
        shapes, levels = (torch.cat([getattr(part, name) for part in parts]) for name in ("shapes", "levels"))
        return cls(cells, positions, padding, centres, levels, shapes, torch.cat([part.shares for part in parts], 1))

    @classmethod
    def _level(
        cls,
        level: int,
        map: Tensor,
        input: Tensor,
        limits: Tensor,
        encoding: SinePositionalEncoding,
        embedding: Tensor,
    ) -> Pyramid:
        """Return the pyramid of one map."""
        batch, _, height, width = map.shape
        rows, columns = image_cells(map, input, limits)  # [N, h], [N, w]
        centres, counts = [], []
        for used in (columns, rows):
            count = used.sum(1, dtype=torch.float32)[:, None]  # [N, 1]
            counts.append(count)
            # Of float32, as torch's older exporter makes a float64 of an integer plus 0.5.
            cells = torch.arange(used.shape[1], dtype=torch.float32, device=map.device)
            centres.append((cells + 0.5) / count)
        x = centres[0][:, None].expand(batch, height, width)
        y = centres[1][:, :, None].expand(batch, height, width)
        sizes = [torch.scalar_tensor(size, dtype=torch.int64, device=map.device) for size in (height, width)]
        shape = torch.stack(sizes)
        return cls(
            cells=map.flatten(2).transpose(1, 2),
            positions=encoding(rows, columns) + embedding,
            padding=padding_cells(rows, columns),
            centres=torch.stack([x, y], 3).flatten(1, 2),
            levels=torch.full((height * width,), level, device=map.device),
            shapes=shape[None],
            shares=(torch.cat(counts, 1) / shape.flip(0))[:, None],
        )

    def references(self, relative: Tensor) -> Tensor:
        """Return points [N, Q, L, 2] or boxes [N, Q, L, 4] relative to the maps of those relative to the image."""
        return relative[:, :, None] * torch.cat([self.shares] * (relative.shape[2] // 2), 2)[:, None]

    def proposals(self) -> tuple[Tensor, Tensor]:
        """Return a square for each cell, [N, P, 4], as logits of centre and size; and which can be used, [N, P, 1]."""
        sizes = (0.05 * 2.0**self.levels)[None, :, None].expand(self.centres.shape)
        boxes = torch.cat([self.centres, sizes], 2)
        usable = ((boxes > 0.01) & (boxes < 0.99)).all(2, keepdim=True) & ~self.padding[..., None]
        return torch.where(usable, torch.log(boxes / (1 - boxes)), torch.inf), usable


@dataclass(frozen=True, kw_only=True)
class DeformableEncoderLayerEntries(EncoderLayerEntries):
    """The entries of ``encoder.layer_cfg``."""

    self_attn_cfg: DeformableAttentionEntries = nested(DeformableAttentionEntries, default={})


@dataclass(frozen=True, kw_only=True)
class DeformableEncoderEntries(EncoderEntries):
    """The entries of ``encoder``."""

    layer_cfg: DeformableEncoderLayerEntries = nested(DeformableEncoderLayerEntries)


@dataclass(frozen=True, kw_only=True)
class DeformableDecoderLayerEntries(DecoderLayerEntries):
    """The entries of ``decoder.layer_cfg``."""

    cross_attn_cfg: DeformableAttentionEntries = nested(DeformableAttentionEntries, default={})


@dataclass(frozen=True, kw_only=True)
class DeformableDecoderEntries(EncoderEntries):
    """The entries of ``decoder``, which has no normalization after its last layer."""

    types = ("DeformableDetrTransformerDecoder",)

    layer_cfg: DeformableDecoderLayerEntries = nested(DeformableDecoderLayerEntries)
    post_norm_cfg: None = only(None)
    return_intermediate: bool = only(True)


class DeformableEncoderLayer(TransformerLayer):
    """Every cell attends to a few points of all maps."""

    def forward(self, x: Tensor, pyramid: Pyramid, references: Tensor) -> Tensor:
        x = self.norms[0](
            self.self_attn(
                x,
                query_pos=pyramid.positions,
                key_padding_mask=pyramid.padding,
                reference_points=references,
                spatial_shapes=pyramid.shapes,
            )
        )
        return self.norms[1](self.ffn(x))


class DeformableEncoder(nn.Module):
    """Encoder layers in a row."""

    def __init__(self, entries: DeformableEncoderEntries) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DeformableEncoderLayer(entries.layer_cfg) for _ in range(entries.num_layers))

    def forward(self, pyramid: Pyramid) -> Tensor:
        """Return the memory [N, P, D]."""
        x, references = pyramid.cells, pyramid.references(pyramid.centres)
        for layer in self.layers:
            x = layer(x, pyramid, references)
        return x


class DeformableDecoderLayer(TransformerLayer):
    """Every query attends to all others, then to a few points of all maps."""

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        memory: Tensor,
        pyramid: Pyramid,
        references: Tensor,
        hidden: Tensor | None = None,
    ) -> Tensor:
        """Return the queries [N, Q, D].

        `references` are relative to the images, [N, Q, 2] or [N, Q, 4]; `hidden` [N, Q, Q] says from which queries
        others are hidden.
        """
        located = x + positions
        x = self.norms[0](self.self_attn(x, located, located, x, hidden))
        x = self.norms[1](self.attend(x, positions, memory, pyramid, references))
        return self.norms[2](self.ffn(x))

    def attend(self, x: Tensor, positions: Tensor, memory: Tensor, pyramid: Pyramid, references: Tensor) -> Tensor:
        """Return the attention of the queries [N, Q, D] to a few points of all maps; see `forward`."""
        return self.cross_attn(
            x,
            value=memory,
            query_pos=positions,
            key_padding_mask=pyramid.padding,
            reference_points=pyramid.references(references),
            spatial_shapes=pyramid.shapes,
        )


class DeformableDecoder(nn.Module):
    """Decoder layers; how references move between them is the family's."""

    layer_class: ClassVar[type[nn.Module]] = DeformableDecoderLayer

    def __init__(self, entries: DeformableDecoderEntries) -> None:
        super().__init__()
        self.embed_dims = entries.embed_dims
        self.layers = nn.ModuleList(self.layer_class(entries.layer_cfg) for _ in range(entries.num_layers))
