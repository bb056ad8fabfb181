"""Bytes of ONNX files with functions, as protobuf may write them and not: all readers see one file, or it is refused.

mmort's reader, the package onnx and ONNX Runtime read the same bytes.  What mmort's accepts ONNX Runtime must not
expand to more nodes than were counted, and onnx must find as many.

python -m tests.fuzz.model_bytes --seconds 60 [--seed N] [--count N]
"""

import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.helper as oh
import onnxruntime

from mmort.onnx.graph import structure
from mmort.ort.function_expansion import require_bounded_functions
from tests.fuzz.children import Fuzzer, main

F, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL
FUNCTIONS = ("f:a", "b"), ("f", "b"), ("f", "a"), ("g", "a:b"), ("g", "c"), ("f:a", "c")
"""The domains and names of functions; a function calls those before it."""

OPSETS = [oh.make_opsetid(domain, 17 if domain == "" else 1) for domain in ("", "f", "f:a", "g")]
MESSAGES = {"model": {7: "graph", 25: "function"}, "graph": {1: "node"}, "function": {7: "node", 11: "attribute"}}
MESSAGES |= {"node": {5: "attribute"}, "attribute": {6: "graph", 11: "graph"}}
"""The messages in those that lead to nodes, by their fields."""


class Writer:
    """Writes nodes that call some functions."""

    def __init__(self, rng: random.Random):
        self.rng, self.callable = rng, [("", "Relu")]

    def graph(self, depth: int) -> onnx.GraphProto:
        """Return a graph for a node's attribute."""
        nodes = self.chain("x", "z", depth)
        return oh.make_graph(nodes, "inner", [], [oh.make_tensor_value_info("z", F, [1])])

    def chain(self, first: str, last: str, depth: int) -> list[onnx.NodeProto]:
        """Return nodes from one value to another, of which some call functions or have graphs."""
        values = [first, *(f"{last}{depth}{index}" for index in range(self.rng.choice((0, 0, 1, 2)))), last]
        return [self.node(source, target, depth) for source, target in itertools.pairwise(values)]

    def node(self, source: str, target: str, depth: int) -> onnx.NodeProto:
        """Return a node."""
        if self.rng.random() < 0.2 and depth > 0:
            branches = {name: self.graph(depth - 1) for name in ("then_branch", "else_branch")}
            return oh.make_node("If", ["condition"], [target], **branches)
        domain, name = self.rng.choice(self.callable)
        if name == "Relu":
            return oh.make_node(name, [source], [target])
        if self.rng.random() < 0.1 and ":" in domain:  # the same to ONNX Runtime
            domain, _, begin = domain.partition(":")
            name = f"{begin}:{name}"
        node = oh.make_node(name, [source, "condition"], [target], domain=domain)
        if self.rng.random() < 0.1:
            node.attribute.append(oh.make_attribute("body", self.graph(0)))
        return node

    def function(self, domain: str, name: str) -> onnx.FunctionProto:
        """Return a function, which those that follow may call."""
        body = self.chain("x", "y", 1)
        function = oh.make_function(domain, name, ["x", "condition"], ["y"], body, OPSETS)
        if self.rng.random() < 0.2:  # with a node whose graph is the caller's, or a default
            node = oh.make_node("If", ["condition"], ["unused"], else_branch=self.graph(0))
            node.attribute.add(name="then_branch", ref_attr_name="body", type=onnx.AttributeProto.GRAPH)
            function.node.append(node)
            function.attribute_proto.append(oh.make_attribute("body", self.graph(0)))
            if self.rng.random() < 0.5:
                del function.attribute_proto[:]
                function.attribute.append("body")
        self.callable += [(domain, name)] * 2
        return function


def model(rng: random.Random) -> onnx.ModelProto:
    """Return a model with functions, of which some call others."""
    writer = Writer(rng)
    functions = [writer.function(*rng.choice(FUNCTIONS)) for _ in range(rng.choice((0, 1, 2, 3, 5)))]
    inputs = [oh.make_tensor_value_info("x", F, [1]), oh.make_tensor_value_info("condition", BOOL, [])]
    graph = oh.make_graph(writer.chain("x", "y", 2), "g", inputs, [oh.make_tensor_value_info("y", F, None)])
    return oh.make_model(graph, opset_imports=OPSETS, functions=functions, ir_version=8)


