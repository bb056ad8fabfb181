"""The facts that ``mmort info`` prints: versions, the machine, the ONNX Runtime library, and all operators."""

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
    """Return the facts, ready for JSON; None stands for packages and parts that are not installed or not built.

    Returns
    -------
    dict
        ``mmort``, ``python``, ``numpy`` and ``onnxruntime`` (versions), ``simd`` (the instruction set in use),
        ``threads``, ``library`` (the path of the ONNX Runtime library), ``library_error`` (why there is none),
        ``functions`` (the names of the numpy API) and ``operators`` (as `mmort.ort.operators` returns them).

    Examples
    --------
    >>> import mmort, mmort.info
    >>> mmort.info.collect()["mmort"] == mmort.__version__
    True
    """
    try:
        library, library_error, operators = mmort.ort.library_path(), None, mmort.ort.operators()
    except OSError as error:  # it was not built, or cannot be loaded
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


def report(facts: dict[str, Any]) -> str:
    """Format the facts that `collect` returns as text.

    Parameters
    ----------
    facts : dict

    Returns
    -------
    str
        Lines of at most 120 columns, without a newline at the end.

    Examples
    --------
    >>> import mmort.info
    >>> print(mmort.info.report(mmort.info.collect()))
    mmort        ...
    """
    lines = [f"{name:13}{facts[name] or 'not installed'}" for name in ("mmort", "python", "numpy", "onnxruntime")]
    lines += [f"{'SIMD':13}{facts['simd']}", f"{'threads':13}{facts['threads']}"]
    lines += [_wrap(f"{'library':13}", facts["library"] or f"none: {facts['library_error']}")]
    if facts["operators"]:
        lines += ["", *_operator_table(facts["operators"])]
    in_library = {operator["kernel"] for operator in facts["operators"]}
    lines += ["", _wrap("numpy only   ", ", ".join(name for name in facts["functions"] if name not in in_library))]
    return "\n".join(lines)


def _onnxruntime_version() -> str | None:
    """Return the version of ONNX Runtime, None if it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    return str(onnxruntime.__version__)


def _operator_table(operators: list[dict[str, Any]]) -> list[str]:
    """Return a header and a line for each operator, in columns."""
    rows = [("domain", "type", "numpy", "inputs; attributes")]
    for operator in operators:
        inputs = ", ".join(tensor["name"] + ("?" if tensor["optional"] else "") for tensor in operator["inputs"])
        attributes = ", ".join(map(_attribute, operator["attributes"]))
        arguments = "; ".join(text for text in (inputs, attributes) if text)
        rows.append((operator["domain"], operator["type"], operator["kernel"], arguments))
    widths = [max(len(row[column]) for row in rows) + 2 for column in range(3)]
    return [_wrap("".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)), row[3]) for row in rows]


def _attribute(attribute: dict[str, Any]) -> str:
    """Return an attribute as a parameter with its default, if it has one."""
    default = attribute["default"]
    return str(attribute["name"]) if default is None else f"{attribute['name']}={default}"


def _wrap(label: str, text: str) -> str:
    """Put a text after a label, wrapped, with its further lines indented below its first."""
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
