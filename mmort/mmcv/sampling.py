"""Bilinear samples of feature maps, differentiable in maps and positions."""

from __future__ import annotations

import torch
from torch import Tensor


def bilinear(maps: Tensor, index: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Sample maps (N, C, H, W) at positions (P,), each in the map of its index (P,); return (C, P).

    As in RoIAlign: up to one pixel outside the map the border's value is taken, and 0 beyond.
    """
    height, width = maps.shape[2:]
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    y, x = torch.where(inside, y, 0).clamp(0, height - 1), torch.where(inside, x, 0).clamp(0, width - 1)
    top, left = y.detach().floor().long(), x.detach().floor().long()
    bottom, right = (top + 1).clamp(max=height - 1), (left + 1).clamp(max=width - 1)
    down, across = y - top, x - left
    pixels = maps.transpose(0, 1).flatten(1)  # (C, N * H * W)

    def values(row: Tensor, column: Tensor) -> Tensor:
        return pixels.index_select(1, (index * height + row) * width + column)

    upper = values(top, left) * (1 - across) + values(top, right) * across
    lower = values(bottom, left) * (1 - across) + values(bottom, right) * across
    return (upper * (1 - down) + lower * down) * inside


def bin_positions(start: Tensor, length: Tensor, bins: int, samples: int) -> Tensor:
    """Return the positions of `samples` evenly spaced samples in each bin of ranges (K,): (K, bins, samples)."""
    steps = (torch.arange(samples, dtype=start.dtype, device=start.device) + 0.5) / max(samples, 1)
    size = (length / bins)[:, None, None]
    return start[:, None, None] + (torch.arange(bins, dtype=start.dtype)[:, None] + steps) * size
