"""Files whose functions have no end or too many nodes, and graphs that no tool can work on."""

import itertools
import time

import onnx
import onnx.helper as oh
import pytest

import mmort.onnx
from mmort.onnx.graph import structure
from tests.cli.running import refused

F = onnx.TensorProto.FLOAT
OPSETS = [oh.make_opsetid("", 17), oh.make_opsetid("f", 1)]


def function(name, *callees):
    """Return a function that calls others, one after another."""
    nodes = [
        oh.make_node(callee, ["x" if i == 0 else f"t{i}"], [f"t{i + 1}"], domain="f")
        for i, callee in enumerate(callees)
    ]
    nodes.append(oh.make_node("Relu", [f"t{len(callees)}" if callees else "x"], ["y"]))
    return oh.make_function("f", name, ["x"], ["y"], nodes, OPSETS)


def model(*functions, outputs=("y",), nodes=None):
    nodes = nodes or [oh.make_node(functions[0].name, ["x"], ["y"], domain="f")]
    values = [oh.make_tensor_value_info(name, F, [1]) for name in outputs]
    graph = oh.make_graph(nodes, "g", [oh.make_tensor_value_info("x", F, [1])], values)
    return oh.make_model(graph, opset_imports=OPSETS, functions=list(functions), ir_version=8)


@pytest.mark.parametrize("calls", [{"a": ["a"]}, {"a": ["b"], "b": ["c"], "c": ["b"]}, {"a": [], "b": ["b"]}])
def test_functions_that_call_themselves(tmp_path, calls):
    onnx.save(model(*(function(name, *callees) for name, callees in calls.items())), tmp_path / "a.onnx")
    for command in (["info"], ["portable", "--in-place"], ["upgrade", "--in-place"]):
        message = refused(command[0], tmp_path / "a.onnx", *command[1:])
        assert "a.onnx is not an ONNX model that can be processed: function f::" in message
        assert message.endswith(" calls itself\n")


def test_a_bomb_of_functions(tmp_path):
    """A kilobyte and a half that becomes a million nodes."""
    bomb = model(*(function(f"f{level}", *[f"f{level + 1}"] * 2) for level in range(20)), function("f20"))
    onnx.save(bomb, tmp_path / "a.onnx")
    assert (tmp_path / "a.onnx").stat().st_size < 3000
    start = time.process_time()
    assert "its functions make its graph more than 200000 nodes" in refused(
        "portable", tmp_path / "a.onnx", "--in-place"
    )
    assert time.process_time() - start < 2


def test_functions_within_the_limit():
    """The same function is reached by many ways, and deeper than Python recurses."""
    structure.check(model(*(function(f"f{level}", *[f"f{level + 1}"] * 2) for level in range(14)), function("f14")))
    structure.check(model(*(function(f"f{level}", f"f{level + 1}") for level in range(3000)), function("f3000")))


def test_outputs_of_the_same_name():
    with pytest.raises(ValueError, match=r"^2 outputs have the name 'y'$"):
        structure.check(model(nodes=[oh.make_node("Relu", ["x"], ["y"])], outputs=("y", "y")))


@pytest.mark.parametrize("kind", [99, -1])
def test_element_types_that_there_are_not(kind):
    wrong = model(nodes=[oh.make_node("Relu", ["x"], ["y"])])
    wrong.graph.output[0].type.tensor_type.elem_type = kind
    with pytest.raises(ValueError, match=rf"^'y' has the element type {kind}, which ONNX does not have$"):
        structure.check(wrong)


def test_equal_nodes_share_a_definition():
    """Each took a millisecond."""
    count = 3000
    names = ["x", *(f"t{index}" for index in range(count - 1)), "y"]
    nodes = [
        oh.make_node("MMCVCornerPool", [name], [result], domain="mmcv", mode=index % 2)
        for index, (name, result) in enumerate(itertools.pairwise(names))
    ]
    values = [oh.make_tensor_value_info(name, F, [1, 1, 2, 2]) for name in "xy"]
    opsets = [oh.make_opsetid("", 17), oh.make_opsetid("mmcv", 1)]
    many = oh.make_model(oh.make_graph(nodes, "g", values[:1], values[1:]), opset_imports=opsets, ir_version=8)
    start = time.process_time()
    mmort.onnx.make_portable(many)
    assert time.process_time() - start < 2
    assert len(many.functions) == 1


def test_functions_of_the_same_name():
    with pytest.raises(ValueError, match=r"^several functions have the same domain, name and overload$"):
        structure.check(model(function("a"), function("a")))


def test_names_that_are_not_utf8(tmp_path):
    """Protobuf reads such names as bytes."""
    data = model(function("a_name")).SerializeToString().replace(b"a_name", b"a\xffname")
    (tmp_path / "a.onnx").write_bytes(data)
    for command in (["info"], ["portable", "--in-place"]):
        assert refused(command[0], tmp_path / "a.onnx", *command[1:]).endswith("names that are not UTF-8 text\n")
