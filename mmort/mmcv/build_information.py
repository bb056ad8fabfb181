"""MMCV's report of how its operators were built."""

from __future__ import annotations

import mmort

__all__ = ["get_compiler_version", "get_compiling_cuda_version"]


def get_compiler_version() -> str:
    """Return the version reported in place of a compiler's."""
    return f"mmort {mmort.__version__}"


def get_compiling_cuda_version() -> str:
    """Return MMCV's words for operators without CUDA."""
    return "not available"
