"""Random inputs of a file, of the sizes that it states or of others."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.limits import MAX_RANDOM_ELEMENTS
from mmort.onnx.verify.sessions import open_session, required_inputs
from mmort.schemas import ELEMENT_TYPES

_DTYPES = {
    ELEMENT_TYPES[name]: np.dtype(name) for name in ("float32", "float64", "float16", "int64", "int32", "uint8", "bool")
}
"""The dtypes of random inputs, by ONNX Runtime's name."""


def random_inputs(
    path: str | os.PathLike[str],
    sizes: Sequence[Sequence[Sequence[int]]] | None,
    libraries: Sequence[str | os.PathLike[str]] = (),
) -> list[list[NDArray[Any]]]:
    """Make random inputs for a file, always the same ones."""
    tensors = required_inputs(open_session(path, libraries))
    names = ", ".join(tensor.name for tensor in tensors)
    if sizes is None:
        fixed_shapes = [tensor.shape for tensor in tensors]
        if not all(isinstance(size, int) for shape in fixed_shapes for size in shape):
            raise ValueError(
                f"verify: sizes must be given (--sizes), or inputs (--inputs, --image), as these are dynamic: {names}"
            )
        check_stated_sizes(fixed_shapes)
        sizes = [fixed_shapes]
    generator = np.random.default_rng(0)
    inputs = []
    for shapes in sizes:
        if len(shapes) != len(tensors):
            raise ValueError(f"verify: sizes must have length {len(tensors)} per set ({names}), got {len(shapes)}")
        inputs.append([_random(generator, tensor.type, shape) for tensor, shape in zip(tensors, shapes, strict=True)])
    return inputs


def check_stated_sizes(shapes: Sequence[Sequence[int]]) -> None:
    """Refuse to make random inputs of the sizes that a file states if they are out of proportion."""
    count = sum(map(math.prod, shapes))
    if count > MAX_RANDOM_ELEMENTS:
        raise ValueError(
            f"the file states sizes of {count} elements, and random inputs have at most {MAX_RANDOM_ELEMENTS}"
        )


def _random(generator: np.random.Generator, element_type: str, shape: Sequence[int]) -> NDArray[Any]:
    """Return random numbers of an element type that ONNX Runtime names."""
    if element_type not in _DTYPES:
        raise ValueError(f"verify: inputs must be {', '.join(_DTYPES)}, got {element_type}; let a script make them")
    dtype = _DTYPES[element_type]
    values = generator.standard_normal(shape) if dtype.kind == "f" else generator.integers(0, 2, shape)
    return np.asarray(values).astype(dtype)
