"""Mask pasting for graphs: what `mmort.predict` does with masks, in torch operators, for whole batches.

A graph cannot loop over boxes, so each mask is weighted over all pixels, not only over those of its box.  A test
asserts that both agree.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mmort.contract import MaskFormat
from mmort.detect.parts.image_masks import enlarged_from_corners


def paste_masks(mask_format: MaskFormat, masks: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
    """Turn masks [N, K, h, w] of boxes [N, K, 4 or more] into masks [N, K, height, width] of 0 and 1."""
    threshold = mask_format.threshold
    if mask_format.area == "image":
        if mask_format.rescaling in ("fit", "stretch"):
            enlarged = functional.interpolate(masks, (height, width), mode="bilinear")
        elif mask_format.alignment == "corners":
            enlarged = enlarged_from_corners(masks, mask_format.stride)
        else:
            enlarged = functional.interpolate(masks, scale_factor=float(mask_format.stride), mode="bilinear")
        return (enlarged[:, :, :height, :width] > threshold).to(masks.dtype)
    rows = _weights(boxes[..., 1], boxes[..., 3], height, masks.shape[2])  # [N, K, H, h]
    columns = _weights(boxes[..., 0], boxes[..., 2], width, masks.shape[3])  # [N, K, W, w]
    return (rows @ masks @ columns.transpose(2, 3) >= threshold).to(masks.dtype)


def _weights(low: Tensor, high: Tensor, pixels: int, cells: int) -> Tensor:
    """Return the bilinear weight of each cell between `low` and `high` [N, K] at each pixel, [N, K, pixels, cells]."""
    low, high = low[..., None], high[..., None]
    pixel = torch.arange(pixels, device=low.device)
    inside = (pixel >= low.floor() - 1) & (pixel < high.ceil() + 1)  # [N, K, pixels]
    share = torch.where(high > low, (pixel + 0.5 - low) / torch.where(high > low, high - low, 1), 0.5)
    position = share * cells - 0.5
    weights = (1 - (position[..., None] - torch.arange(cells, device=low.device)).abs()).clamp(min=0)
    return weights * inside[..., None]
