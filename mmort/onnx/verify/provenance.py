"""The constants and attributes of a file, compared with the program's: inputs hardly show some of them.

A limit of boxes, a threshold, an anchor matter where a number is near them.  So each constant must be a tensor or a
number of the program: by its name, or among what the operator reads to whose translation it belongs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.helper
import torch
from numpy.typing import NDArray
from torch import fx
from torch.utils._pytree import tree_leaves

from mmort.onnx.artifact import Artifact
from mmort.onnx.export.calls import MMCV_NODES, arrange, exported_operators
from mmort.onnx.graph import structure
from mmort.onnx.graph.inspection import attributes_of, operator_of
from mmort.onnx.verify.operator_calls import arguments_by_name
from mmort.onnx.verify.program import Program, is_not_of_torch

_aten = torch.ops.aten

FOLDED = 3e-7
"""How far the numbers of a tensor may be off that an exporter computed, as a share of each."""

_GENERAL = (
    *(0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 6.0, 1 / 6),
    *(math.pi, math.pi / 2, math.log(2), math.log(10), math.sqrt(2), math.sqrt(0.5), math.sqrt(2 / math.pi), 0.044715),
)
"""Numbers that translations write for functions that torch computes without naming them."""

_UNUSED = "cubic_coeff_a", "momentum"
"""Attributes that exporters write, and that matter in modes only which they do not use."""

_BATCH_NORMS = _aten._native_batch_norm_legit_no_training.default, _aten.batch_norm.default

_CLAMPS = _aten.clamp, _aten.clamp_min, _aten.clamp_max, _aten.hardtanh

_RECURRENCES = _aten.lstm.input, _aten.gru.input

_VARIANCES = torch.ops.prims.var.default, _aten.var.correction, _aten.var_mean.correction

_Array = NDArray[Any]


@dataclass(frozen=True)
class Problem:
    """A constant or an attribute that is not the program's."""

    text: str
    constant: str | None = None
    """The name of the constant, which may be the translation's own."""


def problems(program: Program, artifact: Artifact, *, definitions: bool = False) -> Iterator[Problem]:
    """Yield the constants and attributes of a file that are not the program's.

    With `definitions`, operators of mmort's are nodes of the standard, whose constants are their own.
    """
    numbers, regions = _Numbers(program), _Regions(program, artifact.model)
    small: list[tuple[_Array, set[fx.Node]]] = []
    unknown: list[tuple[str, str, list[fx.Node]]] = []
    needed: dict[str, list[_Array]] = {}
    for name, array in artifact.constants():
        nodes = regions.reading(name)
        readers = {node.op_type for node in regions.readers[name]}
        if array.dtype.kind in "fiu" and array.size <= MAX_NUMBERS:
            small.append((array, set(nodes)))
        if not readers or (definitions and any(map(is_not_of_torch, nodes))):
            continue
        if not numbers.have(name, array, nodes, readers):
            text = f"{name}, read by {', '.join(sorted(readers))}, is not among the constants of torch's program"
            unknown.append((name, text, nodes))
            needed[name] = [*numbers.read(nodes, array)]
    replacing = _replacing(needed, artifact, regions)
    for name, text, nodes in unknown:
        own = not numbers.name(name) and name not in replacing and not _lacks_a_number(nodes, small)
        yield Problem(text, name if own else None)
    for text in _missing_limits(regions, artifact.model.graph.node, small):
        yield Problem(text)
    for node in artifact.model.graph.node:
        nodes = regions.of_node(node)
        if not (definitions and any(map(is_not_of_torch, nodes))):
            for problem in numbers.attribute_problems(node, nodes):
                yield Problem(f"{node.op_type} {node.output[0]} {problem}")


def _missing_limits(
    regions: _Regions, nodes: Iterable[onnx.NodeProto], constants: Sequence[tuple[_Array, set[fx.Node]]]
) -> Iterator[str]:
    """Yield the limits of torch's calls that no constant of their translations is: inputs seldom reach some of them.

    The `constants` have the nodes that read them.
    """
    translated = {call for node in nodes if node.op_type != "Constant" for call in regions.of_node(node)}
    for call in regions.program.nodes:
        if call not in translated or getattr(call.target, "overloadpacket", None) not in _CLAMPS:
            continue
        arguments = arguments_by_name(call.target, call.args, call.kwargs)
        limits = [_scalar(value) for name, value in arguments.items() if name.startswith(("min", "max"))]
        limits = [value for value in limits if isinstance(value, (int, float)) and value and math.isfinite(value)]
        written = [array for array, readers in constants if call in readers]
        missing = [
            limit for limit in limits if not any((array == np.asarray(limit, array.dtype)).any() for array in written)
        ]
        if missing:
            yield f"{call.name} is limited to {', '.join(map(str, missing))} in torch's program, but not here"


