"""Convolutions, fully connected layers and what lies between them: their integers, by ONNX Runtime's own quantizer.

Each of these nodes comes to lie between DequantizeLinear and QuantizeLinear, which ONNX Runtime makes one node of
integers.  Products of matrices have those of `products`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx.helper
import onnx.shape_inference
import onnx_ir as ir
from numpy.typing import NDArray

from mmort.onnx.graph.patterns import name_of


def with_integers(
    model: onnx.ModelProto, nodes: Sequence[ir.Node], bounds: Mapping[str, NDArray[np.float32]]
) -> onnx.ModelProto:
    """Return the model with these nodes between DequantizeLinear and QuantizeLinear."""
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.quant_utils import add_infer_metadata

    copy = onnx.ModelProto()  # the quantizer changes its model
    copy.CopyFrom(model)
    known = {info.name for info in (*copy.graph.value_info, *copy.graph.input, *copy.graph.output)}
    copy.graph.value_info.extend(  # the quantizer asks for types, which inference does not find behind mmort's nodes
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in bounds if name not in known
    )
    copy = onnx.shape_inference.infer_shapes(copy)
    add_infer_metadata(copy)  # else the quantizer infers shapes by temporary files, which a killed process would leave
    quantizer = QDQQuantizer(
        copy,
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
    return quantizer.model.model