def varint(value: int, length: int = 1) -> bytes:
    """Return a number in at least `length` bytes."""
    digits = [value & 127]
    while value := value >> 7:
        digits.append(value & 127)
    digits += [0] * (length - len(digits))
    return bytes(digit | 128 for digit in digits[:-1]) + bytes(digits[-1:])


def fields(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number, kind and value of each field of a message that protobuf wrote."""
    position = 0

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            value |= (content[position] & 127) << shift
            position, shift = position + 1, shift + 7
            if content[position - 1] < 128:
                return value

    while position < len(content):
        tag, start = number(), position
        if tag & 7 == 0:
            number()
        elif tag & 7 == 2:
            start = number() + position
            start, position = position, start
        else:
            position += 8 if tag & 7 == 1 else 4
        yield tag >> 3, tag & 7, content[start:position]


def rewritten(rng: random.Random, content: bytes, message: str, share: float) -> bytes:
    """Return a message with other bytes, which mean the same to a reader of protobuf, or not."""
    written = b""
    for number, kind, value in fields(content):
        inner = MESSAGES.get(message, {}).get(number)
        if inner and kind == 2:
            value = rewritten(rng, value, inner, share)
        if rng.random() > share:
            written += varint(number << 3 | kind) + (varint(len(value)) if kind == 2 else b"") + value
            continue
        tag = varint(number << 3 | kind, rng.choice((1, 2, 5, 5, 6)))
        length = varint(len(value), rng.choice((1, 2, 5, 5, 6, 10))) if kind == 2 else b""
        change = rng.randrange(9)
        if change == 0:  # bits above 32
            tag = varint((number << 3 | kind) + (rng.choice((1, 2, 7)) << 32), 5)
        elif change == 1:  # an unknown field, of any kind
            written += varint(99 << 3 | rng.randrange(8)) + rng.choice((b"\0", bytes(4), bytes(8), b"\x02ab"))
        elif change == 2:  # a group, in which the field is unknown
            tag, value = varint(99 << 3 | 3) + tag, value + varint(99 << 3 | 4)
        elif change == 3:  # the field twice, of which one counts, or both, or both become one
            written += tag + length + value
        elif change == 4 and kind == 2:  # a length that is not the value's
            length = varint(max(len(value) + rng.choice((-1, 1, 2**31, 2**32, 2**35)), 0))
        elif change == 5:  # the field by another kind
            tag = varint(number << 3 | rng.randrange(8))
        elif change == 6 and kind == 2 and number in (1, 2, 4, 7, 8, 10):  # another text, perhaps of a name
            written += varint(number << 3 | 2) + varint(1) + rng.choice((b"a", b"b", b"\xff", b"\0"))
        written += tag + length + value
    return written


def make(rng: random.Random, folder: Path) -> Path:
    """Write a file."""
    content = model(rng).SerializeToString()
    path = folder / "model.onnx"
    path.write_bytes(rewritten(rng, content, "model", rng.choice((0.0, 0.005, 0.005, 0.02, 0.1))))
    return path


def run(path: Path) -> None:
    """Let all readers read a file, and compare the functions and nodes that they find."""
    counted = require_bounded_functions(str(path))
    expanded = nodes_in_onnx_runtime(path)
    try:
        parsed = onnx.load(path)
    except Exception:  # protobuf's implementations raise different classes
        if counted and expanded is not None:
            raise AssertionError("ONNX Runtime expands what onnx does not read") from None
        return
    assert counted or not parsed.functions, f"onnx finds {len(parsed.functions)} functions, mmort none"
    if not counted:
        return
    assert expanded is None or expanded <= counted, f"ONNX Runtime has {expanded} nodes, {counted} were counted"
    try:
        in_onnx = structure.check_functions(parsed)
    except ValueError as error:
        if "several functions" not in str(error):  # of a name, which mmort's reader adds up
            raise AssertionError(f"onnx finds what was accepted: {error}") from None
    else:
        assert in_onnx == counted, f"onnx finds {in_onnx} nodes, {counted} were counted"


def nodes_in_onnx_runtime(path: Path) -> int | None:
    """Return how many nodes a file's graph has in ONNX Runtime; None if that refuses the file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(path.with_name("expanded.onnx"))
    try:
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return sum(1 for _ in structure.nested(onnx.load(path.with_name("expanded.onnx")).graph.node))
    except Exception:
        return None


if __name__ == "__main__":
    sys.exit(main(Fuzzer("bytes of models", make, run, (ValueError,), 100)))
