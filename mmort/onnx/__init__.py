"""Models with mmort's operators as ONNX files: export, proof, files that run without the library, old files renewed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmort.onnx.exporting import export
    from mmort.onnx.portable import Coverage, make_portable
    from mmort.onnx.symbolics import register_symbolics
    from mmort.onnx.translations import translation_table
    from mmort.onnx.upgrading import upgrade
    from mmort.onnx.verification import Report, VerificationError, verify

# Where each name is: some of these modules need torch and onnxscript, which comparing two files does not.
_MODULES = {
    "Coverage": "portable",
    "Report": "verification",
    "VerificationError": "verification",
    "export": "exporting",
    "make_portable": "portable",
    "register_symbolics": "symbolics",
    "translation_table": "translations",
    "upgrade": "upgrading",
    "verify": "verification",
}

__all__ = [
    "Coverage",
    "Report",
    "VerificationError",
    "export",
    "make_portable",
    "register_symbolics",
    "translation_table",
    "upgrade",
    "verify",
]


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
