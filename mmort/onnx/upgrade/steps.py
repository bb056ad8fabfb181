"""The steps of an upgrade, in order.  Each changes a model and yields what it changed.

Old domains and names of attributes are those of the operators' rows, in ``_kernels/operators.c``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import onnx
import onnx.defs
import onnx.helper
import onnx.numpy_helper
import onnx.version_converter

from mmort import schemas
from mmort.onnx.graph import files, inspection, structure

OPSET = 18
"""Older opsets are converted to this one, which every ONNX Runtime that mmort's library supports knows."""

IR_VERSION = 10
"""The newest version of the file format that is kept if no opset needs a newer one."""


def upgrade_model(model: files.PathLike | onnx.ModelProto, output: files.PathLike | None, *, force: bool) -> list[str]:
    """Implement `mmort.onnx.upgrade`."""
    files.check_output(output, force=force)
    proto = model if isinstance(model, onnx.ModelProto) else files.load(model)
    counts = Counter(_nodes(proto))
    changes = [f"{change} ({count} node{'s' * (count > 1)})" for change, count in counts.items()]
    changes += [*_weights(proto), *_imports(proto), *_opset(proto), *_format(proto)]
    source = None if isinstance(model, onnx.ModelProto) else model
    target = (source if changes else None) if output is None else output
    if target is not None:
        files.save(proto, target, source, library=inspection.calls_operators(proto))
    return changes


def _nodes(model: onnx.ModelProto) -> Iterator[str]:
    """Give nodes their preferred domain, and attributes their current names and types."""
    functions = {(function.domain, function.name) for function in model.functions}
    for node in inspection.every_node(model):
        if (node.domain, node.op_type) in functions:
            continue
        preferred = _preferred_domain(node)
        if preferred is not None and preferred != node.domain:
            yield f"{node.domain or '(no domain)'}::{node.op_type}: {preferred}::{node.op_type} now"
            node.domain = preferred
        operator = inspection.operator_of(node)
        if operator is not None and not any(attribute.ref_attr_name for attribute in node.attribute):
            yield from _attributes(node, operator)


def _attributes(node: onnx.NodeProto, operator: schemas.Operator) -> Iterator[str]:
    """Give a node's attributes their current names, and make pairs of strides, paddings and dilations."""
    inspection.attributes_of(node, operator)  # raises if an attribute is wrong
    formals = {name: formal for formal in operator.attributes for name in (formal.name, formal.former_name)}
    names = {attribute.name for attribute in node.attribute}
    for attribute in node.attribute:
        formal = formals.get(attribute.name)
        if formal is None:
            continue
        label = f"{operator.domain}::{operator.type}: attribute {attribute.name}"
        if attribute.name != formal.name and formal.name not in names:
            yield f"{label} is {formal.name} now"
            attribute.name = formal.name
        if formal.type == "INTS":
            pair = inspection.pair_of(node, attribute)
            if attribute.type != onnx.AttributeProto.INTS or tuple(attribute.ints) != pair:
                yield f"{label} is a pair now"
                attribute.CopyFrom(onnx.helper.make_attribute(attribute.name, pair))


def _preferred_domain(node: onnx.NodeProto) -> str | None:
    """Return the domain that a node of mmort's types belongs to, or None for other nodes."""
    rows = schemas.operators()  # of several domains of a kernel the preferred one first
    if node.domain in ("", "ai.onnx"):
        if onnx.defs.has(node.op_type):
            return None
        return next((row.domain for row in rows if row.type == node.op_type), None)
    operator = inspection.operator_of(node)
    if operator is None:
        return None
    return next(row.domain for row in rows if (row.kernel, row.type) == (operator.kernel, operator.type))


def _weights(model: onnx.ModelProto) -> Iterator[str]:
    """Remove weights from the inputs, where format versions before 4 required them, so that they become constant.

    An input that leaves a size open, which its initializer cannot, is no weight: the initializer is its default.
    """
    names = {tensor.name for tensor in model.graph.initializer}
    inputs = [formal for formal in model.graph.input if formal.name not in names or _is_open(formal)]
    count = len(model.graph.input) - len(inputs)
    if count:
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        yield f"{count} weight{'s' * (count > 1)} listed as input{'s' * (count > 1)}: constant now"


def _is_open(formal: onnx.ValueInfoProto) -> bool:
    """Return whether an input has a size that is left open."""
    return any(dim.HasField("dim_param") for dim in formal.type.tensor_type.shape.dim)


