"""The steps of a quantization: fold, choose nodes, calibrate, insert QuantizeLinear and DequantizeLinear, write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx_ir as ir
from onnx_ir.passes.common import IdentityEliminationPass, LiftConstantsToInitializersPass

from mmort.onnx.accelerate.pipeline import load
from mmort.onnx.graph import files, inspection
from mmort.onnx.graph.matching import constant, name_of
from mmort.onnx.quantize.calibration import ranges
from mmort.onnx.quantize.folding import fold_normalizations
from mmort.onnx.quantize.report import Quantization
from mmort.onnx.quantize.selection import LAYERS, SILU_ENDS, features, quantized_nodes, reasons, silu_inputs

MIN_OPSET = 13
"""The lowest opset with scales for each channel."""


def quantize_file(
    path: files.PathLike, output: files.PathLike, calibration: Iterable[Sequence[Any]], *, force: bool
) -> Quantization:
    """Implement `mmort.onnx.quantize`."""
    files.check_output(output, force=force)
    model = load(path)
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
    if not nodes:
        raise ValueError(
            f"quantize: {path} has nothing to quantize, which is a convolution, or a fully connected layer, with "
            f"constant float32 weights before another one{_advice(model)}"
        )
    names = {
        value.name: None
        for node in nodes
        for value in (*features(node), *node.outputs)
        if value is not None and value.name is not None and constant(value) is None
    }
    tensors, silus = list(names), silu_inputs(nodes)
    bounds, count = ranges(model, tensors, calibration, averaged=bool(silus))
    if count == 0:
        raise ValueError("quantize: calibration must have at least one set of inputs, got none")
    before = np.isin(tensors, list(silus))
    bounds[before, 0] = np.maximum(bounds[before, 0], SILU_ENDS)
    chosen = [name_of(node) for node in nodes if node.op_type in LAYERS]
    why = reasons(graph, nodes)
    left = [name for names in why.values() for name in names]
    files.save(_quantized(model, nodes, dict(zip(tensors, bounds, strict=True))), output, path)
    return Quantization(tuple(chosen), tuple(left), count, why)


def _advice(model: onnx.ModelProto) -> str:
    """Return what helps if weights are not constant as they are listed as inputs."""
    listed = {tensor.name for tensor in model.graph.initializer} & {formal.name for formal in model.graph.input}
    return "; its weights are listed as inputs, and mmort upgrade makes them constant" if listed else ""


def _quantized(model: onnx.ModelProto, nodes: Sequence[ir.Node], bounds: dict[str, Any]) -> onnx.ModelProto:
    """Return the model with these nodes between DequantizeLinear and QuantizeLinear."""
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    known = {info.name for info in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
    model.graph.value_info.extend(  # the quantizer asks for types, which inference does not find behind mmort's nodes
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in bounds if name not in known
    )
    quantizer = QDQQuantizer(
        model,
        per_channel=True,
        reduce_range=False,
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QUInt8,
        tensors_range=TensorsData(CalibrationMethod.MinMax, {name: tuple(pair) for name, pair in bounds.items()}),
        nodes_to_quantize=[name_of(node) for node in nodes],
        nodes_to_exclude=[],
        op_types_to_quantize=sorted({node.op_type for node in nodes}),
        extra_options={},
    )
    quantizer.quantize_model()
    result = ir.from_proto(quantizer.model.model)
    result.graph.sort()  # the quantizer appends its nodes
    return ir.to_proto(result)
