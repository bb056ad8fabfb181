"""Rules for a model's graph and functions, checked when a file is read, on which all tools rely.

onnx's checker and inliner, and ONNX Runtime, expand functions where they are called (`mmort.ort.function_expansion`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import onnx

from mmort.ort.function_expansion import Name, Nodes, function_name, require_bounded

_TYPES = frozenset(onnx.TensorProto.DataType.values())


def check(model: onnx.ModelProto) -> None:
    """Check a model.

    Raises
    ------
    ValueError
        If functions call themselves, or become too many nodes; or nodes of a graph write to the same name; or outputs
        have the same name, or a type that ONNX does not have.

    Examples
    --------
    >>> import onnx.helper as oh
    >>> from mmort.onnx.graph import structure
    >>> opset = oh.make_opsetid("f", 1)
    >>> node = oh.make_node("again", ["x"], ["y"], domain="f")
    >>> function = oh.make_function("f", "again", ["x"], ["y"], [node], [opset])
    >>> graph = oh.make_graph([node], "g", [], [])
    >>> structure.check(oh.make_model(graph, functions=[function], opset_imports=[opset]))
    Traceback (most recent call last):
      ...
    ValueError: function f:again calls itself
    """
    if set(map(type, _texts(model))) - {str}:
        raise ValueError("it has names that are not UTF-8 text")
    names = Counter(value.name for value in model.graph.output)
    if names and (twice := names.most_common(1)[0])[1] > 1:
        raise ValueError(f"{twice[1]} outputs have the name {twice[0]!r}")
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        _check_names(nodes)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        kind = value.type.tensor_type.elem_type
        if kind not in _TYPES:
            raise ValueError(f"{value.name!r} has the element type {kind}, which ONNX does not have")
    if model.functions:
        check_functions(model)


def _check_names(nodes: Iterable[onnx.NodeProto]) -> None:
    """Refuse nodes that write to the same name, in a graph and in those of its nodes."""
    written = set[str]()
    for node in nodes:
        for name in filter(None, node.output):
            if name in written:
                raise ValueError(f"several nodes write to {name!r}")
            written.add(name)
        for graph in graphs(node):
            _check_names(graph.node)


def check_functions(model: onnx.ModelProto) -> int:
    """Refuse functions that call themselves, or whose expansion has too many nodes; return how many it has.

    Raises
    ------
    ValueError
    """
    bodies = {
        function_name(function.domain, function.name, function.overload): function for function in model.functions
    }
    if len(bodies) < len(model.functions):
        raise ValueError("several functions have the same domain, name and overload")
    counted = {name: _counted(function.node) for name, function in bodies.items()}
    for name, function in bodies.items():
        if any(map(_graphs_of, function.attribute_proto)):
            counted[name].graphs.add(name)
    return require_bounded(_counted(model.graph.node), counted)


def _texts(model: onnx.ModelProto) -> Iterator[str | bytes]:
    """Yield the names in a model; protobuf returns one that is not UTF-8 as bytes."""
    for entry in model.metadata_props:
        yield from (entry.key, entry.value)
    for function in model.functions:
        yield from (function.domain, function.name, function.overload, function.doc_string)
        yield from (*function.input, *function.output, *function.attribute)
        yield from (opset.domain for opset in function.opset_import)
    yield from (opset.domain for opset in model.opset_import)
    graph = model.graph
    yield from (value.name for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer))
    for nodes in (graph.node, *(function.node for function in model.functions)):
        for node in nested(nodes):
            yield from (node.name, node.domain, node.op_type, node.overload, *node.input, *node.output)
            for attribute in node.attribute:
                yield from (attribute.name, attribute.ref_attr_name)
            for inner in graphs(node):
                values = *inner.input, *inner.output, *inner.value_info, *inner.initializer
                yield from (value.name for value in values)


def _counted(nodes: Iterable[onnx.NodeProto]) -> Nodes:
    """Count nodes, with those of the graphs in them."""
    calls, with_graphs = Counter[Name](), set[Name]()
    for node in nested(nodes):
        name = function_name(node.domain, node.op_type, node.overload)
        calls[name] += 1
        if any(map(_graphs_of, node.attribute)):
            with_graphs.add(name)
    return Nodes(calls.total(), calls, with_graphs)


def nested(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, each followed by those of its graphs."""
    for node in nodes:
        yield node
        for graph in graphs(node):
            yield from nested(graph.node)


def graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs in the attributes of a node."""
    for attribute in node.attribute:
        yield from _graphs_of(attribute)


def _graphs_of(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    """Return the graphs of an attribute."""
    single = [attribute.g] if attribute.HasField("g") else []  # reading one that is not there makes it
    return [*single, *attribute.graphs]


def rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Give values other names, wherever nodes read or write them; inputs and outputs of the graph keep theirs."""
    for node in nested(graph.node):
        for values in (node.input, node.output):
            values[:] = [names.get(name, name) for name in values]
        for inner in graphs(node):
            for value in inner.output:
                value.name = names.get(value.name, value.name)
    for value in graph.value_info:
        value.name = names.get(value.name, value.name)
