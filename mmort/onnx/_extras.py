"""The error for a missing package, which names the extra that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed_by(function: str) -> Iterator[None]:
    """Turn a package missing in the block into an ImportError that names the function and the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "onnx_ir", "onnxscript", "torch"):
            raise
        extra = "torch" if error.name in ("onnxscript", "torch") else "onnx"
        raise ImportError(f"{function} needs {error.name}: pip install 'mmort[{extra}]'") from None
