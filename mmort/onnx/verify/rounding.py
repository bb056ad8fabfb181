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

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

LIMIT = 32
"""How many times torch's rounding a number may be off."""

EPSILON = float(np.finfo(np.float32).eps)
SMALLEST = float(np.finfo(np.float32).tiny)
"""The smallest normal number; smaller ones may become 0."""
MIN_SLICE = 8
"""Numbers that a slice, or a range of magnitudes, must have for its average to say something."""

EXTREME = 8.0
"""How many times the median is more than what numbers are typically."""

Array = NDArray[Any]


def measured_factors(actual: Array, expected: Array, exact: Array, *rounded: Array) -> tuple[Array, float]:
    """Return how many times torch's rounding each number is off, and that rounding in units of the last place.

    `exact` are torch's numbers in float64, and `rounded` those in float32 with other rounding.  A factor is infinite
    for NaN and infinities where torch has them in neither.  That rounding is the mean over the numbers that are rounded
    at all, at least 1: unused rows are exactly 0.
    """
    actual, expected, exact = map(np.atleast_1d, (actual, expected, exact))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        difference = np.fmin(_distance(actual, expected), _distance(actual, exact))
        rounding, magnitude = _rounding(expected, exact, *rounded), _magnitude(exact)
        typical, places = np.maximum(rounding, around(rounding)), last_place(magnitude)
        growth = _growth(typical, places)
        unit = np.maximum(typical, places)
        factor = difference / unit
        if not (factor <= LIMIT).all():  # what takes longer is seldom needed
            factor = difference / np.maximum(unit, _of_magnitude(rounding, magnitude))
    return _judged(factor), growth


def measured_growth(expected: Array, exact: Array, *rounded: Array) -> float:
    """Return torch's rounding in units of the last place, as `measured_factors` does."""
    expected, exact = map(np.atleast_1d, (expected, exact))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        rounding = _rounding(expected, exact, *rounded)
        if not rounding.any():
            return 1.0
        return _growth(np.maximum(rounding, around(rounding)), last_place(_magnitude(exact)))


def _rounding(expected: Array, exact: Array, *rounded: Array) -> Array:
    """Return the largest distance of each number in float32 from that in float64, 0 where it is infinite."""
    rounding = functools.reduce(np.fmax, (_distance(np.atleast_1d(run), exact) for run in (expected, *rounded)))
    return _finite(rounding)


def estimated_factors(actual: Array, expected: Array, growth: float) -> Array:
    """Return how many times torch's rounding each number is off, if that has so many units in the last place."""
    actual, expected = np.atleast_1d(actual), np.atleast_1d(expected)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        difference = _distance(actual, expected)
        factor = difference / (growth * last_place(_magnitude(expected)))
    return _judged(factor)


def last_place(magnitude: Array) -> Array:
    """Return a unit in the last place of float32, at each number or at the magnitude around it."""
    places = np.maximum(magnitude, around(magnitude))
    places *= EPSILON
    return np.maximum(places, SMALLEST, out=places)


def _growth(typical: Array, places: Array) -> float:
    """Return the mean of rounding in units, at least 1, without the effect of a few extreme numbers."""
    rounded = np.count_nonzero(typical)
    if not rounded:
        return 1.0
    ratios = typical / places
    mean: float = ratios.sum().item() / rounded
    if mean > 1 and 2 * np.count_nonzero(ratios >= mean / EXTREME) <= rounded:  # the median takes long
        mean = min(mean, EXTREME * float(np.median(ratios[ratios > 0])))
    return max(1.0, mean)


def _magnitude(array: Array) -> Array:
    """Return the magnitudes of numbers, 0 of those that are not finite."""
    return _finite(np.abs(array, dtype=np.float64))


def _judged(factor: Array) -> Array:
    """Return factors that are infinite where a difference is not a number."""
    return factor if np.isfinite(factor.max(initial=0)) else np.nan_to_num(factor, nan=np.inf, posinf=np.inf)


def _distance(array: Array, other: Array) -> Array:
    """Return the absolute differences of all numbers, 0 for equal infinities and for NaN in both, as float64."""
    difference = np.subtract(array, other, dtype=np.float64)
    np.abs(difference, out=difference)
    if np.isnan(difference.max(initial=0)):
        same = (array == other) | (np.isnan(array) & np.isnan(other))
        np.copyto(difference, 0, where=np.isnan(difference) & same)
    return difference


def _finite(array: Array) -> Array:
    """Set what is not finite to 0, in place: to look for the largest number takes a tenth of the time."""
    if not np.isfinite(array.max(initial=0)):
        np.copyto(array, 0, where=~np.isfinite(array))
    return array


def around(array: Array) -> Array:
    """Return the magnitude around each number: the smallest root mean square of a slice that it is in.

    An axis has a slice for each index, unless that is only a few numbers.  Where no axis has, as in a row of numbers,
    the median limits what a few extreme ones do to it.  The shape is one that broadcasts.
    """
    squares = _finite(np.square(array, dtype=np.float64))
    half = (array.ndim + 1) // 2
    groups = [tuple(range(half)), tuple(range(half, array.ndim))]
    scale = np.sqrt(squares.mean(keepdims=True)) if array.size else np.zeros(())
    if not any(1 < length <= array.size // MIN_SLICE for length in array.shape):
        present = squares[squares > 0]
        scale = np.minimum(scale, EXTREME * np.sqrt(np.median(present))) if present.size else scale
    for group, others in (groups, groups[::-1]):
        sums = squares.sum(others, keepdims=True)  # two passes over all numbers instead of one for each axis
        for axis in group:
            count = array.size // array.shape[axis] if array.size else 0
            if count >= MIN_SLICE:
                of_axis = sums.sum(tuple(other for other in group if other != axis), keepdims=True) / count
                scale = np.minimum(scale, np.sqrt(of_axis))
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
