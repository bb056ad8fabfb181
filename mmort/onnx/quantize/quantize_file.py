"""The steps of a quantization: fold, choose nodes, calibrate, insert QuantizeLinear and DequantizeLinear, write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes.common import IdentityEliminationPass, LiftConstantsToInitializersPass, RemoveUnusedNodesPass

from mmort.onnx.graph import files, inspection
from mmort.onnx.graph.patterns import constant, name_of
from mmort.onnx.quantize.calibration import Sample, ranges
from mmort.onnx.quantize.choice import (
    LAYERS,
    SILU_ENDS,
    features,
    float_weights,
    layers_to_leave,
    output_axis,
    quantized_nodes,
    reasons,
    silu_inputs,
)
from mmort.onnx.quantize.convolutions import with_integers
from mmort.onnx.quantize.costs import layer_errors, outputs_of
from mmort.onnx.quantize.folding import fold_normalizations
from mmort.onnx.quantize.measures import measure_of
from mmort.onnx.quantize.products import Product, products, quantize_products
from mmort.onnx.quantize.report import Quantization

Bounds: TypeAlias = dict[str, NDArray[np.float32]]
"""The minimum and maximum of feature maps, by name."""

MAX_MEASURED = 32
"""Sets of inputs on which losses are measured."""

MIN_OPSET = 13
"""The lowest opset with scales for each channel."""


def quantize_file(
    path: files.PathLike,
    output: files.PathLike,
    calibration: Iterable[Sequence[Any]],
    *,
    max_loss: float,
    force: bool,
) -> Quantization:
    """Implement `mmort.onnx.quantize`."""
    if not 0 <= max_loss <= 1:
        raise ValueError(f"quantize: max_loss must be from 0 to 1, got {max_loss}")
    files.check_output(output, force=force)
    model = files.load_whole(path)
    opset = inspection.opset_of(model) or 1
    if opset < MIN_OPSET:
        raise ValueError(f"quantize: the opset must be {MIN_OPSET} or higher, got {opset}; mmort upgrade raises it")
    if any(node.op_type == "QuantizeLinear" for node in inspection.every_node(model)):
        raise ValueError(f"quantize: {path} is quantized already")
    folded = ir.from_proto(model)
    IdentityEliminationPass()(folded)  # a bias behind an Identity is not quantized
    LiftConstantsToInitializersPass(size_limit=0)(folded)  # the quantizer takes no weights from nodes
    fold_normalizations(folded)
    model, graph = ir.to_proto(folded), folded.graph
    nodes = quantized_nodes(graph)
    measure = measure_of(model)
    candidates = products(graph, {name_of(node) for node in nodes}) if measure is not None else []
    if not nodes and not candidates:
        raise ValueError(
            f"quantize: {path} has nothing to quantize, which is a convolution, or a fully connected layer, with "
            f"constant float32 weights before another one{_advice(model)}"
            + ("" if measure is not None else "; matrix products are chosen by detections, which mmort adopt adds")
        )
    names = {
        value.name: None
        for node in nodes
        for value in (*features(node), *node.outputs)
        if value is not None and value.name is not None and constant(value) is None
    } | {product.features: None for product in candidates}
    tensors, silus = list(names), silu_inputs(nodes)
    sample = Sample(MAX_MEASURED)
    feature_ranges, count = ranges(model, tensors, sample.passing(calibration))
    if feature_ranges is None:
        raise ValueError("quantize: calibration must have at least one set of inputs, got none")
    before = np.isin(tensors, list(silus))

    def bounds_of(measured: NDArray[np.float32]) -> Bounds:
        ends = measured.copy()
        ends[before, 0] = np.maximum(ends[before, 0], SILU_ENDS)
        return dict(zip(tensors, ends, strict=True))

    def build(bounds: Bounds, left: Collection[str] = ()) -> onnx.ModelProto:
        chosen = [product for product in candidates if product.name not in left]
        return _quantized(model, quantized_nodes(graph, left), chosen, bounds)

    # With SiLUs both, as these may be a small part of the network.
    kinds = (feature_ranges.means, feature_ranges.extremes) if silus else (feature_ranges.extremes,)
    choices = [bounds_of(kind) for kind in kinds]
    bounds = choices[0]

    layers = [name_of(node) for node in nodes if node.op_type in LAYERS]
    named = {name_of(node): node for node in graph}
    integer_layers = [*layers, *(product.name for product in candidates)]
    weights = {name: (float_weights(named[name]), output_axis(named[name])) for name in integer_layers}
    costly, loss = set[str](), None
    if measure is not None:
        names_of_outputs, loss_between = measure.outputs, measure.loss
        expected = outputs_of(model, names_of_outputs, sample.sets)

        def loss_of(bounds: Bounds, left: Collection[str] = ()) -> float:
            return loss_between(expected, outputs_of(build(bounds, left), names_of_outputs, sample.sets))

        losses = [loss_of(choice) for choice in choices]
        loss_of_all = min(losses)
        bounds = choices[losses.index(loss_of_all)]
        costly, loss = layers_to_leave(
            lambda: layer_errors(model, weights, bounds, sample.sets),
            lambda left: loss_of(bounds, left) if left else loss_of_all,
            max_loss,
        )
    if len(costly) == len(weights):
        raise ValueError(
            f"quantize: integers in any layer change the results by more than {max_loss:g}; calibrate with more "
            "typical images, or allow more with max_loss"
        )
    chosen = [name for name in integer_layers if name not in costly]
    why = reasons(graph, chosen, costly)
    left = [name for names in why.values() for name in names]
    files.save(build(bounds, costly), output, path)
    return Quantization(tuple(chosen), tuple(left), count, why, loss, measure.unit if measure else "")


def _advice(model: onnx.ModelProto) -> str:
    """Return the advice for weights that are not constant because they are listed as inputs."""
    listed = {tensor.name for tensor in model.graph.initializer} & {formal.name for formal in model.graph.input}
    return "; its weights are listed as inputs, and mmort upgrade makes them constant" if listed else ""


def _quantized(
    model: onnx.ModelProto, nodes: Sequence[ir.Node], chosen: Sequence[Product], bounds: Bounds
) -> onnx.ModelProto:
    """Return the model with these nodes and products between DequantizeLinear and QuantizeLinear."""
    result = ir.from_proto(with_integers(model, nodes, bounds) if nodes else model)
    quantize_products(result, chosen, bounds)
    result.graph.sort()  # the quantizer appends its nodes
    RemoveUnusedNodesPass()(result)
    return ir.to_proto(result)
