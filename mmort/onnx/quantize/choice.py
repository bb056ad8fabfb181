"""Choosing the layers to quantize: by their position in the graph, and by how far integers move the detections.

Convolutions and hidden fully connected layers are quantized, and what lies between them.

A prediction is not quantized: neither the last layer of a branch nor anything after it, such as the decoding of boxes.
A layer is a last one if none of its results reaches another layer through nodes that keep the form of a feature map, or
that only bring it into the form of rows for products, all of which round it anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from mmort.onnx.graph.patterns import constant, integer, name_of, number

LAYERS = {"Conv", "Gemm"}
"""Layers that compute with integers, if their weights are constant.  Products of transformers are chosen apart."""

BETWEEN = {
    *("Add", "AveragePool", "Clip", "Concat", "Div", "GlobalAveragePool", "HardSigmoid", "HardSwish", "LeakyRelu"),
    *("MaxPool", "Mul", "Relu", "Resize", "Sigmoid", "Split"),
}
"""Nodes that compute with integers where one of their inputs does and their results lead to another layer."""

FLOAT_LAYERS = {"ConvTranspose", "RoiAlign", "MMCVRoiAlign", "MMCVDeformConv2d", "MMCVModulatedDeformConv2d"}
"""Layers that always compute with floating-point numbers."""

NORMALIZATIONS = {"GroupNorm", "GroupNormalization", "InstanceNormalization"}
"""Nodes between layers that always compute with floating-point numbers."""

TO_ROWS = {"Concat", "Flatten", "Mul", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
"""Nodes that bring a feature map into the form of rows, or mask some, before products."""

MIN_SIDE = 32
"""Products whose weights have fewer rows or columns gain nothing: rounding what they multiply takes as long."""

SILU_ENDS = -6.0
"""Where a SiLU's sigmoid is less than a step of its uint8, 1/255: smaller numbers need no steps of their own."""


def quantized_nodes(graph: ir.Graph, without: Collection[str] = ()) -> list[ir.Node]:
    """Return the nodes that compute with integers, in order, without layers of these names."""
    leading = _leading(graph)
    chosen: list[ir.Node] = []
    known: set[str] = set()
    for node in graph:
        if name_of(node) not in leading:
            continue
        producers = [value.producer() for value in features(node) if value is not None]
        follows = any(producer is not None and name_of(producer) in known for producer in producers)
        if (_is_layer(node) and name_of(node) not in without) or (node.op_type in BETWEEN and follows):
            chosen.append(node)
            known.add(name_of(node))
    return chosen


def layers_to_leave(
    errors: Callable[[], Mapping[str, float]], loss: Callable[[Collection[str]], float], limit: float
) -> tuple[set[str], float]:
    """Return the fewest layers without whose integers the loss is within a limit, and that loss.

    They are those of the largest errors, which are asked for if all integers together lose too much.
    """
    enough = loss(())
    if enough <= limit:
        return set(), enough
    error_of, enough = errors(), 0.0
    ranked = sorted(error_of, key=error_of.__getitem__, reverse=True)
    low, high = 0, len(ranked)
    while high - low > 1:
        middle = (low + high) // 2
        current = loss(ranked[:middle])
        low, high, enough = (low, middle, current) if current <= limit else (middle, high, enough)
    return set(ranked[:high]), enough


