"""What `mmort info` tells: versions, the machine, where the ONNX Runtime library is, and all operators."""

from __future__ import annotations

import platform
import textwrap
from typing import Any

import numpy as np

import mmort
import mmort.ops
import mmort.ort
from mmort._kernels import simd_level

_WIDTH = 120


def collect() -> dict[str, Any]:
    """Return all that is told, ready for JSON; what is not installed or not built is None."""
    try:
        library, library_error, operators = mmort.ort.library_path(), None, mmort.ort.operators()
    except OSError as error:  # there is none, or it does not load
        library, library_error, operators = None, str(error), []
    return {
        "mmort": mmort.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "onnxruntime": _onnxruntime_version(),
        "simd": simd_level(),
        "threads": mmort.get_num_threads(),
        "library": library,
        "library_error": library_error,
        "functions": mmort.ops.__all__,
        "operators": operators,
    }


def _onnxruntime_version() -> str | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    return str(onnxruntime.__version__)


def report(facts: dict[str, Any]) -> str:
    """Lay out what `collect` returned for reading."""
    lines = [f"{name:13}{facts[name] or 'not installed'}" for name in ("mmort", "python", "numpy", "onnxruntime")]
    lines += [f"{'SIMD':13}{facts['simd']}", f"{'threads':13}{facts['threads']}"]
    lines += [_hanging(f"{'library':13}", facts["library"] or f"none: {facts['library_error']}")]
    if facts["operators"]:
        lines += ["", *_operator_table(facts["operators"])]
    served = {operator["kernel"] for operator in facts["operators"]}
    lines += ["", _hanging("numpy only   ", ", ".join(name for name in facts["functions"] if name not in served))]
    return "\n".join(lines)


def _operator_table(operators: list[dict[str, Any]]) -> list[str]:
    rows = [("domain", "type", "numpy", "inputs; attributes")]
    for operator in operators:
        inputs = ", ".join(one["name"] + ("?" if one["optional"] else "") for one in operator["inputs"])
        attributes = ", ".join(_attribute(one) for one in operator["attributes"])
        arguments = "; ".join(one for one in (inputs, attributes) if one)
        rows.append((operator["domain"], operator["type"], operator["kernel"], arguments))
    widths = [max(len(row[column]) for row in rows) + 2 for column in range(3)]
    return [
        _hanging("".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)), row[3]) for row in rows
    ]


def _attribute(attribute: dict[str, Any]) -> str:
    default = attribute["default"]
    return str(attribute["name"]) if default is None else f"{attribute['name']}={default}"


def _hanging(head: str, text: str) -> str:
    """Put a text behind a head, its further lines indented to where it begins."""
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
