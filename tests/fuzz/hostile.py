"""Hostile numbers, arrays and attributes, of which the fuzzers of the front ends make calls."""

import random
from typing import Any

import numpy as np

DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint64", "bool", ">f4", "longdouble")
STRANGE_DTYPES = ("complex64", "object", "S3", "U2", "M8[s]", "m8[s]", "i4,f4", "V8")
SIZES = (0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 17, 64)
INTEGERS = (0, 1, -1, 2, 3, 7, 100, 1024, 1025, 2**29, 2**31 - 1, -(2**31), 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))
NUMBERS = (0.0, -0.0, 0.5, 1.0, -1.0, 1e-30, 1e-45, 1e30, 3e38, float("nan"), float("inf"), -float("inf"))


def integer(rng: random.Random) -> int:
    """Return an integer of 64 bits."""
    return rng.choice(INTEGERS) if rng.random() < 0.6 else rng.randrange(-3, 12)


def number(rng: random.Random) -> float:
    """Return a number that float32 can hold, or almost."""
    return rng.choice(NUMBERS) if rng.random() < 0.6 else rng.uniform(-2, 2)


def values(rng: random.Random, shape: tuple[int, ...]) -> np.ndarray:
    """Return float64 numbers of one of many kinds."""
    source = np.random.default_rng(rng.getrandbits(64))
    scale = rng.choice((1, 1, 10, 100, 1e6, 1e20, 1e38))
    array = np.asarray(source.standard_normal(shape) * scale)
    if rng.random() < 0.3:
        array = np.asarray(np.round(array))
    if rng.random() < 0.3 and array.size:
        array[source.random(shape) < rng.choice((0.02, 0.3, 1.0))] = number(rng)
    return array


def shape(rng: random.Random, like: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Return a small shape, often one that differs a little from another."""
    if like is not None and rng.random() < 0.7:
        sizes = list(like)
        change = rng.randrange(3)
        if change == 0 and sizes:
            sizes[rng.randrange(len(sizes))] = rng.choice(SIZES)
        elif change == 1 and sizes:
            del sizes[rng.randrange(len(sizes))]
        else:
            sizes.insert(rng.randrange(len(sizes) + 1), rng.choice((0, 1, 1, 2)))
    else:
        sizes = [rng.choice(SIZES) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 4, 5, 17)))]
    while np.prod(np.maximum(sizes, 1), dtype=float) > 20_000:  # also lists of empty lists stay short
        sizes[int(np.argmax(sizes))] //= 2
    return tuple(sizes)


def converted(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return an array in another dtype; as it is if that cannot be."""
    with np.errstate(all="ignore"):
        try:
            return array.astype(dtype)
        except (TypeError, ValueError):
            return array


def layout(rng: random.Random, array: np.ndarray) -> Any:
    """Return the same numbers in other memory, or in another kind of object."""
    kind = rng.randrange(9)
    if kind == 0:
        return np.asfortranarray(array)
    if kind == 1 and array.ndim:
        return array[::-1]
    if kind == 2 and array.ndim:
        return np.repeat(array, 2, axis=-1)[..., ::2]
    if kind == 3 and array.ndim:  # strides of 0
        return np.broadcast_to(array[..., :1], array.shape) if array.size else array
    if kind == 4:
        return array.tolist()
    if kind == 5:
        return np.ma.masked_array(array)
    if kind == 6:
        return array.view(np.recarray if array.dtype.names else np.ndarray)
    if kind == 7:
        array.flags.writeable = False
    elif array.itemsize and array.ndim:  # not aligned
        memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
        memory[:] = np.frombuffer(array.tobytes(), np.uint8) if array.dtype != object else 0
        return memory.view(array.dtype).reshape(array.shape) if array.dtype != object else array
    return array


def array(rng: random.Random, like: np.ndarray) -> Any:
    """Return an array in which something differs from the valid one."""
    changed = like
    if rng.random() < 0.5:
        changed = converted(values(rng, shape(rng, like.shape)), str(like.dtype if like.dtype.kind == "f" else "f8"))
    elif like.dtype.kind == "f" and rng.random() < 0.7:
        changed = converted(values(rng, like.shape), str(like.dtype))
    elif like.dtype.kind == "i":
        changed = np.array([integer(rng) for _ in range(like.size)], np.int64).reshape(like.shape)
    if rng.random() < 0.3:
        changed = converted(changed, rng.choice(DTYPES + DTYPES + STRANGE_DTYPES))
    return layout(rng, changed) if rng.random() < 0.4 else changed


def attribute(rng: random.Random, like: Any) -> Any:
    """Return a value to pass instead of a valid one, often of its type."""
    if rng.random() < 0.7:
        if isinstance(like, bool):
            return rng.random() < 0.5
        if isinstance(like, int):
            return integer(rng)
        if isinstance(like, float):
            return number(rng)
        if isinstance(like, tuple):
            return tuple(integer(rng) for _ in range(rng.choice((1, 2, 2, 2, 3))))
    values = (None, True, "", "avg", "nms", b"x", [], [1, 2], (), {}, 1j, 10**400, np.float32(1), np.int8(3))
    return rng.choice((*values, np.array([1, 2]), np.array(2.5), object(), integer(rng), number(rng)))
