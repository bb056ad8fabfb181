"""Clouds of points: voxels, neighbours, and features at indices."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from mmort.mmcv.memory import write

__all__ = [
    "ball_query_forward",
    "chamfer_distance_backward",
    "chamfer_distance_forward",
    "dynamic_voxelize_forward",
    "gather_points_backward",
    "gather_points_forward",
    "group_points_backward",
    "group_points_forward",
    "hard_voxelize_forward",
    "points_in_boxes_cpu_forward",
    "three_interpolate_backward",
    "three_interpolate_forward",
    "three_nn_forward",
]

_BLOCK = 2**20  # distances at once


def dynamic_voxelize_forward(points: Tensor, voxel_size: Tensor, coors_range: Tensor, coors: Tensor, NDim: int) -> None:
    """Write the voxel (z, y, x) of each point into `coors`, -1 for points outside the range."""
    sizes = coors.shape[-1], voxel_size.numel(), coors_range.numel() // 2
    if sizes != (NDim,) * 3 or points.shape[-1] < NDim:
        raise ValueError(
            f"mmcv._ext.dynamic_voxelize_forward: points {[*points.shape]}, coors {[*coors.shape]}, voxel_size and "
            f"coors_range must have as many coordinates as NDim, got {NDim}"
        )
    low, high = coors_range[:NDim].to(points.dtype), coors_range[NDim:].to(points.dtype)
    size = voxel_size.to(points.dtype)
    cell = ((points[:, :NDim] - low) / size).floor().int()
    inside = ((cell >= 0) & (cell < ((high - low) / size).round().int())).all(1)
    write(coors, torch.where(inside[:, None], cell.flip(1), -1))


def hard_voxelize_forward(
    points: Tensor,
    voxel_size: Tensor,
    coors_range: Tensor,
    voxels: Tensor,
    coors: Tensor,
    num_points_per_voxel: Tensor,
    voxel_num: Tensor,
    max_points: int,
    max_voxels: int,
    NDim: int,
    deterministic: bool = True,
) -> None:
    """Write the first points of each voxel, in the order in which voxels appear, and the number of voxels."""
    cells = points.new_empty(len(points), coors.shape[-1], dtype=torch.int32)
    dynamic_voxelize_forward(points, voxel_size, coors_range, cells, NDim)
    inside = (cells[:, 0] >= 0).nonzero()[:, 0]
    sizes = cells.amax(0).clamp(min=0).long() + 1 if len(cells) else torch.ones(NDim, dtype=torch.int64)
    if math.prod(sizes.tolist()) >= 2**63:
        raise ValueError(f"mmcv._ext.hard_voxelize_forward: voxels must be numbered in 63 bits, got {sizes.tolist()}")
    strides = sizes.flip(0).cumprod(0).flip(0) // sizes
    distinct, cell = torch.unique((cells[inside] * strides).sum(1), return_inverse=True)
    number = torch.arange(len(inside))
    first = torch.full((len(distinct),), len(inside)).scatter_reduce_(0, cell, number, "amin")
    voxel = first.argsort().argsort()[cell]  # numbered by their first point
    order = voxel.argsort(stable=True)
    counts = torch.bincount(voxel, minlength=len(distinct))
    rank = torch.empty_like(number)
    rank[order] = number - (counts.cumsum(0) - counts)[voxel[order]]
    kept = (rank < max_points if max_points != -1 else rank >= 0) & (voxel < max_voxels if max_voxels != -1 else True)
    voxels[voxel[kept], rank[kept]] = points[inside[kept]]
    coors[voxel[kept]] = cells[inside[kept]]
    voxel_count = int(voxel[kept].max()) + 1 if kept.any() else 0
    num_points_per_voxel[:voxel_count] = counts[:voxel_count].clamp(max=max_points if max_points != -1 else None).int()
    voxel_num.fill_(voxel_count)


def points_in_boxes_cpu_forward(boxes_tensor: Tensor, pts_tensor: Tensor, pts_indices_tensor: Tensor) -> None:
    """Write 1 for the points (P, 3) inside each box (x, y, z of the bottom, sizes, angle), and 0 for others."""
    centre, size, angle = boxes_tensor[:, None, :3], boxes_tensor[:, None, 3:6], boxes_tensor[:, None, 6]
    x, y, height = (pts_tensor - centre).unbind(2)
    cos, sin = angle.cos(), angle.sin()
    along, across = x * cos + y * sin, y * cos - x * sin
    half = size / 2
    inside = (along.abs() < half[..., 0]) & (across.abs() < half[..., 1])
    inside &= (height - half[..., 2]).abs() <= half[..., 2]
    write(pts_indices_tensor, inside)


def three_nn_forward(
    unknown_tensor: Tensor, known_tensor: Tensor, dist2_tensor: Tensor, idx_tensor: Tensor, b: int, n: int, m: int
) -> None:
    """Write the squared distances and indices of each point's three nearest neighbours."""
    unknown, known = unknown_tensor.reshape(b, n, 3), known_tensor.reshape(b, m, 3)
    distances, indices = unknown.new_empty(b, n, 3), idx_tensor.new_empty(b, n, 3)
    for block in _blocks(n, b * m):
        nearest = _squared_distances(unknown[:, block], known).sort(dim=2, stable=True)  # of equal ones the first
        distances[:, block], indices[:, block] = nearest.values[..., :3], nearest.indices[..., :3].to(indices.dtype)
    write(dist2_tensor, distances)
    write(idx_tensor, indices)


