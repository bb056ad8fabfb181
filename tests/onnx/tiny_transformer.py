"""A detector of a patch layer and a block of a transformer, whose detections are random."""

import numpy as np
import onnx
import onnx.helper as oh

node = oh.make_node


def transformer(rng, form="MatMul", outlier=1.0):
    """A patch layer, a block with a residual, and heads; boxes are where tokens say, `outlier` stretches a channel."""
    shapes = {"patch": (64, 3, 4, 4), "first": (64, 96), "second": (96, 64), "head": (64, 5)}
    arrays = {name: rng.normal(0, 1 / np.sqrt(max(shape[0], 48)), shape) for name, shape in shapes.items()}
    arrays["first"][0] /= outlier
    arrays |= {
        "bias": rng.normal(size=96),
        "shift": rng.normal(size=64),
        "wide": np.where(np.arange(64) == 0, outlier, 1.0),
        "ten": 10.0,
    }
    tensors = [onnx.numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in arrays.items()]
    integers = {
        "rows": [64, -1] if form == "Gemm" else [1, 64, -1],
        "batch": [1, -1, 5],
        "one": [1],
        "two": [2],
        "four": [4],
        "five": [5],
        "zero": [0],
    }
    tensors += [onnx.numpy_helper.from_array(np.array(value), name) for name, value in integers.items()]
    first = [node("MatMul", ["b", "first"], ["c0"], "first"), node("Add", ["c0", "bias"], ["c"], "biased")]
    second = [node("MatMul", ["d", "second"], ["e"], "second")]
    if form == "Gemm":
        for name in ("first", "second"):
            turned = np.ascontiguousarray(arrays[name].T, np.float32)
            tensors.append(onnx.numpy_helper.from_array(turned, f"{name}, turned"))
        first = [node("Gemm", ["b", "first, turned", "bias"], ["c"], "first", transB=1)]
        second = [node("Gemm", ["d", "second, turned", "shift"], ["e"], "second", transB=1)]
    nodes = [
        node("Conv", ["x", "patch"], ["p"], "patch", strides=[4, 4]),
        node("Reshape", ["p", "rows"], ["r"], "flat"),
        node("Transpose", ["r"], ["a"], "tokens", perm=[1, 0] if form == "Gemm" else [0, 2, 1]),
        node("Mul", ["a", "wide"], ["b"], "stretched"),
        *first,
        node("Relu", ["c"], ["d"], "relu"),
        *second,
        node("Add", ["a", "e"], ["f"], "residual"),
        node("MatMul", ["f", "head"], ["g"], "head"),
        node("Sigmoid", ["g"], ["h"], "share"),
        node("Reshape", ["h", "batch"], ["i"], "rows_of_image"),
        node("Slice", ["i", "zero", "two", "two"], ["corner"], "corner"),
        node("Slice", ["i", "two", "four", "two"], ["size"], "size"),
        node("Slice", ["i", "four", "five", "two"], ["score"], "score"),
        node("Mul", ["corner", "ten"], ["low"], "low"),
        node("Mul", ["size", "ten"], ["side"], "side"),
        node("Add", ["low", "side"], ["high"], "high"),
        node("Concat", ["low", "high", "score"], ["dets"], "boxes", axis=2),
        node("ReduceMax", ["score"], ["best"], "best", axes=[2], keepdims=0),
        node("Mul", ["best", "none"], ["nothing"], "nothing"),
        node("Cast", ["nothing"], ["labels"], "classes", to=onnx.TensorProto.INT64),
    ]
    tensors.append(onnx.numpy_helper.from_array(np.float32(0), "none"))
    infos = [
        oh.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 32, 32]),
        oh.make_tensor_value_info("dets", onnx.TensorProto.FLOAT, [1, None, 5]),
        oh.make_tensor_value_info("labels", onnx.TensorProto.INT64, [1, None]),
    ]
    graph = oh.make_graph(nodes, "transformer", infos[:1], infos[1:], tensors)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)


def scenes(rng, count=4):
    return [[rng.normal(size=(1, 3, 32, 32)).astype(np.float32)] for _ in range(count)]
