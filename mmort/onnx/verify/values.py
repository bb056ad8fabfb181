"""The values that are compared, and arrays and tensors nested in lists, tuples and dicts: flattened, and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.tolerances import Tolerances


@dataclass(frozen=True)
class Outputs:
    """The outputs of a file and of its reference for the same inputs, and how far apart they may be."""

    inputs: str
    """The inputs' shapes, ``2x3x64x96``."""
    names: Sequence[str]
    """The names of the file's outputs."""
    actual: Sequence[NDArray[Any]]
    expected: Sequence[NDArray[Any]]
    """The reference's outputs."""
    tolerances: Tolerances

    def part(self, selected: slice) -> Outputs:
        """Return some of the outputs."""
        actual, expected = self.actual[selected], self.expected[selected]
        return replace(self, names=self.names[selected], actual=actual, expected=expected)


def index_of_smallest(inputs: Sequence[Any]) -> int:
    """Return which set of nested tensors and arrays has the fewest numbers, the first of several; 0 of no sets."""
    sizes = [sum(int(np.prod(leaf.shape)) for leaf in leaves(values)) for values in inputs]
    return sizes.index(min(sizes)) if sizes else 0


def leaves(value: Any) -> list[Any]:
    """Return the tensors and arrays in lists, tuples and dicts, in order, without None, numbers and strings."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [] if value is None or isinstance(value, (bool, int, float, str)) else [value]


def as_array(value: Any) -> NDArray[Any]:
    """Convert a tensor or array to an array."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def shape_text(shape: Sequence[int]) -> str:
    """Write a shape as ``2x3x64x96``."""
    return "x".join(map(str, shape)) or "scalar"


def shapes_text(values: Any) -> str:
    """Write the shapes of all nested tensors and arrays."""
    return ", ".join(shape_text(value.shape) for value in leaves(values))
