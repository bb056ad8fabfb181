"""Boxes of a batch of images: clipped, compared by size, and as regions of interest."""

from __future__ import annotations

import torch
from torch import Tensor

YXYX = [1, 0, 3, 2]
"""Indices that turn x1, y1, x2, y2 into y1, x1, y2, x2, and back."""


def image_limits(input: Tensor, img_shape: Tensor | None) -> Tensor:
    """Return width, height, width, height of each image, [N, 1, 4] in `input`'s dtype: what boxes are clipped to."""
    if img_shape is None:
        batch, _, height, width = input.shape
        size = torch.scalar_tensor(height, device=input.device), torch.scalar_tensor(width, device=input.device)
        sizes = torch.stack([size[1], size[0], size[1], size[0]]).to(input.dtype)
        return sizes.expand(batch, 1, 4)
    return img_shape[:, [1, 0, 1, 0]].to(input.dtype)[:, None]


def clip(boxes: Tensor, limits: Tensor) -> Tensor:
    """Return boxes [..., 4] with coordinates between 0 and `limits`, [..., 4]: width, height, width, height."""
    return boxes.clamp(min=0).minimum(limits)


def larger(boxes: Tensor, size: float) -> Tensor:
    """Return which boxes [N, P, 4] are wider and higher than a size, as bool [N, P, 1]."""
    return (boxes[..., 2:] - boxes[..., :2] > size).all(-1, keepdim=True)


def regions(boxes: Tensor) -> Tensor:
    """Turn the boxes of a batch, [N, K, 4], into RoIs, [N*K, 5]: the image's index in the batch before each box."""
    images, count, _ = boxes.shape
    index = torch.arange(images, device=boxes.device, dtype=boxes.dtype)
    return torch.cat([index[:, None, None].expand(images, count, 1), boxes], 2).flatten(0, 1)
