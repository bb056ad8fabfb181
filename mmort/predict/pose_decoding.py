"""From the outputs of a file of poses to keypoints, as MMPose's codecs decode them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.contract import PoseFormat
from mmort.images import opencv

Keypoints = tuple[NDArray[Any], NDArray[np.float32]]
"""x and y of each keypoint in pixels of the input, (N, P, 2), and the score of each, (N, P)."""

_Maps = NDArray[np.float32]


def decode(format: PoseFormat, size: tuple[int, int], outputs: Sequence[NDArray[Any]]) -> Keypoints:
    """Return the keypoints that a file found in a batch.

    Parameters
    ----------
    format : PoseFormat
    size : (int, int)
        Width and height of the input.
    outputs : sequence of ndarray
        As `mmort.contract.tasks.POSE` has them.
    """
    if format.codec == "simcc":
        columns, rows = outputs
        points, scores = _of_lines(columns, rows)
        return points / np.float32(format.bins), scores
    if format.codec == "points":
        (shares,) = outputs
        is_sure = shares.shape[2] == 2  # a network without deviations
        scores = np.ones(shares.shape[:2], np.float32) if is_sure else (1 - shares[..., 2:]).mean(axis=2)
        return shares[..., :2] * np.array(size), scores
    (maps,) = outputs
    if format.codec == "megvii":
        maps = _blurred(maps, format.blur)
    points, scores = _of_maps(maps)
    points = _REFINED[format.codec](points, maps, format)
    sides = np.array(maps.shape[:1:-1])
    if format.codec == "udp":
        return points / (sides - 1) * size, scores
    if format.codec == "megvii":
        scores = scores / np.float32(255) + np.float32(0.5)
    return points * (np.array(size) / sides).astype(np.float32), scores


def _of_lines(columns: _Maps, rows: _Maps) -> Keypoints:
    """Return the column and the row with the largest score of each keypoint, and the smaller one of both scores."""
    points = np.stack([columns.argmax(axis=2), rows.argmax(axis=2)], axis=2).astype(np.float32)
    scores = np.minimum(columns.max(axis=2), rows.max(axis=2))
    points[scores <= 0] = -1
    return points, scores


def _of_maps(maps: _Maps) -> Keypoints:
    """Return where the heatmap of each keypoint is largest, and its value there."""
    flat = maps.reshape(*maps.shape[:2], -1)
    indices, scores = flat.argmax(axis=2), flat.max(axis=2)
    points = np.stack([indices % maps.shape[3], indices // maps.shape[3]], axis=2).astype(np.float32)
    points[scores <= 0] = -1
    return points, scores


def _values(maps: _Maps, points: NDArray[np.float32]) -> Callable[[int, int], _Maps]:
    """Return a function of x and y that returns each map's value that far from its point; points must be inside."""
    batch, keypoint = np.indices(points.shape[:2])
    x, y = (points[..., axis].astype(np.int64) for axis in (0, 1))
    return lambda right, down: maps[batch, keypoint, y + down, x + right]


def _towards_neighbour(points: NDArray[np.float32], maps: _Maps, format: PoseFormat) -> NDArray[np.float32]:
    """Move points a quarter of a pixel towards the larger neighbour, horizontally and vertically."""
    height, width = maps.shape[2:]
    value = _values(np.pad(maps, ((0, 0), (0, 0), (1, 1), (1, 1))), points + 1)
    x, y = points[..., 0], points[..., 1]
    # MMPose's conditions, which are not the same on both sides of a map.
    dx = np.where((x > 1) & (x < width - 1) & (y > 0) & (y < height), value(1, 0) - value(-1, 0), 0)
    dy = np.where((y > 1) & (y < height - 1) & (x > 0) & (x < width), value(0, 1) - value(0, -1), 0)
    moved: NDArray[np.float32] = points + np.sign(np.stack([dx, dy], axis=2)).astype(np.float32) * np.float32(0.25)
    return moved


def _past_neighbour(points: NDArray[np.float32], maps: _Maps, format: PoseFormat) -> NDArray[np.float32]:
    """Move points that are not at the border as `_towards_neighbour` does, and half a pixel to the right and down."""
    height, width = maps.shape[2:]
    x, y = points[..., 0], points[..., 1]
    inside = ((x > 1) & (x < width - 1) & (y > 1) & (y < height - 1))[..., None]
    moved: NDArray[np.float32] = _towards_neighbour(points, maps, format) + np.float32(0.5)
    return np.where(inside, moved, points)


