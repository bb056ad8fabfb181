"""Pickles of MMDetection's results, read without running code: numbers, text, arrays of numpy and tensors of torch.

A pickle names functions to call.  Only those that make arrays are known here; torch itself is not needed.
"""

from __future__ import annotations

import io
import math
import os
import pickle
from collections import OrderedDict
from collections.abc import Sequence
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
        return _Unpickler(io.BytesIO(content)).load()
    except Exception as error:  # damaged bytes make an unpickler raise anything
        raise ValueError(f"evaluate: {os.fspath(path)} is not a pickle of results: {error}") from None


class _Unpickler(pickle.Unpickler):
    """Loads arrays, and refuses other objects."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name in ("_reconstruct", "scalar"):
            return super().find_class("numpy._core.multiarray", name)
        if module in ("numpy.core.numeric", "numpy._core.numeric") and name == "_frombuffer":
            return super().find_class("numpy._core.numeric", name)
        known = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("_codecs", "encode"): _encode,
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch.storage", "_load_from_bytes"): _storage,
        }
        if (module, name) not in known:
            raise ValueError(f"it asks for {module}.{name}, which is not run")
        return known[module, name]


class _StorageUnpickler(pickle.Unpickler):
    """Loads what torch writes before the bytes of a storage: the type and the length of its numbers."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise ValueError(f"it asks for {module}.{name}, which is not run")

    def persistent_load(self, pid: Any) -> Any:
        return pid


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
