"""How floating-point numbers become 8-bit integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def steps(low: float, high: float) -> tuple[np.float32, np.uint8]:
    """Return scale and zero point of uint8 for a range that contains 0."""
    scale = np.float32(max(float(high) - float(low), float(np.finfo(np.float32).tiny)) / 255)
    return scale, np.uint8(np.clip(np.rint(-low / scale), 0, 255))


def rounded_weights(weights: NDArray[np.float32], axis: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return weights as int8 and the scale of each output channel, which the axis counts."""
    largest: NDArray[np.float32] = np.abs(weights).max(axis=tuple({*range(weights.ndim)} - {axis}), keepdims=True)
    scales = np.maximum(largest / np.float32(127), np.finfo(np.float32).tiny)
    return np.rint(weights / scales).astype(np.int8), scales.ravel()
