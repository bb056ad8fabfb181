"""Matrix products with constant weights, the layers of transformers: which there are, and their integers.

A product takes a feature map that is rounded to uint8 for it alone, multiplies int8 weights, and gives floating-point
numbers: sums, normalizations and attention around it stay as they were.  So each product is chosen by itself.

It is MatMulInteger and a factor, not MatMul between DequantizeLinear and QuantizeLinear: where shapes are fixed, ONNX
Runtime joins MatMul and the bias after it before it looks for integers, and then multiplies floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from mmort.onnx.graph.patterns import PREFIX, Replacement, constant, initializer, name_of, replace
from mmort.onnx.quantize.choice import MIN_SIDE, before_layers, product_weights
from mmort.onnx.quantize.integers import rounded_weights, steps


class Product(NamedTuple):
    """A product of a feature map and weights (rows, columns)."""

    name: str
    features: str
    """The name of the feature map."""
    weights: NDArray[np.float32]


class _Rounded(NamedTuple):
    """A feature map as uint8."""

    integers: ir.Value
    scale: np.float32
    zero: np.uint8


def products(graph: ir.Graph, chosen: Collection[str]) -> list[Product]:
    """Return the products that may compute with integers, in order: those before another layer, without the chosen."""
    ahead = before_layers(graph)
    candidates = []
    for node in graph:
        if name_of(node) in chosen or name_of(node) not in ahead:
            continue
        weights = product_weights(node)
        if weights is not None and min(weights.shape) >= MIN_SIDE:
            candidates.append(Product(name_of(node), _features(node), weights))
    return candidates


def quantize_products(model: ir.Model, chosen: Sequence[Product], bounds: Mapping[str, NDArray[np.float32]]) -> None:
    """Let products compute with integers, in place; bounds are the ranges of the feature maps."""
    nodes = {name_of(node): node for node in model.graph}
    rounded: dict[str, _Rounded] = {}
    for product in chosen:
        node, name = nodes[product.name], product.features
        if name not in rounded:
            rounded[name] = _known(node) or _round(node, name, *steps(*bounds[name]))
        integers, scales = rounded_weights(product.weights, 1)
        features = rounded[name]
        assert node.graph is not None  # nodes of a model have one
        prefix = f"{PREFIX}{product.name}"
        weights = initializer(node.graph, f"{prefix}/weights", integers)
        factors = initializer(node.graph, f"{prefix}/scales", features.scale * scales)
        zero = initializer(node.graph, f"{prefix}/zero", features.zero)
        multiplied = ir.node("MatMulInteger", [features.integers, weights, zero])
        floats = ir.node("Cast", multiplied.outputs, {"to": int(ir.DataType.FLOAT)})
        new = [multiplied, floats, ir.node("Mul", [floats.outputs[0], factors])]
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            new.append(ir.node("Add", [new[-1].outputs[0], node.inputs[2]]))
        replace(node, Replacement(new, [(node.outputs[0], new[-1].outputs[0])]), product.name)


def _features(node: ir.Node) -> str:
    """Return the name of the feature map that a product takes."""
    value = node.inputs[0]
    assert value is not None
    assert value.name is not None
    return value.name


def _known(node: ir.Node) -> _Rounded | None:
    """Return the feature map of a product if it is rounded already."""
    source = node.inputs[0].producer() if node.inputs[0] is not None else None
    if source is None or source.op_type != "DequantizeLinear":
        return None
    scale, zero = constant(source.inputs[1]), constant(source.inputs[2])
    if source.inputs[0] is None or scale is None or zero is None or zero.dtype != np.uint8 or zero.size != 1:
        return None
    return _Rounded(source.inputs[0], np.float32(scale.item()), np.uint8(zero.item()))


def _round(before: ir.Node, name: str, scale: np.float32, zero: np.uint8) -> _Rounded:
    """Add the node that rounds the feature map of a node."""
    assert before.graph is not None  # nodes of a model have one
    pairs = (("scale", scale), ("zero", zero))
    constants = [initializer(before.graph, f"{PREFIX}{name}/{key}", value) for key, value in pairs]
    node = ir.node("QuantizeLinear", [before.inputs[0], *constants])
    node.name = node.outputs[0].name = f"{PREFIX}{name}/integers"
    before.graph.insert_before(before, node)
    return _Rounded(node.outputs[0], scale, zero)
