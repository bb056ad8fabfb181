"""The constants of a file, compared with the numbers that torch computes with: images hardly show some of them.

Sides of a box that grows to 62 times its anchor lie outside of the image, wherever exactly the limit is; an anchor
matters where something is detected with it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from mmort.detect.export.unseen.attributes import AttributesOfCalls
from mmort.onnx.graph import files
from mmort.onnx.verify.numbers import refusal
from mmort.onnx.verify.operator_calls import Intercepted, arguments_by_name
from mmort.onnx.verify.report import Row
from mmort.onnx.verify.values import leaves, shapes_text

CLIPS = "Clip", "Max", "Min"
ACTIVATIONS = 0.0, 1.0, 3.0, 6.0
"""Limits that exporters write for activations, which torch computes without naming them."""

DEFINITIONS = math.log(2), math.log(10), math.sqrt(2), math.sqrt(0.5), math.pi, math.pi / 2
"""Numbers that exporters write for logarithms, GELU and the angles of vectors."""

MIN_SIZE = 3
"""How many numbers a tensor must have to be recognized by them."""

TOLERANCE = 1e-5
"""How far numbers may be apart, as a share of the largest: an exporter folds constants with rounding of its own."""

MAX_RATIO = 1.05
"""How many times as large as a tensor of torch one must be to be no longer an error of it, but another tensor."""

LIMITING = (
    torch.ops.aten.clamp,
    torch.ops.aten.clamp_,
    torch.ops.aten.clamp_min,
    torch.ops.aten.clamp_min_,
    torch.ops.aten.clamp_max,
    torch.ops.aten.clamp_max_,
    torch.ops.aten.minimum,
    torch.ops.aten.maximum,
)

_Array = NDArray[np.float32]


def compare_constants(draft: Path, module: nn.Module, args: Sequence[Tensor]) -> list[Row]:
    """Return a row for each constant in a file's main graph that should be a number, or a tensor, of a module.

    The limits of clips must be numbers that the module computes with, and no clip may be missing.  Other single numbers
    must be equal to one of its, if they are nearly, and tensors, if most of their numbers are.  The attributes of
    mmort's operators and of poolings must be those of a call.  What else an exporter computes is compared with nothing.

    Parameters
    ----------
    draft : Path
    module : nn.Module
    args : tuple of Tensor
        Of a call of the module.
    """
    graph = files.load(draft).graph
    constants = dict(constants_of(graph, draft.parent))
    run = _Run(
        {
            name: array.ravel()
            for name, array in constants.items()
            if array.dtype == np.float32 and array.size >= MIN_SIZE and (array != array.flat[0]).any()
        }
    )
    run(module, args)
    limits = list(_limits(graph, constants))
    problems = [
        f"{name} limits numbers to {limit:g}, which torch does not"
        for name, limit in limits
        if limit not in (run.integer_limits if isinstance(limit, int) else run.limits)
    ]
    counts = Counter(limit for _, limit in limits)
    computed = _count_computed_limits(graph, constants) - run.computed_limits  # of these, torch had some as numbers
    problems += [
        f"{counts[limit]} operators limit numbers to {limit:g}, {len(tensors)} of torch do"
        for limit, tensors in run.limited.items()
        if counts[limit] + max(computed, 0) < len(tensors)
    ]
    problems += [
        f"{node.op_type} {node.output[0]} computes with {number:g}, torch with {nearest:g}"
        for node, number in _single_numbers(graph, constants)
        if (nearest := run.nearly(number, to_zero=node.op_type == "Where")) is not None
    ]
    problems += [f"the constant {name} is not torch's" for name in _wrong_pairs(constants, module.state_dict())]
    problems += [*run.problems.values(), *run.attributes.problems(graph.node)]
    return [refusal(shapes_text(args), problem) for problem in problems]


class _Run:
    """What a module's operators compute with in one call.

    Parameters
    ----------
    constants : dict
        From names to tensors of a file, flat, that are to be recognized.
    """

    def __init__(self, constants: Mapping[str, _Array]) -> None:
        self.limits: set[float] = set()
        """The numbers that clips of floating-point numbers may have as limits."""
        self.integer_limits: set[int] = set()
        """The limits of integers: among all integers, sizes for instance, a wrong one would hide."""
        self.limited: defaultdict[float, list[Tensor]] = defaultdict(list)
        """From limits to the different tensors of floating-point numbers that get them; not those of activations.

        Only what depends on the arguments counts: an exporter computes the rest.
        """
        self.computed_limits = 0
        """How many operators have tensors as limits."""
        self.attributes = AttributesOfCalls()
        self._dependent = WeakTensorKeyDictionary()
        """The keys are the tensors that depend on the arguments."""
        self.problems: dict[str, str] = {}
        """Of constants that are nearly those of the module."""
        self._sought: dict[int, dict[str, _Array]] = {}
        for name, array in constants.items():
            self._sought.setdefault(array.size, {})[name] = array
        self._numbers: list[float] = []
        """Those that operators get, and the tensors of one number."""
        self._known = np.empty(0)
        """These, each once, and what exporters write."""
        self._convolution: tuple[Tensor, Tensor, Tensor | None] | None = None
        """The result, the weight and the bias of the last one."""

    def __call__(self, module: nn.Module, args: Sequence[Tensor]) -> None:
        """Run a module."""
        for tensor in module.state_dict().values():
            self._see(tensor)
        self._dependent.update(dict.fromkeys(args))
        with torch.no_grad(), Intercepted(self._note):
            module(*args)
        computed = np.unique([*ACTIVATIONS, *self._numbers])
        self._known = np.array([*computed, *DEFINITIONS])
        with np.errstate(over="ignore"):  # a logit clips a probability at both ends, of which torch gets one
            self.limits = {*np.concatenate([computed, 1 - computed]).astype(np.float32).tolist()}

    def _note(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator."""
        tensors = [tensor for tensor in leaves([*args, kwargs]) if isinstance(tensor, Tensor)]
        numbers = [value for value in (*args, *kwargs.values()) if isinstance(value, (int, float))]
        numbers += [tensor.item() for tensor in tensors if tensor.numel() == 1]
        self._numbers.extend(map(float, numbers))
        if func.overloadpacket in LIMITING:
            self.integer_limits.update(number for number in numbers if isinstance(number, int))
            self._note_limited(args[0], [*args[1:], *kwargs.values()])
        self.attributes.note(func, args, kwargs)
        result = func(*args, **kwargs)
        results = leaves(result)
        if any(tensor in self._dependent for tensor in tensors):
            self._dependent.update(dict.fromkeys(results))
        for tensor in [*tensors, *results]:
            self._see(tensor)
        if func is torch.ops.aten.convolution.default:
            _, weight, bias, *_, transposed, _, _ = args
            self._convolution = None if transposed else (result, weight, bias)
        elif func is torch.ops.aten.native_batch_norm.default:
            self._see_folded(arguments_by_name(func, args, kwargs))
        elif func is torch.ops.aten.native_group_norm.default:  # exported as an instance normalization of groups
            groups = arguments_by_name(func, args, kwargs)["group"]
            self._see(torch.ones(groups))
            self._see(torch.zeros(groups))
        return result

    def _note_limited(self, tensor: Tensor, limits: Sequence[Any]) -> None:
        """Remember a tensor that gets some limits; exporters write what is computed twice once."""
        for limit in limits if tensor.is_floating_point() and tensor in self._dependent else ():
            if isinstance(limit, Tensor) and limit.numel() > 1:
                self.computed_limits += 1
                continue
            with np.errstate(over="ignore"):
                number = np.float32(limit).item()
            if math.isfinite(number) and number not in ACTIVATIONS:
                tensors = self.limited[number]
                if not any(torch.equal(tensor, other) for other in tensors):
                    tensors.append(tensor)

    def nearly(self, number: float, *, to_zero: bool) -> float | None:
        """Return the number of the module that another one nearly is, if it is none of them.

        A small number counts as nearly 0 only if `to_zero` is true, as elsewhere it is usually meant to be small.
        """
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratios = number / self._known
            if number == 0 or (np.abs(ratios - 1) <= TOLERANCE).any():
                return None
            near = self._known[(ratios > 1 / MAX_RATIO) & (ratios < MAX_RATIO)]
        if to_zero and not near.size and abs(number) < MAX_RATIO - 1:
            return 0.0
        return float(near[0]) if near.size else None

    def _see_folded(self, arguments: Mapping[str, Any]) -> None:
        """See the weights of the last convolution with the normalization after it, which an exporter makes one of."""
        if self._convolution and arguments["input"] is self._convolution[0]:
            _, weight, bias = self._convolution
            affine = arguments["weight"] is not None
            scale = (arguments["weight"] if affine else 1) / (arguments["running_var"] + arguments["eps"]).sqrt()
            shift = (0 if bias is None else bias) - arguments["running_mean"]
            self._see(weight * scale.reshape(-1, *[1] * (weight.ndim - 1)))
            self._see(shift * scale + (arguments["bias"] if affine else 0))

    def _see(self, tensor: Tensor) -> None:
        """Compare a tensor of the module with the constants of its size."""
        sought = self._sought.get(tensor.numel())
        if not sought or tensor.dtype != torch.float32:
            return
        layouts = [tensor, tensor.T] if tensor.ndim == 2 else [tensor]
        for layout in layouts:
            array = layout.detach().reshape(-1).numpy()
            rounding = _rounding(array)
            for name, constant in list(sought.items()):
                close = _are_close(constant, array, rounding)
                if close.all():
                    del sought[name]
                    self.problems.pop(name, None)
                elif wrong := _wrong(constant, array, close, rounding):
                    self.problems[name] = f"{wrong} of {array.size} numbers of the constant {name} are not torch's"


