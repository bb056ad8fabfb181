"""Wrong files: graphs of exported detectors with one error each, as an exporter or a person could make it.

    python -m tests.tools.mutants RECORD [NAME ...] [--per-kind N] [--kinds N --seed N]

`mutations` lists them for a model; each changes one node or constant.  The command makes many of some small detectors,
and shows that each is caught by the proof, or is no error: random images, with and without noise in the outputs of
heads, do not tell it from the right file either, within torch's rounding.  `--kinds` limits each
detector to so many kinds, drawn by a seed.  RECORD gets a line of JSON for each mutant; what it has is not run again.
Detectors of objects in words are left out by default, as their inputs need texts.  Exit code 1 if one was missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper
import torch

from mmort.onnx.verify.sessions import open_session
from tests.detect import text_cases
from tests.detect.small_exports import SmallExport, small_cases, with_limits

PER_KIND = 5
"""How many mutants of one kind each detector has."""


@dataclass(frozen=True)
class Mutation:
    """An error: what it is, where, and how a copy of the model gets it."""

    kind: str
    where: str
    change: Callable[[onnx.ModelProto], None]


REPLACED = {
    "Relu": "Abs",
    "Sigmoid": "HardSigmoid",
    "Floor": "Ceil",
    "Ceil": "Floor",
    "Round": "Floor",
    "MaxPool": "AveragePool",
    "Add": "Sub",
    "Sub": "Add",
    "Mul": "Div",
    "Div": "Mul",
    "Min": "Max",
    "Max": "Min",
    "Sin": "Cos",
    "Greater": "Less",
    "Exp": "Softplus",
    "ReduceMax": "ReduceMin",
}
"""Operators, and others that take the same inputs."""

DROPPED = "Mul", "Add", "Sub", "Div", "Relu", "Sigmoid", "Clip", "Exp", "Floor", "Sqrt", "Softmax", "BatchNormalization"
SWAPPED = "Sub", "Div", "Concat", "Where", "Greater", "Less", "MatMul"
NUMBERS = {
    "epsilon": lambda value: 3 * value,
    "iou_threshold": lambda value: value - 0.15,
    "score_threshold": lambda value: value + 0.1,
    "spatial_scale": lambda value: 1.02 * value,
    "alpha": lambda value: value + 0.05,
    "axis": lambda value: value - 1 if value > 0 else value + 1,
    "largest": lambda value: 1 - value,
    "ceil_mode": lambda value: 1 - value,
    "aligned": lambda value: 1 - value,
    "align_corners": lambda value: 1 - value,
    "sampling_ratio": lambda value: value + 1,
}
"""Attributes, and how they are changed."""

WORDS = {
    "mode": {"nearest": "linear", "linear": "nearest", "bilinear": "nearest"},
    "nearest_mode": {"floor": "ceil", "round_prefer_floor": "ceil"},
    "coordinate_transformation_mode": {
        "asymmetric": "half_pixel",
        "half_pixel": "asymmetric",
        "pytorch_half_pixel": "align_corners",
        "align_corners": "half_pixel",
    },
    "padding_mode": {"zeros": "border"},
}


def mutations(model: onnx.ModelProto) -> Iterator[Mutation]:
    """Yield all mutations of a model's main graph."""
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for index, node in enumerate(model.graph.node):
        where = f"{node.op_type} {index}"
        if node.op_type in REPLACED:
            yield Mutation(
                f"{node.op_type} for {REPLACED[node.op_type]}", where, _renamed(index, REPLACED[node.op_type])
            )
        if node.op_type in DROPPED:
            yield Mutation(f"no {node.op_type}", where, _dropped(index))
        if node.op_type in SWAPPED and len(node.input) > 1:
            yield Mutation(f"inputs of {node.op_type} swapped", where, _swapped(index))
        for attribute in node.attribute:
            if attribute.name in NUMBERS:
                yield Mutation(f"{attribute.name} of {node.op_type}", where, _number(index, attribute.name))
            elif attribute.name in WORDS and attribute.s.decode() in WORDS[attribute.name]:
                yield Mutation(f"{attribute.name} of {node.op_type}", where, _word(index, attribute.name))
            elif attribute.name == "perm" and len(attribute.ints) > 2:
                yield Mutation("order of axes", where, _permuted(index))
            elif attribute.name in ("pads", "strides", "dilations") and node.op_type in ("Conv", "MaxPool"):
                yield Mutation(f"{attribute.name} of {node.op_type}", where, _shifted(index, attribute.name))
        for position, name in enumerate(node.input):
            if name in constants and node.op_type != "Constant":
                yield from _of_constant(node.op_type, index, position, name, constants[name])


