"""Bilinear samples of feature maps, differentiable in maps and positions."""

from __future__ import annotations

import torch
from torch import Tensor

from mmort.mmcv.derivatives import gradients


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


def gradient_of_samples(maps: Tensor, plane: Tensor, y: Tensor, x: Tensor, sample_gradient: Tensor) -> Tensor:
    """Return the gradient of maps (N, C, H, W) of which each plane, one of N * C, is sampled at its own positions.

    Planes, positions and the samples' gradients have one shape.
    """

    def sample(planes: Tensor) -> Tensor:
        return bilinear(planes, plane.flatten(), y.flatten(), x.flatten())

    (gradient,) = gradients(sample, [maps.flatten(0, 1)[:, None]], sample_gradient.reshape(1, -1))
    return gradient.reshape(maps.shape)
