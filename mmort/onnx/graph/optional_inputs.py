"""Inputs that may be left out: of optional types, which few runtimes know, or initializers that may be overridden.

An input of an optional type is read by an If on OptionalHasElement, one branch of which takes the input and the other a
constant.  As an initializer of the input's name, that constant is the default everywhere.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from mmort.onnx.graph import inspection, structure

MIN_OPTIONAL_OPSET = 15
_ZEROS = np.zeros((1, 2), np.int64)


def make_optional(model: onnx.ModelProto, name: str, *, portable: bool) -> None:
    """Let an input of int64 [N, 2] be left out: it is then one row of zeros, expanded to the batch of the first input.

    There are two ways.  ONNX Runtime has inputs of an optional type, from opset 15 on; OpenVINO does not know them, and
    onnxruntime-web and some tools require them.  An initializer of the input's name, its default, is understood
    everywhere, but ONNX Runtime warns of it and ``get_inputs()`` does not list it.  `portable` files get the latter.
    """
    graph = model.graph
    (formal,) = (formal for formal in graph.input if formal.name == name)
    formal.type.tensor_type.shape.dim[0].dim_param = f"{name}_rows"  # 1 or N
    expanded, source = f"{name}_of_each", name
    structure.rename(graph, {name: expanded})
    nodes = []
    if not portable and (inspection.opset_of(model) or 0) >= MIN_OPTIONAL_OPSET:
        source = f"{name}_or_zeros"
        nodes = _optional(formal, source)
    else:
        graph.initializer.append(onnx.numpy_helper.from_array(_ZEROS, name))
    for suffix, value in (("first", [0]), ("two", [2])):
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, np.int64), f"{name}_{suffix}"))
    nodes += [
        onnx.helper.make_node("Shape", [graph.input[0].name], [f"{name}_input_shape"]),
        onnx.helper.make_node("Gather", [f"{name}_input_shape", f"{name}_first"], [f"{name}_batch"], axis=0),
        onnx.helper.make_node("Concat", [f"{name}_batch", f"{name}_two"], [f"{name}_shape"], axis=0),
        onnx.helper.make_node("Expand", [source, f"{name}_shape"], [expanded]),
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


def replace(model: onnx.ModelProto) -> None:
    """Replace the inputs of optional types that have a constant as their default."""
    graph = model.graph
    for formal in graph.input:
        if not formal.type.HasField("optional_type"):
            continue
        test = _reader(graph, "OptionalHasElement", formal.name)
        choice = test and _reader(graph, "If", test.output[0])
        default = choice and _default(choice)
        if not test or not choice or default is None:
            continue
        value = onnx.TensorProto()
        value.CopyFrom(default)
        value.name = formal.name
        graph.initializer.append(value)
        formal.type.CopyFrom(onnx.TypeProto(tensor_type=formal.type.optional_type.elem_type.tensor_type))
        index = list(graph.node).index(choice)
        result = choice.output[0]
        graph.node[index].CopyFrom(onnx.helper.make_node("Identity", [formal.name], [result], choice.name))
        graph.node.remove(test)


def _reader(graph: onnx.GraphProto, op_type: str, name: str) -> onnx.NodeProto | None:
    """Return the first node of a type that takes a value as its first input."""
    return next((node for node in graph.node if node.op_type == op_type and node.input[:1] == [name]), None)


def _default(choice: onnx.NodeProto) -> onnx.TensorProto | None:
    """Return the constant that the else branch of an If consists of, if it does."""
    nodes = next(attribute.g.node for attribute in choice.attribute if attribute.name == "else_branch")
    if len(nodes) != 1 or nodes[0].op_type != "Constant" or nodes[0].attribute[0].name != "value":
        return None
    return nodes[0].attribute[0].t
