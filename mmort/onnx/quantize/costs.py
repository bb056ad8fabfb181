"""The price of quantization: how far detections move, and how far each layer's own results do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from numpy.typing import NDArray

import mmort
import mmort.ort
from mmort.detections.boxes import COLUMNS
from mmort.onnx.quantize.integers import rounded_weights, steps
from mmort.onnx.verify.sessions import feeds, refusals
from mmort.ort.sessions import silent_options

_ERRORS = "mmort/errors"


def outputs_of(
    model: onnx.ModelProto, outputs: Sequence[str], inputs: Sequence[Sequence[Any]]
) -> list[list[NDArray[Any]]]:
    """Return outputs of a model for each set of inputs; ValueError if ONNX Runtime does not run it."""
    with refusals("quantize: ONNX Runtime does not run the model"):
        session = mmort.ort.session(model.SerializeToString(), sess_options=silent_options())
        return [session.run(list(outputs), feeds(session, values)) for values in inputs]


def detection_loss(expected: Sequence[Sequence[NDArray[Any]]], detections: Sequence[Sequence[NDArray[Any]]]) -> float:
    """Return which share of the detections is lost, from 0 to 1.

    A detection is kept as far as the most similar one of its class has its box, by the IoU, and its score, by the
    ratio.  Detections count by the square of their scores, and so do those that came.  Boxes without an area do not
    count: old files fill up their rows with them.

    Raises
    ------
    ValueError
        If arrays have not the shapes of detections.
    """
    for dets, labels in (*expected, *detections):
        if dets.ndim != 3 or dets.shape[2] not in COLUMNS or labels.shape != dets.shape[:2]:
            raise ValueError(
                f"quantize: dets and labels must be (N, K, 5 or 6) and (N, K), got {dets.shape} and {labels.shape}"
            )
    lost, total = 0.0, 0.0
    for (dets, labels), (other_dets, other_labels) in zip(expected, detections, strict=True):
        for rows in zip(dets, labels, other_dets, other_labels, strict=True):
            first, second = (_with_area(*side) for side in (rows[:2], rows[2:]))
            similarity = _similarities(*first, *second)
            for axis, (boxes, _) in ((1, first), (0, second)):
                weights = boxes[:, -1].astype(np.float64) ** 2
                kept = similarity.max(axis=axis, initial=0)
                lost += float(weights @ (1 - kept))
                total += float(weights.sum())
    return lost / total if total else 0.0


def _with_area(dets: NDArray[Any], labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the detections in used rows whose boxes have an area."""
    sides = dets[:, 2:4] - dets[:, :2] if dets.shape[1] == COLUMNS[0] else dets[:, 2:4]
    used = (labels >= 0) & (sides > 0).all(axis=1)
    return dets[used], labels[used]


def layer_errors(
    model: onnx.ModelProto,
    weights: Mapping[str, tuple[NDArray[np.float32], int]],
    bounds: Mapping[str, NDArray[np.float32]],
    inputs: Sequence[Sequence[Any]],
) -> dict[str, float]:
    """Return how far integers alone move the results of each layer: the square of the difference by that of the result.

    `weights` has the weights of layers by their names, and the axis of the output channels; `bounds` the ranges of
    feature maps by theirs.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names, rows = list(weights), []
    nodes = {node.name: node for node in model.graph.node}
    for number, name in enumerate(names):
        rows.append(f"{_ERRORS}/{number}")
        _append_error(copy.graph, nodes[name], weights[name], bounds[nodes[name].input[0]], rows[-1])
    copy.graph.node.append(onnx.helper.make_node("Concat", rows, [_ERRORS], axis=0))
    del copy.graph.output[:]
    copy.graph.output.append(onnx.helper.make_tensor_value_info(_ERRORS, onnx.TensorProto.FLOAT, None))
    squares = np.sum([run[0].astype(np.float64) for run in outputs_of(copy, [_ERRORS], inputs)], axis=0).reshape(-1, 2)
    return dict(
        zip(names, (squares[:, 0] / np.maximum(squares[:, 1], np.finfo(np.float32).tiny)).tolist(), strict=True)
    )


def _append_error(
    graph: onnx.GraphProto,
    node: onnx.NodeProto,
    weights: tuple[NDArray[np.float32], int],
    bounds: NDArray[np.float32],
    name: str,
) -> None:
    """Append the nodes that compute a layer with rounded numbers, and two sums: of squared differences and results."""
    array, axis = weights
    scale, zero = steps(*bounds)
    integers, scales = rounded_weights(array, axis)
    form = [-1 if index == axis else 1 for index in range(array.ndim)]
    constants: dict[str, NDArray[Any]] = {
        "scale": np.asarray(scale),
        "zero": np.asarray(zero),
        "weights": integers.astype(np.float32) * scales.reshape(form),
        "shape": np.array([1]),
    }
    graph.initializer.extend(onnx.numpy_helper.from_array(value, f"{name}/{key}") for key, value in constants.items())
    layer = onnx.NodeProto()
    layer.CopyFrom(node)
    layer.name = f"{name}/layer"
    layer.input[0], layer.input[1], layer.output[0] = f"{name}/features", f"{name}/weights", f"{name}/results"
    make, result = onnx.helper.make_node, node.output[0]
    graph.node.extend(
        [
            make("QuantizeLinear", [node.input[0], f"{name}/scale", f"{name}/zero"], [f"{name}/integers"]),
            make("DequantizeLinear", [f"{name}/integers", f"{name}/scale", f"{name}/zero"], [f"{name}/features"]),
            layer,
            make("Sub", [f"{name}/results", result], [f"{name}/difference"]),
            make("ReduceSumSquare", [f"{name}/difference"], [f"{name}/lost"], keepdims=0),
            make("ReduceSumSquare", [result], [f"{name}/all"], keepdims=0),
            make("Reshape", [f"{name}/lost", f"{name}/shape"], [f"{name}/first"]),
            make("Reshape", [f"{name}/all", f"{name}/shape"], [f"{name}/second"]),
            make("Concat", [f"{name}/first", f"{name}/second"], [name], axis=0),
        ]
    )


def _similarities(
    dets: NDArray[Any], labels: NDArray[Any], other_dets: NDArray[Any], other_labels: NDArray[Any]
) -> NDArray[np.float64]:
    """Return the product of IoU and ratio of scores of each pair of detections; 0 if their classes differ."""
    overlap = mmort.box_iou if dets.shape[1] == COLUMNS[0] else mmort.box_iou_rotated
    scores, other_scores = dets[:, -1, None].astype(np.float64), other_dets[:, -1].astype(np.float64)
    largest = np.maximum(np.maximum(scores, other_scores), np.finfo(np.float64).tiny)
    ratios = np.minimum(scores, other_scores) / largest
    overlaps = np.clip(np.nan_to_num(overlap(dets[:, :-1], other_dets[:, :-1])), 0, 1)
    return np.where(labels[:, None] == other_labels, overlaps * ratios, 0.0)