def _scalar(argument: Any) -> Any:
    """Return an argument, or the number that it is a tensor of."""
    made = isinstance(argument, fx.Node) and argument.target is _aten.scalar_tensor.default
    return argument.args[0] if made else argument


def _lacks_a_number(nodes: Sequence[fx.Node], constants: Sequence[tuple[_Array, set[fx.Node]]]) -> bool:
    """Return whether calls have numbers that no constant of their translations is: another one has its place.

    The `constants` have the nodes that read them.
    """
    written = {
        float(number)
        for array, readers in constants
        if array.dtype == np.float32 and readers & set(nodes)
        for number in array.flat
    }
    called = {
        float(np.float32(leaf))
        for node in nodes
        for leaf in tree_leaves((node.args, dict(node.kwargs)))
        if isinstance(leaf, float)
    }
    return bool(called - written)


def _replacing(needed: Mapping[str, Sequence[_Array]], artifact: Artifact, regions: _Regions) -> set[str]:
    """Return the constants that have the place of a tensor which their nodes need, and no other constant gives them."""
    nodes = {name: set(regions.reading(name)) for name in needed}
    lacking = {name: [*tensors] for name, tensors in needed.items() if tensors}
    if lacking:
        for constant, array in artifact.constants():
            readers = set(regions.reading(constant))
            for name, tensors in lacking.items():
                if readers & nodes[name]:
                    lacking[name] = [tensor for tensor in tensors if not _are_same_numbers(array, tensor)]
    return {name for name, tensors in lacking.items() if tensors}