def reasons(graph: ir.Graph, quantized: Collection[str], costly: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the layers that do not compute with integers, by why; some were costly."""
    ahead, names_by_reason = before_layers(graph), dict[str, list[str]]()
    for node in graph:
        if (node.op_type in LAYERS or product_weights(node) is not None) and name_of(node) not in quantized:
            reason = "integers change the results too much" if name_of(node) in costly else _reason(node, ahead)
            names_by_reason.setdefault(reason, []).append(name_of(node))
    return {reason: tuple(names) for reason, names in names_by_reason.items()}


def _reason(layer: ir.Node, ahead: set[str]) -> str:
    """Return why a layer does not compute with integers; `ahead` are the nodes with a layer after them."""
    weights = product_weights(layer)
    if weights is not None and name_of(layer) in ahead:
        if min(weights.shape) < MIN_SIDE:
            return f"weights have less than {MIN_SIDE} rows or columns, so integers gain nothing"
        return "matrix products are chosen by detections, which mmort adopt adds"
    if weights is None and not _is_layer(layer):
        return "weights are computed, or not float32"
    stops, seen, following = set(), set(), list(_users(layer))
    while following:
        node = following.pop()
        if name_of(node) in seen:
            continue
        seen.add(name_of(node))
        if node.op_type in BETWEEN or _is_normalization(node):
            following += _users(node)
        elif name_of(node) in ahead:
            stops.add(node.op_type)
    if stops:
        return f"what follows is not computed with integers: {', '.join(sorted(stops))}"
    return "no further layer, so results are predictions"


def before_layers(graph: ir.Graph) -> set[str]:
    """Return the names of nodes whose results reach a layer in any way."""
    ahead: set[str] = set()
    for node in reversed(list(graph)):
        users = [user for output in node.outputs for user in output.consumers()]
        if any(_takes_weights(user) or name_of(user) in ahead for user in users):
            ahead.add(name_of(node))
    return ahead


def _takes_weights(node: ir.Node) -> bool:
    """Return whether a node is a layer, of any kind."""
    return node.op_type in LAYERS | FLOAT_LAYERS or product_weights(node) is not None


def product_weights(node: ir.Node) -> NDArray[np.float32] | None:
    """Return the constant float32 weights (rows, columns) of a matrix product, or None."""
    if node.op_type not in ("MatMul", "Gemm") or node.domain not in ("", "ai.onnx"):
        return None
    if constant(node.inputs[0]) is not None:  # computed once
        return None
    weights = constant(node.inputs[1])
    if weights is None or weights.dtype != np.float32 or weights.ndim != 2:
        return None
    if node.op_type == "MatMul":
        return weights
    if number(node, "alpha", 1.0) != 1.0 or number(node, "beta", 1.0) != 1.0 or integer(node, "transA", 0):
        return None
    return weights.T if integer(node, "transB", 0) else weights


def _leading(graph: ir.Graph) -> set[str]:
    """Return the names of layers, and nodes between them, whose results reach another layer."""
    leading, rows = set[str](), _rows_of_products(graph)
    for node in reversed(list(graph)):
        if (_is_layer(node) or node.op_type in BETWEEN or _is_normalization(node)) and (
            any(_is_layer(user) or user.op_type in FLOAT_LAYERS or name_of(user) in leading for user in _users(node))
            or _is_for_products(node, rows)
        ):
            leading.add(name_of(node))
    return leading


def _rows_of_products(graph: ir.Graph) -> set[str]:
    """Return the names of nodes that make rows, or some of them, of which nothing but products is computed."""
    rows: set[str] = set()
    for node in reversed(list(graph)):
        if node.op_type in TO_ROWS and _is_for_products(node, rows):
            rows.add(name_of(node))
    return rows


def _is_for_products(node: ir.Node, rows: Collection[str]) -> bool:
    """Return whether all results of a node are the rows of products, or become them; their sizes do not count."""
    users = [user for user in _users(node) if user.op_type not in ("Shape", "Size")]
    if any(output.is_graph_output() for output in node.outputs):
        return False
    return bool(users) and all(name_of(user) in rows or _has_rows(user) for user in users)


def _has_rows(node: ir.Node) -> bool:
    """Return whether a node is a product of rows whose integers gain something."""
    weights = product_weights(node)
    return weights is not None and min(weights.shape) >= MIN_SIDE


def _users(node: ir.Node) -> Iterator[ir.Node]:
    """Yield the nodes that take a result as a feature map, not as a size or a weight."""
    for output in node.outputs:
        for user, index in output.uses():
            if user.op_type not in {"Resize", *LAYERS, *FLOAT_LAYERS, *NORMALIZATIONS} or index == 0:
                yield user


def _is_layer(node: ir.Node) -> bool:
    """Return whether a node is a layer with constant float32 weights."""
    weights = constant(node.inputs[1]) if node.op_type in LAYERS and len(node.inputs) > 1 else None
    return weights is not None and weights.dtype == np.float32


def float_weights(layer: ir.Node) -> NDArray[np.float32]:
    """Return the weights of a layer that has constant ones."""
    weights = constant(layer.inputs[1])
    assert weights is not None
    return weights


def output_axis(layer: ir.Node) -> int:
    """Return the axis of a layer's weights that has the output channels."""
    if layer.op_type == "Gemm":
        return 1 - integer(layer, "transB", 0)
    return 0 if layer.op_type == "Conv" else 1


def _is_normalization(node: ir.Node) -> bool:
    """Return whether a node is a normalization, or a Reshape by which torch's exporters make groups of channels."""
    if node.op_type != "Reshape":
        return node.op_type in NORMALIZATIONS
    source = node.inputs[0].producer() if node.inputs[0] is not None else None
    neighbours = [*node.outputs[0].consumers(), *([] if source is None else [source])]
    return any(neighbour.op_type == "InstanceNormalization" for neighbour in neighbours)


def features(node: ir.Node) -> list[ir.Value | None]:
    """Return the inputs that are feature maps."""
    inputs = list(node.inputs)
    return inputs if node.op_type in {"Add", "Concat", "Mul"} else inputs[:1]


def silu_inputs(nodes: Iterable[ir.Node]) -> set[str]:
    """Return the names of the tensors of which these nodes compute a SiLU, and nothing else."""
    silus = set()
    for node in nodes:
        value = node.inputs[0]
        if node.op_type != "Sigmoid" or value is None or value.name is None or value.is_graph_output():
            continue
        users = [user for user in value.consumers() if user is not node]
        if users and all(user.op_type == "Mul" and node.outputs[0] in user.inputs for user in users):
            silus.add(value.name)
    return silus