def three_interpolate_forward(
    points_tensor: Tensor, idx_tensor: Tensor, weight_tensor: Tensor, out_tensor: Tensor, b: int, c: int, m: int, n: int
) -> None:
    """Write the weighted sums of the features of three points."""
    features, weights = _at_indices(points_tensor.reshape(b, c, m), idx_tensor), weight_tensor.reshape(b, 1, n, 3)
    write(out_tensor, (features.reshape(b, c, n, 3) * weights).sum(3))


def three_interpolate_backward(
    grad_out_tensor: Tensor,
    idx_tensor: Tensor,
    weight_tensor: Tensor,
    grad_points_tensor: Tensor,
    b: int,
    c: int,
    n: int,
    m: int,
) -> None:
    """Add the gradient of the features."""
    gradient = grad_out_tensor.reshape(b, c, n, 1) * weight_tensor.reshape(b, 1, n, 3)
    _add_at_indices(grad_points_tensor, idx_tensor, gradient.flatten(2))


def gather_points_forward(
    points_tensor: Tensor, idx_tensor: Tensor, out_tensor: Tensor, b: int, c: int, n: int, npoints: int
) -> None:
    """Write the features (B, C, M) at indices (B, M)."""
    write(out_tensor, _at_indices(points_tensor.reshape(b, c, n), idx_tensor))


def gather_points_backward(
    grad_out_tensor: Tensor, idx_tensor: Tensor, grad_points_tensor: Tensor, b: int, c: int, n: int, npoints: int
) -> None:
    """Add the gradient of the features."""
    _add_at_indices(grad_points_tensor, idx_tensor, grad_out_tensor.reshape(b, c, npoints))


def group_points_forward(
    points_tensor: Tensor, idx_tensor: Tensor, out_tensor: Tensor, b: int, c: int, n: int, npoints: int, nsample: int
) -> None:
    """Write the features (B, C, M, S) at indices (B, M, S)."""
    write(out_tensor, _at_indices(points_tensor.reshape(b, c, n), idx_tensor))


def group_points_backward(
    grad_out_tensor: Tensor,
    idx_tensor: Tensor,
    grad_points_tensor: Tensor,
    b: int,
    c: int,
    n: int,
    npoints: int,
    nsample: int,
) -> None:
    """Add the gradient of the features."""
    _add_at_indices(grad_points_tensor, idx_tensor, grad_out_tensor.reshape(b, c, npoints * nsample))


