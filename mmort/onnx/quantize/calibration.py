"""The ranges of feature maps, from runs of the model on typical inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from numpy.typing import NDArray

import mmort.ort
from mmort.onnx.verify.sessions import feeds

_RANGES, _PAIR = "mmort/ranges", "mmort/pair"


def ranges(
    model: onnx.ModelProto, tensors: Sequence[str], sets: Iterable[Sequence[Any]]
) -> tuple[NDArray[np.float32], int]:
    """Return the minimum and maximum of each tensor over all sets of inputs, and the number of sets."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised
    session = mmort.ort.session(_with_ranges(model, tensors).SerializeToString(), sess_options=options)
    bounds = np.zeros((len(tensors), 2), np.float32)
    number = 0
    for values in sets:
        (found,) = session.run([_RANGES], feeds(session, values))
        finite = np.where(np.isfinite(found), found, 0)  # a map without elements has none
        bounds = np.stack([np.minimum(bounds[:, 0], finite[:, 0]), np.maximum(bounds[:, 1], finite[:, 1])], axis=1)
        number += 1
    return bounds, number


def _with_ranges(model: onnx.ModelProto, tensors: Sequence[str]) -> onnx.ModelProto:
    """Return a copy of the model whose only output has a row with minimum and maximum for each tensor."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 1]), _PAIR))
    extremes = []
    for tensor in tensors:
        for op_type in ("ReduceMin", "ReduceMax"):
            name = f"mmort/{op_type}/{tensor}"
            graph.node.append(onnx.helper.make_node(op_type, [tensor], [name], keepdims=0))
            graph.node.append(onnx.helper.make_node("Reshape", [name, _PAIR], [f"{name}/pair"]))
            extremes.append(f"{name}/pair")
    rows = []
    for low, high in zip(extremes[::2], extremes[1::2], strict=True):
        rows.append(f"{low}/row")
        graph.node.append(onnx.helper.make_node("Concat", [low, high], [rows[-1]], axis=1))
    graph.node.append(onnx.helper.make_node("Concat", rows, [_RANGES], axis=0))
    del graph.output[:]
    graph.output.append(onnx.helper.make_tensor_value_info(_RANGES, onnx.TensorProto.FLOAT, None))
    return copy
