"""Files whose functions have no end or too many nodes, and graphs that no tool can work on."""

import copy
import itertools
import time

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import mmort.onnx
import mmort.ort
from mmort.images import write_image
from mmort.onnx.graph import structure
from mmort.ort.function_expansion import _fields, _File, require_bounded_functions
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
        assert "a.onnx is not an ONNX model that can be processed: function f:" in message
        assert message.endswith(" calls itself\n")


def test_a_bomb_of_functions(tmp_path):
    """A kilobyte and a half that becomes a million nodes."""
    bomb = model(*(function(f"f{level}", *[f"f{level + 1}"] * 2) for level in range(20)), function("f20"))
    onnx.save(bomb, tmp_path / "a.onnx")
    assert (tmp_path / "a.onnx").stat().st_size < 3000
    start = time.process_time()
    assert "its functions make its graph more than 20000 nodes" in refused(
        "portable", tmp_path / "a.onnx", "--in-place"
    )
    assert time.process_time() - start < 2


def bombs():
    """Return models whose functions are hidden as well as protobuf allows."""
    levels = [*(function(f"f{level}", *[f"f{level + 1}"] * 2) for level in range(40)), function("f40")]
    call = oh.make_node("f0", ["x"], ["z"], domain="f")
    z = oh.make_tensor_value_info("z", F, [1])
    inner = oh.make_node("If", ["x"], ["y"], then_branch=oh.make_graph([call], "then", [], [z]))
    unknown = b"\x98\x06\x01\x9d\x06\0\0\0\0"  # field 99: two numbers
    alias = copy.deepcopy(levels)
    for body in alias:
        body.domain = "ai.onnx"
        for node in body.node:
            node.domain = ""
    return {
        "plain": model(*levels).SerializeToString(),
        "in a graph of a node": model(*levels, nodes=[inner]).SerializeToString(),
        "behind unknown fields": unknown + model(*levels).SerializeToString() + unknown,
        "in two graphs, of which protobuf makes one": oh.make_model(oh.make_graph([], "g", [], [])).SerializeToString()
        + model(*levels).SerializeToString(),
        "by another name of the domain": model(*alias, nodes=[oh.make_node("f0", ["x"], ["y"])]).SerializeToString(),
    }


@pytest.mark.parametrize("name", list(bombs()))
def test_sessions_refuse_bombs_of_functions(tmp_path, name):
    """ONNX Runtime would never end."""
    content = bombs()[name]
    (tmp_path / "a.onnx").write_bytes(content)
    for source in (content, tmp_path / "a.onnx"):
        with pytest.raises(
            ValueError, match=r"(the model|a\.onnx): its functions make its graph more than 20000 nodes$"
        ):
            mmort.ort.session(source)
    write_image(tmp_path / "a.png", np.zeros((8, 8, 3), np.uint8))
    commands = ["predict", "a.onnx", "a.png"], ["verify", "a.onnx", "--against", "a.onnx"], ["info", "a.onnx"]
    for command, *arguments in commands:
        message = refused(command, *(name if name.startswith("-") else tmp_path / name for name in arguments))
        assert message.endswith("its functions make its graph more than 20000 nodes\n")


def test_sessions_refuse_functions_that_call_themselves():
    with pytest.raises(ValueError, match=r"^the model: function f:a calls itself$"):
        mmort.ort.session(model(function("a", "b"), function("b", "a")).SerializeToString())


def number(value, length):
    """Return a number as protobuf writes it, in more bytes than it needs."""
    return bytes(value >> 7 * index & 127 | (128 if index < length - 1 else 0) for index in range(length))


FUNCTION = 25 << 3 | 2
"""The tag of a model's functions."""


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda content: content[:7], "a field ends outside its message"),
        (lambda content: content + b"\xc8\x01", "a field ends outside its message"),
        (lambda content: content + b"\xcd\x01\0", "a field ends outside its message"),
        (lambda content: content + number(FUNCTION, 1), "a field ends outside its message"),
        (lambda content: content + number(FUNCTION, 6) + b"\0", "a number has more than 32 bits"),
        (lambda content: content + number(FUNCTION | 1 << 32, 5) + b"\0", "a number has more than 32 bits"),
        (lambda content: content + number(FUNCTION, 2) + number(0, 6), "a number has more than 31 bits"),
        (lambda content: content + b"\x08" + number(1 << 64, 10), "a number has more than 64 bits"),
        (lambda content: content + b"\x9b\x06\x9c\x06", "it has no fields of kind 3"),
        (lambda content: content + bytes(2), "there is no field 0"),
        (lambda content: b"\xff" * 20, "a number has more than 32 bits"),
    ],
)
def test_bytes_that_protobuf_does_not_write(tmp_path, broken, reason):
    """ONNX Runtime's reader drops the bits above a tag's 32: functions that another reader does not see."""
    (tmp_path / "a.onnx").write_bytes(broken(model(function("a")).SerializeToString()))
    with pytest.raises(ValueError, match=rf"a\.onnx: it is not an ONNX model: {reason}$"):
        mmort.ort.session(tmp_path / "a.onnx")


def test_numbers_longer_than_they_need_be():
    content = model(function("a", "a")).SerializeToString()
    with pytest.raises(ValueError, match="calls itself"):
        require_bounded_functions(content.replace(number(FUNCTION, 2), number(FUNCTION, 5), 1))


