"""ONNX models with mmort's operators: make them portable, bring old files up to date."""

try:
    import onnx as _onnx  # noqa: F401
except ModuleNotFoundError:
    raise ImportError("mmort.onnx needs onnx: pip install onnx") from None

from mmort.onnx.portable import Coverage, make_portable
from mmort.onnx.upgrade import upgrade

__all__ = ["Coverage", "make_portable", "upgrade"]
