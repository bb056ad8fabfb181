"""Masks of whole images, in graphs: their boxes, and those of some detections."""

from __future__ import annotations

import torch
from torch import Tensor


def mask_boxes(masks: Tensor, threshold: float, stride: int | Tensor, limits: Tensor) -> Tensor:
    """Return the smallest boxes that hold masks; 0 for empty masks.

    Edges are interpolated between cells, so that they hardly depend on a cell's value near the threshold.

    Parameters
    ----------
    masks : Tensor, [N, K, h, w]
    threshold : float
        Cells with greater values belong to the mask.
    stride : int or Tensor, [N, 1, 4]
        Pixels of the input for each cell of a mask; a tensor has their width, height, width and height.
    limits : Tensor, [N, 1, 4]
        What boxes are clipped to.

    Returns
    -------
    Tensor, [N, K, 4]
    """
    columns, rows = masks.amax(2) - threshold, masks.amax(3) - threshold
    starts = [_start(profile) for profile in (columns, rows)]
    ends = [profile.shape[2] - _start(profile.flip(2)) for profile in (columns, rows)]
    boxes = torch.minimum(torch.stack([*starts, *ends], 2) * stride, limits)
    return torch.where((columns > 0).any(2)[..., None], boxes, 0)


def _start(profile: Tensor) -> Tensor:
    """Return where [N, K] profiles [N, K, L], of which a value stands for a cell's centre, become positive."""
    size = profile.shape[2]
    cells = torch.arange(size, device=profile.device)
    first = torch.where(profile > 0, cells, size - 1).amin(2, keepdim=True)
    inside = profile.gather(2, first)
    outside = profile.gather(2, (first - 1).clamp(min=0))
    share = torch.where(first > 0, inside / (inside - outside).clamp(min=1e-12), 0.5)
    return (first + 0.5 - share)[..., 0]


def of_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Return the rows [N, K, ...] of values [N, P, ...] by their indices [N, K]."""
    return values[torch.arange(values.shape[0], device=rows.device)[:, None], rows]


def enlarged_from_corners(maps: Tensor, factor: int) -> Tensor:
    """Return maps [N, C, h, w] with `factor` times as many rows and columns.

    Each value stays where its first pixels are, `factor` // 2 from the beginning of the cell, as in CondInst; bilinear
    interpolation of pixels would have it in the cell's middle.
    """
    later = torch.arange(factor, device=maps.device) / factor  # shares of the next cell
    for axis in (3, 2):
        size = maps.shape[axis]
        following = torch.cat([maps.narrow(axis, 1, size - 1), maps.narrow(axis, size - 1, 1)], axis)
        first, second = maps.unsqueeze(axis + 1), following.unsqueeze(axis + 1)
        shares = later if axis == 3 else later[:, None]
        between = (first * (1 - shares) + second * shares).flatten(axis, axis + 1)
        repeated = [maps.narrow(axis, 0, 1)] * (factor // 2)
        maps = torch.cat([*repeated, between.narrow(axis, 0, size * factor - factor // 2)], axis)
    return maps
