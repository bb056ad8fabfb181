"""Areas of convex polygons and of what they share, differentiable in their corners.

A polygon is a set of directed edges, counterclockwise in coordinates whose y axis points up, and a mask of those that
count; the order of the edges does not matter.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Polygon(NamedTuple):
    """Edges of convex polygons: their starts and ends (..., E, 2), and which of them count (..., E)."""

    starts: Tensor
    ends: Tensor
    counts: Tensor

    def area(self) -> Tensor:
        """Return the areas (...)."""
        return (cross(self.starts, self.ends) * self.counts).sum(-1) / 2


def quadrilateral(corners: Tensor) -> Polygon:
    """Return the quadrilaterals with corners (..., 8), whatever their direction of rotation."""
    points = torch.unflatten(corners, -1, (4, 2))
    backwards = cross(points, points.roll(-1, -2)).sum(-1)[..., None, None] < 0
    points = torch.where(backwards, points.flip(-2), points)
    ends = points.roll(-1, -2)
    return Polygon(points, ends, torch.ones_like(points[..., 0], dtype=torch.bool))


def hull(points: Tensor) -> Polygon:
    """Return the convex hulls of points (..., P, 2): from each of its corners an edge to the next."""
    fixed = points.detach().float().double()  # differences and products of float32 numbers are exact
    step = fixed[..., None, :, :] - fixed[..., :, None, :]  # from i to j, (..., i, j, 2)
    side = cross(step[..., :, None, :], step[..., None, :, :])  # of point k, seen along i to j, (..., i, j, k)
    along = (step[..., :, None, :] * step[..., None, :, :]).sum(-1)
    length = along.diagonal(dim1=-2, dim2=-1)[..., None]
    between = (side == 0) & (along >= 0) & (along <= length)
    is_edge = ((side > 0) | between).all(-1) & (length[..., 0] > 0)
    same = (step == 0).all(-1)
    is_edge &= ~same.tril(-1).any(-1)[..., :, None]  # of points that coincide the first is the corner
    following = is_edge.int().argmax(-1)
    ends = points.gather(-2, following[..., None].expand_as(points))
    return Polygon(points, ends, is_edge.any(-1))


def shared_area(first: Polygon, second: Polygon) -> Tensor:
    """Return the areas (...) of intersections: each polygon's edges bound it as far as the other contains them."""
    return _contained(first, second, True) + _contained(second, first, False)


def _contained(polygon: Polygon, other: Polygon, with_border: bool) -> Tensor:
    """Return the part of a polygon's area integral that the edges inside another polygon have.

    Edges that lie on each other are counted by one of the two polygons only, the one called `with_border`.
    """
    start, step = polygon.starts[..., :, None, :], (polygon.ends - polygon.starts)[..., :, None, :]
    corner, side = other.starts[..., None, :, :], (other.ends - other.starts)[..., None, :, :]
    ahead, rate = cross(side, start - corner), cross(side, step)  # inside where ahead + t * rate >= 0
    parallel = rate == 0
    crossing = -ahead / torch.where(parallel, 1, rate)
    counts = other.counts[..., None, :]
    enter = torch.where(counts & (rate > 0), crossing, 0).amax(-1).clamp(min=0)
    leave = torch.where(counts & (rate < 0), crossing, 1).amin(-1).clamp(max=1)
    beyond = counts & parallel & ((ahead < 0) if with_border else (ahead <= 0))
    share = torch.where(beyond.any(-1) | ~polygon.counts, 0, (leave - enter).clamp(min=0))
    return (cross(polygon.starts, polygon.ends) * share).sum(-1) / 2


def cross(first: Tensor, second: Tensor) -> Tensor:
    """Return the cross products of vectors (..., 2)."""
    return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]
