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
        rounding, magnitude = _rounding(expected, exact, *rounded), _magnitude(exact)
        unit = np.maximum(np.maximum(rounding, around(rounding)), last_place(magnitude))
        factor = np.where(difference > 0, difference / unit, 0)
        if not (factor <= LIMIT).all():  # what takes longer is seldom needed
            factor = np.where(difference > 0, difference / np.maximum(unit, _of_magnitude(rounding, magnitude)), 0)
    return _judged(difference, factor)


def growth(expected: Array, exact: Array, rounded: Array) -> float:
    """Return torch's rounding in units of the last place, the mean over all numbers; at least 1."""
    if not exact.size:
        return 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        rounding, magnitude = _rounding(expected, exact, rounded), _magnitude(exact)
        return max(1.0, float((np.maximum(rounding, around(rounding)) / last_place(magnitude)).mean()))


def estimated_factors(actual: Array, expected: Array, growth: float) -> Array:
    """Return how many times torch's rounding each number is off, if that has so many units in the last place."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        difference = _distance(actual, expected)
        factor = np.where(difference > 0, difference / (growth * last_place(_magnitude(expected))), 0)
    return _judged(difference, factor)


def last_place(magnitude: Array) -> Array:
    """Return a unit in the last place of float32, at each number or at the magnitude around it."""
    return np.maximum(EPSILON * np.maximum(magnitude, around(magnitude)), SMALLEST)


def _rounding(expected: Array, exact: Array, *rounded: Array) -> Array:
    """Return how far the largest of torch's runs is from the exact one."""
    rounding: Array = np.fmax.reduce([_distance(run, exact) for run in (expected, *rounded)])
    return np.where(np.isfinite(rounding), rounding, 0)


def _magnitude(array: Array) -> Array:
    """Return the magnitudes of numbers, 0 of those that are not finite."""
    return np.where(np.isfinite(array), np.abs(array.astype(np.float64)), 0)


def _judged(difference: Array, factor: Array) -> Array:
    """Return factors that are infinite where a difference is not a number."""
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
