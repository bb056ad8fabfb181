"""Overlaps of quadrilaterals by MMCV's definition, which is exact for rectangles.

MMCV takes corners for contained that the sides of a rectangle would contain, as for rotated boxes; so do models that
were trained with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmort.mmcv.polygons import cross, hull

PAIRS_AT_ONCE = 4096  # a pair takes about 50 kB


def overlaps(first: Tensor, second: Tensor, over_first: bool = False) -> Tensor:
    """Return intersections over unions of quadrilaterals (P, 8), row by row, or over the areas of `first`."""
    results = first.new_zeros(len(first))
    boxes = [torch.unflatten(tensor.double(), 1, (4, 2)) for tensor in (first, second)]
    apart = (boxes[0].amin(1) > boxes[1].amax(1)) | (boxes[1].amin(1) > boxes[0].amax(1))
    near = (~apart.any(1)).nonzero()[:, 0]
    for begin in range(0, len(near), PAIRS_AT_ONCE):
        rows = near[begin : begin + PAIRS_AT_ONCE]
        results[rows] = _overlaps(boxes[0][rows], boxes[1][rows], over_first).to(results.dtype)
    return results


def _overlaps(first: Tensor, second: Tensor, over_first: bool) -> Tensor:
    """Return the overlaps of quadrilaterals (P, 4, 2); 0 for those without an area."""
    centre = torch.cat([first, second], 1).mean(1, keepdim=True)  # near the origin less is rounded
    first, second = first - centre, second - centre
    areas = [_area(corners) for corners in (first, second)]
    crossings, cross_mask = _crossings(first, second)
    candidates = torch.cat([crossings, first, second], 1)
    mask = torch.cat([cross_mask, _inside(first, second), _inside(second, first)], 1)
    counts = mask.sum(1)
    order = (~mask).int().argsort(dim=1, stable=True)[:, : max(int(counts.max()), 1)]  # those that count first
    order = torch.where(mask.gather(1, order), order, order[:, :1])
    points = candidates.gather(1, order[..., None].expand(-1, -1, 2))
    shared = torch.where(counts > 2, hull(points).area(), 0)
    divisor = areas[0] if over_first else areas[0] + areas[1] - shared
    return torch.where((areas[0] < 1e-14) | (areas[1] < 1e-14), 0, shared / divisor)


def _area(corners: Tensor) -> Tensor:
    """Return the areas of two triangles, which are also added where they overlap."""
    sides = corners[:, 1:] - corners[:, :1]
    return cross(sides[:, :-1], sides[:, 1:]).abs().sum(1) / 2


def _crossings(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return where the sides of the first cross those of the second, (P, 16, 2), and whether they do, (P, 16)."""
    start, other_start = first[:, :, None], second[:, None]
    side, other_side = first.roll(-1, 1)[:, :, None] - start, second.roll(-1, 1)[:, None] - other_start
    determinant = cross(other_side, side)
    parallel = determinant.abs() <= 1e-14
    divisor = torch.where(parallel, 1, determinant)
    along = cross(other_side, other_start - start) / divisor
    other_along = cross(side, other_start - start) / divisor
    meet = ~parallel & (along >= 0) & (along <= 1) & (other_along >= 0) & (other_along <= 1)
    return (start + side * along[..., None]).flatten(1, 2), meet.flatten(1)


def _inside(corners: Tensor, box: Tensor) -> Tensor:
    """Return which corners lie in boxes (P, 4, 2), if these are rectangles."""
    offset = corners - box[:, :1]
    inside = torch.ones_like(offset[..., 0], dtype=torch.bool)
    for end in (1, 3):
        side = box[:, end, None] - box[:, :1]
        projection = (offset * side).sum(2)
        inside &= (projection >= 0) & (projection <= side.square().sum(2))
    return inside
