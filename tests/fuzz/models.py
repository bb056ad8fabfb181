"""Random models of one to three of our nodes, valid and malformed, run in ONNX Runtime.

python -m tests.fuzz.models --seconds 60 [--seed N] [--count N]

A model is refused by ONNX Runtime when it is loaded or run, or gives results, within 2 seconds and 500 MB.
"""

import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from tests import front_ends
from tests.fuzz import hostile
from tests.fuzz.children import Fuzzer, main
from tests.fuzz.valid import make_call

TYPES = {np.dtype(name): onnx.helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in
         ("float32", "float64", "float16", "int64", "int32", "bool", "uint8")}  # fmt: skip
LISTS = ([1, 2], [0, 0, 1, 1], [1.5, 2.0], ["a", "b"], [2**62] * 9)
WORDS = ("avg", "max", "", "nms", "soft_nms_linear", "x" * 100, "a\0b")


@dataclass
class Model:
    """A model, and what it is fed with."""

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    threads: int


def attribute(rng: random.Random, like: Any) -> Any:
    """Return the value of a node's attribute, instead of a valid one."""
    if rng.random() < 0.75:
        if isinstance(like, int):
            return hostile.integer(rng)
        if isinstance(like, float):
            return float(np.float32(hostile.number(rng)))
        if isinstance(like, list):
            return [hostile.integer(rng) for _ in range(rng.choice((1, 2, 2, 3, 4)))]
    return rng.choice((hostile.integer(rng), hostile.number(rng), rng.choice(WORDS), rng.choice(LISTS)))


def node(rng: random.Random, index: int, known: dict[str, np.ndarray]) -> tuple[onnx.NodeProto, list[str]]:
    """Return a node, and the names of its outputs; what it reads is added to `known`."""
    row = rng.choice(front_ends.ROWS)
    call = make_call(row["kernel"], np.random.default_rng(rng.getrandbits(64)))
    change = rng.choice((0.0, 0.1, 0.3, 1.0))
    inputs = []
    for i, array in enumerate(call.arrays):
        name = f"input_{index}_{i}"
        if rng.random() < change:
            array = hostile.array(rng, array)
            array = np.array(array) if isinstance(array, np.ndarray) else call.arrays[i]
        if known and rng.random() < 0.1:
            name = rng.choice(list(known))
        elif rng.random() < 0.1 * change:
            name = ""
        else:
            known[name] = array if array.dtype in TYPES else call.arrays[i]
        inputs.append(name)
    if rng.random() < 0.1 * change:
        inputs = inputs[: rng.randrange(len(inputs) + 1)] + [""] * rng.randrange(3)
    attributes = front_ends.onnx_attributes(row["kernel"], call.attributes)
    for name, value in list(attributes.items()):
        if rng.random() < change:
            attributes[name] = attribute(rng, value)
        if rng.random() < 0.2 * change:
            del attributes[name]
    outputs = [f"output_{index}_{i}" for i in range(len(row["outputs"]))]
    present = [name if rng.random() > 0.1 * change else "" for name in outputs]
    made = onnx.helper.make_node(row["type"], inputs, present, name=f"n{index}", domain=row["domain"], **attributes)
    return made, [name for name in present if name]


def make(rng: random.Random, folder: Path) -> Model:
    """Return a model."""
    known: dict[str, np.ndarray] = {}
    nodes, results, reads = [], [], {}
    for index in range(rng.choice((1, 1, 1, 2, 3))):
        made, outputs = node(rng, index, known)
        nodes.append(made)
        results += outputs
        reads |= {name: known[name] for name in made.input if name in known}
        if outputs and rng.random() < 0.4:  # the next node may read them; its values are not known here
            known[rng.choice(outputs)] = np.zeros(0, np.float32)
    feeds = {name: array for name, array in reads.items() if name.startswith("input")}
    values = []
    for name, array in feeds.items():
        shape = rng.choice((list(array.shape), None, ["n"] * array.ndim, [None] * array.ndim))
        if rng.random() < 0.05:
            shape = list(hostile.shape(rng, array.shape))
        values.append(onnx.helper.make_tensor_value_info(name, TYPES[array.dtype], shape))
    kinds = (onnx.TensorProto.FLOAT, onnx.TensorProto.INT64)
    wanted = [onnx.helper.make_tensor_value_info(name, kinds[_is_integer(name, nodes)], None) for name in results]
    graph = onnx.helper.make_graph(nodes, "fuzz", values, wanted)
    opsets = [onnx.helper.make_opsetid(domain, 1) for domain in ("mmcv", "mmdeploy", "mmort")]
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17), *opsets], ir_version=8)
    return Model(model, feeds, rng.choice((1, 1, 1, 2)))


def _is_integer(name: str, nodes: list[onnx.NodeProto]) -> bool:
    """Return whether an output of a row is an integer; front_ends.ROWS says so."""
    for made in nodes:
        if name in made.output:
            row = next(row for row in front_ends.ROWS if (row["domain"], row["type"]) == (made.domain, made.op_type))
            return bool(row["outputs"][list(made.output).index(name)]["type"] == "int64")
    return False


def run(case: Model) -> None:
    """Load a model and run it twice: results are the same."""
    session = front_ends.make_session(case.model, case.threads)
    first, second = (session.run(None, case.feeds) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.tobytes() == other.tobytes(), "a second run gives other results"


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(4)
    sys.exit(main(Fuzzer("models", make, run, (*front_ends.ORT_ERRORS, ValueError, MemoryError), 100)))
