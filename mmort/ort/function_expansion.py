"""How many nodes the functions of an ONNX file become, as ONNX Runtime expands them wherever they are called.

A kilobyte of functions that call each other twice takes it hours.  As sessions need no package onnx, the file is read
here as the bytes that protobuf writes, and only if it has functions.  Bytes that another reader could understand in
another way are refused: what is counted must be what ONNX Runtime loads.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from mmort.limits import MAX_EXPANDED_NODES, MAX_FIELDS, MAX_NODE_EXPANSION

_FIELDS_PER_MESSAGE = 8

_FUNCTIONS, _GRAPH = 25, 7  # fields of ModelProto
_NODES_OF_GRAPH, _NODES_OF_FUNCTION = 1, 7
_DEFAULTS_OF_FUNCTION = 11
_FUNCTION_NAME = 10, 1, 13  # domain, name, overload
_NODE_NAME, _ATTRIBUTES = (7, 4, 8), 5
_GRAPHS_OF_ATTRIBUTE = 6, 11

_FLATBUFFER = b"ORTM"
"""The bytes 4 to 7 of ONNX Runtime's own format, in which functions have been expanded."""

Name = str
"""Of a function, as ONNX Runtime compares them: domain, name and, if there is one, overload, with colons between."""

_Span = tuple[int, int]


class _File:
    """The bytes of a model, and how many fields may still be read of them."""

    def __init__(self, content: bytes | mmap.mmap) -> None:
        self.content, self.fields_left = content, MAX_FIELDS


class Nodes(NamedTuple):
    """The nodes of a graph or function, with those of the graphs in them.

    Attributes
    ----------
    total : int
    calls : Counter of str
        How many there are of each name.
    graphs : set of str
        The names of those that have graphs as attributes, and of a function with graphs as defaults of its attributes.
    """

    total: int
    calls: Counter[Name]
    graphs: set[Name]


def function_name(domain: str, name: str, overload: str) -> Name:
    """Return the key of a function; ONNX's standard domain has two names."""
    return ":".join(("" if domain == "ai.onnx" else domain, name, *([overload] if overload else [])))


