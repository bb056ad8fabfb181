"""Positions for transformers: sines and cosines of where cells and boxes are, and which cells are the image's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmort.detect.entries import Schema, at_least


class SinePositionalEncoding(nn.Module):
    """Sines and cosines over an image's rows, then over its columns."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        types = ("SinePositionalEncoding",)

        num_feats: int = at_least(1)
        temperature: float = 10000
        normalize: bool = False
        scale: float = 2 * math.pi
        eps: float = 1e-6
        offset: float = 0.0

        def check(self, name: str) -> None:
            """Raise a ValueError if nothing can be divided by powers of the temperature."""
            if self.temperature <= 0:
                raise ValueError(f"detect.build: temperature of {name} must be above 0, got {self.temperature}")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.entries = entries
        # With an offset it is a sine of millions, to which rounding is a good part of a turn: a constant of the file.
        nowhere = self._waves_of(torch.zeros(1, 1, dtype=torch.bool))
        self.register_buffer("nowhere", nowhere[:, None], persistent=False)  # [1, 1, 1, num_feats]

    def forward(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return [N, h*w, D]; the first of `rows` [N, h] and `columns` [N, w], those that are true, are the image's.

        As in MMDetection, which counts the image's cells along each axis, a cell beside the image has no position in
        its column, and one below it none in its row.
        """
        shape = (rows.shape[0], rows.shape[1], columns.shape[1], self.entries.num_feats)
        nowhere = self.get_buffer("nowhere")
        y = torch.where(columns[:, None, :, None], self._waves_of(rows)[:, :, None], nowhere).expand(shape)
        x = torch.where(rows[:, :, None, None], self._waves_of(columns)[:, None], nowhere).expand(shape)
        return torch.cat([y, x], 3).flatten(1, 2)

    def _waves_of(self, used: Tensor) -> Tensor:
        """Return the waves [N, L, num_feats] along one axis, whose first cells are `used` [N, L]."""
        entries = self.entries
        count = used.sum(1, dtype=torch.float32)[:, None]  # [N, 1]
        position = torch.minimum(torch.arange(1, used.shape[1] + 1, device=used.device), count)  # [N, L]
        if entries.normalize:
            position = (position + entries.offset) / (count + entries.eps) * entries.scale
        return _waves(position, entries.num_feats, entries.temperature)


def waves_of_coordinates(coordinates: Tensor, count: int) -> Tensor:
    """Return `count` waves [..., count] for each of the coordinates [...], which are from 0 to 1 over the image."""
    return _waves(coordinates * (2 * math.pi), count, 10000)


def waves_of_references(references: Tensor, count: int) -> Tensor:
    """Return `count` waves for each coordinate of points [N, Q, 2] or boxes [N, Q, 4]: of y, x, width, height."""
    x, y, *size = references.unbind(2)
    return waves_of_coordinates(torch.stack([y, x, *size], 2), count).flatten(2)


def _waves(position: Tensor, count: int, temperature: float) -> Tensor:
    """Return the sines and cosines, in turn, of positions [...]: [..., count]."""
    feature = torch.arange(count, dtype=torch.float32, device=position.device)
    angle = position[..., None] / temperature ** (2 * (feature // 2) / count)
    return torch.where(feature % 2 == 0, angle.sin(), angle.cos())


def coordinates(map: Tensor) -> Tensor:
    """Return x and y [N, 2, h, w] of a map's cells: from -1 in its first column or row to 1 in its last."""
    batch, _, height, width = map.shape
    columns, rows = (
        torch.arange(size, device=map.device) * (2 / torch.scalar_tensor(size - 1, device=map.device).clamp(min=1)) - 1
        for size in (width, height)
    )
    return torch.stack([columns.expand(height, width), rows[:, None].expand(height, width)]).expand(batch, -1, -1, -1)


def inside(size: int, cells: int, limit: Tensor) -> Tensor:
    """Return which cells of a map [N, cells] belong to an image that has `limit` [N, 1] of `size` pixels.

    A cell belongs to it if the pixel that nearest interpolation chooses does, in its float32 arithmetic.
    """
    pixels = torch.scalar_tensor(size, device=limit.device) / cells * torch.arange(cells, device=limit.device)
    return torch.floor(pixels) < limit


def image_cells(map: Tensor, input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    """Return which rows [N, h] and columns [N, w] of a map belong to images that end at `limits`, [N, 1, 4]."""
    rows, columns = (inside(input.shape[axis], map.shape[axis], limits[..., 3 - axis]) for axis in (2, 3))
    return rows, columns


def padding_cells(rows: Tensor, columns: Tensor) -> Tensor:
    """Return which cells [N, h*w] are padding, of `rows` [N, h] and `columns` [N, w] that are the images'."""
    return ~(rows[:, :, None] & columns[:, None]).flatten(1)
