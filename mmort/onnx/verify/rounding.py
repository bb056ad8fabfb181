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
import math
from collections.abc import Iterator, Sequence
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

PART = 1 << 16
"""How many numbers are compared at once."""

EXTREME = 8.0
"""How many times the median is more than what numbers are typically."""

Array = NDArray[Any]


def measured_factors(actual: Array, expected: Array, exact: Array, *rounded: Array) -> tuple[Array, float]:
    """Return how many times torch's rounding each number is off, and that rounding in units of the last place.

    `exact` are torch's numbers in float64, and `rounded` those in float32 with other rounding.  A factor is infinite
    for NaN and infinities where torch has them in neither.  That rounding is the mean over the numbers that are rounded
    at all, at least 1: unused rows are exactly 0.
    """
    shape, numbers = np.shape(np.atleast_1d(actual)), _matrix(actual)
    factor, ratios = np.empty(numbers.shape), np.empty(numbers.shape)

    def difference(part: slice) -> Array:
        return np.fmin(*(_distance(numbers[part], run[part]) for run in (torchs.expected, torchs.exact)))

    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        torchs = _OfTorch(expected, exact, rounded)
        for part in _parts(numbers):
            typical, places = torchs.units(part)
            np.divide(typical, places, out=ratios[part])
            np.divide(difference(part), np.maximum(typical, places), out=factor[part])
        growth = _growth(ratios)
        if not (factor <= LIMIT).all():  # what takes longer is seldom needed
            alike = _of_magnitude(torchs.rounding, _magnitude(torchs.exact))
            factor = np.fmin(factor, difference(slice(None)) / alike)
    return _judged(factor.reshape(shape)), growth


def measured_growth(expected: Array, exact: Array, *rounded: Array) -> float:
    """Return torch's rounding in units of the last place, as `measured_factors` does."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        torchs = _OfTorch(expected, exact, rounded)
        if not torchs.rounding.any():
            return 1.0
        ratios = np.empty(torchs.exact.shape)
        for part in _parts(ratios):
            np.divide(*torchs.units(part), out=ratios[part])
        return _growth(ratios)


class _OfTorch:
    """Torch's numbers in float32 and float64, and how much it rounds each: the largest distance of those in float32.

    Where that is infinite, it is 0.
    """

    def __init__(self, expected: Array, exact: Array, rounded: Sequence[Array]) -> None:
        self.expected, self.exact = _matrix(expected), _matrix(exact)
        runs = self.expected, *map(_matrix, rounded)
        self.rounding = np.empty(self.exact.shape)
        for part in _parts(self.exact):
            distances = (_distance(run[part], self.exact[part]) for run in runs)
            self.rounding[part] = _finite(functools.reduce(np.fmax, distances))
        self._typical, self._nearby = (_Around(matrix, np.shape(exact)) for matrix in (self.rounding, self.exact))

    def units(self, part: slice) -> tuple[Array, Array]:
        """Return of some rows the rounding at or around each number, and a unit in the last place of float32."""
        places = _last_place(self.exact[part], self._nearby[part])
        return np.maximum(self.rounding[part], self._typical[part]), places


def estimated_factors(actual: Array, expected: Array, growth: float) -> Array:
    """Return how many times torch's rounding each number is off, if that has so many units in the last place."""
    actual, expected = np.atleast_1d(actual), np.atleast_1d(expected)
    numbers, of_torch = _matrix(actual), _matrix(expected)
    factor, nearby = np.empty(of_torch.shape), _Around(of_torch, expected.shape)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for part in _parts(of_torch):
            places = growth * _last_place(of_torch[part], nearby[part])
            np.divide(_distance(numbers[part], of_torch[part]), places, out=factor[part])
    return _judged(factor.reshape(expected.shape))


def _last_place(numbers: Array, nearby: Array) -> Array:
    """Return a unit in the last place of float32, at each number or at the magnitude around it."""
    places = np.maximum(_magnitude(numbers), nearby)
    places *= EPSILON
    return np.maximum(places, SMALLEST, out=places)


def _growth(ratios: Array) -> float:
    """Return the mean of rounding in units, at least 1, without the effect of a few extreme numbers."""
    rounded = np.count_nonzero(ratios)
    if not rounded:
        return 1.0
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
    the median limits what a few extreme ones do to it.
    """
    return _Around(_matrix(array), array.shape)[:].reshape(array.shape)


class _Around:
    """The magnitude around each number of an array, given as a matrix, and the array's shape.

    It is the smaller one of a number's row and of its column, so that it needs no array.
    """

    def __init__(self, matrix: Array, shape: tuple[int, ...]) -> None:
        count, half = matrix.size, _rows(shape)
        groups = shape[:half], shape[half:]
        sums = _sums_of_squares(matrix)
        scale = np.sqrt(sums[0].sum() / max(1, count))
        if not any(1 < length <= count // MIN_SLICE for length in shape):
            squares = _finite(np.square(matrix, dtype=np.float64))
            present = squares[squares > 0]
            scale = min(scale, EXTREME * np.sqrt(np.median(present))) if present.size else scale
        self._rows, self._columns = (
            _smallest_mean(of_group, shape, count, scale) for of_group, shape in zip(sums, groups, strict=True)
        )

    def __getitem__(self, rows: slice) -> Array:
        """Return the magnitudes of some rows."""
        return np.minimum(self._rows[rows, None], self._columns)


def _matrix(array: Array) -> Array:
    """Return an array with the first half of its axes as rows, and the others as columns."""
    array = np.asarray(array)
    half = _rows(array.shape)
    return array.reshape(math.prod(array.shape[:half]), math.prod(array.shape[half:]))


def _rows(shape: tuple[int, ...]) -> int:
    """Return how many axes are the rows of a matrix: of a row of numbers its only one."""
    return (len(shape) + 1) // 2


def _parts(matrix: Array) -> Iterator[slice]:
    """Yield slices of rows that stay in a processor's cache as float64: passes over all numbers wait for memory."""
    step = max(1, PART // max(1, matrix.shape[1]))
    for start in range(0, len(matrix), step):
        yield slice(start, start + step)


def _sums_of_squares(matrix: Array) -> tuple[Array, Array]:
    """Return the sums of the squares in each row and in each column."""
    of_rows, of_columns = map(np.zeros, matrix.shape)
    for part in _parts(matrix):
        squares = _finite(np.square(matrix[part], dtype=np.float64))
        of_rows[part] = squares.sum(1)
        of_columns += squares.sum(0)
    return of_rows, of_columns


def _smallest_mean(sums: Array, shape: tuple[int, ...], count: int, scale: float) -> Array:
    """Return for each row or column, whose axes have a shape, the smallest root mean square of an axis, or `scale`."""
    sums, smallest = sums.reshape(shape), np.full(shape, scale)
    for axis, length in enumerate(shape):
        if length and count // length >= MIN_SLICE:
            of_axis = sums.sum(tuple(other for other in range(len(shape)) if other != axis), keepdims=True)
            smallest = np.minimum(smallest, np.sqrt(of_axis / (count // length)))
    return np.where(np.isfinite(smallest), smallest, 0).ravel()


def _of_magnitude(rounding: Array, magnitude: Array) -> Array:
    """Return for each number the median rounding of the numbers that are as large, but for a factor of two."""
    exponents = np.frexp(magnitude)[1]
    medians = np.zeros(magnitude.shape)
    for exponent in np.unique(exponents):
        alike = exponents == exponent
        if alike.sum() >= MIN_SLICE:
            medians[alike] = np.median(rounding[alike])
    return medians
