"""Resizing as torch does it, which torchvision and so transformers' image processors and RF-DETR use.

Images of integers are resized with antialiasing: as in Pillow, all pixels that a smaller image merges are weighted;
here the weights are rounded to 16 bits, so that some results differ from Pillow's by 1.  Images of floats are
interpolated between four pixels.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Interpolation = Literal["bilinear", "bicubic", "area"]
"""How to resize; "area" is OpenCV's alone."""

_RADIUS = {"bilinear": 1, "bicubic": 2}
"""How many pixels of the smaller image a filter reaches to each side."""

_MAX_PRECISION, _MAX_WEIGHT = 22, 2**15


def resize_as_torch(
    image: NDArray[np.uint8], width: int, height: int, interpolation: Interpolation
) -> NDArray[np.uint8]:
    """Resize an image (H, W, 3): rows first, then columns, each rounded to integers.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.images.resampling import resize_as_torch
    >>> image = np.array([0, 100, 200, 50], np.uint8).reshape(1, 4, 1)
    >>> resize_as_torch(image, 2, 1, "bilinear").ravel()
    array([ 71, 121], dtype=uint8)
    """
    for axis, size in ((1, width), (0, height)):
        if image.shape[axis] != size:
            image = _resized(image, axis, size, interpolation)
    return image


def interpolate_as_torch(image: NDArray[np.float32], width: int, height: int) -> NDArray[np.float32]:
    """Interpolate an image (H, W, C) bilinearly, without antialiasing.

    The bits are those of torch on one thread of a processor with AVX2; on several threads, the last one may differ.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.images.resampling import interpolate_as_torch
    >>> image = np.array([0, 100, 200, 50], np.float32).reshape(1, 4, 1)
    >>> interpolate_as_torch(image, 3, 1).ravel()
    array([ 16.666668, 150.      ,  74.99998 ], dtype=float32)
    """
    left, right, of_left, of_right = _neighbours(image.shape[1], width)
    above, below, of_above, of_below = (values[:, None] for values in _neighbours(image.shape[0], height))
    resized: NDArray[np.float32] = image[above, right] * (of_above * of_right)[..., None]
    for row, column, weight in (
        (above, left, of_above * of_left),
        (below, left, of_below * of_left),
        (below, right, of_below * of_right),
    ):
        resized = _multiply_add(image[row, column], weight[..., None], resized)
    return resized


def _neighbours(
    old: int, new: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
    """Return the two pixels between which each new pixel lies, and their weights, (new,) each."""
    half = np.float32(0.5)
    source = _multiply_add(np.float32(old) / np.float32(new), np.arange(new, dtype=np.float32) + half, -half)
    source = np.maximum(source, np.float32(0))
    first = np.minimum(source.astype(np.int64), old - 1)
    weight = np.clip(source - first.astype(np.float32), np.float32(0), np.float32(1))
    return first, np.minimum(first + 1, old - 1), 1 - weight, weight


def _multiply_add(x: Any, y: Any, z: Any) -> NDArray[np.float32]:
    """Return ``x * y + z`` of float32, rounded once as processors do it."""
    product: NDArray[np.float64] = np.multiply(x, y, dtype=np.float64)  # exact
    rounded: NDArray[np.float32] = (product + z).astype(np.float32)
    return rounded


def _resized(image: NDArray[np.uint8], axis: int, size: int, interpolation: Interpolation) -> NDArray[np.uint8]:
    """Return an image that is resized along an axis."""
    first, weights = _weights(image.shape[axis], size, interpolation)
    precision = 0
    while precision < _MAX_PRECISION and int(0.5 + weights.max() * 2 ** (precision + 1)) < _MAX_WEIGHT:
        precision += 1
    factors = np.trunc(weights * 2**precision + np.copysign(0.5, weights)).astype(np.int32)
    form = (-1, 1, 1) if axis == 0 else (1, -1, 1)
    last = image.shape[axis] - 1
    sums = np.full((1, 1, 1), 2 ** max(precision - 1, 0), np.int32)
    for tap, factor in enumerate(factors.T):
        sums = sums + image.take(np.minimum(first + tap, last), axis) * factor.reshape(form)
    resized: NDArray[np.uint8] = np.clip(sums >> precision, 0, 255).astype(np.uint8)
    return resized


def _weights(old: int, new: int, interpolation: Interpolation) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the first pixel that each new pixel merges, and the weights of it and those after it, (new, taps)."""
    scale = old / new
    support = _RADIUS[interpolation] * max(scale, 1.0)
    centres = scale * (np.arange(new) + 0.5)
    first = np.maximum((centres - support + 0.5).astype(np.int64), 0)
    count = np.minimum((centres + support + 0.5).astype(np.int64), old) - first
    taps = np.arange(count.max())
    distances = np.abs((taps + (first - centres)[:, None] + 0.5) * (1 / max(scale, 1.0)))
    weights = np.where(taps < count[:, None], _FILTERS[interpolation](distances), 0.0)
    return first, weights / np.cumsum(weights, axis=1)[:, -1:]  # added up in order


def _triangle(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights of bilinear interpolation at distances."""
    return np.maximum(1.0 - x, 0.0)


def _cubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights of bicubic interpolation at distances, with Pillow's parameter."""
    a = -0.5
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x < 1, inner, np.where(x < 2, outer, 0.0))


_FILTERS = {"bilinear": _triangle, "bicubic": _cubic}
