"""Torch's own rounding as a yardstick: how many times it a number is off.

A file's number is right if it is as near to torch's in float64, or in float32, as torch's number in float32 is to that
in float64, within a factor.  No magnitude needs a tolerance of its own: where terms cancel, or an exponential
amplifies, the rounding of torch shows it.

A single number may be exact by accident.  So torch computes it twice or more in float32, rounded otherwise each time,
and its rounding is the largest of

* its own, in all of them,
* the root mean square around it: of its image, channel, row or column, whichever is smallest,
* the median of the numbers of its magnitude, as the rounding of some outputs is a share of them,
* a unit in the last place of float32, at the number and at the magnitude around it.

Neither large numbers nor large errors elsewhere hide a wrong number so: one of its slices is without them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LIMIT = 32
"""How many times torch's rounding a number may be off."""

EPSILON = float(np.finfo(np.float32).eps)
SMALLEST = float(np.finfo(np.float32).tiny)
"""What is smaller may become 0."""
MIN_SLICE = 8
"""Numbers that a slice, or a range of magnitudes, must have for its average to say something."""

Array = NDArray[Any]


def factors(actual: Array, expected: Array, exact: Array, *rounded: Array) -> Array:
    """Return how many times torch's rounding each number is off; infinity for NaN and infinities in other places.

    `exact` are torch's in float64, and `rounded` those in float32 with other rounding.
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        difference = np.fmin(_distance(actual, expected), _distance(actual, exact))
        rounding = np.fmax.reduce([_distance(run, exact) for run in (expected, *rounded)])
        rounding, magnitude = (np.where(np.isfinite(array), array, 0) for array in (rounding, np.abs(exact)))
        unit = np.maximum(np.maximum(rounding, around(rounding)), EPSILON * np.maximum(magnitude, around(magnitude)))
        unit = np.maximum(unit, SMALLEST)
        factor = np.where(difference > 0, difference / unit, 0)
        if not (factor <= LIMIT).all():  # what takes longer is seldom needed
            factor = np.where(difference > 0, difference / np.maximum(unit, _of_magnitude(rounding, magnitude)), 0)
    return np.nan_to_num(np.where(np.isnan(difference), np.inf, factor), nan=np.inf, posinf=np.inf)


def _distance(array: Array, other: Array) -> Array:
    """Return the absolute differences of all numbers, 0 for equal infinities and for NaN in both, as float64."""
    array, other = array.astype(np.float64), other.astype(np.float64)
    return np.where((array == other) | (np.isnan(array) & np.isnan(other)), 0, np.abs(array - other))


def around(array: Array) -> Array:
    """Return the magnitude around each number: the smallest root mean square of a slice that it is in.

    An axis has a slice for each index, unless that is only a few numbers.  The shape is one that broadcasts.
    """
    squares = np.square(array, where=np.isfinite(array), out=np.zeros(array.shape), dtype=np.float64)
    scale = np.sqrt(squares.mean(keepdims=True)) if array.size else np.zeros(())
    for axis in range(array.ndim):
        axes = tuple(other for other in range(array.ndim) if other != axis)
        if array.size >= MIN_SLICE * array.shape[axis] > 0:
            scale = np.minimum(scale, np.sqrt(squares.mean(axes, keepdims=True)))
    return np.where(np.isfinite(scale), scale, 0)


def _of_magnitude(rounding: Array, magnitude: Array) -> Array:
    """Return for each number the median rounding of the numbers that are as large, but for a factor of two."""
    exponents = np.frexp(magnitude)[1]
    medians = np.zeros(magnitude.shape)
    for exponent in np.unique(exponents):
        alike = exponents == exponent
        if alike.sum() >= MIN_SLICE:
            medians[alike] = np.median(rounding[alike])
    return medians