def _are_close(array: _Array, target: _Array, rounding: float) -> NDArray[np.bool_]:
    """Return which numbers are equal, but for an exporter's rounding."""
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(array - target) <= rounding
        return (array == target) | (np.isnan(array) & np.isnan(target)) | near


def _rounding(target: _Array) -> float:
    """Return how far an exporter's rounding moves the numbers of a tensor."""
    return TOLERANCE * float(np.abs(target[np.isfinite(target)]).max(initial=0))


def _wrong(array: _Array, target: _Array, close: NDArray[np.bool_], rounding: float) -> int:
    """Return how many numbers are wrong of an array that is meant to be another; 0 if it is not meant to be that.

    It is if most numbers are equal, but for those that are 0 in both within rounding, or all would be after a division
    by a number near 1.  A tensor of zeros has but few others, which are small.
    """
    count = array.size
    if not target.any():
        wrong = int(np.count_nonzero(array))
        return wrong if 2 * wrong < count and np.abs(array).max() < MAX_RATIO - 1 else 0
    used = ~((np.abs(array) <= rounding) & (np.abs(target) <= rounding))  # NaN is no zero
    array, target, close = array[used], target[used], close[used]
    if close.mean() > 0.5:
        return int((~close).sum())
    largest = np.abs(target).argmax()  # what is not near here, as hardly anything is, needs no median
    with np.errstate(over="ignore", invalid="ignore"):
        near = 1 / MAX_RATIO**2 < array[largest] / target[largest] < MAX_RATIO**2
        ratio = np.median(array / target) if near and (target != 0).all() else 0
        alike = 1 / MAX_RATIO < ratio < MAX_RATIO and _are_close(array, ratio * target, _rounding(ratio * target)).all()
    return count if alike else 0


