"""Portable models: mmort's operators get definitions in standard operators, for ONNX Runtimes without the library.

With the library the kernel is used, as before; without it ONNX Runtime puts the definition in the node's place.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx
import onnx.helper

from mmort import schemas
from mmort.onnx import functions, nodes
from mmort.onnx.body import Body, Value


@dataclass(frozen=True)
class Coverage:
    """What became of an operator's nodes; ``missing`` says why they still need the library, None that they do not."""

    operator: str
    nodes: tuple[str, ...]
    missing: str | None


def make_portable(model: nodes.Path_ | onnx.ModelProto, output: nodes.Path_ | None = None) -> list[Coverage]:
    """Add to a model definitions of mmort's operators in standard ones, so that it runs without the library, too.

    A definition is a function in the model, which ONNX Runtime, `onnx.reference` and others put in a node's place
    unless they know the operator.  With the library loaded, ONNX Runtime uses the kernel.  ``docs/portable.md`` says
    what each definition covers.

    Parameters
    ----------
    model : path or onnx.ModelProto
        A file, or a model, which is changed in place.  Its opset must be 16 or higher.
    output : path or None
        The file to write; without it the model's own file is replaced.  Tensors in files beside the model stay there.

    Returns
    -------
    list of Coverage
        For each of mmort's operators in the model its nodes, and why they still need the library, if they do.

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
    [Coverage(operator='mmcv::MMCVCornerPool', nodes=('y',), missing=None)]
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
    given = {(one.domain, one.name) for one in model.functions}
    users: dict[schemas.Operator, list[onnx.NodeProto]] = {}
    for node in nodes.every_node(model):
        operator = nodes.operator_of(node)
        if operator is not None:
            users.setdefault(operator, []).append(node)
    covered = []
    for operator, group in users.items():
        missing = None
        if (operator.domain, operator.type) not in given:
            try:
                model.functions.append(_definition(operator, group, opset))
            except functions.NoBody as reason:
                missing = str(reason)
        names = tuple(node.name or ", ".join(node.output) for node in group)
        covered.append(Coverage(f"{operator.domain}::{operator.type}", names, missing))
        if missing is None:
            model.ir_version = max(model.ir_version, 8)  # the first version of the format with functions
            if nodes.opset_of(model, operator.domain) is None:
                model.opset_import.append(onnx.helper.make_opsetid(operator.domain, 1))
    return covered


def _definition(operator: schemas.Operator, group: list[onnx.NodeProto], opset: int) -> onnx.FunctionProto:
    """Return the one definition that serves all nodes of an operator.

    A function may have overloads, but ONNX Runtime up to 1.23 silently takes the last one for all nodes.
    """
    if opset < functions.OPSET:
        raise ValueError(
            f"make_portable: the model's opset must be {functions.OPSET} or higher, got {opset}; "
            "mmort upgrade raises it"
        )
    written = []
    for node in group:
        try:
            written.append(_function(operator, node, opset))
        except functions.NoBody as reason:
            raise functions.NoBody(f"no definition of {nodes.name_of(node)}: {reason}") from None
        except ValueError as error:
            raise ValueError(f"{nodes.name_of(node)}: {error}") from None
        if written[-1] != written[0]:
            first, other = nodes.name_of(group[0]), nodes.name_of(node)
            raise functions.NoBody(f"one definition must serve all nodes, and {first} and {other} need different ones")
    return written[0]


def _function(operator: schemas.Operator, node: onnx.NodeProto, opset: int) -> onnx.FunctionProto:
    """Write the node's definition; the attributes that it refers to are stated in the node then."""
    if operator.kernel not in functions.WRITERS:
        raise functions.NoBody("the operator has none")
    attributes = nodes.attributes_of(node, operator)
    while not node.input[-1]:  # an optional one, left out
        del node.input[-1]
    op = Body(opset)
    names = [formal.name for formal in operator.inputs][: len(node.input)]
    inputs = [Value(op, name) if given else None for name, given in zip(names, node.input, strict=True)]
    results = functions.WRITERS[operator.kernel](op, *inputs, attributes=attributes)
    outputs = [formal.name for formal in operator.outputs]
    for name, result in zip(outputs, results if isinstance(results, tuple) else (results,), strict=True):
        op.nodes.append(onnx.helper.make_node("Identity", [result.name], [name]))
    for reference in sorted(op.references):
        stated = onnx.helper.make_attribute(reference, attributes[reference])
        others = [attribute for attribute in node.attribute if attribute.name != reference]
        if stated not in node.attribute:
            del node.attribute[:]
            node.attribute.extend([*others, stated])
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
