"""A description of an ONNX file: inputs, outputs, operators, opsets, metadata, and who can run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import onnx
import onnx.shape_inference

from mmort import schemas
from mmort.contract.interface import Interface, argument_of
from mmort.onnx.graph import files, inspection
from mmort.onnx.portable.apply import first_obstacle
from mmort.onnx.portable.definitions import MIN_OPSET
from mmort.tables import lay_out

_STANDARD = ("", "ai.onnx")
_ONNX_RUNTIME_DOMAINS = ("com.microsoft", "com.microsoft.nchwc")
"""Of operators that ONNX Runtime has beyond the standard, and writes when it optimizes or quantizes a file."""
_ONNX_RUNTIMES = ((19, "1.16"), (20, "1.17"), (21, "1.18"), (22, "1.21"), (23, "1.22"))
"""Opsets, and the first version of ONNX Runtime, from that of the library on, that has them."""
_DOUBLE_GRID_SAMPLE = 20
"""The opset from which ONNX Runtime has GridSample of float64, if both the image and the grid are."""
MAX_VALUE = 80  # characters of a metadata value that the report shows


def describe(path: files.PathLike) -> dict[str, Any]:
    """Describe an ONNX file.

    Parameters
    ----------
    path : path

    Returns
    -------
    dict
        ``file``, ``inputs`` and ``outputs`` (for each its ``name``, ``type``, ``shape``, with None or a name for a size
        that is not fixed, ``dynamic``, whether there is such a size, and ``optional``, whether it may be left out;
        ``type`` and ``shape`` are None if it is no tensor or the file does not say), ``format`` (version), ``opsets``
        (version by domain), ``nodes`` (their number), ``operators`` (for
        each operator beyond the standard: its nodes, and ``provider``, one of "mmort", "definition in the file",
        "ONNX Runtime" and None for unknown), ``metadata`` and ``runs_on``.

    Raises
    ------
    ValueError
        If the file is not an ONNX model.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> import onnx.helper as oh, tempfile, pathlib
    >>> from mmort.onnx.describe import describe
    >>> node = oh.make_node("cummax", ["x"], ["y", "i"], domain="mmcv", dim=0)
    >>> model = oh.make_model(oh.make_graph([node], "g", [], []), opset_imports=[oh.make_opsetid("mmcv", 1)])
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.onnx")
    >>> _ = path.write_bytes(model.SerializeToString())
    >>> describe(path)["operators"]
    {'mmcv::cummax': {'nodes': 1, 'provider': 'mmort'}}
    """
    model = files.load(path)
    defaults = {tensor.name for tensor in model.graph.initializer}
    defined = {(function.domain, function.name) for function in model.functions}
    counts = Counter((node.domain, node.op_type) for node in inspection.every_node(model))
    operators = {
        f"{domain}::{op_type}": {"nodes": count, "provider": _provider(domain, op_type, defined)}
        for (domain, op_type), count in sorted(counts.items())
        if not _is_standard(domain, op_type)
    }
    return {
        "file": str(path),
        "inputs": [_tensor(value, value.name in defaults) for value in _inputs(model, defaults)],
        "outputs": [_tensor(value, False) for value in model.graph.output],
        "format": model.ir_version,
        "opsets": {opset.domain or "ai.onnx": opset.version for opset in model.opset_import},
        "nodes": counts.total(),
        "operators": operators,
        "metadata": dict(Interface.of_model(model).metadata),
        "runs_on": _runs_on(model, operators),
    }


def report(facts: dict[str, Any]) -> str:
    """Format what `describe` returns as text.

    Examples
    --------
    >>> from mmort.onnx.describe import report
    >>> image = {"name": "input", "type": "float32", "shape": ["batch", 3, None, 96]}
    >>> image |= {"dynamic": True, "optional": False}
    >>> print(report({"file": "a.onnx", "inputs": [image], "outputs": [], "format": 8, "opsets": {"ai.onnx": 18},
    ...               "nodes": 3, "operators": {}, "metadata": {}, "runs_on": "every runtime of its opset"}))
    file     a.onnx
    input    input  float32  [batch, 3, ?, 96]  dynamic
    format   8
    opsets   ai.onnx 18
    nodes    3
    runs on  every runtime of its opset
    """
    opsets = ", ".join(f"{domain} {version}" for domain, version in facts["opsets"].items())
    rows = [
        ("file", facts["file"]),
        *((kind, line) for kind in ("input", "output") for line in _tensor_lines(facts[f"{kind}s"])),
        ("format", str(facts["format"])),
        ("opsets", opsets),
        ("nodes", str(facts["nodes"])),
    ]
    if facts.get("parameters"):
        rows.append(("parameters", ", ".join(f"{count:,} {name}" for name, count in facts["parameters"].items())))
    if facts.get("run"):
        sizes = " and ".join("x".join(map(str, shape)) for shape in facts["run"]["sizes"])
        rows.append(("multiply-adds", f"{facts['run']['multiply_adds'] / 1e9:,.3f} G at {sizes}"))
    for name, operator in facts["operators"].items():
        count = f"{operator['nodes']} node{'s' * (operator['nodes'] != 1)}"
        rows.append((name, f"{count}, {operator['provider'] or 'of an unknown library'}"))
    rows += [(f"metadata {key}", _shortened(value)) for key, value in facts["metadata"].items()]
    table = lay_out([*rows, ("runs on", facts["runs_on"])])
    is_cut = any(_shortened(value).endswith("...") for value in facts["metadata"].values())
    return f"{table}\n--json prints the metadata in full" if is_cut else table


def _inputs(model: onnx.ModelProto, defaults: set[str]) -> Iterator[onnx.ValueInfoProto]:
    """Yield the inputs, without the weights, which old exporters list among them."""
    listed = {value.name for value in model.graph.input}
    for value in model.graph.input:
        if value.name not in defaults or not defaults <= listed:
            yield value


def _tensor(value: onnx.ValueInfoProto, has_default: bool) -> dict[str, Any]:
    """Return the facts of an input or output."""
    argument = argument_of(value, has_default)
    shape = None if argument.shape is None else [*argument.shape]
    dynamic = shape is None or not all(isinstance(size, int) for size in shape)
    return {
        "name": argument.name,
        "type": argument.dtype,
        "shape": shape,
        "dynamic": dynamic,
        "optional": argument.is_optional,
    }


def _tensor_lines(tensors: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each input or output, in columns."""
    rows = []
    for tensor in tensors:
        sizes = ["?" if size is None else str(size) for size in tensor["shape"] or ()]
        shape = "of any shape" if tensor["shape"] is None else f"[{', '.join(sizes)}]"
        form = "dynamic" if tensor["dynamic"] else "fixed"
        more = ", may be left out" if tensor["optional"] else ""
        rows.append((tensor["name"], tensor["type"] or "no tensor", shape, form + more))
    return lay_out(rows).splitlines()


