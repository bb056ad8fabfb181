"""A file compared with the program that it was made of, from cut to cut.

The file runs as it is, with further outputs.  At each of these cuts its value is compared with the program's, and both
go on from the file's.  Between two cuts there is only rounding: one limit holds for all numbers, and choices, which had
the same inputs, are equal.

Cuts are at choices, at the outputs of heads and of the file; on the smallest inputs at all values that the file and the
program have in common.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.helper
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from mmort.onnx.artifact import COMPUTED, Artifact
from mmort.onnx.verify.operator_calls import arguments_by_name
from mmort.onnx.verify.program import Cut, Program, Source
from mmort.onnx.verify.rounding import LIMIT, estimated_factors, measured_factors, measured_growth

_aten = torch.ops.aten
_ORDERS = _aten.topk, _aten.sort, _aten.argsort
_SELECTIONS = _aten.argmax, _aten.argmin, _aten.max, _aten.min, _aten.cummax, _aten.cummin
"""Operators that take elements of their input, and return their indices, too; of equal numbers they may take any."""
_INDICES = _aten.argsort, _aten.argmax, _aten.argmin
"""Those that return the indices only."""


@dataclass(frozen=True)
class Comparison:
    """A cut, compared."""

    name: str
    """Of the file's value."""
    operator: str
    """The program's operator that computes it."""
    size: int
    factor: float
    """How many times torch's rounding the worst number is off; 0 for integers and bools."""
    problem: str
    growth: float = 1.0
    """Torch's rounding in units of the last place, if it was measured."""


@dataclass(frozen=True)
class Ran:
    """A run of a file and its program."""

    comparisons: list[Comparison]
    heads: dict[str, NDArray[Any]]
    """The file's values of heads."""
    outputs: dict[str, NDArray[Any]]
    """The file's outputs."""
    expected: list[Any]
    """The program's outputs from end to end, if the run was `plain`."""


