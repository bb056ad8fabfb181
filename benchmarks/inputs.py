"""The inputs of the benchmarks: random, and the same in every run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

KINDS = ("uniform", "clustered", "text lines", "large")
"""Kinds of boxes in an image of 1333 x 800 pixels."""


def random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def make_line(shape: tuple[int, ...], values: str) -> Array:
    """Return normal numbers, or small integers with many ties."""
    if values == "int8, ties":
        return np.random.default_rng(0).integers(-3, 4, shape, np.int8)
    return random(*shape)


def make_boxes(kind: str, count: int) -> tuple[Array, Array]:
    """Return boxes [count, 4], and scores [count] without ties.

    `kind` is one of KINDS, or "square": sides of 10 to 100 pixels in a square of 10,000.
    """
    rng = np.random.default_rng(count)
    image = np.array([1333, 800])
    if kind == "uniform":
        centres, sides = rng.uniform(0, image, (count, 2)), rng.uniform(8, 160, (count, 2))
    elif kind == "clustered":  # as a detector's head gives them: about 20 boxes around each object
        objects = rng.integers(0, max(1, count // 20), count)
        centres, sides = rng.uniform(0, image, (count, 2))[objects], rng.uniform(16, 320, (count, 2))[objects]
        centres = centres + sides * rng.normal(0, 0.08, (count, 2))
        sides = sides * np.exp(rng.normal(0, 0.12, (count, 2)))
    elif kind == "text lines":
        centres = np.stack([rng.uniform(0, 1333, count), rng.integers(0, 50, count) * 16 + rng.normal(0, 1, count)], 1)
        sides = np.stack([rng.uniform(40, 600, count), rng.uniform(8, 20, count)], 1)
    elif kind == "square":
        centres, sides = rng.uniform(0, 10_000, (count, 2)), rng.uniform(10, 100, (count, 2))
    else:  # "large": many overlap many others
        centres, sides = rng.uniform(0, image, (count, 2)), rng.uniform(200, 800, (count, 2))
    boxes = np.hstack([centres - sides / 2, centres + sides / 2]).astype(np.float32)
    return boxes, (rng.permutation(count).astype(np.float32) + 1) / np.float32(count + 1)


def make_rois(count: int, batch: int, height: int, width: int, spatial_scale: float) -> Array:
    """Return regions of 16 pixels to half the image, most of them small."""
    rng = np.random.default_rng(count)
    image = np.array([width, height]) / spatial_scale
    sides = np.exp(rng.uniform(np.log(16), np.log(image / 2), (count, 2)))
    corners = rng.uniform(0, image - sides)
    return np.hstack([rng.integers(0, batch, (count, 1)), corners, corners + sides]).astype(np.float32)


def make_rotated_rois(count: int) -> Array:
    """Return regions of 16 to 400 pixels at all angles, in an image of 800 x 1216 pixels."""
    rng = np.random.default_rng(count)
    centres, sides = rng.uniform(0, (1216, 800), (count, 2)), rng.uniform(16, 400, (count, 2))
    return np.hstack([np.zeros((count, 1)), centres, sides, rng.uniform(0, 3, (count, 1))]).astype(np.float32)


def make_grid(shape: tuple[int, int, int], positions: str) -> Array:
    """Return positions to sample at: a slightly turned and stretched image, or points anywhere."""
    if positions == "scattered":
        return np.random.default_rng(0).uniform(-1.05, 1.05, (*shape, 2)).astype(np.float32)
    y, x = np.meshgrid(np.linspace(-1.05, 1.05, shape[1]), np.linspace(-1.05, 1.05, shape[2]), indexing="ij")
    turned = np.stack([0.98 * x - 0.17 * y, 0.17 * x + 0.98 * y], -1).astype(np.float32)
    return np.tile(turned, (shape[0], 1, 1, 1))
