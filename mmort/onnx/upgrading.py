"""Old models brought up to date: what exporters of MMCV 1.x and MMDeploy wrote, as it would be written today."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import onnx
import onnx.defs
import onnx.helper
import onnx.version_converter

from mmort import schemas
from mmort.onnx import nodes

OPSET = 18
"""What models of older opsets are converted to: every ONNX Runtime that mmort's library runs on knows it."""

IR_VERSION = 10
"""The newest version of the file format that is left alone, if the opset does not need a newer one."""


def upgrade(model: nodes.Path_ | onnx.ModelProto, output: nodes.Path_ | None = None) -> list[str]:
    """Bring an old model up to date; outputs stay the same.

    - nodes in another of an operator's domains move to the preferred one (mmdeploy to mmcv), as do nodes of MMCV's
      types without a domain;
    - attributes get today's names; strides, paddings and dilations become pairs;
    - weights are no longer listed as inputs of the graph;
    - imports of domains are added and removed as the nodes need;
    - opsets below 18 become 18, by ``onnx.version_converter``;
    - the version of the file format is raised to what that needs, or lowered to 10 if nothing needs more.

    Parameters
    ----------
    model : path or onnx.ModelProto
        A file, or a model, which is changed in place.
    output : path or None
        The file to write; without it the model's own file is replaced if there was something to change.  Tensors in
        files beside the model stay there.

    Returns
    -------
    list of str
        What was changed, a line each; empty if there was nothing to do.

    Raises
    ------
    ValueError
        If an attribute is wrong, the opset cannot be converted, or the result does not pass onnx's checker or, where
        onnxruntime is installed, does not load; nothing is written then.
    OSError
        If a file cannot be read or written.

    Examples
    --------
    >>> import onnx, onnx.helper as oh
    >>> import mmort.onnx
    >>> node = oh.make_node("MMCVRoiAlign", ["x", "rois"], ["y"], domain="mmcv", aligned_height=2, aligned_width=2)
    >>> tensors = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * rank)
    ...            for name, rank in (("x", 4), ("rois", 2), ("y", 4))]
    >>> graph = oh.make_graph([node], "example", tensors[:2], tensors[2:])
    >>> model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 11)], ir_version=7)
    >>> for line in mmort.onnx.upgrade(model):
    ...     print(line)
    mmcv::MMCVRoiAlign: attribute aligned_height is output_height now (1 node)
    mmcv::MMCVRoiAlign: attribute aligned_width is output_width now (1 node)
    domain mmcv: imported now
    opset 11: 18 now
    format version 7: 8 now
    """
    proto = model if isinstance(model, onnx.ModelProto) else nodes.load(model)
    counted = Counter(_nodes(proto))
    changes = [f"{change} ({count} node{'s' * (count > 1)})" for change, count in counted.items()]
    changes += [*_weights(proto), *_imports(proto), *_opset(proto), *_format(proto)]
    source = None if isinstance(model, onnx.ModelProto) else model
    target = output or (source if changes else None)
    if target is not None:
        nodes.save(proto, target, source, library=any(map(nodes.operator_of, nodes.every_node(proto))))
    return changes


def _nodes(model: onnx.ModelProto) -> Iterator[str]:
    """Give nodes their preferred domain, and attributes their names and types of today."""
    own = {(function.domain, function.name) for function in model.functions}
    for node in nodes.every_node(model):
        if (node.domain, node.op_type) in own:
            continue
        preferred = _preferred(node)
        if preferred is not None and preferred != node.domain:
            yield f"{node.domain or '(no domain)'}::{node.op_type}: {preferred}::{node.op_type} now"
            node.domain = preferred
        operator = nodes.operator_of(node)
        if operator is None:
            continue
        nodes.attributes_of(node, operator)  # raises where something is wrong
        formals = {name: formal for formal in operator.attributes for name in (formal.name, formal.former_name)}
        names = {attribute.name for attribute in node.attribute}
        for attribute in node.attribute:
            formal = formals.get(attribute.name)
            if formal is None:
                continue
            which = f"{operator.domain}::{operator.type}: attribute {attribute.name}"
            if attribute.name != formal.name and formal.name not in names:
                yield f"{which} is {formal.name} now"
                attribute.name = formal.name
            if formal.type == "INTS":
                pair = nodes.pair_of(node, attribute)
                if attribute.type != onnx.AttributeProto.INTS or tuple(attribute.ints) != pair:
                    yield f"{which} is a pair now"
                    attribute.CopyFrom(onnx.helper.make_attribute(attribute.name, pair))


def _preferred(node: onnx.NodeProto) -> str | None:
    """Return the domain that a node of mmort's types belongs into."""
    if node.domain in ("", "ai.onnx"):
        if onnx.defs.has(node.op_type):
            return None
        return next((one.domain for one in schemas.operators() if one.type == node.op_type), None)
    operator = nodes.operator_of(node)
    if operator is None:
        return None
    same = (one for one in schemas.operators() if (one.kernel, one.type) == (operator.kernel, operator.type))
    return next(same).domain  # the preferred domain comes first


def _weights(model: onnx.ModelProto) -> Iterator[str]:
    """Remove weights from the inputs, where the format's versions before 4 wanted them: they could be overridden."""
    names = {tensor.name for tensor in model.graph.initializer}
    kept = [one for one in model.graph.input if one.name not in names]
    count = len(model.graph.input) - len(kept)
    if count:
        del model.graph.input[:]
        model.graph.input.extend(kept)
        yield f"{count} weight{'s' * (count > 1)} listed as input{'s' * (count > 1)}: constant now"


def _imports(model: onnx.ModelProto) -> Iterator[str]:
    """Import the domains of mmort that there are nodes of."""
    ours = {one.domain for one in schemas.operators()}
    used = {node.domain for node in nodes.every_node(model)} & ours
    kept = [one for one in model.opset_import if one.domain not in ours - used]
    for domain in sorted({one.domain for one in model.opset_import} & (ours - used)):
        yield f"domain {domain}: no longer imported, there are no nodes of it"
    if len(kept) < len(model.opset_import):
        del model.opset_import[:]
        model.opset_import.extend(kept)
    for domain in sorted(used):
        version = nodes.opset_of(model, domain)
        if version is None:
            model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
            yield f"domain {domain}: imported now"
        for one in model.opset_import:
            if one.domain == domain and one.version != 1:
                yield f"domain {domain}: version {one.version} is 1 now"
                one.version = 1


def _opset(model: onnx.ModelProto) -> Iterator[str]:
    opset = nodes.opset_of(model)
    if opset is None or opset >= OPSET:
        return
    if model.functions:  # onnx.version_converter would drop them
        raise ValueError(f"upgrade: the model's opset, {opset}, cannot be converted while it has functions of its own")
    try:
        model.CopyFrom(onnx.version_converter.convert_version(model, OPSET))
    except Exception as error:  # the converter's and the checker's have no common class
        raise ValueError(f"upgrade: opset {opset} cannot be converted to {OPSET}: {error}") from None
    yield f"opset {opset}: {OPSET} now"


def _format(model: onnx.ModelProto) -> Iterator[str]:
    """Set the version of the file format that the opsets need, functions and their overloads."""
    standard = [onnx.helper.make_opsetid("", nodes.opset_of(model) or 1)]
    needed = max(
        onnx.helper.find_min_ir_version_for(standard),
        8 if model.functions else 4,
        10 if any(function.overload for function in model.functions) else 4,
    )
    version = max(needed, min(model.ir_version, IR_VERSION))
    if version != model.ir_version:
        yield f"format version {model.ir_version}: {version} now"
        model.ir_version = version