def require_bounded_functions(model: bytes | str) -> int:
    """Refuse a model, bytes or the path of a file, whose functions have no end or become too many nodes.

    Nor may it have so many fields that counting takes longer than two seconds, or bytes that protobuf does not write.

    Returns
    -------
    int
        The number of nodes when functions are expanded; 0 of a model without functions.

    Raises
    ------
    ValueError
    """
    if isinstance(model, bytes):
        return _require_bounded(model)
    with open(model, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _require_bounded(content)


def require_bounded(graph: Nodes, functions: Mapping[Name, Nodes]) -> int:
    """Refuse functions that call themselves, that take graphs, or that make a graph too large when they are expanded.

    Return how many nodes it then has.  ONNX Runtime copies a graph that a function takes for each node that refers to
    it.

    Examples
    --------
    >>> from collections import Counter
    >>> from mmort.ort.function_expansion import Nodes, require_bounded
    >>> again = Nodes(1, Counter(["f:again"]), set())
    >>> require_bounded(again, {"f:again": again})
    Traceback (most recent call last):
      ...
    ValueError: function f:again calls itself
    """
    if taking := next((name for nodes in (graph, *functions.values()) for name in nodes.graphs & functions.keys()), ""):
        raise ValueError(f"function {taking} must not take graphs as attributes")
    limit = max(
        MAX_EXPANDED_NODES, MAX_NODE_EXPANSION * (graph.total + sum(nodes.total for nodes in functions.values()))
    )
    expanded: dict[Name, int] = {}
    for name in functions:
        _expand(name, functions, expanded)
    total = graph.total + sum(count * expanded.get(name, 0) for name, count in graph.calls.items())
    if total > limit:
        raise ValueError(f"its functions make its graph more than {limit} nodes")
    return total


def _expand(first: Name, functions: Mapping[Name, Nodes], expanded: dict[Name, int]) -> None:
    """Note the nodes of a function, and of those that it calls, after expansion; without recursion."""
    pending, open_calls = [first], set[Name]()
    while pending:
        name = pending[-1]
        if name in expanded:
            pending.pop()
            continue
        calls = {callee: count for callee, count in functions[name].calls.items() if callee in functions}
        missing = [callee for callee in calls if callee not in expanded]
        if missing:
            open_calls.add(name)
            if again := next((callee for callee in missing if callee in open_calls), None):
                raise ValueError(f"function {again} calls itself")
            pending += missing
            continue
        expanded[name] = functions[name].total + sum(count * expanded[callee] for callee, count in calls.items())
        open_calls.discard(name)
        pending.pop()


def _require_bounded(model: bytes | mmap.mmap) -> int:
    """Check the functions of a model; return its nodes when they are expanded, 0 if it has none."""
    file, whole = _File(model), (0, len(model))
    graph, functions = _none(), dict[Name, Nodes]()
    if not len(model) or model[4:8] == _FLATBUFFER or all(number != _FUNCTIONS for number, _ in _fields(file, whole)):
        return 0
    for number, span in _fields(file, whole):
        if number == _GRAPH:
            graph = _sum(graph, _nodes(file, span, _NODES_OF_GRAPH))
        elif number == _FUNCTIONS:
            parts = list(_fields(file, span))
            name = _name(file, parts, _FUNCTION_NAME)
            nodes = _nodes(file, span, _NODES_OF_FUNCTION)
            if any(_graphs(file, part) for number, part in parts if number == _DEFAULTS_OF_FUNCTION):
                nodes.graphs.add(name)
            functions[name] = _sum(functions[name], nodes) if name in functions else nodes
    return require_bounded(graph, functions)


def _none() -> Nodes:
    """Return no nodes."""
    return Nodes(0, Counter(), set())


def _nodes(file: _File, span: _Span, field: int) -> Nodes:
    """Count the nodes of a graph or function."""
    count, (_, calls, with_graphs), pending = 0, _none(), [(span, field)]
    while pending:
        span, field = pending.pop()
        for node in (part for number, part in _fields(file, span) if number == field):
            count += 1
            parts = list(_fields(file, node))
            name = _name(file, parts, _NODE_NAME)
            calls[name] += 1
            for attribute in (part for number, part in parts if number == _ATTRIBUTES):
                if graphs := _graphs(file, attribute):
                    with_graphs.add(name)
                    pending += [(graph, _NODES_OF_GRAPH) for graph in graphs]
    return Nodes(count, calls, with_graphs)


def _graphs(file: _File, attribute: _Span) -> list[_Span]:
    """Return the graphs of an attribute."""
    return [part for number, part in _fields(file, attribute) if number in _GRAPHS_OF_ATTRIBUTE]


def _sum(first: Nodes, second: Nodes) -> Nodes:
    """Add the second to the first, in place, as there may be a graph every two bytes."""
    first.calls.update(second.calls)
    first.graphs.update(second.graphs)
    return Nodes(first.total + second.total, first.calls, first.graphs)


def _name(file: _File, parts: Iterable[tuple[int, _Span]], numbers: tuple[int, int, int]) -> Name:
    """Return the name of a function, or the one that a node calls."""
    texts = {number: file.content[start:end] for number, (start, end) in parts if number in numbers}
    domain, name, overload = (texts.get(number, b"").decode("utf-8", "replace") for number in numbers)
    return function_name(domain, name, overload)


def _fields(file: _File, span: _Span) -> Iterator[tuple[int, _Span]]:
    """Yield the number of each text or message in a message, and where it is.

    Raises ValueError where protobuf's implementations, of which ONNX Runtime has one and the package onnx another,
    refuse the bytes or do not agree; groups, too, which ONNX does not have.
    """
    model, (position, end) = file.content, span
    file.fields_left -= _FIELDS_PER_MESSAGE
    while position < end:
        file.fields_left -= 1
        if file.fields_left < 0:
            raise ValueError(f"it has more than {MAX_FIELDS} fields")
        tag, position = _number(model, position, end, 32)
        kind = tag & 7
        if tag < 8:  # as in a file of zeros, however long
            raise _no_model("there is no field 0")
        if kind == 2:
            length, position = _number(model, position, end, 31)
            if position + length > end:
                raise _no_model("a field ends outside its message")
            yield tag >> 3, (position, position + length)
            position += length
        elif kind == 0:
            _, position = _number(model, position, end, 64)
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        else:
            raise _no_model(f"it has no fields of kind {kind}")
    if position > end:
        raise _no_model("a field ends outside its message")


def _number(model: bytes | mmap.mmap, position: int, end: int, bits: int) -> tuple[int, int]:
    """Read a number of some bits; return it, and the position behind it."""
    number = shift = 0
    while position < end:
        byte = model[position]
        position += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128 and number < 1 << bits:
            return number, position
        if byte < 128 or shift >= bits:
            raise _no_model(f"a number has more than {bits} bits")
    raise _no_model("a field ends outside its message")


def _no_model(reason: str) -> ValueError:
    """Return the error of bytes that protobuf does not write."""
    return ValueError(f"it is not an ONNX model: {reason}")
