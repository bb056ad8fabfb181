"""The proof that a file computes what its model computes, in two sentences.

The program that torch exported is the model, and the file is the program: between cuts numbers agree within a small
factor of torch's own rounding, and choices, given the same numbers, are the same.

`forced` compares at cuts, `provenance` the constants and attributes that inputs hardly show.  ``docs/proof.md`` draws
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx
from torch.utils._pytree import tree_leaves

from mmort.onnx.artifact import Artifact
from mmort.onnx.portable.forms import Form
from mmort.onnx.verify.forced import Comparison, ForcedFile, Ran, compare_values
from mmort.onnx.verify.program import Cut, Program, Source
from mmort.onnx.verify.provenance import MAX_NUMBERS, problems
from mmort.onnx.verify.report import Report, number_text
from mmort.onnx.verify.rounding import LIMIT
from mmort.onnx.verify.sessions import one_line
from mmort.onnx.verify.values import as_array, index_of_smallest, shapes_text

CONSTANTS = "constants and attributes"
"""The text of the row of `provenance`."""

MAX_PROBLEMS = 5
"""How many values of a run that differ have a row."""

EXTREME, EXTREME_SHARE = 8.0, 1 / 8
"""How many times as large some of the noise is, and how much of it: only extreme numbers reach limits."""

CHANGE = 1.001
"""How many times as large a constant is made to see whether it matters."""

Arguments = tuple[Any, ...]
EndToEnd = Callable[[Arguments, Mapping[str, NDArray[Any]], Mapping[str, NDArray[Any]]], None]


@dataclass(frozen=True)
class ProofRow:
    """A run of a file from cut to cut, another comparison of the proof, or a value that differs."""

    HEADINGS: ClassVar[tuple[str, ...]] = "inputs", "compared", "values", "factor", "at", "allowed"
    NAMES: ClassVar[str] = "at"

    inputs: str
    """The inputs' shapes, ``2x3x64x96``."""
    compared: str
    values: int
    """How many values were compared."""
    factor: float | None
    """How many times torch's rounding the worst number is off; None if all had to be equal."""
    at: str
    """The value with the worst number, and the operator that computes it."""
    problem: str = ""
    view: str = ""
    """The changes of the smallest inputs, of a run with noise."""

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.problem

    def cells(self) -> tuple[str, ...]:
        """Return the text of each column."""
        limit = "equal" if self.factor is None else str(LIMIT)
        return self.inputs, self.compared, str(self.values), number_text(self.factor), self.at, limit


@dataclass(frozen=True)
class Noisy:
    """Arguments of a further run, in which the outputs of heads get noise."""

    args: Arguments
    strength: float
    """How many times as large as the outputs the noise is."""
    label: str
    """The name of the run in the table."""
    view: str
    """The changes of the smallest arguments, for the report."""
    seed: int
    """That of the noise."""


def prove(
    artifact: Artifact,
    program: Program,
    module: Callable[..., Any],
    inputs: Sequence[Arguments],
    *,
    heads: Collection[str] = (),
    noisy: Sequence[Noisy] = (),
    portable: bool | Form = False,
    begin: Callable[[str], None] = lambda text: None,
    end_to_end: EndToEnd = lambda args, outputs, expected: None,
) -> Report:
    """Prove that a file computes what a module computes.

    Parameters
    ----------
    artifact : Artifact
        The file.
    program : Program
        The module as torch exported it, of which the file was made.
    module : callable
    inputs : sequence of tuples
        The arguments of each run.  On the smallest, all values are cuts.
    heads : collection of str, optional
        Names of values that show most of what a network computes, and get noise in the runs of `noisy`.
    noisy : sequence of Noisy, optional
        Further runs, of the size of the smallest inputs.
    portable : bool or {"functions", "inlined"}, default False
        Whether the file runs without mmort's library; it is then run so.
    begin : callable, optional
        Takes the text of a step that begins.
    end_to_end : callable, optional
        Takes the arguments of each of the `inputs`, and the outputs of the file and of the program from end to end, by
        their names.  These are information: rounding may decide what they are.

    Returns
    -------
    Report
        The rows of all comparisons; if a size differs, only those of the sizes.
    """
    runs = _Runs(artifact, program, module, inputs, heads, portable, begin, end_to_end)
    rows = list(runs.sizes())
    if Report(tuple(rows)).ok:
        rows += runs.without_library()
        rows += runs.everywhere(noisy)
        rows += runs.constants()
    return Report(tuple(rows))