def _imports(model: onnx.ModelProto) -> Iterator[str]:
    """Import exactly those of mmort's domains that have nodes."""
    domains = {row.domain for row in schemas.operators()}
    used = {node.domain for node in inspection.every_node(model)} & domains
    unused = {opset.domain for opset in model.opset_import} & (domains - used)
    for domain in sorted(unused):
        yield f"domain {domain}: no longer imported, there are no nodes of it"
    if unused:
        kept = [opset for opset in model.opset_import if opset.domain not in unused]
        del model.opset_import[:]
        model.opset_import.extend(kept)
    for domain in sorted(used):
        if inspection.opset_of(model, domain) is None:
            model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
            yield f"domain {domain}: imported now"
        for opset in model.opset_import:
            if opset.domain == domain and opset.version != 1:
                yield f"domain {domain}: version {opset.version} is 1 now"
                opset.version = 1


def _opset(model: onnx.ModelProto) -> Iterator[str]:
    """Convert an old opset of standard operators."""
    opset = inspection.opset_of(model)
    if opset is None or opset >= OPSET:
        return
    if model.functions:  # onnx.version_converter would drop them
        raise ValueError(f"upgrade: the model's opset, {opset}, cannot be converted while it has functions of its own")
    version = model.ir_version
    model.ir_version = inspection.needed_format(model)  # 3 would want weights among the inputs
    try:
        _refuse_hardmax(model, opset)
        model.CopyFrom(onnx.version_converter.convert_version(model, OPSET))
        if opset <= LAST_WITH_CORNERS:
            _keep_corners(model)
    except Exception as error:  # the converter's and the checker's exceptions have no common base class
        raise ValueError(f"upgrade: opset {opset} cannot be converted to {OPSET}: {error}") from None
    model.ir_version = version
    yield f"opset {opset}: {OPSET} now"


LAST_WITH_CORNERS = 10
"""The last opset whose Resize and Upsample align the corners of pixels; newer ones align centres by default."""


def _refuse_hardmax(model: onnx.ModelProto, opset: int) -> None:
    """Refuse a Hardmax of all axes from one on, of which onnx.version_converter makes one of that axis alone."""
    for node in inspection.every_node(model):
        if node.op_type == "Hardmax" and node.domain in ("", "ai.onnx") and opset < FIRST_WITH_ONE_AXIS:
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
            if axis != -1:
                raise ValueError(f"axis of {inspection.name_of(node)} must be -1, the only one, got axis {axis}")


FIRST_WITH_ONE_AXIS = 13
"""The first opset whose Hardmax has one axis."""


def _keep_corners(model: onnx.ModelProto) -> None:
    """Give each Resize the coordinates of the old operator, which onnx.version_converter drops."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in inspection.every_node(model):
        for graph in structure.graphs(node):
            constants |= {tensor.name: tensor for tensor in graph.initializer}
        for attribute in node.attribute if node.op_type == "Constant" else ():
            constants[node.output[0]] = attribute.t
    for node in inspection.every_node(model):
        if node.op_type == "Resize" and node.domain in ("", "ai.onnx"):
            kept = [attribute for attribute in node.attribute if attribute.name == "mode"]
            if not kept or kept[0].s == b"nearest":
                kept.append(onnx.helper.make_attribute("nearest_mode", _nearest_mode(node, constants)))
            kept.append(onnx.helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
            del node.attribute[:]
            node.attribute.extend(kept)


def _nearest_mode(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> str:
    """Return how the old operator rounds: ONNX Runtime's rounds down where it enlarges, and up where it reduces."""
    tensor = constants.get(node.input[2])
    scales = None if tensor is None else onnx.numpy_helper.to_array(tensor)
    if scales is not None and (scales >= 1).all():
        return "floor"
    if scales is not None and (scales <= 1).all():
        return "ceil"
    given = "computed ones" if scales is None else scales.tolist()
    raise ValueError(
        f"{inspection.name_of(node)} resizes to the nearest pixel, and scales must be constants, all of which enlarge, "
        f"or all of which reduce, got {given}"
    )


def _format(model: onnx.ModelProto) -> Iterator[str]:
    """Set the version of the file format that the opset, functions and their overloads need."""
    version = max(inspection.needed_format(model), min(model.ir_version, IR_VERSION))
    if version != model.ir_version:
        yield f"format version {model.ir_version}: {version} now"
        model.ir_version = version
