"""Adding definitions to a model: one function for all nodes of an operator, or a definition instead of each node."""

from __future__ import annotations

import onnx
import onnx.helper
import onnx.inliner

from mmort import schemas
from mmort.onnx.graph import files, inspection, optional_inputs, structure
from mmort.onnx.graph.builder import NotCoveredError
from mmort.onnx.portable import model_functions
from mmort.onnx.portable.coverage import Coverage
from mmort.onnx.portable.definitions import MIN_OPSET
from mmort.onnx.portable.forms import FORMS, Form

MAX_INLINED = 20
"""Number of nodes up to which the result is loaded without the library: inlining 500 takes ONNX Runtime minutes."""


def define_operators(
    model: files.PathLike | onnx.ModelProto, output: files.PathLike | None, form: Form, *, force: bool
) -> list[Coverage]:
    """Implement `mmort.onnx.make_portable`."""
    if form not in FORMS:
        raise ValueError(f"make_portable: form must be {' or '.join(map(repr, FORMS))}, got {form!r}")
    files.check_output(output, force=force)
    proto = model if isinstance(model, onnx.ModelProto) else files.load(model)
    opset = inspection.opset_of(proto)
    if opset is None:
        opset = MIN_OPSET
        proto.opset_import.append(onnx.helper.make_opsetid("", opset))
    covered = _add_functions(proto, opset, form)
    optional_inputs.replace(proto)
    if form == "inlined":
        _inline(proto)
    source = None if isinstance(model, onnx.ModelProto) else model
    target = source if output is None else output
    if target is not None:
        inlined = sum(len(row.nodes) for row in covered)
        library = inlined > MAX_INLINED or any(row.missing for row in covered)
        _require_few_calls(proto)
        files.save(proto, target, source, library=library)
    return covered


def first_obstacle(model: onnx.ModelProto) -> str | None:
    """Return why a model cannot do without the library, even inlined and after `mmort.onnx.upgrade`; None if it can.

    Defaults of attributes are written into the model's nodes.
    """
    opset = max(inspection.opset_of(model) or MIN_OPSET, MIN_OPSET)
    definitions = model_functions.Definitions()
    for operator, nodes in _groups(model).items():
        for node in nodes:
            try:
                model_functions.of(operator, node, opset, definitions=definitions)
            except (NotCoveredError, ValueError) as reason:
                return str(reason)
    return None


def _groups(model: onnx.ModelProto) -> dict[schemas.Operator, list[onnx.NodeProto]]:
    """Return the nodes of each of mmort's operators."""
    foreign = inspection.own_functions(model)
    groups: dict[schemas.Operator, list[onnx.NodeProto]] = {}
    for node in inspection.every_node(model):
        operator = inspection.operator_of(node)
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
                if form == "functions":
                    model.functions.append(model_functions.shared(operator, nodes, opset))
                else:
                    model.functions.extend(model_functions.own(operator, nodes, opset))
            except NotCoveredError as reason:
                missing = str(reason)
        names = tuple(node.name or ", ".join(node.output) for node in nodes)
        covered.append(Coverage(f"{operator.domain}::{operator.type}", names, missing))
        if missing is None:
            model.ir_version = max(model.ir_version, 8)  # the first version of the format with functions
            if inspection.opset_of(model, operator.domain) is None:
                model.opset_import.append(onnx.helper.make_opsetid(operator.domain, 1))
    return covered


def _require_few_calls(model: onnx.ModelProto) -> None:
    """Refuse a model that `mmort.ort.session` would not load, as its expanded functions make it too large."""
    try:
        structure.check_functions(model)
    except ValueError as error:
        raise ValueError(
            f"make_portable: too many nodes for definitions as functions: {error}; replace the nodes by their "
            'definitions instead, with form="inlined" (--portable=inlined)'
        ) from None


def _inline(model: onnx.ModelProto) -> None:
    """Put the functions' nodes into the graph, and drop what is imported for no node."""
    try:
        inlined = onnx.inliner.inline_local_functions(model)
    except Exception as error:  # onnx raises classes of its checker, among others
        raise ValueError(f"make_portable: the model's functions cannot be inlined: {error}") from None
    model.CopyFrom(inlined)
    used = {node.domain for node in inspection.every_node(model)} | {"", "ai.onnx"}
    imports = [opset for opset in model.opset_import if opset.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(imports)