class _Refused(Exception):
    """ONNX Runtime, or the program, fails where the module does not."""

    def __init__(self, inputs: str, text: str) -> None:
        super().__init__(text)
        self.inputs = inputs

    def row(self) -> ProofRow:
        """Return the row that says so."""
        return ProofRow(self.inputs, "-", 0, None, "", str(self))


class _Runs:
    """The runs of a proof, each of which yields its rows."""

    def __init__(
        self,
        artifact: Artifact,
        program: Program,
        module: Callable[..., Any],
        inputs: Sequence[Arguments],
        heads: Collection[str],
        portable: bool | Form,
        begin: Callable[[str], None],
        end_to_end: EndToEnd,
    ) -> None:
        self._artifact, self._program, self._module, self._heads = artifact, program, module, heads
        self._begin, self._end_to_end = begin, end_to_end
        self._inlined, self._portable = portable == "inlined", bool(portable)
        smallest = index_of_smallest(inputs)
        self._inputs = [inputs[smallest], *inputs[:smallest], *inputs[smallest + 1 :]]
        self._compared = "choices, heads and outputs" if heads else "choices and outputs"
        self._head_values: Mapping[str, NDArray[Any]] = {}
        """The outputs of heads for the smallest inputs."""

    def constants(self) -> Iterator[ProofRow]:
        """Compare what inputs hardly show; a translation's own constants are shown by runs with another number."""
        self._begin("comparing constants and attributes")
        wrong = [
            problem.text
            for problem in problems(self._program, self._artifact, definitions=self._inlined)
            if problem.constant is None or not self._is_shown(problem.constant)
        ]
        count = sum(1 for _ in self._artifact.tensors())
        yield ProofRow("-", CONSTANTS, count, None, "", "; ".join(wrong[:MAX_PROBLEMS]))

    def _is_shown(self, name: str) -> bool:
        """Return whether the smallest inputs would show that any number of a constant was slightly larger."""
        size = next(math.prod(tensor.dims) for constant, tensor in self._artifact.tensors() if constant == name)
        return size <= MAX_NUMBERS and all(self._is_number_shown(name, index) for index in range(size))

    def _is_number_shown(self, name: str, index: int) -> bool:
        """Return whether the smallest inputs would show that a number was slightly larger."""

        def change(array: NDArray[Any]) -> NDArray[Any]:
            changed = array.copy()
            changed.flat[index] = changed.flat[index] * CHANGE
            return changed

        try:
            changed = self._opened(
                self._artifact.with_constant(name, change), everywhere=True, own_library=not self._inlined
            )
            ran = _run(changed, self._inputs[0], self._head_values, exact=True)
        except _Refused:
            return True
        return any(comparison.problem for comparison in ran.comparisons)

    def sizes(self) -> Iterator[ProofRow]:
        """Run all inputs, the smallest first: model, program and the file as it is, whose heads are kept."""
        try:
            shipped = self._opened(own_library=not self._inlined)
        except _Refused as refused:
            yield refused.row()
            return
        names = [name for name, _ in self._program.outputs]
        for index, args in enumerate(self._inputs):
            expected = _outputs(self._module, args)
            try:
                ran = _run(shipped, args, exact=not index, plain=True)
                yield from _of_module(self._program, args, expected, ran.expected)
                yield from _of_run(args, self._compared, ran.comparisons)
            except _Refused as refused:
                yield refused.row()
                continue
            if not index:
                self._head_values = ran.heads
            if ran.expected:
                expected_by_name = {name: as_array(value) for name, value in zip(names, ran.expected, strict=True)}
                self._end_to_end(args, ran.outputs, expected_by_name)

    def without_library(self) -> Iterator[ProofRow]:
        """Run all inputs without mmort's library, which a portable file does not need."""
        if not self._portable or self._inlined:
            return
        try:
            alone = self._opened(own_library=False)
            for index, args in enumerate(self._inputs):
                ran = _run(alone, args, exact=not index)
                yield from _of_run(args, "without mmort's library", ran.comparisons)
        except _Refused as refused:
            yield refused.row()

    def everywhere(self, noisy: Sequence[Noisy]) -> Iterator[ProofRow]:
        """Run the smallest inputs with cuts at all values, as they are and with noise."""
        self._begin("comparing all values")
        args = self._inputs[0]
        try:
            everywhere = self._opened(everywhere=True, own_library=not self._inlined)
            ran = _run(everywhere, args, self._head_values, exact=True)
            yield from _of_run(args, "all values", ran.comparisons)
            for view in noisy:
                ran = _run(everywhere, view.args, _with_noise(self._head_values, view), exact=False)
                yield from _of_run(view.args, f"all values, {view.label}", ran.comparisons, view.view)
        except _Refused as refused:
            yield refused.row()

    def _opened(self, artifact: Artifact | None = None, **options: bool) -> ForcedFile:
        """Open the file, or a changed one; raise _Refused if ONNX Runtime does not."""
        try:
            return ForcedFile(self._program, artifact or self._artifact, self._heads, **options)
        except ValueError as error:
            raise _Refused("-", str(error).removeprefix("verify: ")) from None


