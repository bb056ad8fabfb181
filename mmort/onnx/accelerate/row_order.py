"""Outputs that are equal but for the order of their rows, as detections are whose scores are almost equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.onnx.verify import rounding
from mmort.tolerances import Tolerances

MAX_MOVED = 1000
"""Rows that may have moved: each is compared with each."""


def are_reordered(
    actual: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], tolerances: Tolerances | None = None
) -> bool:
    """Return whether outputs are within the tolerances of the expected ones after a change of the order of rows.

    Rows are along axis 1, after a batch, or along axis 0 if an output has no other, as torchvision's scores.  All
    outputs with the largest number of rows change alike; others must agree as they are.

    Examples
    --------
    >>> import numpy as np
    >>> boxes, scores = np.array([[[0, 0, 9, 9], [5, 5, 8, 8.0]]]), np.array([[0.7, 0.69999]])
    >>> are_reordered([boxes[:, ::-1], scores[:, ::-1]], [boxes, scores])
    True
    >>> are_reordered([boxes[:, ::-1], scores + [[0.1, 0]]], [boxes, scores])
    False
    """
    pairs = list(zip(actual, expected, strict=True))
    if any(array.shape != other.shape or array.dtype != other.dtype for array, other in pairs):
        return False
    axis = 0 if any(array.ndim == 1 for array in expected) else 1
    counts = [array.shape[axis] if array.ndim > axis else 0 for array in expected]
    sets = [_Set(*pair, tolerances or Tolerances()) for pair in pairs]
    moving = [output for output, count in zip(sets, counts, strict=True) if count == max(counts)]
    if not all(output.agrees() for output, count in zip(sets, counts, strict=True) if count < max(counts)):
        return False
    if axis == 0:
        return _have_matches(moving)
    images = {len(output.expected) for output in moving}
    return len(images) == 1 and all(
        _have_matches([output.of_image(image) for output in moving]) for image in range(images.pop())
    )


class _Set:
    """An output and what it is compared with."""

    def __init__(self, actual: NDArray[Any], expected: NDArray[Any], tolerances: Tolerances) -> None:
        self.actual, self.expected = actual, expected
        is_float = expected.dtype.kind == "f"
        scale = tolerances.atol * np.maximum(1, rounding.around(expected)) if is_float else np.zeros(())
        relative = tolerances.rtol * np.abs(expected) if is_float else np.zeros(())
        self.limit = np.broadcast_to(scale + relative, expected.shape)

    def of_image(self, image: int) -> _Set:
        """Return the set of one image."""
        part = _Set.__new__(_Set)
        part.actual, part.expected, part.limit = self.actual[image], self.expected[image], self.limit[image]
        return part

    def agrees(self) -> bool:
        """Return whether all numbers agree in their places."""
        return bool(self.near(self.actual, slice(None)).all())

    def near(self, values: NDArray[Any], rows: Any) -> NDArray[np.bool_]:
        """Return which of the values are within the tolerance of some expected rows."""
        target = self.expected[rows]
        if target.dtype.kind not in "fiub":
            return np.asarray(values == target)
        with np.errstate(invalid="ignore"):
            difference = np.abs(values.astype(np.float64) - target.astype(np.float64))
        same: NDArray[np.bool_] = (values == target) | (difference <= self.limit[rows])
        return same


def _have_matches(outputs: Sequence[_Set]) -> bool:
    """Return whether each expected row of an image has a row of its own that agrees in all outputs."""

    def agreeing(row: int, candidates: NDArray[np.intp]) -> NDArray[np.bool_]:
        agrees = [
            output.near(output.actual[candidates], [row] * len(candidates)).reshape(len(candidates), -1).all(1)
            for output in outputs
        ]
        return np.logical_and.reduce(agrees)

    count = len(outputs[0].expected)
    in_place = [output.near(output.actual, slice(None)).reshape(count, -1).all(1) for output in outputs if count]
    moved = np.flatnonzero(~np.logical_and.reduce(in_place)) if count else np.zeros(0, np.intp)
    if len(moved) > MAX_MOVED:
        return False
    free = moved
    for row in moved.tolist():
        matches = free[agreeing(row, free)]
        if not len(matches):
            return False
        free = free[free != matches[0]]
    return True