def _of_constant(op_type: str, index: int, position: int, name: str, array: np.ndarray) -> Iterator[Mutation]:
    """Yield the mutations of a constant input of a node, which other nodes keep as it is."""
    where = f"{op_type} {index}, input {position}"
    if array.dtype == np.float32 and array.size:
        changed = array.copy()
        largest = np.abs(array[np.isfinite(array)]).max(initial=1e-3)
        changed.flat[array.size // 2] += np.float32(0.02 * largest)
        yield Mutation(f"a number of a constant of {op_type}", where, _constant(index, position, name, changed))
        for error in (2e-3, 1e-3, 1e-4, 1e-5, 1e-6):
            larger = (array.astype(np.float64) * (1 + error)).astype(np.float32)
            yield Mutation(f"constant of {op_type} off by {error:g}", where, _constant(index, position, name, larger))
    elif array.dtype == np.int64 and 0 < array.size < 10 and op_type in ("Slice", "Gather", "Concat", "TopK", "Clip"):
        changed = array.copy()
        changed.flat[-1] -= 1 if changed.flat[-1] == np.iinfo(np.int64).max else -1
        yield Mutation(f"integer of {op_type} plus 1", where, _constant(index, position, name, changed))


def _renamed(index: int, op_type: str) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node = model.graph.node[index]
        node.op_type = op_type
        if op_type == "AveragePool":
            kept = [attribute for attribute in node.attribute if attribute.name != "storage_order"]
            del node.attribute[:]
            node.attribute.extend(kept)

    return change


def _dropped(index: int) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node = model.graph.node[index]
        node.CopyFrom(oh.make_node("Identity", [node.input[0]], node.output))

    return change


def _swapped(index: int) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        inputs = model.graph.node[index].input
        inputs[-2], inputs[-1] = inputs[-1], inputs[-2]

    return change


def _attribute(model: onnx.ModelProto, index: int, name: str) -> onnx.AttributeProto:
    return next(attribute for attribute in model.graph.node[index].attribute if attribute.name == name)


def _number(index: int, name: str) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        attribute = _attribute(model, index, name)
        if attribute.type == onnx.AttributeProto.FLOAT:
            attribute.f = NUMBERS[name](attribute.f)
        else:
            attribute.i = int(NUMBERS[name](attribute.i))

    return change


def _word(index: int, name: str) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        attribute = _attribute(model, index, name)
        attribute.s = WORDS[name][attribute.s.decode()].encode()

    return change


def _permuted(index: int) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        axes = _attribute(model, index, "perm").ints
        axes[-2], axes[-1] = axes[-1], axes[-2]

    return change


def _shifted(index: int, name: str) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        numbers = _attribute(model, index, name).ints
        half = len(numbers) // 2
        if name == "pads":  # the same size, moved by a pixel
            numbers[0], numbers[half] = numbers[0] + 1, max(0, numbers[half] - 1)
        else:
            numbers[0] += 1

    return change


def _constant(index: int, position: int, name: str, array: np.ndarray) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        tensors, readers = model.graph.initializer, [node for node in model.graph.node if name in node.input]
        named = [tensor for tensor in tensors if tensor.name == name]
        if named and len(readers) == 1:
            named[0].CopyFrom(onnx.numpy_helper.from_array(array, name))
            return
        tensors.append(onnx.numpy_helper.from_array(array, f"{name}_mutated"))
        model.graph.node[index].input[position] = f"{name}_mutated"

    return change


def chosen(model: onnx.ModelProto, per_kind: int, seed: int = 0, kinds: int | None = None) -> list[Mutation]:
    """Return some mutations of each kind, or of so many kinds, the same ones for a seed."""
    groups: dict[str, list[Mutation]] = {}
    for mutation in mutations(model):
        groups.setdefault(mutation.kind, []).append(mutation)
    generator = np.random.default_rng(seed)
    drawn = [*groups.values()]
    if kinds is not None:
        drawn = [drawn[index] for index in generator.permutation(len(drawn))[:kinds]]
    return [group[index] for group in drawn for index in sorted(generator.permutation(len(group))[:per_kind].tolist())]


def with_many_detections(entry: Any) -> Any:
    """Return a model's entry with as many detections and corners as published configs have, instead of a few."""
    return with_limits(entry, dict.fromkeys(("max_per_img", "corner_topk"), lambda limit: 100))


class Judge:
    """Judges wrong files of a detector.

    Parameters
    ----------
    small : SmallExport
        With the right file.
    count : int, default 6
        How many random images, each with other noise in the outputs of heads, are to tell a mutant from it.
    """

    def __init__(self, small: SmallExport, count: int = 6) -> None:
        self.small = small
        generator = torch.Generator().manual_seed(1)
        self.images: list[tuple[torch.Tensor, ...]] = []
        for index in range(count):
            image, *rest = small.inputs[index % len(small.inputs)]
            noise = torch.randn(image.shape, generator=generator) * image.std()
            self.images.append((noise + image.flip(-1) * (index % 3) / 2, *rest))
        self._right_is_accepted: dict[int, bool] = {}

    def __call__(self, mutation: Mutation, folder: Path) -> str:
        """Return whether a mutant is refused by ONNX Runtime, caught by the proof, equal, or MISSED."""
        model = onnx.load(self.small.path)
        mutation.change(model)
        path = folder / "mutant.onnx"
        onnx.save(model, path)
        try:
            open_session(path)
        except ValueError:
            return "refused by ONNX Runtime"
        if not self.small.prove(path).ok:
            return "caught"
        return "equal" if self._is_equal(path) else "MISSED"

    def _is_equal(self, path: Path) -> bool:
        """Return whether a file computes the same as the right one on other images, within torch's own rounding.

        An image with which the right file is refused, too, tells nothing.
        """
        for index, args in enumerate(self.images):
            if self._accepts(path, index, args):
                continue
            if index not in self._right_is_accepted:
                self._right_is_accepted[index] = self._accepts(self.small.path, index, args)
            if self._right_is_accepted[index]:
                return False
        return True

    def _accepts(self, path: Path, index: int, args: tuple[torch.Tensor, ...]) -> bool:
        """Return whether a file is proven with an image, and with noise of its own."""
        return self.small.prove(path, [args], seed=100 + 2 * index).ok


def main() -> int:
    """Try the detectors of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--per-kind", type=int, default=PER_KIND)
    parser.add_argument("--kinds", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    lines = list(map(json.loads, arguments.record.read_text().splitlines())) if arguments.record.exists() else []
    done = {(line["name"], line["kind"], line["where"]) for line in lines}
    for name in arguments.names or [name for name in small_cases() if name not in text_cases.MODELS]:
        with tempfile.TemporaryDirectory() as folder:
            model, fill = small_cases()[name]
            small = SmallExport(with_many_detections(model), fill, Path(folder, "right.onnx"))
            assert small.write().ok
            judge = Judge(small)
            for mutation in chosen(onnx.load(small.path), arguments.per_kind, arguments.seed, arguments.kinds):
                if (name, mutation.kind, mutation.where) in done:
                    continue
                line = {"name": name, "kind": mutation.kind, "where": mutation.where}
                line["verdict"] = judge(mutation, Path(folder))
                lines.append(line)
                with arguments.record.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                if line["verdict"] == "MISSED":
                    print(line, flush=True)
        print(name, dict(Counter(line["verdict"] for line in lines if line["name"] == name)), flush=True)
    return any(line["verdict"] == "MISSED" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
