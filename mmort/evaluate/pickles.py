"""Pickles of MMDetection's results, read without running code: numbers, text, arrays of numpy and tensors of torch.

A pickle names functions to call and objects to fill.  Those that make arrays have stand-ins here, which take bytes
only, as numpy's own trust what they are given; torch is not needed.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort._files.inputs import read_bytes

_STORAGES = {
    "BoolStorage": np.bool_,
    "ByteStorage": np.uint8,
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "IntStorage": np.int32,
    "LongStorage": np.int64,
}
"""The types of torch's storages, and of their numbers."""


def read_pickle(path: str | os.PathLike[str]) -> Any:
    """Read a pickle of numbers, text, lists, dicts, arrays of numpy, and tensors of torch, which become arrays.

    Raises
    ------
    ValueError
        If the file is not a pickle, or holds other objects.
    OSError
        If it cannot be opened.
    """
    content = read_bytes("results", path)
    try:
        return _filled(_Unpickler(io.BytesIO(content)).load(), {})
    except Exception as error:  # damaged bytes make an unpickler raise anything
        reason = " ".join(str(error).split())
        raise ValueError(f"evaluate: {os.fspath(path)} is not a pickle of results: {reason:.200}") from None


class _Dtype:
    """Stands for a dtype of numpy."""

    def __init__(self, name: str, *_: Any) -> None:
        if not re.fullmatch(r"[fiu][1248]|b1", name):
            raise ValueError(f"an array has numbers of the type {name}")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] == ">":
            self.dtype = self.dtype.newbyteorder(">")


class _Array:
    """Stands for an array of numpy, which has its content when it has been filled."""

    def __init__(self, *_: Any) -> None:
        self.array: NDArray[Any] = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, content = state
        self.array = _from_bytes(content, dtype, shape, "F" if is_fortran else "C")


def _from_bytes(content: Any, dtype: _Dtype, shape: Sequence[int], order: Any) -> NDArray[Any]:
    """Return an array of some bytes."""
    return np.frombuffer(bytes(memoryview(content)), dtype.dtype).reshape(tuple(shape), order=order)


def _scalar(dtype: _Dtype, content: bytes) -> Any:
    """Return a scalar of numpy."""
    return _from_bytes(content, dtype, (), "C")[()]


def _encode(text: str, encoding: str) -> bytes:
    """Return bytes that a pickle of an old protocol has as text."""
    if encoding != "latin1":
        raise ValueError(f"bytes are encoded as {encoding}")
    return text.encode("latin1")


def _storage(content: bytes) -> NDArray[Any]:
    """Return the numbers of a storage that torch has saved in its older format."""
    file = io.BytesIO(content)
    _, _, _, entry, _ = (_StorageUnpickler(file).load() for _ in range(5))
    kind, count = entry[1], int.from_bytes(file.read(8), "little")
    if kind not in _STORAGES.values():
        raise ValueError("a tensor has no storage")
    return np.frombuffer(file.read(), kind, count)


def _tensor(storage: NDArray[Any], offset: int, size: Sequence[int], stride: Sequence[int], *_: Any) -> NDArray[Any]:
    """Return a tensor as an array."""
    if not isinstance(storage, np.ndarray) or storage.ndim != 1:
        raise ValueError("a tensor has no storage")
    if math.prod(size) > len(storage):
        raise ValueError("a tensor is larger than its storage")
    indices = np.full(tuple(size), offset, np.int64)
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        indices += (np.arange(length) * step).reshape([-1 if other == axis else 1 for other in range(len(size))])
    if indices.size and not 0 <= indices.min() <= indices.max() < len(storage):
        raise ValueError("a tensor is larger than its storage")
    return storage[indices]


_KNOWN: dict[str, Callable[..., Any]] = {
    "_codecs.encode": _encode,
    "collections.OrderedDict": OrderedDict,
    "numpy._core.multiarray._reconstruct": _Array,
    "numpy._core.multiarray.scalar": _scalar,
    "numpy._core.numeric._frombuffer": _from_bytes,
    "numpy.dtype": _Dtype,
    "numpy.ndarray": _Array,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch.storage._load_from_bytes": _storage,
}
"""The functions and types that a pickle may name, and what stands for them."""


class _Unpickler(pickle.Unpickler):
    """Loads arrays, and refuses other objects."""

    def find_class(self, module: str, name: str) -> Any:
        full_name = f"{module}.{name}".replace("numpy.core.", "numpy._core.")  # as numpy 1 calls it
        if full_name not in _KNOWN:
            raise ValueError(f"it asks for {module}.{name}, which is not run")
        return _KNOWN[full_name]


class _StorageUnpickler(pickle.Unpickler):
    """Loads what torch writes before the bytes of a storage: the type and the length of its numbers."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise ValueError(f"it asks for {module}.{name}, which is not run")

    def persistent_load(self, pid: Any) -> Any:
        return pid


def _filled(value: Any, seen: dict[int, Any]) -> Any:
    """Return a value with arrays in place of their stand-ins; `seen` maps identities of values to results."""
    if isinstance(value, _Array):
        return value.array
    if not isinstance(value, (list, tuple, dict)):
        return value
    if id(value) not in seen:  # a few bytes of a pickle can hold one list billions of times
        if isinstance(value, dict):
            seen[id(value)] = {key: _filled(entry, seen) for key, entry in value.items()}
        else:
            seen[id(value)] = type(value)(_filled(entry, seen) for entry in value)
    return seen[id(value)]
