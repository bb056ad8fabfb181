"""Adding definitions to a model: one function for all nodes of an operator, or a definition instead of each node."""

from __future__ import annotations

import onnx
import onnx.helper
import onnx.inliner

from mmort import schemas
from mmort.onnx import files
from mmort.onnx.portable import optional_inputs
from mmort.onnx.portable.builder import FunctionBuilder, NotCoveredError, Value
from mmort.onnx.portable.coverage import Coverage
from mmort.onnx.portable.definitions import DEFINITIONS, MIN_OPSET
from mmort.onnx.portable.forms import FORMS, Form

MAX_INLINED = 20
"""Number of nodes up to which the result is loaded without the library: inlining 500 takes ONNX Runtime minutes."""


def define_operators(
    model: files.PathLike | onnx.ModelProto, output: files.PathLike | None, form: Form
) -> list[Coverage]:
    """Implement `mmort.onnx.make_portable`."""
    if form not in FORMS:
        raise ValueError(f"make_portable: form must be {' or '.join(map(repr, FORMS))}, got {form!r}")
    files.check_new(output)
    proto = model if isinstance(model, onnx.ModelProto) else files.load(model)
    opset = files.opset_of(proto)
    if opset is None:
        opset = MIN_OPSET
        proto.opset_import.append(onnx.helper.make_opsetid("", opset))
    covered = _add_functions(proto, opset, form)
    optional_inputs.replace(proto)
    if form == "inlined":
        _inline(proto)
    source = None if isinstance(model, onnx.ModelProto) else model
    target = output or source
    if target is not None:
        inlined = sum(len(row.nodes) for row in covered)
        library = inlined > MAX_INLINED or any(row.missing for row in covered)
        files.save(proto, target, source, library=library)
    return covered


def first_obstacle(model: onnx.ModelProto) -> str | None:
    """Return why a model cannot do without the library, even inlined and after `mmort.onnx.upgrade`; None if it can.

    Defaults of attributes are written into the model's nodes.
    """
    opset = max(files.opset_of(model) or MIN_OPSET, MIN_OPSET)
    for operator, nodes in _groups(model).items():
        for node in nodes:
            try:
                _function(operator, node, opset)
            except (NotCoveredError, ValueError) as reason:
                return str(reason)
    return None


def _groups(model: onnx.ModelProto) -> dict[schemas.Operator, list[onnx.NodeProto]]:
    """Return the nodes of each of mmort's operators."""
    foreign = files.own_functions(model)
    groups: dict[schemas.Operator, list[onnx.NodeProto]] = {}
    for node in files.every_node(model):
        operator = files.operator_of(node)
        if operator is not None and (node.domain, node.op_type) not in foreign:
            groups.setdefault(operator, []).append(node)
    return groups


def _add_functions(model: onnx.ModelProto, opset: int, form: Form) -> list[Coverage]:
    """Add the definitions that the model does not have yet; return the coverage of each operator."""
    present = {(function.domain, function.name) for function in model.functions}
    groups = _groups(model)
    if groups and opset < MIN_OPSET:
        raise ValueError(
            f"make_portable: the model's opset must be {MIN_OPSET} or higher, got {opset}; mmort upgrade raises it"
        )
    covered = []
    for operator, nodes in groups.items():
        missing = None
        if (operator.domain, operator.type) not in present:
            try:
                functions = [_function(operator, node, opset) for node in nodes]
                if form == "functions":
                    _require_one(functions, nodes)
                    del functions[1:]
                else:
                    _rename(functions, nodes)
                model.functions.extend(functions)
            except NotCoveredError as reason:
                missing = str(reason)
        names = tuple(node.name or ", ".join(node.output) for node in nodes)
        covered.append(Coverage(f"{operator.domain}::{operator.type}", names, missing))
        if missing is None:
            model.ir_version = max(model.ir_version, 8)  # the first version of the format with functions
            if files.opset_of(model, operator.domain) is None:
                model.opset_import.append(onnx.helper.make_opsetid(operator.domain, 1))
    return covered


def _require_one(functions: list[onnx.FunctionProto], nodes: list[onnx.NodeProto]) -> None:
    """Raise NotCoveredError unless one function serves all nodes.

    A function may have overloads, but ONNX Runtime up to 1.23 silently uses the last one for all nodes.
    """
    for function, node in zip(functions, nodes, strict=True):
        if function != functions[0]:
            first, other = files.name_of(nodes[0]), files.name_of(node)
            raise NotCoveredError(f"one definition must serve all nodes, and {first} and {other} need different ones")


def _rename(functions: list[onnx.FunctionProto], nodes: list[onnx.NodeProto]) -> None:
    """Give each node a function of its own."""
    for index, (function, node) in enumerate(zip(functions, nodes, strict=True)):
        function.name = node.op_type = f"{function.name}_{index}"


def _inline(model: onnx.ModelProto) -> None:
    """Put the functions' nodes into the graph, and drop what is imported for no node."""
    model.CopyFrom(onnx.inliner.inline_local_functions(model))
    used = {node.domain for node in files.every_node(model)} | {"", "ai.onnx"}
    imports = [opset for opset in model.opset_import if opset.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(imports)


def _check_inputs(operator: schemas.Operator, node: onnx.NodeProto) -> None:
    """Raise ValueError if a node lacks an input or has too many."""
    if len(node.input) > len(operator.inputs):
        raise ValueError(f"there must be at most {len(operator.inputs)} inputs, got {len(node.input)}")
    for index, formal in enumerate(operator.inputs):
        if not formal.optional and not any(node.input[index : index + 1]):
            raise ValueError(f"input {formal.name} is missing")


def _function(operator: schemas.Operator, node: onnx.NodeProto, opset: int) -> onnx.FunctionProto:
    """Return a node's definition; name the node in what it raises."""
    if operator.kernel not in DEFINITIONS:
        raise NotCoveredError(f"no definition of {files.name_of(node)}: the operator has none")
    attributes = files.attributes_of(node, operator)
    try:
        return _defined(operator, node, opset, attributes)
    except NotCoveredError as reason:
        raise NotCoveredError(f"no definition of {files.name_of(node)}: {reason}") from None
    except ValueError as error:
        raise ValueError(f"{files.name_of(node)}: {error}") from None


def _defined(
    operator: schemas.Operator, node: onnx.NodeProto, opset: int, attributes: dict[str, schemas.Value]
) -> onnx.FunctionProto:
    """Return a node's definition; write the attributes that it refers to into the node, which may rely on defaults."""
    _check_inputs(operator, node)
    while node.input and not node.input[-1]:  # an optional input that is left out
        del node.input[-1]
    op = FunctionBuilder(opset)
    names = [formal.name for formal in operator.inputs][: len(node.input)]
    inputs = [Value(op, name) if given else None for name, given in zip(names, node.input, strict=True)]
    results = DEFINITIONS[operator.kernel](op, *inputs, attributes=attributes)
    outputs = [formal.name for formal in operator.outputs]
    for name, result in zip(outputs, results if isinstance(results, tuple) else (results,), strict=True):
        op.nodes.append(onnx.helper.make_node("Identity", [result.handle], [name]))
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
        doc_string=files.DEFINITION_NOTE,
    )