def ball_query_forward(
    new_xyz_tensor: Tensor,
    xyz_tensor: Tensor,
    idx_tensor: Tensor,
    b: int,
    n: int,
    m: int,
    min_radius: float,
    max_radius: float,
    nsample: int,
) -> None:
    """Write the first points within a shell around each centre; the first of them fills what is left."""
    if b * m * nsample != idx_tensor.numel():
        raise ValueError(
            f"mmcv._ext.ball_query_forward: b, m and nsample must be the sizes of idx_tensor, {[*idx_tensor.shape]}, "
            f"got {b}, {m} and {nsample}"
        )
    if not n:
        return
    centres, points = new_xyz_tensor.reshape(b, m, 3), xyz_tensor.reshape(b, n, 3)
    indices = idx_tensor.reshape(b, m, nsample).clone()
    for block in _blocks(m, b * n):
        distances = _squared_distances(centres[:, block], points)
        inside = (distances == 0) | ((distances >= min_radius**2) & (distances < max_radius**2))
        order = inside.int().argsort(dim=2, descending=True, stable=True)  # those inside first
        order = order[..., torch.arange(nsample).clamp(max=n - 1)]
        count = inside.sum(2, keepdim=True)
        nearest = torch.where(torch.arange(nsample) < count, order, order[..., :1])
        indices[:, block] = torch.where(count > 0, nearest, indices[:, block]).to(indices.dtype)
    write(idx_tensor, indices)


def chamfer_distance_forward(
    xyz1: Tensor, xyz2: Tensor, dist1: Tensor, dist2: Tensor, idx1: Tensor, idx2: Tensor
) -> None:
    """Write the squared distance and the index of each point's nearest neighbour in the other set."""
    for image, (first, second) in enumerate(zip(xyz1, xyz2, strict=True)):
        for points, targets, values, indices in ((first, second, dist1, idx1), (second, first, dist2, idx2)):
            for block in _blocks(len(points), len(targets)):
                nearest = _squared_distances(points[block], targets).min(1)
                values[image, block], indices[image, block] = nearest.values, nearest.indices.to(indices.dtype)


def chamfer_distance_backward(
    xyz1: Tensor,
    xyz2: Tensor,
    idx1: Tensor,
    idx2: Tensor,
    graddist1: Tensor,
    graddist2: Tensor,
    gradxyz1: Tensor,
    gradxyz2: Tensor,
) -> None:
    """Add the gradients of both sets."""
    of_first = xyz1, xyz2, idx1, graddist1, gradxyz1, gradxyz2
    of_second = xyz2, xyz1, idx2, graddist2, gradxyz2, gradxyz1
    for points, targets, indices, gradient, of_points, of_others in (of_first, of_second):
        index = indices.long()[..., None].expand_as(points)
        pull = 2 * gradient[..., None] * (points - targets.gather(1, index))
        of_points += pull
        of_others.scatter_add_(1, index, -pull)


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices of rows whose distances to all columns are a few megabytes."""
    step = max(_BLOCK // max(columns, 1), 1)
    for begin in range(0, rows, step):
        yield slice(begin, begin + step)


def _squared_distances(first: Tensor, second: Tensor) -> Tensor:
    """Return the squared distances (..., P, Q) of points."""
    return (first[..., :, None, :] - second[..., None, :, :]).square().sum(-1)


def _at_indices(features: Tensor, indices: Tensor) -> Tensor:
    """Return features (B, C, N) at B times P indices as (B, C, P)."""
    images, channels, _ = features.shape
    flat = indices.long().reshape(images, 1, indices.numel() // max(images, 1))
    return features.gather(2, flat.expand(-1, channels, -1))


def _add_at_indices(features: Tensor, indices: Tensor, gradient: Tensor) -> None:
    """Add (B, C, P) to features, B times C times N, at B times P indices."""
    images, channels, count = gradient.shape
    flat = indices.long().reshape(images, 1, count).expand(-1, channels, -1)
    added = features.new_zeros(images, channels, features.numel() // max(images * channels, 1))
    features += added.scatter_add_(2, flat, gradient).reshape(features.shape)
