"""What a model's graph and functions must be for any tool to work on it, checked when a file is read.

onnx's checker and inliner, and ONNX Runtime, expand functions where they are called: a kilobyte of functions that call
each other twice takes them hours, and a function that calls itself has no end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import onnx

MAX_EXPANDED_NODES = 200_000
"""Of a graph whose functions are expanded, unless the file itself has a tenth as many."""

_Name = tuple[str, str, str]  # domain, name, overload
_TYPES = frozenset(onnx.TensorProto.DataType.values())


def check(model: onnx.ModelProto) -> None:
    """Check a model.

    Raises
    ------
    ValueError
        If functions call themselves, or become too many nodes; or outputs have the same name, or a type that ONNX does
        not have.

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
    ValueError: function f::again calls itself
    """
    if not all(isinstance(text, str) for text in _texts(model)):
        raise ValueError("it has names that are not UTF-8 text")
    names = Counter(value.name for value in model.graph.output)
    if names and (twice := names.most_common(1)[0])[1] > 1:
        raise ValueError(f"{twice[1]} outputs have the name {twice[0]!r}")
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        kind = value.type.tensor_type.elem_type
        if kind not in _TYPES:
            raise ValueError(f"{value.name!r} has the element type {kind}, which ONNX does not have")
    if model.functions:
        _check_functions(model)


def _check_functions(model: onnx.ModelProto) -> None:
    """Refuse functions that call themselves, or whose expansion has too many nodes."""
    bodies = {(function.domain, function.name, function.overload): function for function in model.functions}
    if len(bodies) < len(model.functions):
        raise ValueError("several functions have the same domain, name and overload")
    calls: dict[_Name, Counter[_Name]] = {}
    nodes: dict[_Name, int] = {}
    for name, function in bodies.items():
        nodes[name], calls[name] = _counted(function.node, bodies)
    total, called = _counted(model.graph.node, bodies)
    limit = max(MAX_EXPANDED_NODES, 10 * (total + sum(nodes.values())))
    expanded: dict[_Name, int] = {}
    for name in bodies:
        _expand(name, nodes, calls, expanded)
    total += sum(count * expanded[name] for name, count in called.items())
    if total > limit:
        raise ValueError(f"its functions make its graph more than {limit} nodes")


def _expand(
    first: _Name, nodes: dict[_Name, int], calls: dict[_Name, Counter[_Name]], expanded: dict[_Name, int]
) -> None:
    """Note the nodes of a function, and of those that it calls, after expansion; without recursion."""
    pending, open_calls = [first], set[_Name]()
    while pending:
        name = pending[-1]
        if name in expanded:
            pending.pop()
            continue
        missing = [callee for callee in calls[name] if callee not in expanded]
        if missing:
            open_calls.add(name)
            if again := next((callee for callee in missing if callee in open_calls), None):
                raise ValueError(f"function {again[0]}::{again[1]} calls itself")
            pending += missing
            continue
        expanded[name] = nodes[name] + sum(count * expanded[callee] for callee, count in calls[name].items())
        open_calls.discard(name)
        pending.pop()


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
                for inner in (attribute.g, *attribute.graphs):
                    values = *inner.input, *inner.output, *inner.value_info, *inner.initializer
                    yield from (value.name for value in values)


def _counted(nodes: Iterable[onnx.NodeProto], functions: Iterable[_Name]) -> tuple[int, Counter[_Name]]:
    """Return the number of nodes, with those of the graphs in them, and how often each function is called."""
    known, total, calls = set(functions), 0, Counter[_Name]()
    for node in nested(nodes):
        total += 1
        name = (node.domain, node.op_type, node.overload)
        if name in known:
            calls[name] += 1
    return total, calls


def nested(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, each followed by those of its graphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from nested(graph.node)
