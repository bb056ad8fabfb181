"""What MMCV reports about how its operators were built."""

from __future__ import annotations

import mmort

__all__ = ["get_compiler_version", "get_compiling_cuda_version"]


def get_compiler_version() -> str:
    """Return what stands behind the operators instead of a compiler."""
    return f"mmort {mmort.__version__}"


def get_compiling_cuda_version() -> str:
    """Return MMCV's words for operators without CUDA."""
    return "not available"
