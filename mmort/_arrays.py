"""The only place that turns what a user passes into what the kernels take; they check shapes and values."""

from __future__ import annotations

import functools
import operator as _operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def floating(operator: str, **arrays: ArrayLike) -> tuple[list[NDArray[Any]], np.dtype[Any]]:
    """Bring arrays to one floating dtype, C-contiguous; also return the dtype that floating results are to have.

    float16 is computed in float32, integers (and Python numbers) in float64.
    """
    converted = [np.asarray(array) for array in arrays.values()]
    for name, array in zip(arrays, converted, strict=True):
        if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
            raise TypeError(f"{operator}: {name} must be float16, float32, float64 or integers, got {array.dtype}")
    wanted, computed = _common(*[array.dtype for array in converted])
    return [_dense(array, computed) for array in converted], wanted


def real(operator: str, name: str, array: ArrayLike) -> tuple[NDArray[Any], np.dtype[Any]]:
    """Bring one array of any real dtype, bool included, to C order; also return the dtype that results are to have."""
    converted = np.asarray(array)
    if converted.dtype.kind not in "fiub" or converted.dtype.itemsize > 8:
        raise TypeError(
            f"{operator}: {name} must be bool, integers, float16, float32 or float64, got {converted.dtype}"
        )
    wanted, computed = _native(converted.dtype)
    return _dense(converted, computed), wanted


def integers(operator: str, name: str, array: ArrayLike) -> NDArray[np.int64]:
    """Bring an array of integers (or an empty one) to int64, C-contiguous."""
    converted = np.asarray(array)
    if converted.dtype.kind not in "iub" and converted.size:
        raise TypeError(f"{operator}: {name} must be integers, got {converted.dtype}")
    return _dense(converted, np.dtype(np.int64))


@functools.lru_cache(64)  # asking numpy takes as long as a small kernel
def _common(*dtypes: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the floating dtype of results, and that of the computation."""
    wanted = np.result_type(*dtypes)
    return _native(wanted if wanted.kind == "f" else np.dtype(np.float64))


@functools.lru_cache(64)
def _native(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    wanted = dtype.newbyteorder("=")
    return wanted, np.dtype(np.float32) if wanted == np.float16 else wanted


def _dense(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    # not ascontiguousarray: it makes a vector of a scalar
    return np.asarray(array, dtype=dtype, order="C")


def number(operator: str, name: str, value: object) -> float:
    """Return a real number as float."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{operator}: {name} must be a number, got {value!r}") from None


def integer(operator: str, name: str, value: object) -> int:
    """Return an integer (bool and numpy's included) as int."""
    try:
        result = _operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{operator}: {name} must be an integer, got {value!r}") from None
    if not -(2**63) <= result < 2**63:
        raise ValueError(f"{operator}: {name} must fit in 64 bits, got {value!r}")
    return result


def choice(operator: str, name: str, value: object, choices: tuple[str, ...]) -> int:
    """Return the place of `value` among `choices`."""
    if value not in choices:
        allowed = ", ".join(repr(one) for one in choices[:-1]) + f" or {choices[-1]!r}"
        raise ValueError(f"{operator}: {name} must be {allowed}, got {value!r}")
    return choices.index(value)


def pair(operator: str, name: str, value: Any) -> tuple[int, int]:
    """Return an integer, twice, or two integers."""
    if np.ndim(value) == 0:
        both = integer(operator, name, value)
        return both, both
    if len(value) != 2:
        raise ValueError(f"{operator}: {name} must be one integer or two, got {value!r}")
    return integer(operator, name, value[0]), integer(operator, name, value[1])