def _wrong_pairs(constants: Mapping[str, NDArray[Any]], parameters: Mapping[str, Tensor]) -> Iterator[str]:
    """Yield the names of constants of two numbers that are nearly, but not quite, the parameter of that name.

    Two numbers are too few to recognize a tensor by.  Others than nearly those an exporter has computed with more.
    """
    for name, array in constants.items():
        if array.dtype != np.float32 or array.size != 2:
            continue
        for key, parameter in parameters.items():
            if f".{name}".endswith(f".{key}") and parameter.numel() == 2:
                target = parameter.detach().float().reshape(-1).numpy()
                near = np.abs(array.reshape(-1) - target).max() < (MAX_RATIO - 1) * np.abs(target).max()
                if near and not _are_close(array.reshape(-1), target, _rounding(target)).all():
                    yield name


def constants_of(graph: onnx.GraphProto, directory: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield a graph's constants with their names; those of large models are in files in the directory."""
    for tensor in graph.initializer:
        yield tensor.name, onnx.numpy_helper.to_array(tensor, str(directory))
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value":
                yield node.output[0], onnx.numpy_helper.to_array(attribute.t)


def _limits(graph: onnx.GraphProto, constants: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, float]]:
    """Yield the names of a graph's clips and their constant limits, but for those of a type of numbers.

    Clips of sizes are left out: where they are minima in Python, torch runs no operator.
    """
    sizes = set[str]()
    for node in graph.node:
        read = set(node.input) - {""} - constants.keys()
        of_sizes = bool(read) and read <= sizes
        if of_sizes or node.op_type == "Shape":
            sizes.update(node.output)
        for limit in () if of_sizes else limits_of(node, constants):
            yield f"{node.op_type} {node.output[0]}", limit


def limits_of(node: onnx.NodeProto, constants: Mapping[str, NDArray[Any]]) -> Iterator[float]:
    """Yield the constant limits of a node, if it is a clip, but for those of a type of numbers."""
    for name in node.input if node.op_type in CLIPS else ():
        limit = constants.get(name)
        if limit is None or limit.size != 1:
            continue
        info = np.finfo(limit.dtype) if limit.dtype.kind == "f" else np.iinfo(limit.dtype)
        if info.min < limit.item() < info.max:
            yield limit.item()


def _count_computed_limits(graph: onnx.GraphProto, constants: Mapping[str, NDArray[Any]]) -> int:
    """Return how many clips have limits that are no constants: a size of the input may be one."""
    nodes = (node for node in graph.node if node.op_type in CLIPS)
    return sum(len({*node.input} - {""} - constants.keys()) > 1 for node in nodes)


def _single_numbers(
    graph: onnx.GraphProto, constants: Mapping[str, NDArray[Any]]
) -> Iterator[tuple[onnx.NodeProto, float]]:
    """Yield a graph's nodes, but for clips, and the single floating-point numbers that they get."""
    for node in graph.node:
        for name in node.input if node.op_type not in CLIPS else ():
            number = constants.get(name)
            if number is not None and number.size == 1 and number.dtype == np.float32 and np.isfinite(number).all():
                yield node, number.item()
