"""Models as `mmort.onnx` reads and writes them: all nodes, mmort's operators among them, files without surprises."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx.helper

from mmort import schemas

Path_ = str | os.PathLike[str]

CONVERT = {
    "INT": onnx.AttributeProto.INT,
    "FLOAT": onnx.AttributeProto.FLOAT,
    "STRING": onnx.AttributeProto.STRING,
    "INTS": onnx.AttributeProto.INTS,
}


def every_node(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of the graph and of the model's functions, and those of the graphs within them."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        yield from _nodes(nodes)


def _nodes(nodes: Any) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def operator_of(node: onnx.NodeProto) -> schemas.Operator | None:
    """Return mmort's operator that the node is, if it is one."""
    return next((one for one in schemas.operators() if (one.domain, one.type) == (node.domain, node.op_type)), None)


def name_of(node: onnx.NodeProto) -> str:
    """Return what the user finds the node by."""
    return f"{node.domain}::{node.op_type} node '{node.name or ', '.join(node.output)}'"


def attributes_of(node: onnx.NodeProto, operator: schemas.Operator) -> dict[str, schemas.Value]:
    """Return the node's attributes by their names of today, with defaults; pairs are pairs."""
    given = {attribute.name: attribute for attribute in node.attribute}
    values: dict[str, schemas.Value] = {}
    for formal in operator.attributes:
        attribute = given.get(formal.name) or given.get(formal.former_name or "")
        if attribute is None and formal.default is None:
            raise ValueError(f"{name_of(node)}: attribute {formal.name} ({formal.type}) is missing")
        if attribute is None:
            values[formal.name] = float(formal.default) if formal.type == "FLOAT" else formal.default  # type: ignore
        elif formal.type == "INTS":
            values[formal.name] = pair_of(node, attribute)
        elif attribute.type != CONVERT[formal.type]:
            raise ValueError(f"{name_of(node)}: attribute {formal.name} must be of type {formal.type}")
        else:
            value = onnx.helper.get_attribute_value(attribute)
            values[formal.name] = value.decode() if isinstance(value, bytes) else value
        if formal.choices and values[formal.name] not in formal.choices:
            raise ValueError(
                f"{name_of(node)}: {formal.name} must be {' or '.join(formal.choices)}, got {values[formal.name]}"
            )
        if values[formal.name] != values[formal.name]:
            raise ValueError(f"{name_of(node)}: {formal.name} must be a number, got nan")
    return values


def pair_of(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> tuple[int, int]:
    """Return a stride, padding or dilation, which may be one number for both or, as MMDeploy writes it, each twice."""
    values = [attribute.i] if attribute.type == onnx.AttributeProto.INT else list(attribute.ints)
    if len(values) == 1:
        return values[0], values[0]
    if len(values) == 4 and values[:1] + values[2:3] == values[1:2] + values[3:]:
        return values[0], values[2]
    if len(values) != 2:
        raise ValueError(f"{name_of(node)}: {attribute.name} must be 1, 2 or 4 integers (each twice), got {values}")
    return values[0], values[1]


def opset_of(model: onnx.ModelProto, domain: str = "") -> int | None:
    """Return the version of the domain that the model imports; "ai.onnx" is another name of ""."""
    names = ("", "ai.onnx") if domain == "" else (domain,)
    return next((one.version for one in model.opset_import if one.domain in names), None)


def load(path: Path_) -> onnx.ModelProto:
    """Read a model; tensors in other files stay there, so that its size does not matter."""
    try:
        return onnx.load(path, load_external_data=False)
    except OSError:
        raise
    except Exception as error:  # protobuf's class for it differs between its implementations
        raise ValueError(f"{path} is no ONNX model: {error}") from None


def save(model: onnx.ModelProto, path: Path_, source: Path_ | None, library: bool = True) -> None:
    """Write a model that has been checked; an existing file is replaced only then, and at once.

    Parameters
    ----------
    source : path or None
        The file that the model was read from.
    library : bool
        Whether the model needs mmort's library in ONNX Runtime.

    Raises
    ------
    ValueError
        If onnx's checker or ONNX Runtime refuses the model, or if it has tensors in files of another folder.
    """
    path = Path(path)
    if source is not None and Path(source).resolve().parent != path.resolve().parent and _has_files(model):
        raise ValueError(f"{source} has tensors in files beside it: the output must be in its folder, got {path}")
    try:
        content = model.SerializeToString()
    except Exception as error:  # above 2 GB
        raise ValueError(
            f"{path}: the model cannot be written ({error}); keep its tensors in files beside it"
        ) from None
    handle, name = tempfile.mkstemp(".onnx", f".{path.name}-", path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        check(name, source, library)
        os.chmod(name, 0o666 & ~_umask())  # as for any new file
        os.replace(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def check(path: Path_, source: Path_ | None, library: bool) -> None:
    """Raise ValueError if onnx's checker finds something that it does not find in the source, or no session starts."""
    complaint = _complaint(path)
    if complaint and (source is None or complaint != _complaint(source)):
        raise ValueError(f"the changed model is wrong, so it was not written: {complaint}")
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return
    from mmort import ort

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        if library:
            ort.session(os.fspath(path), sess_options=options)
        else:
            onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    except FileNotFoundError:  # mmort was built without the library
        return
    except Exception as error:  # pybind11's classes have no common one
        raise ValueError(f"ONNX Runtime refuses the changed model, so it was not written: {error}") from None


def _complaint(path: Path_) -> str | None:
    try:
        onnx.checker.check_model(os.fspath(path))
    except onnx.checker.ValidationError as error:
        return str(error)
    return None


def _has_files(model: onnx.ModelProto) -> bool:
    tensors = onnx.external_data_helper._get_all_tensors(model)
    return any(map(onnx.external_data_helper.uses_external_data, tensors))


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