def _run(
    file: ForcedFile,
    args: Arguments,
    fed: Mapping[str, NDArray[Any]] | None = None,
    *,
    exact: bool,
    plain: bool = False,
) -> Ran:
    """Run a file and its program; raise _Refused if one of them fails."""
    try:
        return file.run(args, fed, exact=exact, plain=plain)
    except Exception as error:
        raise _Refused(shapes_text(args), one_line(error)) from None


def _outputs(module: Callable[..., Any], args: Arguments) -> list[Any]:
    """Return a module's outputs."""
    try:
        with torch.no_grad():
            return [leaf for leaf in tree_leaves(module(*args)) if leaf is not None]
    except Exception as error:
        raise ValueError(
            f"export: check_sizes must suit the model, which fails with {shapes_text(args)}: {error}"
        ) from error


def _of_run(args: Arguments, compared: str, comparisons: Sequence[Comparison], view: str = "") -> Iterator[ProofRow]:
    """Yield the row of a run, and those of the values that differ."""
    inputs = shapes_text(args)
    worst = max(comparisons, key=lambda comparison: comparison.factor, default=None)
    differing = [comparison for comparison in comparisons if comparison.problem]
    if not differing:
        at = f"{worst.name} ({worst.operator})" if worst is not None and worst.factor else ""
        factor = worst.factor if worst is not None else None
        yield ProofRow(inputs, compared, len(comparisons), factor, at, view=view)
    for comparison in differing[:MAX_PROBLEMS]:
        at = f"{comparison.name} ({comparison.operator})"
        yield ProofRow(inputs, compared, len(comparisons), comparison.factor, at, comparison.problem, view)


def _of_module(
    program: Program, args: Arguments, expected: Sequence[Any], outputs: Sequence[Any]
) -> Iterator[ProofRow]:
    """Yield the row of a comparison of the program with the module, from end to end: nearly always they are equal.

    Where torch's exporter decomposes an operator, numbers may be rounded otherwise; they have the limit of all others.
    """
    inputs, compared = shapes_text(args), "torch's program with the model"
    if not outputs:
        return
    if len(outputs) != len(expected):
        yield ProofRow(inputs, compared, len(outputs), None, "", f"{len(outputs)} outputs, not {len(expected)}")
        return
    if all(map(_same, expected, outputs)):
        yield ProofRow(inputs, compared, len(outputs), None, "")
        return
    given: dict[fx.Node, dict[int | None, Any]] = {}
    names: dict[Source, str] = {}
    actual: dict[Source, Any] = {}
    for (name, source), value in zip(program.outputs, expected, strict=True):
        if source is not None:
            value = torch.as_tensor(value)
            given.setdefault(source.node, {})[source.item] = value
            names[source], actual[source] = name, value.numpy()
    comparisons: list[Comparison] = []

    def compare(cut: Cut) -> None:
        comparisons.append(compare_values(names[cut.source], actual[cut.source], [cut]))

    program.run(args, given, compare, exact=True)
    yield from _of_run(args, compared, comparisons)


def _same(value: Any, other: Any) -> bool:
    """Return whether two outputs are equal, with NaN in the same positions."""
    value, other = torch.as_tensor(value), torch.as_tensor(other)
    if value.shape != other.shape or value.dtype != other.dtype:
        return False
    return bool(torch.equal(value, other) or np.array_equal(value.numpy(), other.numpy(), equal_nan=True))


def _with_noise(values: Mapping[str, NDArray[Any]], view: Noisy) -> dict[str, NDArray[Any]]:
    """Return numbers with normal noise, some of it far larger, and integers as they are."""
    generator = np.random.default_rng(view.seed)
    noisy: dict[str, NDArray[Any]] = {}
    for name, value in values.items():
        noisy[name] = value
        if value.dtype == np.float32 and value.size:
            size = min(np.sqrt(np.square(value[np.isfinite(value)], dtype=np.float64).mean()), MAX_SIZE)
            extreme = np.where(generator.random(value.shape) < EXTREME_SHARE, EXTREME, 1.0)
            noise = generator.standard_normal(value.shape) * extreme * size * view.strength
            noisy[name] = (value + noise).astype(np.float32)
    return noisy


MAX_SIZE = 10.0
"""The largest root mean square of a head's output that noise is drawn for: larger noise clips all boxes."""
