"""Export of torch models to ONNX with mmort's operators, and the proof that a file computes what the model does."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmort.onnx.exporting import export
    from mmort.onnx.symbolics import register_symbolics
    from mmort.onnx.translations import translation_table
    from mmort.onnx.verification import Report, VerificationError, verify

# Where each name is: some of these modules need torch and onnxscript, which comparing two files does not.
_MODULES = {
    "Report": "verification",
    "VerificationError": "verification",
    "export": "exporting",
    "register_symbolics": "symbolics",
    "translation_table": "translations",
    "verify": "verification",
}

__all__ = ["Report", "VerificationError", "export", "register_symbolics", "translation_table", "verify"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mmort.onnx' has no attribute {name!r}")
    try:
        module = importlib.import_module(f"mmort.onnx.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "onnxscript", "torch"):
            raise
        raise ImportError(f"mmort.onnx.{name} needs {error.name}: pip install 'mmort[torch]'") from None
    return getattr(module, name)
