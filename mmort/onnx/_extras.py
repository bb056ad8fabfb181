"""Naming the extra to install when a package that a function needs is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed_by(function: str) -> Iterator[None]:
    """Say in the ImportError of the block which function needs the package, and how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "onnxscript", "torch"):
            raise
        raise ImportError(f"{function} needs {error.name}: pip install 'mmort[torch]'") from None
