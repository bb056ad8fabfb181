"""Outputs compared by the rounding of torch itself: the comparator wherever torch can compute in float64 too.

A file's number is right if it is as near to torch's in float64, or in float32, as torch's number in float32 is to that
in float64, within a factor.  No magnitude needs a tolerance of its own: where terms cancel, or an exponential
amplifies, the rounding of torch shows it.

A single number may be exact by accident.  So torch computes it twice in float32, the second time rounded
otherwise, and its rounding is the largest of

* its own, in both,
* the root mean square around it: of its image, channel, row or column, whichever is smallest,
* the median of the numbers of its magnitude, as the rounding of some outputs is a share of them,
* a unit in the last place of float32, at the number and at the magnitude around it.

Both runs may be exact by accident, so a few numbers that are off by more are judged again by some further runs.

Neither large numbers nor large errors elsewhere hide a wrong number so: one of its slices is without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mmort.onnx.verify.report import number_text
from mmort.onnx.verify.values import shape_text

MAX_FACTOR = 32
"""How many times torch's rounding a number may be off.  ``docs/reliability.md`` has the factors that were measured."""

MAX_ACCIDENTS = 1e-3
"""Share of numbers on which all runs may agree by accident; a single number always may be one."""

EPSILON = float(np.finfo(np.float32).eps)
SMALLEST = float(np.finfo(np.float32).tiny)
"""What is smaller may become 0."""
MIN_SLICE = 8
"""Numbers that a slice, or a range of magnitudes, must have for its average to say something."""

Array = NDArray[Any]


@dataclass(frozen=True)
class RoundingRow:
    """One output for one set of inputs, compared with torch in float64."""

    HEADINGS: ClassVar[tuple[str, ...]] = (
        *("inputs", "output", "shape", "max abs diff"),
        *("worst diff", "torch's rounding there", "factor", "allowed"),
    )

    inputs: str
    """The inputs' shapes, ``2x3x64x96``."""
    output: str
    shape: str
    max_abs_diff: float
    """The largest difference from torch in float64 or, where that is smaller, in float32."""
    worst_diff: float
    """The difference at the number that is off by the largest factor."""
    rounding: float
    """That of torch at this number."""
    factor: float
    """`worst_diff` divided by `rounding`."""
    wrong: int
    """How many numbers are off by more than is allowed."""
    size: int
    """How many numbers there are."""

    @property
    def problem(self) -> str:
        """What differs, or an empty string."""
        return f"{self.wrong} of {self.size} numbers" if self.wrong else ""

    @property
    def may_be_accident(self) -> bool:
        """Whether so few numbers are off that torch's runs may agree on them by accident."""
        return 0 < self.wrong <= max(1, MAX_ACCIDENTS * self.size)

    @property
    def ok(self) -> bool:
        """Whether the output agrees."""
        return not self.problem

    def cells(self) -> tuple[str, ...]:
        """Return the text of each column."""
        numbers = self.max_abs_diff, self.worst_diff, self.rounding, self.factor
        return self.inputs, self.output, self.shape, *map(number_text, numbers), str(MAX_FACTOR)


LIMIT = 32
"""How many times torch's rounding a number may be off."""


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


def comparable(actual: Array, expected: Array, exact: Array, rounded: Array) -> bool:
    """Return whether arrays of the same shape are float32, and `exact` float64."""
    return (
        actual.dtype == expected.dtype == rounded.dtype == np.float32
        and exact.dtype == np.float64
        and actual.shape == expected.shape == exact.shape == rounded.shape
    )


def compare_by_rounding(
    inputs: str,
    name: str,
    actual: Array,
    expected: Array,
    exact: Array,
    *rounded: Array,
    magnitude: Array | None = None,
    farther: Array | float = 1,
) -> RoundingRow:
    """Compare one output with torch's, in float32, in float64, and in runs in float32 with other rounding.

    `magnitude`, which must broadcast to the shape, is by default that of each number.  `farther` is how many times as
    far as torch's the file's numbers may be because of what they depend on.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # infinity - infinity, and what float32 cannot hold
        difference = np.fmin(_distance(actual, expected), _distance(actual, exact))
        rounding = farther * np.fmax.reduce([_distance(run, exact) for run in (expected, *rounded)])
    magnitude = np.abs(exact) if magnitude is None else np.broadcast_to(magnitude, exact.shape)
    return row_of(inputs, name, actual.shape, difference, rounding, magnitude)


def row_of(
    inputs: str,
    name: str,
    shape: tuple[int, ...],
    difference: Array,
    rounding: Array,
    magnitude: Array,
    scale: Array | float = 1,
) -> RoundingRow:
    """Judge differences by torch's rounding; NaN and infinite differences never pass.

    `scale` is what the rounding of each number grows with: so the largest ones are no excuse for the others.
    """
    unit = scale * units(rounding / scale, magnitude / scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(difference > 0, difference / unit, 0)
    factor = np.nan_to_num(np.where(np.isnan(difference), np.inf, factor), nan=np.inf, posinf=np.inf)
    worst = int(factor.argmax()) if factor.size else None
    return RoundingRow(
        inputs,
        name,
        shape_text(shape),
        max_abs_diff=float(difference.max(initial=0)),
        worst_diff=0.0 if worst is None else float(difference.flat[worst]),
        rounding=0.0 if worst is None else float(unit.flat[worst]),
        factor=0.0 if worst is None else float(factor.flat[worst]),
        wrong=int((factor > MAX_FACTOR).sum()),
        size=factor.size,
    )


def _distance(array: Array, other: Array) -> Array:
    """Return the absolute differences of all numbers, 0 for equal infinities and for NaN in both, as float64."""
    array, other = array.astype(np.float64), other.astype(np.float64)
    return np.where((array == other) | (np.isnan(array) & np.isnan(other)), 0, np.abs(array - other))


def units(rounding: Array, magnitude: Array) -> Array:
    """Return for each number how far torch's rounding may move it; the arguments, of one shape, are not negative."""
    rounding, magnitude = (np.where(np.isfinite(array), array, 0) for array in (rounding, magnitude))
    unit = np.maximum(rounding, around(rounding))
    unit = np.maximum(unit, _of_magnitude(rounding, magnitude))
    return np.maximum(unit, EPSILON * np.maximum(magnitude, around(magnitude)))


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
