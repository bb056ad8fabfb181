"""Random structures of ONNX files: whatever reads, rewrites, runs or compares them gives a result or an error.

python -m tests.fuzz.graphs --seconds 60 [--seed N] [--count N]
"""

import copy
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime

import mmort
import mmort.onnx
import mmort.onnx.quantize.quantize_file  # and with it onnx_ir, whose import takes longer than a case may
from mmort.onnx import describe, triton
from mmort.predict.engines.onnxruntime import OnnxRuntime
from tests.fuzz.children import Fuzzer, main

F = onnx.TensorProto.FLOAT
DOMAINS = "", "", "mmcv", "mmort", "mmdeploy", "f", "ai.onnx", "com.microsoft", "\x1b[2J"
TYPES = (
    "Relu",
    "Identity",
    "If",
    "Loop",
    "f0",
    "f1",
    "grid_sampler",
    "NonMaxSuppression",
    "MMCVRoiAlign",
    "cummax",
    "Constant",
    "",
)
NAMES = "x", "y", "t0", "t1", "", "\x1b[2J", "f0"
INPUTS = np.ones((1, 1, 4, 4), np.float32), np.zeros((1, 4, 4, 2), np.float32)
INTEGERS = 0, 1, -1, 7, 99, 2**31 - 1, -(2**31)


def node(rng: random.Random) -> onnx.NodeProto:
    """Return a node of any kind."""
    made = oh.make_node(
        rng.choice(TYPES),
        [rng.choice(NAMES) for _ in range(rng.randrange(4))],
        [rng.choice(NAMES) for _ in range(rng.randrange(3))],
        domain=rng.choice(DOMAINS),
    )
    for _ in range(rng.randrange(3)):
        name = rng.choice(
            ("axis", "mode", "dim", "align_corners", "to", "then_branch", "body", "value", "", "pool_mode")
        )
        value: Any = rng.choice((0, 1, -5, 0.5, "max", [1, 2], [], "\udcff".encode("utf-8", "surrogateescape")))
        if name in ("then_branch", "body", "value") and rng.random() < 0.6:
            value = oh.make_graph([copy.deepcopy(node(rng)) for _ in range(rng.randrange(2))], "inner", [], [])
        if value != []:
            made.attribute.append(oh.make_attribute(name, value))
    return made


def function(rng: random.Random, name: str) -> onnx.FunctionProto:
    """Return a function that may call others, or itself."""
    nodes = [node(rng) for _ in range(rng.randrange(4))]
    for _ in range(rng.randrange(3)):
        nodes.append(oh.make_node(f"f{rng.randrange(4)}", ["x"], ["y"], domain="f"))
    return oh.make_function("f", name, ["x"], ["y"], nodes, [oh.make_opsetid("", 17), oh.make_opsetid("f", 1)])


def twice(name: str, callee: str) -> onnx.FunctionProto:
    """Return a function that calls another one twice."""
    nodes = [oh.make_node(callee, [first], [second], domain="f") for first, second in (("x", "t"), ("t", "y"))]
    return oh.make_function("f", name, ["x"], ["y"], nodes, [oh.make_opsetid("", 17), oh.make_opsetid("f", 1)])


def model(rng: random.Random) -> onnx.ModelProto:
    """Return a valid model of some nodes of mmort's operators."""
    nodes = [
        oh.make_node(
            "grid_sampler", ["x", "g"], ["t0"], domain="mmcv", align_corners=0, interpolation_mode=0, padding_mode=0
        ),
        oh.make_node("MMCVCornerPool", ["t0"], ["t1"], domain="mmcv", mode=rng.randrange(5)),
        oh.make_node("Relu", ["t1"], ["y"]),
    ]
    inputs = [oh.make_tensor_value_info(name, F, shape) for name, shape in (("x", [1, 1, 4, 4]), ("g", [1, 4, 4, 2]))]
    graph = oh.make_graph(nodes, "g", inputs, [oh.make_tensor_value_info("y", F, [1, 1, 4, 4])])
    opsets = [oh.make_opsetid("", rng.choice((17, 17, 11, 21))), oh.make_opsetid("mmcv", 1), oh.make_opsetid("f", 1)]
    functions = [function(rng, f"f{number}") for number in range(rng.choice((0, 0, 1, 4)))]
    if rng.random() < 0.1:  # a graph that doubles with each of its functions
        levels = rng.choice((8, 30))
        nodes.append(oh.make_node("f0", ["t1"], ["t2"], domain="f"))
        functions = [twice(f"f{level}", f"f{level + 1}") for level in range(levels)] + [function(rng, f"f{levels}")]
    return oh.make_model(graph, opset_imports=opsets, functions=functions, ir_version=rng.choice((8, 8, 7, 10)))


