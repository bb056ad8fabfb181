"""Further functions for rotated boxes, besides suppression and pooling, with the names and arguments of ``mmcv.ops``.

All of it is made of torch's own functions and `roi_align_rotated`: it has torch's gradients, and exports to standard
ONNX operators.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn.modules.utils import _pair

from mmort.torch.dtypes import as_floating, in_dtype
from mmort.torch.functions import roi_align_rotated

__all__ = [
    "RiRoIAlignRotated",
    "active_rotated_filter",
    "min_area_polygons",
    "points_in_polygons",
    "riroi_align_rotated",
]


def active_rotated_filter(input: Tensor, indices: Tensor) -> Tensor:
    """Turn the filters of a convolution into several orientations; as ``mmcv.ops.active_rotated_filter``.

    Parameters
    ----------
    input : Tensor of shape (O, I, L, h, w)
        Filters with L layers of weights.
    indices : Tensor of integers, shape (L, h, w, R)
        Where each weight goes in each of R orientations, counted from 1 over layers, rows and columns: a column is a
        permutation.

    Returns
    -------
    Tensor of shape (O * R, I * L, h, w)
        Orientations vary fastest.

    Raises
    ------
    ValueError
        If a shape does not match.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> weights, upside_down = torch.tensor([[[[[1.0, 2.0]]]]]), torch.tensor([[[[1, 2], [2, 1]]]])
    >>> mmort.torch.active_rotated_filter(weights, upside_down).flatten().tolist()
    [1.0, 2.0, 2.0, 1.0]
    """
    if input.ndim != 5 or indices.ndim != 4 or indices.shape[:3] != input.shape[2:]:
        raise ValueError(
            "active_rotated_filter: input must be [O, I, L, h, w] and indices [L, h, w, R], "
            f"got {[*input.shape]} and {[*indices.shape]}"
        )
    (input,), dtype = as_floating("active_rotated_filter", input=input)
    orientations = indices.shape[3]
    sources = indices.reshape(-1, orientations).to(torch.int64).argsort(0)  # [L * h * w, R]
    turned = input.flatten(2)[:, :, sources].permute(0, 3, 1, 2)  # [O, R, I, L * h * w]
    return in_dtype(turned, dtype).reshape(-1, input.shape[1] * input.shape[2], *input.shape[3:])


def min_area_polygons(pointsets: Tensor) -> Tensor:
    """Find the smallest rectangles around sets of points; as ``mmcv.ops.min_area_polygons``.

    One of a smallest rectangle's sides has the direction of two of the points, those of an edge of their convex hull.
    So all directions are tried, which needs no hull.

    Parameters
    ----------
    pointsets : Tensor of shape (..., 2 * P)
        x and y of each point in turn; P is at least 2.

    Returns
    -------
    Tensor of shape (..., 8)
        x and y of the corners in turn, around the rectangle.

    Raises
    ------
    ValueError
        If the last dimension is not an even number, at least 4.

    Notes
    -----
    Of rectangles with equal areas, such as those on the sides of a triangle, rounding decides.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> mmort.torch.min_area_polygons(torch.tensor([0.0, 0, 4, 0, 4, 2, 0, 2, 1, 1]))
    tensor([4., 0., 0., 0., 0., 2., 4., 2.])
    """
    count, odd = divmod(pointsets.shape[-1], 2)
    if odd or count < 2:
        raise ValueError(f"min_area_polygons: pointsets must be [..., 2 * P], P at least 2, got {[*pointsets.shape]}")
    (pointsets,), dtype = as_floating("min_area_polygons", pointsets=pointsets)
    points = torch.unflatten(pointsets, -1, (count, 2))
    first, second = zip(*itertools.combinations(range(count), 2), strict=True)
    steps = points[..., list(second), :] - points[..., list(first), :]  # [..., D, 2]
    lengths = steps.square().sum(-1, keepdim=True).sqrt()
    # Points that coincide have no direction; the x axis stands for it.
    axis = torch.tensor([1.0, 0.0], dtype=points.dtype, device=points.device)
    cos, sin = torch.where(lengths > 0, steps / lengths, axis).unbind(-1)  # [..., D]
    x, y = points[..., None, :, 0], points[..., None, :, 1]  # [..., 1, P]
    along, across = x * cos[..., None] + y * sin[..., None], y * cos[..., None] - x * sin[..., None]  # [..., D, P]
    left, right, top, bottom = along.amin(-1), along.amax(-1), across.amin(-1), across.amax(-1)  # [..., D]
    best = ((right - left) * (bottom - top)).argmin(-1, keepdim=True)  # [..., 1]
    cos, sin, left, right, top, bottom = (values.gather(-1, best) for values in (cos, sin, left, right, top, bottom))
    u, v = torch.cat([right, left, left, right], -1), torch.cat([top, top, bottom, bottom], -1)  # [..., 4]
    return in_dtype(torch.stack([u * cos - v * sin, u * sin + v * cos], -1).flatten(-2), dtype)


def points_in_polygons(points: Tensor, polygons: Tensor) -> Tensor:
    """Tell which points lie in which quadrilaterals; as ``mmcv.ops.points_in_polygons``.

    Parameters
    ----------
    points : Tensor of shape (N, 2)
        x and y.
    polygons : Tensor of shape (M, 8)
        x and y of the corners in turn; they need not be convex.

    Returns
    -------
    Tensor of shape (N, M)
        1 for points inside, otherwise 0, also on the border.

    Raises
    ------
    ValueError
        If a shape does not match.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> square = torch.tensor([[0.0, 0, 2, 0, 2, 2, 0, 2]])
    >>> mmort.torch.points_in_polygons(torch.tensor([[1.0, 1.0], [3.0, 1.0]]), square).tolist()
    [[1.0], [0.0]]
    """
    if points.ndim != 2 or points.shape[1] != 2 or polygons.ndim != 2 or polygons.shape[1] != 8:
        raise ValueError(
            "points_in_polygons: points must be [N, 2] and polygons [M, 8], "
            f"got {[*points.shape]} and {[*polygons.shape]}"
        )
    (points, polygons), dtype = as_floating("points_in_polygons", points=points, polygons=polygons)
    corners = torch.unflatten(polygons, 1, (4, 2))  # [M, 4, 2]
    x, y = points[:, None, None, 0], points[:, None, None, 1]  # [N, 1, 1]
    (x1, y1), (x2, y2) = corners.unbind(-1), corners.roll(1, 1).unbind(-1)  # of the edges, [M, 4]
    crosses = (y1 < y) != (y2 < y)  # [N, M, 4]
    height = torch.where(y1 == y2, 1, y2 - y1)  # of edges that are not crossed it does not matter
    crossing = x1 + (y - y1) * (x2 - x1) / height
    inside = (crosses & (crossing > x)).sum(-1) % 2 == 1
    level = (y1 == y) & (y2 == y) & (torch.minimum(x1, x2) <= x) & (x <= torch.maximum(x1, x2))
    at_corner = (x1 == x) & (y1 == y)
    on_border = (crosses & (crossing == x)) | level | at_corner
    return (inside & ~on_border.any(-1)).to(dtype)


def riroi_align_rotated(
    features: Tensor,
    rois: Tensor,
    out_size: int | tuple[int, int],
    spatial_scale: float,
    num_samples: int = 0,
    num_orientations: int = 8,
    clockwise: bool = False,
) -> Tensor:
    """Pool rotated regions of maps whose channels are orientations, which turn with each region.

    The arguments are those of ``mmcv.ops.riroi_align_rotated``.  A region's samples are those of `roi_align_rotated`
    without `aligned`; then its channels are exchanged as far as it is turned, between two orientations in proportion.

    Parameters
    ----------
    features : Tensor of shape (N, C * num_orientations, H, W)
        Orientations vary fastest.
    rois : Tensor of shape (K, 6)
        Batch index, centre, width, height, angle (i, x, y, w, h, a) in radians.
    out_size : int or (int, int)
        Number of bins along a region's height and width.
    spatial_scale : float
        Size of the map divided by that of the image.
    num_samples : int, default 0
        Samples along each axis of a bin.  0: the size of a bin in pixels, rounded up.
    num_orientations : int, default 8
    clockwise : bool, default False
        Whether a positive angle turns a region clockwise on screen (y downwards).

    Returns
    -------
    Tensor of shape (K, C * num_orientations, output height, output width)

    Raises
    ------
    ValueError
        If a shape does not match, or `roi_align_rotated` refuses the regions.

    Notes
    -----
    As in MMCV, a region between two orientations takes its second share from the channel on the far side of the first,
    so that the result jumps where the angle is a multiple of ``2 * pi / num_orientations``.  Models are trained so.

    Examples
    --------
    >>> import math, torch
    >>> import mmort.torch
    >>> features = torch.arange(4.0).reshape(1, 4, 1, 1).expand(1, 4, 5, 5)
    >>> turned = torch.tensor([[0, 2, 2, 2, 2, math.pi / 2], [0, 2, 2, 2, 2, math.pi / 4]])
    >>> mmort.torch.riroi_align_rotated(features, turned, 1, 1.0, 2, num_orientations=4)[:, :, 0, 0].round(decimals=3)
    tensor([[3.0000, 0.0000, 1.0000, 2.0000],
            [0.5000, 1.5000, 2.5000, 1.5000]])
    """
    if num_orientations < 1 or features.ndim != 4 or features.shape[1] % num_orientations:
        raise ValueError(
            f"riroi_align_rotated: features must be [N, C * num_orientations, H, W] with num_orientations "
            f"{num_orientations}, got {[*features.shape]}"
        )
    if rois.ndim != 2 or rois.shape[1] != 6:
        raise ValueError(f"riroi_align_rotated: rois must be [K, 6], got {[*rois.shape]}")
    (features, rois), dtype = as_floating("riroi_align_rotated", features=features, rois=rois)
    pooled = roi_align_rotated(features, rois, out_size, spatial_scale, num_samples, False, clockwise)
    pooled = torch.unflatten(pooled, 1, (-1, num_orientations))  # [K, C, R, oh, ow]
    turn = ((rois[:, 5] * num_orientations).to(torch.float64) / (2 * math.pi)).to(rois.dtype)  # MMCV's arithmetic
    whole = torch.floor(turn)
    share = (turn - whole)[:, None, None, None, None]
    source = torch.arange(num_orientations, device=rois.device) - whole[:, None].to(torch.int64)  # [K, R]
    first, second = (
        pooled.gather(2, ((source + step) % num_orientations)[:, None, :, None, None].expand_as(pooled))
        for step in (0, 1)
    )
    return in_dtype((1 - share) * first + share * second, dtype).flatten(1, 2)


class RiRoIAlignRotated(nn.Module):
    """Pool rotated regions of maps whose channels are orientations; the arguments are `riroi_align_rotated`'s."""

    def __init__(
        self,
        out_size: int | tuple[int, int],
        spatial_scale: float,
        num_samples: int = 0,
        num_orientations: int = 8,
        clockwise: bool = False,
    ) -> None:
        super().__init__()
        self.out_size = _pair(out_size)
        self.spatial_scale = float(spatial_scale)
        self.num_samples = int(num_samples)
        self.num_orientations = int(num_orientations)
        self.clockwise = clockwise

    def forward(self, features: Tensor, rois: Tensor) -> Tensor:
        """Return (K, C, output height, output width) for maps (N, C, H, W) and regions (K, 6)."""
        return riroi_align_rotated(
            features,
            rois,
            self.out_size,
            self.spatial_scale,
            self.num_samples,
            self.num_orientations,
            self.clockwise,
        )
