"""Nodes as onnx's protobuf has them: all of a model's, which of them are mmort's, their attributes and versions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import onnx
import onnx.helper

from mmort import schemas
from mmort.onnx.graph import structure


def every_node(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of the graph, of the model's functions, and of the graphs within them."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        yield from structure.nested(nodes)


def opset_of(model: onnx.ModelProto, domain: str = "") -> int | None:
    """Return the version of the domain that the model imports; "ai.onnx" is another name of ""."""
    names = ("", "ai.onnx") if domain == "" else (domain,)
    return next((opset.version for opset in model.opset_import if opset.domain in names), None)


DEFINITION_NOTE = "by mmort, for runtimes without its library"
"""The documentation of a portable definition, which tells it from a model's own function of the same name."""


def own_functions(model: onnx.ModelProto) -> set[tuple[str, str]]:
    """Return the domains and names of the functions in a model that are not mmort's portable definitions."""
    return {(function.domain, function.name) for function in model.functions if function.doc_string != DEFINITION_NOTE}


def operator_of(node: onnx.NodeProto) -> schemas.Operator | None:
    """Return the operator of mmort that a node calls, or None."""
    return _operators().get((node.domain, node.op_type))


def calls_operators(model: onnx.ModelProto) -> bool:
    """Return whether any node of a model calls an operator of mmort."""
    return any(map(operator_of, every_node(model)))


@cache
def _operators() -> dict[tuple[str, str], schemas.Operator]:
    """Return mmort's operators by domain and type."""
    return {(row.domain, row.type): row for row in reversed(schemas.operators())}


def name_of(node: onnx.NodeProto) -> str:
    """Return the text that names a node in messages, by its outputs if it has no name."""
    return f"{node.domain}::{node.op_type} node '{node.name or ', '.join(node.output)}'"


def attributes_of(node: onnx.NodeProto, operator: schemas.Operator) -> dict[str, schemas.Value]:
    """Return a node's attributes by their current names, with defaults filled in and pairs as pairs.

    Raises
    ------
    ValueError
        If an attribute is missing, of the wrong type, or not among the choices.
    """
    by_name = {attribute.name: attribute for attribute in node.attribute}
    values: dict[str, schemas.Value] = {}
    for formal in operator.attributes:
        attribute = by_name.get(formal.name) or by_name.get(formal.former_name or "")
        values[formal.name] = value = _value(node, formal, attribute)
        if formal.choices and value not in formal.choices:
            raise ValueError(f"{name_of(node)}: {formal.name} must be {' or '.join(formal.choices)}, got {value}")
        if value != value:
            raise ValueError(f"{name_of(node)}: {formal.name} must be a number, got nan")
    return values


def _value(node: onnx.NodeProto, formal: schemas.Attribute, attribute: onnx.AttributeProto | None) -> schemas.Value:
    """Return the value of one attribute, or its default if the node does not have it."""
    if attribute is None:
        if formal.default is None:
            raise ValueError(f"{name_of(node)}: attribute {formal.name} ({formal.type}) is missing")
        # As a file has it, which another node may state.
        return float(np.float32(formal.default)) if formal.type == "FLOAT" else formal.default  # type: ignore[arg-type]
    if attribute.ref_attr_name:
        raise ValueError(
            f"{name_of(node)}: attribute {formal.name} must be a value, got attribute {attribute.ref_attr_name} of the "
            "function around it"
        )
    if formal.type == "INTS":
        return pair_of(node, attribute)
    if attribute.type != onnx.AttributeProto.AttributeType.Value(formal.type):
        raise ValueError(f"{name_of(node)}: attribute {formal.name} must be of type {formal.type}")
    value: schemas.Value | bytes = onnx.helper.get_attribute_value(attribute)
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{name_of(node)}: attribute {formal.name} must be UTF-8 text, got {value!r}") from None


def pair_of(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> tuple[int, int]:
    """Return a stride, padding or dilation, which MMCV may write as one number and MMDeploy writes twice."""
    values = [attribute.i] if attribute.type == onnx.AttributeProto.INT else list(attribute.ints)
    if len(values) == 1:
        return values[0], values[0]
    if len(values) == 4 and values[:1] + values[2:3] == values[1:2] + values[3:]:
        return values[0], values[2]
    if len(values) != 2:
        raise ValueError(f"{name_of(node)}: {attribute.name} must be 1, 2 or 4 integers (each twice), got {values}")
    return values[0], values[1]


def needed_format(model: onnx.ModelProto) -> int:
    """Return the lowest version of the file format that has a model's opset and functions.

    Examples
    --------
    >>> import onnx.helper as oh
    >>> from mmort.onnx.graph.inspection import needed_format
    >>> model = oh.make_model(oh.make_graph([], "empty", [], []), opset_imports=[oh.make_opsetid("", 18)])
    >>> needed_format(model)
    8
    """
    standard = [onnx.helper.make_opsetid("", opset_of(model) or 1)]
    return max(
        onnx.helper.find_min_ir_version_for(standard),
        8 if model.functions else 4,
        10 if any(function.overload for function in model.functions) else 4,
    )