class ForcedFile:
    """A file that runs with cuts, and the program that goes on from its values.

    Parameters
    ----------
    program : Program
    artifact : Artifact
        The file.
    heads : collection of str, default ()
        Names of values that are cuts, too.
    everywhere : bool, default False
        Whether all values are cuts; heads are then inputs, too, which `run` feeds.
    own_library : bool, default True
        Whether the file runs with mmort's library.
    """

    def __init__(
        self,
        program: Program,
        artifact: Artifact,
        heads: Collection[str] = (),
        *,
        everywhere: bool = False,
        own_library: bool = True,
    ) -> None:
        self.program = program
        graph = artifact.model.graph
        self._outputs = outputs = [value.name for value in graph.output]
        self._constants = {  # of these the exporter computed some
            tensor.name: artifact.array(tensor).copy()  # torch takes none that is read-only
            for tensor in graph.initializer
            if tensor.name in outputs or _is_computed(program.sources.get(tensor.name))
        }
        names = [*self._constants, *(name for node in graph.node for name in node.output if name)]
        self._names = defaultdict[Source, list[str]](list)
        for name in names:
            if name in program.sources:
                self._names[program.sources[name]].append(name)
        self._heads = {name: program.sources[name] for name in heads if name in names}
        for name in outputs:
            if name not in program.sources or program.sources[name] not in self._names:
                raise ValueError(f"the output {name} is not a value of torch's program")
        cuts = set(self._names) if everywhere else self._needed(outputs)
        self._cuts = [source for source in self._names if source in cuts]
        self._fed = list(self._heads) if everywhere else []
        wanted = [name for source in self._cuts for name in self._names[source] if name not in self._constants]
        self._inputs = [value.name for value in graph.input]
        inputs = [_input_of(name, self._heads[name]) for name in self._fed]
        self._session = artifact.session(wanted, inputs, own_library=own_library)
        self._growth: dict[str, float] = {}
        """Torch's rounding of values, in units of the last place, as runs in float64 have shown it."""

    def _needed(self, outputs: Iterable[str]) -> set[Source]:
        """Return the values that choices read and make, and those of heads and outputs."""
        cuts = {self.program.sources[name] for name in outputs}
        cuts |= set(self._heads.values())
        climbed: set[Source] = set()

        def climb(source: Source) -> None:
            """Add a value or, if the file does not have it, those that it is computed from."""
            if source in climbed:
                return
            climbed.add(source)
            if source in self._names:
                cuts.add(source)
            else:
                for read in self.program.floats_read(source.node):
                    climb(read)

        chosen = set(self.program.choices())
        for node in chosen:
            for source in self.program.floats_read(node):
                climb(source)
        return cuts | {source for source in self._names if source.node in chosen}

    def run(
        self,
        args: Sequence[Any],
        fed: Mapping[str, NDArray[Any]] | None = None,
        *,
        exact: bool,
        plain: bool = False,
    ) -> Ran:
        """Run the file and the program.

        Parameters
        ----------
        args : sequence
            The arguments, as of the module.
        fed : dict, optional
            The values of heads to go on from, by name.
        exact : bool
            Whether to compute in float64, too.  Otherwise torch's rounding is that of an exact run of other inputs; if
            numbers are off by more, it is measured.
        plain : bool, default False
            Whether to run the program from end to end, too.
        """
        fed = fed or {}
        values = self._values(args, fed)
        heads, outputs = ({name: values[name] for name in names} for names in (self._heads, self._outputs))
        comparisons: dict[str, Comparison] = {}
        runs = defaultdict[str, list[Cut]](list)

        def estimate(cut: Cut) -> None:
            for name in self._names[cut.source]:
                comparisons[name] = compare_values(name, values.pop(name), [cut], self._growth.get(name, 1.0))

        def compare(cut: Cut) -> None:
            for name in self._names[cut.source]:
                actual = values.pop(name)  # all values at once are much memory
                if name not in comparisons or comparisons[name].problem:
                    comparisons[name] = compare_values(name, actual, [*runs[name], cut])
                    if comparisons[name].problem:
                        runs[name].append(cut)  # further runs judge it with this one
                    if exact:
                        self._growth[name] = comparisons[name].growth

        try:
            given = self._given(values, fed)
            if exact:
                ends = self.program.run(args, given, compare, exact=True, plain=plain)
            else:
                ends = self.program.run(args, given, estimate, rounded=False, plain=plain)
            for seed in range(1, 1 + FURTHER_RUNS):
                problems = [comparison for comparison in comparisons.values() if comparison.problem]
                if problems and all(comparison.factor < np.inf for comparison in problems):
                    values = self._values(args, fed)
                    wrong = [self.program.sources[comparison.name] for comparison in problems]
                    self.program.run(args, self._given(values, fed), compare, seed=seed, only=wrong)
        except Exception:
            if not any(comparison.problem for comparison in comparisons.values()):
                raise
            ends = []  # after a wrong choice the program may fail
        return Ran(list(comparisons.values()), heads, outputs, ends)

    def _given(
        self, values: Mapping[str, NDArray[Any]], fed: Mapping[str, NDArray[Any]]
    ) -> dict[fx.Node, dict[int | None, Tensor]]:
        """Return the values at cuts as the program takes them, those that were fed instead of the file's."""
        given: dict[fx.Node, dict[int | None, Tensor]] = defaultdict(dict)
        for source in self._cuts:
            name = self._names[source][0]
            given[source.node][source.item] = torch.from_numpy(fed.get(name, values[name]))
        return given

    def _values(self, args: Sequence[Any], fed: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Run the file; return its values at all cuts, by name."""
        tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(tuple(args)) if isinstance(leaf, Tensor)]
        feeds = dict(zip(self._inputs, (tensor.numpy() for tensor in tensors), strict=False))
        outputs = [value.name for value in self._session.get_outputs()]
        results = self._session.run(None, feeds | {name: fed[name] for name in self._fed})
        values = {name.removesuffix(COMPUTED): value for name, value in zip(outputs, results, strict=True)}
        return values | self._constants


FURTHER_RUNS = 3
"""How many further runs with other rounding judge numbers on which the first two may agree by accident."""


def _is_computed(source: Source | None) -> bool:
    """Return whether a value is the result of an operator of the program."""
    return source is not None and source.node.op == "call_function"


def _input_of(name: str, source: Source) -> onnx.ValueInfoProto:
    """Return the declaration of a value as an input, of any size."""
    traced: Tensor = source.of(source.node.meta["val"])
    dtype = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(str(traced.dtype).removeprefix("torch.")))
    return onnx.helper.make_tensor_value_info(name, dtype, [None] * traced.ndim)


def compare_values(name: str, actual: NDArray[Any], runs: Sequence[Cut], estimated: float | None = None) -> Comparison:
    """Compare a value of the file with the program's, of which there may be several runs with other rounding.

    If torch's rounding is `estimated`, in units of the last place, there is one run, without other rounding.
    """
    cut = runs[0]
    expected = cut.value.detach().numpy()
    operator = str(getattr(cut.source.node.target, "overloadpacket", cut.source.node.target)).replace("aten.", "")

    def compared(factor: float, problem: str, growth: float = 1.0) -> Comparison:
        return Comparison(name, operator, actual.size, factor, problem, growth)

    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return compared(
            np.inf, f"{actual.dtype}{list(actual.shape)}, torch's is {expected.dtype}{list(expected.shape)}"
        )
    floating = expected.dtype.kind == "f"
    equal = _equal(actual, expected) or _differs_in_ties(cut, torch.from_numpy(actual))
    if not floating or (equal and estimated is not None):
        return (
            compared(0, "") if equal else compared(np.inf, f"{int((actual != expected).sum())} of {actual.size} differ")
        )
    if estimated is not None:
        off, growth = estimated_factors(actual, expected, estimated), estimated
    elif equal:
        return compared(0, "", measured_growth(*_runs(runs)))
    else:
        off, growth = measured_factors(actual, *_runs(runs))
    wrong = int((off > LIMIT).sum())
    return compared(float(off.max(initial=0)), f"{wrong} of {actual.size} numbers" if wrong else "", growth)


def _runs(cuts: Sequence[Cut]) -> Iterator[NDArray[Any]]:
    """Yield a cut's value and its value in float64, and then those of all runs with other rounding."""
    cut, *further = cuts
    for tensor in (cut.value, cut.exact, cut.rounded, *(run for cut in further for run in (cut.exact, cut.rounded))):
        yield tensor.detach().numpy()


def _equal(array: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether all numbers are equal, or not a number in both."""
    differing = array != other
    if not differing.any():
        return True
    return array.dtype.kind == "f" and bool(np.isnan(array[differing]).all() and np.isnan(other[differing]).all())


def _differs_in_ties(cut: Cut, actual: Tensor) -> bool:
    """Return whether the file took other elements of equal numbers than torch: none of them is the better one."""
    packet = getattr(cut.source.node.target, "overloadpacket", None)
    if packet not in (*_ORDERS, *_SELECTIONS) or not cut.inputs or not isinstance(cut.inputs[0], Tensor):
        return False
    node, source = cut.source.node, cut.inputs[0]
    given = dict(zip(node.kwargs, cut.inputs[len(node.args) :], strict=True))
    arguments = arguments_by_name(node.target, cut.inputs[: len(node.args)], given)
    axis, is_sorted = arguments.get("dim"), arguments.get("sorted", True)
    axis = -1 if axis is None else axis
    if packet not in _INDICES and cut.source.item != 1:  # the numbers themselves
        return not is_sorted and torch.equal(actual.sort(axis)[0], cut.value.sort(axis)[0])
    if axis == -1 and arguments.get("dim") is None and packet in _SELECTIONS:
        source, actual_indices, expected = source.flatten(), actual.flatten(), cut.value.flatten()
    elif packet in _SELECTIONS and not arguments.get("keepdim", packet in (_aten.cummax, _aten.cummin)):
        actual_indices, expected = actual.unsqueeze(axis), cut.value.unsqueeze(axis)
    else:
        actual_indices, expected = actual, cut.value
    if actual.numel() and not 0 <= int(actual.min()) <= int(actual.max()) < source.shape[axis]:
        return False
    numbers, of_torch = source.gather(axis, actual_indices), source.gather(axis, expected)
    if packet in _ORDERS:
        if (actual.sort(axis)[0].diff(dim=axis) == 0).any():
            return False
        if not is_sorted:
            if not torch.equal(numbers, cut.given.get(0, numbers)):  # those that the file gives beside
                return False
            numbers, of_torch = numbers.sort(axis)[0], of_torch.sort(axis)[0]
    return bool(((numbers == of_torch) | (numbers.isnan() & of_torch.isnan())).all())
