"""Conversion of a caller's arguments to what the kernels take; the kernels check shapes and values."""

from __future__ import annotations

import operator as _operator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

_FLOAT16, _FLOAT32, _FLOAT64, _INT64 = map(np.dtype, (np.float16, np.float32, np.float64, np.int64))


def floating(function: str, **arrays: ArrayLike) -> tuple[list[NDArray[Any]], np.dtype[Any]]:
    """Convert arrays to one floating dtype in C order; also return the dtype of the floating results.

    float16 is computed in float32, integers (and Python numbers) in float64.
    """
    converted = {name: _plain(function, name, array) for name, array in arrays.items()}
    for name, array in converted.items():
        if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
            raise TypeError(f"{function}: {name} must be float16, float32, float64 or integers, got {array.dtype}")
    result = np.result_type(*(array.dtype for array in converted.values()))
    if result.kind != "f":
        result = _FLOAT64
    computed = _computed(result)
    return [_dense(array, computed) for array in converted.values()], result


def real(function: str, name: str, array: ArrayLike) -> tuple[NDArray[Any], np.dtype[Any]]:
    """Convert an array of any real dtype, bool included, to C order; also return the dtype of the results."""
    converted = _plain(function, name, array)
    if converted.dtype.kind not in "fiub" or converted.dtype.itemsize > 8:
        raise TypeError(
            f"{function}: {name} must be bool, integers, float16, float32 or float64, got {converted.dtype}"
        )
    result = converted.dtype.newbyteorder("=")
    return _dense(converted, _computed(result)), result


def integers(function: str, name: str, array: ArrayLike) -> NDArray[np.int64]:
    """Convert an array of integers (or an empty one) to int64 in C order."""
    converted = _plain(function, name, array)
    if converted.dtype.kind not in "iub" and converted.size:
        raise TypeError(f"{function}: {name} must be integers, got {converted.dtype}")
    return _dense(converted, _INT64)


def exactly(function: str, name: str, array: ArrayLike, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert an array of this dtype to C order."""
    converted = _plain(function, name, array)
    if converted.dtype.newbyteorder("=") != dtype:
        raise TypeError(f"{function}: {name} must be {dtype}, got {converted.dtype}")
    return _dense(converted, dtype)


def rows(array: ArrayLike, columns: int) -> ArrayLike:
    """Return an empty list as no rows of so many columns, which numpy cannot know; anything else as it is."""
    return np.empty((0, columns)) if isinstance(array, (list, tuple)) and not array else array


def _plain(function: str, name: str, array: ArrayLike) -> NDArray[Any]:
    """Return an array; a masked one is refused, as its mask would be ignored."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{function}: {name} must not be a masked array; fill it, or select what is not masked")
    return np.asarray(array)


def _computed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that results of a dtype are computed in."""
    return _FLOAT32 if dtype == _FLOAT16 else dtype


def _dense(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert an array to a dtype, C order and aligned memory; unlike ascontiguousarray, keep scalars."""
    dense = np.asarray(array, dtype=dtype, order="C")
    return dense if dense.flags.aligned else dense.copy()


def number(function: str, name: str, value: object) -> float:
    """Return a real number as float; text and bool are not numbers."""
    if isinstance(value, (str, bytes, bytearray, bool, np.bool_)):
        raise TypeError(f"{function}: {name} must be a number, got {value!r}")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise ValueError(f"{function}: {name} must fit in a double, got an integer of more digits") from None
    except (TypeError, ValueError):
        raise TypeError(f"{function}: {name} must be a number, got {value!r}") from None


def integer(function: str, name: str, value: object) -> int:
    """Return an integer (numpy's included, but no bool) as int."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{function}: {name} must be an integer, got {value!r}")
    try:
        result = _operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{function}: {name} must be an integer, got {value!r}") from None
    if not -(2**63) <= result < 2**63:
        given = value if result.bit_length() <= 128 else f"an integer of {result.bit_length()} bits"
        raise ValueError(f"{function}: {name} must fit in 64 bits, got {given}")
    return result


def flag(function: str, name: str, value: object) -> bool:
    """Return a bool, or an integer as ONNX has it, as bool."""
    if isinstance(value, (int, np.bool_, np.integer)):
        return bool(value)
    raise TypeError(f"{function}: {name} must be True or False, got {value!r}")


def choice(function: str, name: str, value: object, choices: tuple[str, ...]) -> int:
    """Return the index of a word."""
    if not isinstance(value, str) or value not in choices:
        words = [repr(word) for word in choices]
        raise ValueError(f"{function}: {name} must be {', '.join(words[:-1])} or {words[-1]}, got {value!r}")
    return choices.index(value)


def pair(function: str, name: str, value: Any) -> tuple[int, int]:
    """Return an integer twice, or two integers."""
    if np.ndim(value) == 0:
        both = integer(function, name, value)
        return both, both
    if len(value) != 2:
        raise ValueError(f"{function}: {name} must be one integer or two, got {value!r}")
    return integer(function, name, value[0]), integer(function, name, value[1])


def missing(function: str, name: str) -> NoReturn:
    """Raise TypeError for a required argument that is not given."""
    raise TypeError(f"{function}: {name} is required, got nothing")
