"""A detector that takes texts and its text encoder, each of a few nodes."""

import json

import numpy as np
import onnx
import onnx.helper as oh
from onnx import TensorProto, numpy_helper

from tests.detect.text_cases import BERT
from tests.predict import tiny_detector

VOCABULARY = (BERT / "vocab.txt").read_text().splitlines()
LIMITS = {
    "max_tokens": 12,
    "max_text_len": 12,
    "max_positions": 5,
    "pad_to_max": False,
    "sub_sentence_ends": ["[CLS]", "[SEP]", "."],
    "chunked_size": -1,
}


def save(path, nodes, inputs, outputs, constants, metadata, digest=""):
    types = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}
    values = [
        [oh.make_tensor_value_info(name, types[kind], shape) for name, kind, *shape in group]
        for group in (inputs, outputs)
    ]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    made = [oh.make_node(kind, taken, outputs, **attributes) for kind, taken, outputs, attributes in nodes]
    graph = oh.make_graph(made, "graph", *values, initializers)
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    oh.set_model_props(model, {name: json.dumps(entry) for name, entry in metadata.items()} | {"digest": digest})
    onnx.save(model, path)


def save_encoder(path, digest="one", **limits):
    """Write an encoder: a token's feature is a thousandth of its id, and its position in the sub-sentence."""
    nodes = [
        ("Cast", ["ids"], ["id"], {"to": TensorProto.FLOAT}),
        ("Mul", ["id", "scale"], ["scaled"], {}),
        ("Cast", ["positions"], ["position"], {"to": TensorProto.FLOAT}),
        ("Add", ["scaled", "position"], ["sum"], {}),
        ("Unsqueeze", ["sum", "last"], ["text"], {}),
    ]
    tokenizer = {"vocabulary": VOCABULARY, "settings": {}, "limits": LIMITS | limits}
    inputs, outputs = [("ids", "i", 1, "T"), ("positions", "i", 1, "T")], [("text", "f", 1, "T", 1)]
    constants = {"scale": np.float32(1e-3), "last": np.array([2])}
    save(path, nodes, inputs, outputs, constants, {"tokenizer": tokenizer}, digest)


def save_detector(path, **metadata):
    """Write a detector that finds each name once: its score is the mean feature of its tokens.

    Its boxes are points, at a random position for each time that what no word reaches has run.
    """
    nodes = [
        ("RandomUniformLike", ["input"], ["noise"], {"high": 30.0}),
        ("ReduceMax", ["noise"], ["point"], {"keepdims": 0}),
        ("Transpose", ["text"], ["row"], {"perm": [0, 2, 1]}),
        ("MatMul", ["row", "text_shares"], ["scores"], {}),
        ("Transpose", ["scores"], ["score"], {"perm": [0, 2, 1]}),
        ("Mul", ["score", "zeros"], ["corners"], {}),
        ("Add", ["corners", "point"], ["box"], {}),
        ("Concat", ["box", "score"], ["dets"], {"axis": 2}),
        ("Shape", ["text_shares"], ["count"], {"start": 1}),
        ("Squeeze", ["count"], ["end"], {}),
        ("Range", ["begin", "end", "step"], ["label"], {}),
        ("Unsqueeze", ["label", "axis"], ["labels"], {}),
    ]
    constants = {"zeros": np.zeros(4, np.float32), "begin": np.array(0), "step": np.array(1), "axis": np.array([0])}
    words = [("text", "f", 1, "T", 1), ("text_positions", "i", 1, "T"), ("text_shares", "f", "T", "C")]
    outputs = [("dets", "f", 1, "C", 5), ("labels", "i", 1, "C")]
    texts = {"encoder": "detector.texts.onnx", "digest": "one"}
    entries = {"preprocessing": tiny_detector.PREPROCESSING.to_dict(), "texts": texts, "classes": [], **metadata}
    save(path, nodes, [("input", "f", 1, 3, "H", "W"), *words], outputs, constants, entries)
