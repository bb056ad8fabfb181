"""Inputs that may be left out: from optional types, which few runtimes know, to initializers that may be overridden.

An input of an optional type is read by an If on OptionalHasElement, one branch of which takes the input and the other a
constant.  As an initializer of the input's name, that constant is the default everywhere.
"""

from __future__ import annotations

import onnx
import onnx.helper


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
