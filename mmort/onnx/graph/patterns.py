"""Finding patterns of nodes in a graph of onnx_ir, and putting other nodes in their place."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

PREFIX = "mmort/"
"""How the names of new nodes begin."""


def name_of(node: ir.Node) -> str:
    """Return the name of a node; `name_nodes` gave it one."""
    assert node.name is not None
    return node.name


class Replacement(NamedTuple):
    """New nodes, in order, for values of old nodes."""

    nodes: Sequence[ir.Node]
    values: Sequence[tuple[ir.Value, ir.Value]]
    """Pairs of an old value and the one that takes its place; all old values are of nodes in the same graph."""


class NotReplaceableError(Exception):
    """A node computes something that its replacement does not; the text gives the reason."""


_FOLDED = ("Add", "Concat", "Identity", "Mul", "Split", "Squeeze", "Unsqueeze")
"""Operators by which exporters that fold no constants, as MMDeploy's, take sizes apart and compute with them."""


def constant(value: ir.Value | None) -> NDArray[Any] | None:
    """Return a value that the model fixes, or None; an initializer that is also an input may be replaced by users."""
    if value is None or value.is_graph_input():
        return None
    node = value.producer()
    if node is None or node.op_type not in _FOLDED or node.domain not in ("", "ai.onnx"):
        tensor = ir.convenience.get_const_tensor(value)
        return None if tensor is None else np.asarray(tensor.numpy())
    feeds: dict[Any, Any] = {}
    for input_value in filter(None, node.inputs):
        feeds[input_value.name] = constant(input_value)
        if feeds[input_value.name] is None:
            return None
    results: Any = ReferenceEvaluator(ir.to_proto(node), opsets={"": opset_of(node)}).run([value.name], feeds)
    return np.asarray(results[0])


def text(node: ir.Node, name: str, default: str) -> str:
    """Return a string attribute."""
    return node.attributes[name].as_string() if name in node.attributes else default


def integer(node: ir.Node, name: str, default: int) -> int:
    """Return an integer attribute."""
    return node.attributes[name].as_int() if name in node.attributes else default


def integers(node: ir.Node, name: str, default: Sequence[int]) -> list[int]:
    """Return an attribute of several integers."""
    return list(node.attributes[name].as_ints() if name in node.attributes else default)


def number(node: ir.Node, name: str, default: float) -> float:
    """Return a float attribute."""
    return node.attributes[name].as_float() if name in node.attributes else default


def opset_of(node: ir.Node) -> int:
    """Return the version of the standard operators in a node's model."""
    assert node.graph is not None  # nodes of a model have one
    return node.version or node.graph.opset_imports.get("", 1)


def axes_of(node: ir.Node) -> list[int] | None:
    """Return the axes of Unsqueeze or ReduceSum, which older opsets have as an attribute; None if they are computed."""
    if "axes" in node.attributes:
        return list(node.attributes["axes"].as_ints())
    axes = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return None if axes is None else [int(axis) for axis in axes.flat]


def climb(value: ir.Value | None, *op_types: str) -> list[ir.Node] | None:
    """Return the nodes of these types from a value upwards along first inputs, or None if there are others."""
    nodes = []
    for op_type in op_types:
        node = None if value is None else value.producer()
        if node is None or node.op_type != op_type or node.domain not in ("", "ai.onnx"):
            return None
        nodes.append(node)
        value = node.inputs[0] if node.inputs else None
    return nodes


def only_user(value: ir.Value, op_type: str) -> ir.Node | None:
    """Return the node of this type that is the only one to use a value, or None."""
    users = value.consumers()
    if len(users) != 1 or value.is_graph_output() or users[0].op_type != op_type:
        return None
    return users[0]


def array(values: Any) -> ir.Node:
    """Return a node that gives a constant."""
    return ir.node("Constant", [], {"value": ir.tensor(np.asarray(values))})


def initializer(graph: ir.Graph, name: str, array: Any) -> ir.Value:
    """Add a constant to a graph."""
    array = np.asarray(array)
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape))
    graph.register_initializer(value)
    return value


def name_nodes(model: ir.Model) -> None:
    """Give each node a name of its own, by which ONNX Runtime's profile refers to it."""
    taken: set[str] = set()
    numbers = itertools.count()
    for node in model.graph.all_nodes():
        while not node.name or node.name in taken or node.name.startswith(PREFIX):
            node.name = f"{node.op_type}_{next(numbers)}"
        taken.add(node.name)


def replace(node: ir.Node, replacement: Replacement, name: str) -> None:
    """Put the new nodes before a node, let them take the place of the old values, and remove what is unused then."""
    graph = node.graph
    assert graph is not None  # nodes of a model have one
    for number_, new in enumerate(replacement.nodes):
        new.name = f"{PREFIX}{name}/{number_}"
        for index, output in enumerate(new.outputs):
            output.name = f"{new.name}/{index}"
    graph.insert_before(node, replacement.nodes)
    for old, new_value in replacement.values:
        new_value.name, old.name = old.name, None  # an output of the graph keeps its name
        new_value.type, new_value.shape = old.type, old.shape
        old.replace_all_uses_with(new_value, replace_graph_outputs=True)
    _remove_unused({producer for old, _ in replacement.values if (producer := old.producer()) is not None})


def _remove_unused(nodes: Iterable[ir.Node]) -> None:
    """Remove nodes whose outputs are unused, and those before them."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.graph is None or any(output.uses() or output.is_graph_output() for output in node.outputs):
            continue
        sources = {value.producer() for value in node.inputs if value is not None}
        node.graph.remove(node, safe=True)
        waiting.extend(source for source in sources if source is not None)
