"""A detector of a few nodes, in all the forms that an ONNX file can have."""

import json

import numpy as np
import onnx
import onnx.helper as oh

from mmort.predict import Preprocessing

F, I = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64  # noqa: E741
PREPROCESSING = Preprocessing(size=(32, 16), size_divisor=16)
METADATA = {"classes": json.dumps(["a", "b"]), "preprocessing": json.dumps(PREPROCESSING.to_dict())}


def write(path, *, shape=("N", 3, "H", "W"), names=("dets", "labels"), img_shape=None, metadata=METADATA, more=()):
    """Write a file that finds one object, of label 1 or, if `img_shape` is an input, of the image's width as label."""
    inputs = [oh.make_tensor_value_info("image", F, shape), *more]
    constants = {"zero": [0], "one": [1], "tail": [1, 5], "label": [[1]]}
    initializers = [onnx.numpy_helper.from_array(np.array(value), name) for name, value in constants.items()]
    initializers.append(onnx.numpy_helper.from_array(np.array([[[0, 0, 8, 4, 0.5]]], np.float32), "box"))
    nodes = [
        oh.make_node("Shape", ["image"], ["size"]),
        oh.make_node("Gather", ["size", "zero"], ["number"]),
        oh.make_node("Concat", ["number", "tail"], ["whole"], axis=0),
        oh.make_node("Expand", ["box", "whole"], [names[0]]),
    ]
    if img_shape:
        inputs.append(oh.make_tensor_value_info("img_shape", I, ["N", 2]))
        nodes.append(oh.make_node("Gather", ["img_shape", "one"], [names[1]], axis=1))
        if img_shape == "initializer":
            initializers.append(onnx.numpy_helper.from_array(np.zeros((1, 2), np.int64), "img_shape"))
    else:
        nodes.append(oh.make_node("Concat", ["number", "one"], ["pair"], axis=0))
        nodes.append(oh.make_node("Expand", ["label", "pair"], [names[1]]))
    dets = oh.make_tensor_value_info(names[0], F, ["N", "K", 5])
    labels = oh.make_tensor_value_info(names[1], I, ["N", "K"])
    graph = oh.make_graph(nodes, "detector", inputs, [dets, labels], initializers)
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 13)], ir_version=8)
    oh.set_model_props(model, metadata)
    onnx.save(model, path)
    return path