def _blurred(maps: _Maps, side: int) -> _Maps:
    """Return maps blurred by a Gaussian, with zeros around them, each with its largest value as before."""
    border = (side - 1) // 2
    results = np.empty_like(maps)
    for index in np.ndindex(maps.shape[:2]):
        padded = opencv().GaussianBlur(np.pad(maps[index], border), (side, side), 0)
        blurred = padded[border : border + maps.shape[2], border : border + maps.shape[3]]
        with np.errstate(divide="ignore", invalid="ignore"):  # of a map without any value
            results[index] = blurred * (maps[index].max() / blurred.max())
    return results


def _to_top(points: NDArray[np.float32], maps: _Maps, format: PoseFormat) -> NDArray[np.float32]:
    """Move points to the top of the parabola through the logarithms around them, which DARK proposes."""
    height, width = maps.shape[2:]
    logarithms = np.log(np.maximum(_blurred(maps, format.blur), np.float32(1e-10)))
    x, y = points[..., 0], points[..., 1]
    inside = (x > 1) & (x < width - 2) & (y > 1) & (y < height - 2)
    value = _values(logarithms, np.where(inside[..., None], points, 2))
    dx, dy = (value(1, 0) - value(-1, 0)) * 0.5, (value(0, 1) - value(0, -1)) * 0.5
    middle = 2 * value(0, 0)
    dxx, dyy = (value(2, 0) - middle + value(-2, 0)) * 0.25, (value(0, 2) - middle + value(0, -2)) * 0.25
    dxy = (value(1, 1) - value(1, -1) - value(-1, 1) + value(-1, -1)) * 0.25
    inside &= dxx * dyy - dxy**2 != 0
    moved = points.copy()
    slopes = np.stack([dx, dy], axis=-1)[inside][..., None]
    curvatures = np.stack([dxx, dxy, dxy, dyy], axis=-1)[inside].reshape(-1, 2, 2)
    moved[inside] -= (np.linalg.inv(curvatures) @ slopes)[..., 0]
    return moved


def _to_top_of_aligned(points: NDArray[np.float32], maps: _Maps, format: PoseFormat) -> NDArray[np.float32]:
    """Do what `_to_top` does, as UDP has it: at the border too, and with differences of next neighbours."""
    number, keypoints, height, width = maps.shape
    logarithms = np.log(np.clip(_blurred(maps, format.blur), np.float32(1e-3), np.float32(50)))
    padded = np.pad(logarithms, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge").reshape(number, -1)
    row = width + 2
    # Neighbours of a point outside, of which there is none with a positive score, are those that lie there in memory.
    first = row * (height + 2) * np.arange(keypoints)
    indices = (points[..., 0] + 1 + (points[..., 1] + 1) * row + first).astype(np.int64)

    def value(offset: int) -> _Maps:
        return np.take_along_axis(padded, (indices + offset) % padded.shape[1], axis=1)

    middle, right, below, left, above = map(value, (0, 1, row, -1, -row))
    slopes = np.stack([(right - left) * 0.5, (below - above) * 0.5], axis=-1)[..., None]
    dxx, dyy = right - 2 * middle + left, below - 2 * middle + above
    dxy = 0.5 * (value(row + 1) - right - below + middle + middle - left - above + value(-row - 1))
    curvatures = np.stack([dxx, dxy, dxy, dyy], axis=-1).reshape(number, keypoints, 2, 2)
    curvatures = curvatures + np.finfo(np.float32).eps * np.eye(2)
    moved: NDArray[np.float32] = (points - (np.linalg.inv(curvatures) @ slopes)[..., 0]).astype(np.float32)
    return moved


_REFINED: dict[str, Callable[[NDArray[np.float32], _Maps, PoseFormat], NDArray[Any]]] = {
    "heatmaps": _towards_neighbour,
    "dark": _to_top,
    "udp": _to_top_of_aligned,
    "megvii": _past_neighbour,
}
"""The functions that refine the positions of the largest values of heatmaps, by codec."""