@pytest.mark.parametrize("where", ["call", "default"])
def test_functions_that_take_graphs(where):
    """ONNX Runtime copies the graph for each node that refers to it."""
    inner = oh.make_graph([oh.make_node("Relu", ["x"], ["z"])], "inner", [], [oh.make_tensor_value_info("z", F, [1])])
    body = oh.make_attribute("body", inner)
    taking, call = function("a"), oh.make_node("a", ["x"], ["y"], domain="f")
    if where == "call":
        call.attribute.append(body)
    else:
        taking.attribute_proto.append(body)
    taken = model(taking, nodes=[call])
    for check in (lambda: structure.check(taken), lambda: require_bounded_functions(taken.SerializeToString())):
        with pytest.raises(ValueError, match=r"^function f:a must not take graphs as attributes$"):
            check()


def test_names_are_compared_as_onnx_runtime_compares_them():
    """Which joins the parts by a colon."""
    bomb = model(function("a:b", "b:c"), function("c"))
    bomb.functions[1].domain = "f:b"
    bomb.functions[1].node[0].CopyFrom(oh.make_node("a:b", ["x"], ["y"], domain="f"))
    for check in (lambda: structure.check(bomb), lambda: require_bounded_functions(bomb.SerializeToString())):
        with pytest.raises(ValueError, match=r"^function f:(a:b|b:c) calls itself$"):
            check()


def test_functions_are_counted_as_onnx_counts_them():
    """A limit of what a file may be is the same in the commands that read graphs."""
    levels = [*(function(f"f{level}", *[f"f{level + 1}"] * 2) for level in range(12)), function("f12")]
    require_bounded_functions(model(*levels).SerializeToString())
    structure.check(model(*levels))
    levels.append(function("f13"))
    levels[12] = function("f12", "f13", "f13")
    for check, bomb in (
        (require_bounded_functions, model(*levels).SerializeToString()),
        (structure.check, model(*levels)),
    ):
        with pytest.raises(ValueError, match="more than 20000 nodes"):
            check(bomb)


def test_nodes_that_write_to_the_same_name(tmp_path):
    twice = [oh.make_node("Relu", ["x"], ["y"]), oh.make_node("Neg", ["x"], ["y"])]
    onnx.save(model(nodes=twice), tmp_path / "a.onnx")
    for command in ("accelerate", "portable", "upgrade"):
        message = refused(command, tmp_path / "a.onnx", "-o", tmp_path / "out.onnx")
        assert message.endswith("a.onnx is not an ONNX model that can be processed: several nodes write to 'y'\n")
    branches = {name: oh.make_graph([twice[0]], name, [], []) for name in ("then_branch", "else_branch")}
    structure.check(model(nodes=[oh.make_node("If", ["x"], ["y"], **branches)]))
    branches["then_branch"].node.append(twice[1])
    with pytest.raises(ValueError, match=r"^several nodes write to 'y'$"):
        structure.check(model(nodes=[oh.make_node("If", ["x"], ["y"], **branches)]))


@pytest.mark.parametrize("command", [["accelerate"], ["quantize", "--calibrate", "."]], ids=" ".join)
def test_functions_whose_results_no_node_writes(tmp_path, monkeypatch, command):
    """The intermediate representation of onnx has no such functions."""
    monkeypatch.chdir(tmp_path)
    broken = model(function("a"))
    broken.functions[0].output[0] = "nothing"
    onnx.save(broken, "a.onnx")
    write_image("a.png", np.zeros((8, 8, 3), np.uint8))
    message = refused(command[0], "a.onnx", "-o", "out.onnx", *command[1:])
    assert "a.onnx is not an ONNX model that can be processed: Error calling" in message


def test_functions_within_the_limit():
    """The same function is reached by many ways, and deeper than Python recurses."""
    structure.check(model(*(function(f"f{level}", *[f"f{level + 1}"] * 2) for level in range(12)), function("f12")))
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


def test_zeros_are_no_message():
    """A file of zeros is refused at its first byte, not read to its end: no message has a field 0."""
    with pytest.raises(ValueError, match="no field 0"):
        list(_fields(_File(bytes(8)), (0, 8)))


@pytest.mark.parametrize("field", [b"\x98\x06\x01", b"\x3a\x00", b"\xca\x01\x00"], ids=["unknown", "graph", "function"])
def test_more_fields_than_a_model_has(tmp_path, field):
    """Reading 64 MB of small fields took ten seconds."""
    (tmp_path / "a.onnx").write_bytes(field * (2**26 // len(field)))
    begin = time.process_time()
    with pytest.raises(ValueError, match=r"a\.onnx: it has more than 3145728 fields$"):
        mmort.ort.session(tmp_path / "a.onnx")
    assert time.process_time() - begin < 6


def test_many_graphs_of_a_model_are_added_in_proportion():
    graph = oh.make_graph([oh.make_node(f"n{number}", ["x"], ["y"]) for number in range(20_000)], "g", [], [])
    content = model(function("a")).SerializeToString() + oh.make_model(graph).SerializeToString() + b"\x3a\0" * 20_000
    begin = time.process_time()
    require_bounded_functions(content)
    assert time.process_time() - begin < 4
