"""Portable models: each of mmort's nodes gets a definition in standard operators, for ONNX Runtimes without the library.

With the library the kernel is used, as before; without it ONNX Runtime puts the definition in the node's place.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import onnx.helper

from mmort import schemas
from mmort.onnx import functions, nodes
from mmort.onnx.body import Body, Value


@dataclass
class Coverage:
    """What became of the nodes of one operator with the same attributes.

    ``missing`` says why they still need the library; it is None where they have a definition now.
    """

    operator: str
    attributes: Mapping[str, schemas.Value]
    nodes: list[str]
    missing: str | None


def make_portable(model: nodes.Path_ | onnx.ModelProto, output: nodes.Path_ | None = None) -> list[Coverage]:
    """Add to a model definitions of mmort's operators in standard ones, so that it runs without the library, too.

    A definition is a function in the model, which ONNX Runtime, `onnx.reference` and others put in a node's place unless
    they know the operator.  With the library loaded, ONNX Runtime uses the kernel.  ``docs/portable.md`` says what each
    definition covers.

    Parameters
    ----------
    model : path or onnx.ModelProto
        A file, or a model, which is changed in place.  Its opset must be 16 or higher.
    output : path or None
        The file to write; without it the model's own file is replaced.  Tensors in files beside the model stay there.

    Returns
    -------
    list of Coverage
        For each operator and set of attributes its nodes, and why they still need the library, if they do.  Empty if
        the model has none of mmort's operators.

    Raises
    ------
    ValueError
        If the model's opset is too low, an attribute is wrong, or the result does not pass onnx's checker or, where
        onnxruntime is installed, does not load; nothing is written then.
    OSError
        If a file cannot be read or written.

    Examples
    --------
    >>> import onnx, onnx.helper as oh
    >>> import mmort.onnx
    >>> node = oh.make_node("MMCVCornerPool", ["x"], ["y"], domain="mmcv", mode=3)
    >>> x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 1, 3]) for name in "xy")
    >>> model = oh.make_model(oh.make_graph([node], "example", [x], [y]),
    ...                       opset_imports=[oh.make_opsetid("", 18), oh.make_opsetid("mmcv", 1)], ir_version=8)
    >>> mmort.onnx.make_portable(model)
    [Coverage(operator='mmcv::MMCVCornerPool', attributes={'mode': 3}, nodes=['y'], missing=None)]
    >>> [(function.domain, function.name) for function in model.functions]
    [('mmcv', 'MMCVCornerPool')]
    """
    proto = model if isinstance(model, onnx.ModelProto) else nodes.load(model)
    opset = nodes.opset_of(proto)
    if opset is None:
        opset = functions.OPSET
        proto.opset_import.append(onnx.helper.make_opsetid("", opset))
    covered = _add_functions(proto, opset)
    source = None if isinstance(model, onnx.ModelProto) else model
    target = output or source
    if target is not None:
        nodes.save(proto, target, source, library=any(row.missing for row in covered))
    return covered


def _add_functions(model: onnx.ModelProto, opset: int) -> list[Coverage]:
    given = {(one.domain, one.name, one.overload) for one in model.functions}
    added: list[onnx.FunctionProto] = []
    rows: dict[tuple[str, str], Coverage] = {}
    for node in nodes.every_node(model):
        operator = nodes.operator_of(node)
        if operator is None:
            continue
        attributes = nodes.attributes_of(node, operator)
        missing = None
        if (node.domain, node.op_type, node.overload) not in given:
            if opset < functions.OPSET:
                raise ValueError(
                    f"make_portable: the model's opset must be {functions.OPSET} or higher, got {opset}; "
                    "mmort upgrade raises it"
                )
            try:
                node.overload = _add(added, given, _function(operator, node, attributes, opset))
            except functions.NoBody as reason:
                missing = str(reason)
            except ValueError as error:
                raise ValueError(f"{nodes.name_of(node)}: {error}") from None
        name = f"{operator.domain}::{operator.type}"
        row = rows.setdefault((name, str(attributes)), Coverage(name, attributes, [], missing))
        row.nodes.append(node.name or ", ".join(node.output))
    model.functions.extend(added)
    # Functions came with version 8 of the format, several of one name with version 10.
    model.ir_version = max(model.ir_version, 10 if any(one.overload for one in added) else 8 if added else 0)
    for domain in sorted({one.domain for one in added}):
        if nodes.opset_of(model, domain) is None:
            model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    return list(rows.values())


def _add(added: list[onnx.FunctionProto], given: set[tuple[str, str, str]], function: onnx.FunctionProto) -> str:
    """Add a function unless there is one like it; return which of its name it is."""
    for count in itertools.count(1):
        overload = function.overload = str(count) if count > 1 else ""  # the first needs no newer format
        if function in added:
            return overload
        names = {(one.domain, one.name, one.overload) for one in added} | given
        if (function.domain, function.name, overload) not in names:
            added.append(function)
            return overload
    raise AssertionError("not reached")


def _function(
    operator: schemas.Operator, node: onnx.NodeProto, attributes: Mapping[str, schemas.Value], opset: int
) -> onnx.FunctionProto:
    """Write the node's definition; the attributes that it refers to are stated in the node then."""
    if operator.kernel not in functions.WRITERS:
        raise functions.NoBody("there is no definition of it")
    while not node.input[-1]:  # an optional one, left out
        del node.input[-1]
    op = Body(opset)
    names = [formal.name for formal in operator.inputs][: len(node.input)]
    inputs = [Value(op, name) if given else None for name, given in zip(names, node.input, strict=True)]
    results = functions.WRITERS[operator.kernel](op, *inputs, attributes=attributes)
    outputs = [formal.name for formal in operator.outputs]
    for name, result in zip(outputs, results if isinstance(results, tuple) else (results,), strict=True):
        op.nodes.append(onnx.helper.make_node("Identity", [result.name], [name]))
    stated = {attribute.name for attribute in node.attribute}
    for formal in operator.attributes:
        if formal.name in op.references - stated:
            node.attribute.append(onnx.helper.make_attribute(formal.name, attributes[formal.name]))
    return onnx.helper.make_function(
        operator.domain,
        operator.type,
        names,
        outputs,
        op.nodes,
        [onnx.helper.make_opsetid("", opset)],
        attributes=sorted(op.references),
        doc_string="by mmort, for runtimes without its library",
    )