def change(rng: random.Random, made: onnx.ModelProto) -> None:
    """Change the structure somewhere."""
    graph = made.graph
    values = [*graph.input, *graph.output, *graph.value_info]
    kind = rng.randrange(12)
    if kind == 0:
        graph.node.append(node(rng))
    elif kind == 1 and graph.node:
        del graph.node[rng.randrange(len(graph.node))]
    elif kind == 2 and graph.node:
        changed = rng.choice(graph.node)
        changed.input[:] = [rng.choice(NAMES) for _ in range(rng.randrange(5))]
    elif kind == 3 and graph.node:
        rng.choice(graph.node).domain = rng.choice(DOMAINS)
    elif kind == 4 and graph.node:
        del rng.choice(graph.node).attribute[:]
    elif kind == 5 and values:
        rng.choice(values).type.tensor_type.elem_type = rng.choice((0, 1, 7, 8, 16, 99, -1))
    elif kind == 6 and values:
        rng.choice(values).name = rng.choice(NAMES)
    elif kind == 7 and graph.output:
        graph.output.append(graph.output[0])
    elif kind == 8:
        del made.opset_import[:]
        made.opset_import.append(oh.make_opsetid(rng.choice(DOMAINS), rng.choice((0, 1, 17, -5, 2**40))))
    elif kind == 9:
        made.ir_version = rng.choice((0, 3, 8, 99, 2**40))
    elif kind == 10:
        made.functions.append(function(rng, f"f{rng.randrange(3)}"))
    else:
        tensor = graph.initializer.add(name=rng.choice(NAMES), data_type=rng.choice((0, 1, 7, 99)))
        tensor.dims[:] = [rng.choice(INTEGERS) for _ in range(rng.randrange(3))]
        tensor.raw_data = rng.randbytes(rng.randrange(9))
        if rng.random() < 0.3:
            tensor.external_data.add(key="location", value=rng.choice(("/etc/passwd", "../x", "", "model.onnx")))
            tensor.data_location = onnx.TensorProto.EXTERNAL


def make(rng: random.Random, folder: Path) -> tuple[Path, int]:
    """Write a file; return it, and what is done with it."""
    made = model(rng)
    for _ in range(rng.choice((0, 1, 2, 5))):
        change(rng, made)
    made.metadata_props.add(key=rng.choice(NAMES), value=rng.choice(("\x1b[2J", "[", "x" * 1000)))
    data = bytearray(made.SerializeToString())
    if rng.random() < 0.2:
        position = rng.randrange(len(data) + 1)
        data[position : position + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
    path = folder / "model.onnx"
    path.write_bytes(data)
    (folder / "repository").mkdir()
    return path, rng.randrange(9)


def run(case: tuple[Path, int]) -> None:
    """Work on a file."""
    path, kind = case
    before = path.read_bytes()
    output = path.with_name("out.onnx")
    try:
        if kind == 0:
            describe.report(describe.describe(path))
        elif kind == 1:
            mmort.onnx.make_portable(path, output)
        elif kind == 2:
            mmort.onnx.make_portable(path, output, "inlined")
        elif kind == 3:
            mmort.onnx.upgrade(path, output)
        elif kind == 4:
            mmort.onnx.accelerate(path, output)
        elif kind == 5:
            mmort.onnx.quantize(path, output, [INPUTS])
        elif kind == 6:
            mmort.onnx.verify(path, path, [INPUTS])
        elif kind == 7:
            OnnxRuntime(str(path))
        else:
            triton.write_triton_repository(path, path.with_name("repository"))
    finally:
        assert path.read_bytes() == before
        assert not [name for name in path.parent.iterdir() if name.name.startswith(".mmort")]


if __name__ == "__main__":
    mmort.set_num_threads(1)
    onnxruntime.set_default_logger_severity(4)
    sys.exit(main(Fuzzer("graphs", make, run, (ValueError, OSError), 50)))