class _Numbers:
    """The tensors and numbers that a program computes with."""

    def __init__(self, program: Program) -> None:
        self._sources = program.sources
        self._tensors = {name: tensor.detach().cpu().numpy() for name, tensor in program.constants().items()}
        self._parts = {
            spec.arg.name: spec.target for spec in program.exported.graph_signature.input_specs if spec.target
        }
        self._calls = dict(exported_operators(MMCV_NODES, ()))

    def have(self, name: str, array: _Array, nodes: Sequence[fx.Node], readers: Collection[str]) -> bool:
        """Return whether a constant is a tensor of the program, or consists of numbers that its nodes compute with."""
        if array.dtype.kind in "iub" and not {"Clip", "Max", "Min"} & set(readers):
            return True  # sizes, axes, indices: no wrong one is near a right one, so that values show it
        source = self._sources.get(name)
        if source is not None and source.node.op == "call_function":
            return True  # the exporter computed it: a cut
        if not array.size or (name in self._tensors and _equal(array, self._tensors[name])):
            return True
        if any(_are_same_numbers(array, tensor) for tensor in self.read(nodes, array)):
            return True
        if any(_are_folded(array, folded) for folded in self._folds(nodes, array)):
            return True
        finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            numbers = np.array([*_GENERAL, *self._numbers(nodes)], np.float64)
            numbers = np.concatenate([numbers, -numbers, 1 / numbers]).astype(array.dtype)
        return bool(np.isin(finite, numbers).all())

    def name(self, constant: str) -> bool:
        """Return whether a constant has the name of a tensor of the program, or of a bias that was folded into one."""
        return constant.removesuffix("_bias") in self._tensors

    def read(self, nodes: Iterable[fx.Node], array: _Array) -> Iterator[_Array]:
        """Yield the program's constant tensors of an array's size that nodes read or are."""
        for node in nodes:
            if node.target in _RECURRENCES:
                yield from (weights for weights in self._joined_weights(node) if weights.size == array.size)
            for argument in (node, *node.all_input_nodes):
                tensor = self._tensor(argument)
                if tensor is not None and tensor.size == array.size:
                    yield tensor.astype(array.dtype)

    def _joined_weights(self, node: fx.Node) -> Iterator[_Array]:
        """Yield the weights of each layer of a recurrence as ONNX has them: both directions in one, and all biases."""
        arguments = arguments_by_name(node.target, node.args, node.kwargs)
        tensors, kinds = [self._tensor(weight) for weight in arguments["params"]], 4 if arguments["has_biases"] else 2
        per_layer = len(tensors) // arguments["num_layers"]
        for start in range(0, len(tensors), per_layer):
            layer = tensors[start : start + per_layer]
            of_kinds = [layer[kind::kinds] for kind in range(kinds)]
            for joined in (*of_kinds[:2], [bias for biases in of_kinds[2:] for bias in biases]):
                yield np.concatenate([tensor.ravel() for tensor in joined if tensor is not None] or [np.zeros(0)])

    def _tensor(self, node: Any) -> _Array | None:
        """Return a constant tensor of the program."""
        return self._tensors.get(self._parts.get(node.name, node.name)) if isinstance(node, fx.Node) else None

    def _numbers(self, nodes: Iterable[fx.Node]) -> Iterator[float]:
        """Yield the numbers that nodes compute with."""
        for node in nodes:
            defaults = [formal.default_value for formal in _formals(node)]
            for leaf in tree_leaves((node.args, dict(node.kwargs), defaults)):
                if isinstance(leaf, (int, float)):
                    yield float(leaf)
                tensor = self._tensor(leaf)
                if tensor is not None and tensor.size <= MAX_NUMBERS:
                    yield from map(float, tensor.ravel())
            if node.target in _VARIANCES:
                yield from _divisors(node)

    def _folds(self, nodes: Iterable[fx.Node], array: _Array) -> Iterator[tuple[_Array, _Array]]:
        """Yield the weights and biases of convolutions with the normalization after them, and their magnitudes."""
        for node in nodes:
            if node.target not in _BATCH_NORMS:
                continue
            gamma, beta, mean, variance = (self._tensor(argument) for argument in node.args[1:5])
            convolution, epsilon = node.args[0], node.args[-1]
            if (
                mean is None
                or variance is None
                or not isinstance(convolution, fx.Node)
                or not isinstance(epsilon, float)
            ):
                continue
            scale = (1.0 if gamma is None else gamma) / np.sqrt(variance.astype(np.float64) + epsilon)
            weight = self._tensor(convolution.args[1]) if len(convolution.args) > 1 else None
            bias = self._tensor(convolution.args[2]) if len(convolution.args) > 2 else None
            shift = ((0.0 if bias is None else bias.astype(np.float64)) - mean) * scale
            offset = 0.0 if beta is None else beta.astype(np.float64)
            yield shift + offset, np.abs(shift) + np.abs(offset)
            yield scale, np.abs(scale)
            if weight is not None:
                for axis in range(2):
                    if weight.shape[axis] == scale.size:
                        folded = weight.astype(np.float64) * scale.reshape(
                            [-1 if i == axis else 1 for i in range(weight.ndim)]
                        )
                        yield folded, np.abs(folded)

    def attribute_problems(self, node: onnx.NodeProto, nodes: Sequence[fx.Node]) -> Iterator[str]:
        """Yield the errors in a node's attributes."""
        operator = operator_of(node)
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        if operator is not None:
            actual = _as_in_files(attributes_of(node, operator))
            calls = [
                _as_in_files(arrange(call.target, self._calls[call.target], call.args, call.kwargs)[1])
                for call in nodes
                if call.target in self._calls
            ]
            if actual not in calls:
                names = min(
                    ([name for name in actual if call.get(name) != actual[name]] for call in calls),
                    key=len,
                    default=["call"],
                )
                yield f"has another {' and '.join(names)} than torch's call"
            return
        numbers: _Array | None = None
        for name, value in attributes.items():
            if isinstance(value, float) and name not in _UNUSED:
                numbers = np.array([*_GENERAL, *self._numbers(nodes)], np.float32) if numbers is None else numbers
                if np.float32(value) not in numbers:
                    yield f"has the {name} {value:g}, which torch's call has not"
        if node.op_type in ("MaxPool", "AveragePool"):
            yield from self._pooling(attributes, nodes)

    def _pooling(self, attributes: Mapping[str, Any], nodes: Sequence[fx.Node]) -> Iterator[str]:
        """Yield the attributes of a pooling that are not those of torch's call."""
        calls = []
        for node in nodes:
            if "pool" in str(node.target) and "adaptive" not in str(node.target):
                arguments = arguments_by_name(node.target, node.args, node.kwargs)
                rank = len(attributes["kernel_shape"])
                lists = {
                    name: [*value] * (rank // len(value))
                    for name, value in arguments.items()
                    if isinstance(value, (list, tuple)) and value
                }
                calls.append(
                    {
                        "kernel_shape": lists["kernel_size"],
                        "strides": lists.get("stride", lists["kernel_size"]),
                        "pads": lists["padding"] * 2,
                        "dilations": lists.get("dilation", [1] * rank),
                        "ceil_mode": int(arguments["ceil_mode"]),
                    }
                )
        rank = len(attributes["kernel_shape"])
        defaults = {"strides": [1] * rank, "pads": [0] * 2 * rank, "dilations": [1] * rank, "ceil_mode": 0}
        actual = {name: attributes.get(name, defaults.get(name)) for name in ("kernel_shape", *defaults)}
        if calls and actual not in calls:
            yield f"has another window than torch's call: {actual}, not {calls}"


MAX_NUMBERS = 16
"""How many numbers a tensor has at most that an exporter splits into single ones."""


class _Regions:
    """Which nodes of a program each node of a file, and each reader of a constant, translates."""

    def __init__(self, program: Program, model: onnx.ModelProto) -> None:
        self.program = program
        self.readers: defaultdict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in model.graph.node:
            for inner in structure.nested([node]):
                for name in inner.input:
                    self.readers[name].append(node)
        initializers = {tensor.name for tensor in model.graph.initializer}
        self._names = {name for node in model.graph.node for name in node.output} | initializers
        self._nodes_in_file = {program.sources[name].node for name in self._names if name in program.sources}
        self._of_outputs: dict[str, list[fx.Node]] = {}

    def reading(self, name: str) -> list[fx.Node]:
        """Return the nodes of the program whose translations read a value."""
        return list(dict.fromkeys(node for reader in self.readers[name] for node in self.of_node(reader)))

    def of_node(self, node: onnx.NodeProto) -> list[fx.Node]:
        """Return the nodes of the program that a node translates, with others, or is a part of."""
        key = node.output[0]
        if key not in self._of_outputs:
            self._of_outputs[key] = []  # ends a loop
            named = [self.program.sources[name].node for name in node.output if name in self.program.sources]
            if named:
                nodes = [inner for fx_node in named for inner in self._with_unnamed(fx_node)]
            else:
                nodes = [inner for name in node.output for inner in self.reading(name)]
            self._of_outputs[key] = list(dict.fromkeys(nodes))
        return self._of_outputs[key]

    def _with_unnamed(self, node: fx.Node) -> Iterator[fx.Node]:
        """Yield a node, and those before it of which the file has no value."""
        pending, seen = [node], {node}
        while pending:
            current = pending.pop()
            yield current
            for argument in current.all_input_nodes:
                if (
                    argument.op == "call_function"
                    and argument not in seen
                    and self.program.source_of(argument).node not in self._nodes_in_file
                ):
                    seen.add(argument)
                    pending.append(argument)


def _equal(array: _Array, target: _Array) -> bool:
    """Return whether arrays have the same bits, or but for an exporter's arithmetic."""
    if array.shape != target.shape or array.dtype != target.dtype:
        return False
    if array.tobytes() == target.tobytes():
        return True
    return array.dtype.kind == "f" and bool(np.allclose(array, target, rtol=FOLDED, atol=0, equal_nan=True))


def _are_same_numbers(array: _Array, target: _Array) -> bool:
    """Return whether arrays have the same numbers, perhaps in another order."""
    return array.size == target.size and _equal(np.sort(array, None), np.sort(target, None))


def _are_folded(array: _Array, folded: tuple[_Array, _Array]) -> bool:
    """Return whether numbers are a product of the program's, within an exporter's rounding of their magnitudes."""
    target, magnitude = folded
    if array.size != np.size(target):
        return False
    return bool((np.abs(array.ravel() - np.ravel(target)) <= 4e-7 * np.ravel(magnitude)).all())


def _formals(node: fx.Node) -> Sequence[Any]:
    """Return the formal arguments of a node's operator, of which functions of Python have none."""
    return node.target._schema.arguments if isinstance(node.target, torch._ops.OpOverload) else ()


def _divisors(node: fx.Node) -> Iterator[float]:
    """Yield how many numbers a variance is of, with and without its correction, if sizes are fixed."""
    arguments = arguments_by_name(node.target, node.args, node.kwargs)
    values, axes = node.all_input_nodes[0].meta["val"], arguments.get("dim", arguments.get("dims"))
    count = math.prod(values.shape[axis] for axis in (range(values.ndim) if axes is None else axes))
    if isinstance(count, int):
        yield count
        yield count - (1.0 if arguments["correction"] is None else arguments["correction"])


def _as_in_files(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes in the precision, and with the sequences, of a file's."""
    return {
        name: float(np.float32(value)) if isinstance(value, float) else [*value] if isinstance(value, tuple) else value
        for name, value in attributes.items()
    }
