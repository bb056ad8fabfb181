"""How many nodes the functions of an ONNX file become, as ONNX Runtime expands them wherever they are called.

A kilobyte of functions that call each other twice takes it hours.  As sessions need no package onnx, the file is read
here as the bytes that protobuf writes, and only if it has functions.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

MAX_EXPANDED_NODES = 20_000
"""Of a graph whose functions are expanded, unless the file itself has a tenth as many: ONNX Runtime takes 2 seconds."""

MAX_FIELDS = 3 * 2**20
"""That are read of a file, where beginning a message counts as eight: two seconds, and 50,000 usual nodes."""

_FIELDS_PER_MESSAGE = 8

_FUNCTIONS, _GRAPH = 25, 7  # fields of ModelProto
_NODES_OF_GRAPH, _NODES_OF_FUNCTION = 1, 7
_FUNCTION_NAME = 10, 1, 13  # domain, name, overload
_NODE_NAME, _ATTRIBUTES = (7, 4, 8), 5
_GRAPHS_OF_ATTRIBUTE = 6, 11

Name = tuple[str, str, str]
"""Domain, name and overload."""

_Span = tuple[int, int]


class _NoModelError(ValueError):
    """The bytes are none that protobuf writes."""


class _File:
    """The bytes of a model, and how many fields may still be read of them."""

    def __init__(self, content: bytes | mmap.mmap) -> None:
        self.content, self.fields_left = content, MAX_FIELDS


class Nodes(NamedTuple):
    """The nodes of a graph or function, with those of the graphs in them: how many, and of which names."""

    total: int
    calls: Counter[Name]


def function_name(domain: str, name: str, overload: str) -> Name:
    """Return what a function is known by; ONNX's standard domain has two names."""
    return "" if domain == "ai.onnx" else domain, name, overload


def require_bounded_functions(model: bytes | str) -> None:
    """Refuse a model, bytes or the path of a file, whose functions have no end or become too many nodes.

    Nor may it have so many fields that counting takes longer than two seconds.

    Raises
    ------
    ValueError
    """
    if isinstance(model, bytes):
        _require_bounded(model)
        return
    with open(model, "rb") as file:
        if os.fstat(file.fileno()).st_size:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                _require_bounded(content)


def require_bounded(graph: Nodes, functions: Mapping[Name, Nodes]) -> None:
    """Refuse functions that call themselves, or that make a graph too large when they are expanded.

    Examples
    --------
    >>> from collections import Counter
    >>> from mmort.ort.function_expansion import Nodes, require_bounded
    >>> again = ("f", "again", "")
    >>> require_bounded(Nodes(1, Counter([again])), {again: Nodes(1, Counter([again]))})
    Traceback (most recent call last):
      ...
    ValueError: function f::again calls itself
    """
    limit = max(MAX_EXPANDED_NODES, 10 * (graph.total + sum(nodes.total for nodes in functions.values())))
    expanded: dict[Name, int] = {}
    for name in functions:
        _expand(name, functions, expanded)
    if graph.total + sum(count * expanded.get(name, 0) for name, count in graph.calls.items()) > limit:
        raise ValueError(f"its functions make its graph more than {limit} nodes")


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
                raise ValueError(f"function {again[0]}::{again[1]} calls itself")
            pending += missing
            continue
        expanded[name] = functions[name].total + sum(count * expanded[callee] for callee, count in calls.items())
        open_calls.discard(name)
        pending.pop()


def _require_bounded(model: bytes | mmap.mmap) -> None:
    """Check the functions of a model; what is no model is left to ONNX Runtime's message."""
    file, whole = _File(model), (0, len(model))
    graph, functions = Nodes(0, Counter()), dict[Name, Nodes]()
    try:
        if not any(number == _FUNCTIONS for number, _ in _fields(file, whole)):
            return
        for number, span in _fields(file, whole):
            if number == _GRAPH:
                graph = _sum(graph, _nodes(file, span, _NODES_OF_GRAPH))
            elif number == _FUNCTIONS:
                name = _name(file, _fields(file, span), _FUNCTION_NAME)
                nodes = _nodes(file, span, _NODES_OF_FUNCTION)
                functions[name] = _sum(functions[name], nodes) if name in functions else nodes
    except (IndexError, _NoModelError):
        return
    require_bounded(graph, functions)


def _nodes(file: _File, span: _Span, field: int) -> Nodes:
    """Count the nodes of a graph or function."""
    count, calls, pending = 0, Counter[Name](), [(span, field)]
    while pending:
        span, field = pending.pop()
        for node in (part for number, part in _fields(file, span) if number == field):
            count += 1
            parts = list(_fields(file, node))
            calls[_name(file, parts, _NODE_NAME)] += 1
            for attribute in (part for number, part in parts if number == _ATTRIBUTES):
                graphs = [part for number, part in _fields(file, attribute) if number in _GRAPHS_OF_ATTRIBUTE]
                pending += [(graph, _NODES_OF_GRAPH) for graph in graphs]
    return Nodes(count, calls)


def _sum(first: Nodes, second: Nodes) -> Nodes:
    """Add the second to the first, in place, as there may be a graph every two bytes."""
    first.calls.update(second.calls)
    return Nodes(first.total + second.total, first.calls)


def _name(file: _File, parts: Iterable[tuple[int, _Span]], numbers: tuple[int, int, int]) -> Name:
    """Return the name of a function, or the one that a node calls."""
    texts = {number: file.content[start:end] for number, (start, end) in parts if number in numbers}
    domain, name, overload = (texts.get(number, b"").decode("utf-8", "replace") for number in numbers)
    return function_name(domain, name, overload)


def _fields(file: _File, span: _Span) -> Iterator[tuple[int, _Span]]:
    """Yield the number of each text or message in a message, and where it is.

    Raises IndexError or _NoModelError where the bytes are no message.
    """
    model, (position, end) = file.content, span
    file.fields_left -= _FIELDS_PER_MESSAGE
    while position < end:
        file.fields_left -= 1
        if file.fields_left < 0:
            raise ValueError(f"it has more than {MAX_FIELDS} fields")
        tag, position = _number(model, position)
        kind = tag & 7
        if tag < 8:  # as in a file of zeros, however long
            raise _NoModelError("there is no field 0")
        if kind == 2:
            length, position = _number(model, position)
            if position + length > end:
                raise _NoModelError("a field ends outside its message")
            yield tag >> 3, (position, position + length)
            position += length
        elif kind == 0:
            _, position = _number(model, position)
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        elif kind > 5:
            raise _NoModelError(f"there are no fields of kind {kind}")


def _number(model: bytes | mmap.mmap, position: int) -> tuple[int, int]:
    """Read a number of one to ten bytes; return it, and the position behind it."""
    number = shift = 0
    while True:
        byte = model[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
        shift += 7
        if shift > 63:
            raise _NoModelError("a number has more than ten bytes")
