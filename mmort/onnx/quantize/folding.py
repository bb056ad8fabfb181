"""Batch normalization folded into the convolution before it, as ONNX Runtime does when it loads a float32 file.

Behind a convolution of integers it cannot, and layers that share their weights, as RTMDet's heads do, are exported with
their normalizations.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from mmort.onnx.graph.patterns import Replacement, climb, constant, initializer, name_of, number, only_user, replace


def fold_normalizations(model: ir.Model) -> None:
    """Replace each convolution and its batch normalization by one convolution, if their weights are constant."""
    for node in list(model.graph):
        chain = climb(node.outputs[0], "BatchNormalization", "Conv") if node.op_type == "BatchNormalization" else None
        if chain is None or only_user(chain[1].outputs[0], "BatchNormalization") is None:
            continue
        conv = chain[1]
        arrays = [constant(value) for value in (*node.inputs[1:5], *conv.inputs[1:3])]
        if any(array is None or array.dtype != np.float32 for array in arrays):
            continue
        weight, bias = _folded(*(array for array in arrays if array is not None), epsilon=number(node, "epsilon", 1e-5))
        values = [
            initializer(model.graph, f"{name_of(conv)}/{name}", array)
            for name, array in (("weight", weight), ("bias", bias))
        ]
        new = ir.Node("", "Conv", [conv.inputs[0], *values], list(conv.attributes.values()))
        replace(node, Replacement([new], [(node.outputs[0], new.outputs[0])]), f"{name_of(conv)}/folded")


def _folded(
    scale: NDArray[np.float32],
    shift: NDArray[np.float32],
    mean: NDArray[np.float32],
    variance: NDArray[np.float32],
    weight: NDArray[np.float32],
    bias: NDArray[np.float32] | float = 0.0,
    *,
    epsilon: float,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return weight and bias of the one convolution."""
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    folded = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
    return folded.astype(np.float32), ((bias - mean.astype(np.float64)) * factor + shift).astype(np.float32)
