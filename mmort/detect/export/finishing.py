"""Finishing a traced graph: an input that may be left out, and metadata, without torch's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
from torch import Tensor

import mmort
from mmort.detect.detector import Detector
from mmort.onnx import files
from mmort.onnx.verify.sessions import feeds, open_session
from mmort.predict import Preprocessing

MIN_OPTIONAL_OPSET = 15
_ZEROS = np.zeros((1, 2), np.int64)


def metadata(detector: Detector, preprocessing: Preprocessing, thresholds: dict[str, Any]) -> dict[str, str]:
    """Return the metadata of a detector's file."""
    entries = {
        "family": detector.family,
        "classes": json.dumps(detector.classes),
        "preprocessing": json.dumps(preprocessing.to_dict()),
        "thresholds": json.dumps(thresholds),
        "mmort_version": mmort.__version__,
    }
    return entries if detector.angle_version is None else entries | {"angle_version": detector.angle_version}


def remove_traces(model: onnx.ModelProto) -> None:
    """Remove what torch's exporter notes at nodes and tensors: stack traces, with paths of this machine."""
    inner = [attribute.g for node in files.every_node(model) for attribute in node.attribute if attribute.HasField("g")]
    for graph in (model.graph, *inner):
        for part in (graph, *graph.node, *graph.value_info, *graph.initializer, *graph.input, *graph.output):
            del part.metadata_props[:]
    for function in model.functions:
        for part in (function, *function.node, *function.value_info):
            del part.metadata_props[:]


def make_optional(model: onnx.ModelProto, name: str, *, portable: bool) -> None:
    """Let an input of int64 [N, 2] be left out: it is then one row of zeros, expanded to the batch of the first input.

    There are two ways.  ONNX Runtime has inputs of an optional type, from opset 15 on; OpenVINO does not know them, and
    onnxruntime-web and some tools require them.  An initializer of the input's name, its default, is understood
    everywhere, but ONNX Runtime warns of it and ``get_inputs()`` does not list it.  `portable` files get the latter.
    """
    graph = model.graph
    (formal,) = (formal for formal in graph.input if formal.name == name)
    formal.type.tensor_type.shape.dim[0].dim_param = f"{name}_rows"  # 1 or N
    expanded, given = f"{name}_of_each", name
    _rename(graph, name, expanded)
    nodes = []
    if not portable and (files.opset_of(model) or 0) >= MIN_OPTIONAL_OPSET:
        given = f"{name}_or_zeros"
        nodes = _optional(formal, given)
    else:
        graph.initializer.append(onnx.numpy_helper.from_array(_ZEROS, name))
    for suffix, value in (("first", [0]), ("two", [2])):
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, np.int64), f"{name}_{suffix}"))
    nodes += [
        onnx.helper.make_node("Shape", [graph.input[0].name], [f"{name}_input_shape"]),
        onnx.helper.make_node("Gather", [f"{name}_input_shape", f"{name}_first"], [f"{name}_batch"], axis=0),
        onnx.helper.make_node("Concat", [f"{name}_batch", f"{name}_two"], [f"{name}_shape"], axis=0),
        onnx.helper.make_node("Expand", [given, f"{name}_shape"], [expanded]),
    ]
    for position, node in enumerate(nodes):
        node.name = f"{name}_{position}"
        graph.node.insert(position, node)


def _optional(formal: onnx.ValueInfoProto, result: str) -> list[onnx.NodeProto]:
    """Give an input an optional type; return nodes that compute its value, or zeros if it is left out."""
    name, tensor_type = formal.name, onnx.TypeProto()
    tensor_type.CopyFrom(formal.type)
    formal.type.CopyFrom(onnx.helper.make_optional_type_proto(tensor_type))
    zeros = onnx.numpy_helper.from_array(_ZEROS)
    branches = {}
    for branch, node in (
        ("then_branch", onnx.helper.make_node("OptionalGetElement", [name], [f"{name}_given"])),
        ("else_branch", onnx.helper.make_node("Constant", [], [f"{name}_default"], value=zeros)),
    ):
        output = onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.INT64, [None, 2])
        branches[branch] = onnx.helper.make_graph([node], f"{name}_{branch}", [], [output])
    return [
        onnx.helper.make_node("OptionalHasElement", [name], [f"has_{name}"]),
        onnx.helper.make_node("If", [f"has_{name}"], [result], **branches),
    ]


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Rename an input of nodes, those of inner graphs included."""
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner, old, new)


def check_optional(path: Path, args: Sequence[Tensor]) -> None:
    """Check that a file without ``img_shape``, the last argument, computes the same bits as with the input's size."""
    batch, _, height, width = args[0].shape
    session = open_session(path)
    others = feeds(session, args[:-1])
    defaults = session.run(None, others)
    explicit = session.run(None, others | {"img_shape": np.array([[height, width]] * batch, np.int64)})
    if not all(np.array_equal(default, given) for default, given in zip(defaults, explicit, strict=True)):
        raise ValueError(
            "export: without img_shape the file must detect the same as with the size of the input, got differences"
        )
