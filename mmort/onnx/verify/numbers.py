"""Outputs compared number by number, within a tolerance: the comparator for all outputs that no other one takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mmort.onnx.verify import rounding
from mmort.onnx.verify.report import Row, number_text
from mmort.onnx.verify.values import Outputs, shape_text

CHUNK = 1 << 20
"""How many numbers are compared at once."""


@dataclass(frozen=True)
class NumbersRow:
    """One output for one set of inputs."""

    HEADINGS: ClassVar[tuple[str, ...]] = ("inputs", "output", "shape", "max abs diff", "max rel diff", "tolerance")
    NAMES: ClassVar[str] = "output"

    inputs: str
    """The inputs' shapes, ``2x3x64x96``."""
    output: str
    shape: str
    max_abs_diff: float | None
    """None if numbers cannot be compared; `problem` says why."""
    max_rel_diff: float | None
    """The largest difference relative to the magnitude of the expected number."""
    tolerance: str
    """The largest absolute one, and the relative one."""
    problem: str

    @property
    def ok(self) -> bool:
        """Whether the output agrees."""
        return not self.problem

    def cells(self) -> tuple[str, ...]:
        """Return the text of each column."""
        differences = number_text(self.max_abs_diff), number_text(self.max_rel_diff)
        return self.inputs, self.output, self.shape, *differences, self.tolerance


def compare(outputs: Outputs) -> list[Row]:
    """Compare each output, and the number of outputs."""
    pairs = zip(outputs.actual, outputs.expected, strict=False)
    rows: list[Row] = [
        compare_by_tolerance(outputs, name, np.asarray(actual), expected)
        for name, (actual, expected) in zip(outputs.names, pairs, strict=False)
    ]
    if len(outputs.names) != len(outputs.expected):
        problem = f"the file has {len(outputs.names)} outputs, the model {len(outputs.expected)}"
        rows.append(refusal(outputs.inputs, problem))
    return rows


def refusal(inputs: str, problem: str) -> NumbersRow:
    """Return the row of inputs for which there are no outputs to compare."""
    return NumbersRow(inputs, "-", "-", None, None, "-", problem)


def compare_by_tolerance(outputs: Outputs, name: str, actual: NDArray[Any], expected: NDArray[Any]) -> NumbersRow:
    """Compare one output: dtype, shape, then each number."""
    exact = expected.dtype.kind != "f"
    rtol, atol = (0.0, 0.0) if exact else (outputs.tolerances.rtol, outputs.tolerances.atol)
    absolute = atol * np.maximum(1, np.zeros(()) if exact else rounding.around(expected))
    tolerance = "exact" if exact else f"{absolute.max(initial=atol):.0e} + {100 * rtol:g} %"

    def row(max_abs_diff: float | None, max_rel_diff: float | None, problem: str) -> NumbersRow:
        shape = shape_text(actual.shape)
        return NumbersRow(outputs.inputs, name, shape, max_abs_diff, max_rel_diff, tolerance, problem)

    if actual.dtype != expected.dtype:
        return row(None, None, f"{actual.dtype}, the model gives {expected.dtype}")
    if actual.shape != expected.shape:
        return row(None, None, f"shape {shape_text(actual.shape)}, the model gives {shape_text(expected.shape)}")
    if actual.dtype.kind not in "fiub":
        different = int((actual != expected).sum())
        return row(None, None, f"{different} of {actual.size} values" if different else "")
    wrong, max_difference, max_relative = 0, 0.0, 0.0
    absolute = np.broadcast_to(absolute, expected.shape).reshape(-1)
    for start in range(0, actual.size, CHUNK):  # a detector's maps would fill gigabytes as float64
        part = slice(start, start + CHUNK)
        value, target = (array.reshape(-1)[part].astype(np.float64) for array in (actual, expected))
        same = (actual.reshape(-1)[part] == expected.reshape(-1)[part]) | (np.isnan(value) & np.isnan(target))
        with np.errstate(divide="ignore", invalid="ignore"):  # infinity - infinity, and division by 0
            difference = np.where(same, 0, np.abs(value - target))
            relative = np.where(same, 0, difference / np.abs(target))
        # Comparisons with NaN are false, so a NaN on only one side never agrees.
        agrees = same | (np.isfinite(target) & (difference <= absolute[part] + rtol * np.abs(target)) & (not exact))
        wrong += int(agrees.size - agrees.sum())
        max_difference = float(np.maximum(max_difference, difference.max()))
        max_relative = float(np.maximum(max_relative, relative.max()))
    return row(max_difference, max_relative, f"{wrong} of {actual.size} numbers" if wrong else "")