def _is_standard(domain: str, op_type: str) -> bool:
    """Return whether onnx itself defines an operator."""
    return bool(onnx.defs.has(op_type, "" if domain in _STANDARD else domain))


def _provider(domain: str, op_type: str, defined: set[tuple[str, str]]) -> str | None:
    """Return who has an operator beyond the standard, of a file that defines some itself."""
    if (domain, op_type) in defined:
        return "definition in the file"
    if any((row.domain, row.type) == (domain, op_type) for row in schemas.operators()):
        return "mmort"
    return "ONNX Runtime" if domain in _ONNX_RUNTIME_DOMAINS else None


def _runs_on(model: onnx.ModelProto, operators: dict[str, dict[str, Any]]) -> str:
    """Return who can run a file with these operators beyond the standard."""
    providers = {operator["provider"] for operator in operators.values()}
    if None in providers:
        unknown = [name for name, operator in operators.items() if operator["provider"] is None]
        return f"ONNX Runtime with a library that has {', '.join(unknown)}, which mmort does not"
    if (node := _sampling_in_double(model)) is not None:
        return f"no ONNX Runtime so far, which has no GridSample of float64, such as {node}"
    opset = inspection.opset_of(model) or 1
    if "mmort" in providers:
        first = next((version for newest, version in _ONNX_RUNTIMES if opset <= newest), None)
        versions = f"{first} or later" if first else f"of a version that has opset {opset},"
        text = f"ONNX Runtime {versions} with mmort's library: mmort.ort.session(FILE)"
        return text if "ONNX Runtime" in providers else f"{text}; {_elsewhere(model, opset)}"
    if "ONNX Runtime" in providers:
        return "ONNX Runtime only, which has operators of its own"
    optional_inputs = any(tensor.type.HasField("optional_type") for tensor in model.graph.input)
    if providers or optional_inputs:
        reason = "functions" if providers else "optional inputs"
        return (
            f"every runtime of its opset that knows {reason}, such as ONNX Runtime, also in browsers; others, such as "
            "OpenVINO, after mmort portable --portable=inlined"
        )
    return "every runtime of its opset, such as ONNX Runtime, also in browsers, and OpenVINO"


def _sampling_in_double(model: onnx.ModelProto) -> str | None:
    """Return the name of a GridSample of float64 that ONNX Runtime does not have; torch exports some such grids."""
    if not any(node.op_type == "GridSample" for node in model.graph.node):
        return None
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except (onnx.shape_inference.InferenceError, ValueError):  # the file is wrong, or larger than 2 GB
        return None
    infos = (*inferred.value_info, *inferred.input)
    doubles = {info.name for info in infos if info.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE}
    doubles |= {tensor.name for tensor in inferred.initializer if tensor.data_type == onnx.TensorProto.DOUBLE}
    both = 2 if (inspection.opset_of(model) or 1) >= _DOUBLE_GRID_SAMPLE else 3
    nodes = (node for node in inferred.node if node.op_type == "GridSample")
    return next(
        (node.name or node.output[0] for node in nodes if 0 < sum(name in doubles for name in node.input) < both), None
    )


def _elsewhere(model: onnx.ModelProto, opset: int) -> str:
    """Return the command that makes a file with mmort's operators run without the library."""
    obstacle = first_obstacle(model)
    if obstacle is not None:
        return f"nowhere else: {obstacle}"
    upgrade = "mmort upgrade and " if opset < MIN_OPSET else ""
    return f"or anywhere after {upgrade}mmort portable, in OpenVINO with --portable=inlined"


def _shortened(value: str) -> str:
    """Return a value on one line; of a long one, its beginning."""
    line = " ".join(value[: 10 * MAX_VALUE].split())
    is_whole = len(value) <= 10 * MAX_VALUE and len(line) <= MAX_VALUE
    return line if is_whole else f"{line[: MAX_VALUE - 3]}..."
