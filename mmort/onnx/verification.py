"""Whether an ONNX file computes what a model computes: both are run on the same inputs, and the outputs compared."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import mmort.ort
from mmort.onnx.detections import DetectionRow, are_detections, compare_detections
from mmort.tables import lay_out

if TYPE_CHECKING:
    import onnxruntime

RTOL, ATOL = 1e-3, 1e-4
"""Default tolerances of `verify`; its docstring says why."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One output on one set of inputs."""

    inputs: str
    """The inputs' shapes, ``2x3x64x96``."""
    output: str
    shape: str
    max_abs_diff: float | None
    """None where numbers cannot be compared: `problem` says why."""
    max_rel_diff: float | None
    """Of a difference to the magnitude of the model's number."""
    tolerance: str
    ok: bool
    problem: str


@dataclasses.dataclass(frozen=True)
class Report:
    """What `verify` found; prints as a table: a line for each output and set of inputs, or each image of a detector."""

    rows: tuple[Row | DetectionRow, ...]

    @property
    def ok(self) -> bool:
        """Whether all outputs agree on all inputs; false if nothing was compared."""
        return bool(self.rows) and all(row.ok for row in self.rows)

    def to_json(self) -> str:
        """Return ``ok`` and the rows as JSON; a difference that is no number is null."""
        rows = [{**dataclasses.asdict(row), "ok": row.ok, "problem": row.problem} for row in self.rows]
        for row in rows:
            for name, value in row.items():
                if isinstance(value, float) and not np.isfinite(value):
                    row[name] = None
        return json.dumps({"ok": self.ok, "rows": rows}, indent=2)

    def __str__(self) -> str:
        """Lay the rows out as a table, or as two: outputs, and detections."""
        outputs = [
            (
                row.inputs,
                row.output,
                row.shape,
                _number(row.max_abs_diff),
                _number(row.max_rel_diff),
                row.tolerance,
                _verdict(row),
            )
            for row in self.rows
            if isinstance(row, Row)
        ]
        detections = [
            (
                row.inputs,
                str(row.image),
                str(row.detections),
                str(row.matched),
                str(row.missing),
                str(row.extra),
                _number(row.max_box_diff),
                _number(row.max_score_diff),
                _number(row.min_mask_overlap),
                _verdict(row),
            )
            for row in self.rows
            if isinstance(row, DetectionRow)
        ]
        tables = [
            _table("inputs, output, shape, max abs diff, max rel diff, tolerance,", outputs),
            _table(
                "inputs, image, detections, matched, missing, extra, max box diff, max score diff, min mask overlap,",
                detections,
            ),
        ]
        return "\n\n".join(filter(None, tables))


class VerificationError(ValueError):
    """An ONNX file does not compute what the model computes; ``report`` has the rows of the table in the text."""

    def __init__(self, text: str, report: Report) -> None:
        super().__init__(text)
        self.report = report


def verify(
    path: str | os.PathLike[str],
    model: Callable[..., Any] | str | os.PathLike[str],
    inputs: Iterable[Sequence[Any]],
    *,
    rtol: float = RTOL,
    atol: float = ATOL,
    libraries: Sequence[str | os.PathLike[str]] = (),
) -> Report:
    """Run an ONNX file and the model that it is to equal on the same inputs, and compare all outputs.

    Parameters
    ----------
    path : path
        The ONNX file, which ONNX Runtime runs on the CPU with mmort's operators.
    model : callable or path
        A torch module or a function of tensors, run without gradients; or another ONNX file.
    inputs : iterable of sequences
        Sets of inputs, each a sequence of arrays or tensors in the order of the model's arguments.  What is neither, a
        number or None, is an argument of the model and no input of the file.  Lists and dicts of tensors are several
        inputs.
    rtol, atol : float, default 1e-3, 1e-4
        A floating-point number ``a`` may differ from the model's ``b`` by ``atol + rtol * abs(b)``.  Float32 sums of a
        deep network taken in another order differ by 1e-6 to 1e-4 of their magnitude, wrong weights, thresholds or
        sizes by far more.  Integers and bools must be the same, NaN and infinities in the same places.  The outputs of
        detectors (``dets`` and ``labels``, perhaps ``masks``) are compared as sets: see
        `mmort.onnx.detections.compare_detections`.
    libraries : sequence of paths, default ()
        Further libraries of custom operators that the files need.

    Returns
    -------
    Report
        A row for each set of inputs and output, or for each image of a detector.  Another number of outputs, dtype or
        shape, and inputs that ONNX Runtime refuses, are differences too.

    Raises
    ------
    ValueError
        If a file has another number of inputs, or ONNX Runtime does not load it.
    ImportError
        If onnxruntime is not installed.
    Exception
        What the model raises.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, onnx, onnx.helper as oh
    >>> import mmort.onnx
    >>> x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy")
    >>> path = pathlib.Path(tempfile.mkdtemp(), "relu.onnx")
    >>> onnx.save(oh.make_model(oh.make_graph([oh.make_node("Relu", ["x"], ["y"])], "example", [x], [y]),
    ...           opset_imports=[oh.make_opsetid("", 18)], ir_version=8), path)
    >>> import torch
    >>> report = mmort.onnx.verify(path, torch.abs, [[np.ones(2, np.float32)], [-np.ones(3, np.float32)]])
    >>> print(report)
    inputs  output  shape  max abs diff  max rel diff  tolerance
    2       y       2      0             0             1e-04 + 0.1 %  ok
    3       y       3      1             1             1e-04 + 0.1 %  DIFFERS: 3 of 3 numbers
    >>> report.ok
    False
    """
    session = open_session(path, libraries)
    reference = _reference(model, libraries)
    rows: list[Row | DetectionRow] = []
    for values in inputs:
        rows += compare(session, values, reference(values), rtol=rtol, atol=atol)
    return Report(tuple(rows))


def open_session(
    path: str | os.PathLike[str], libraries: Sequence[str | os.PathLike[str]] = (), own_library: bool = True
) -> onnxruntime.InferenceSession:
    """Open a file with mmort's operators and those of other libraries; a ValueError says why that fails."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise ImportError("mmort.onnx.verify needs ONNX Runtime: pip install onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised anyway, and warnings are not about results
    try:
        for library in libraries:
            options.register_custom_ops_library(os.fspath(library))
        if own_library:
            return mmort.ort.session(path, sess_options=options)
        return onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    except OSError:
        raise
    except Exception as error:  # of ONNX Runtime: it has a class for each status, and no base class
        raise ValueError(f"verify: ONNX Runtime must load {os.fspath(path)}, got: {_one_line(error)}") from error


def compare(
    session: onnxruntime.InferenceSession, values: Sequence[Any], expected: Any, *, rtol: float, atol: float
) -> list[Row | DetectionRow]:
    """Run a session on inputs, and compare its outputs with the expected ones."""
    arrays = [as_array(value) for value in leaves(values)]
    names = [one.name for one in session.get_inputs()]
    if len(names) != len(arrays):
        raise ValueError(f"verify: inputs must be {len(names)} ({', '.join(names)}), got {len(arrays)}")
    shapes = shapes_text(values)
    try:
        results = session.run(None, dict(zip(names, arrays, strict=True)))
    except Exception as error:  # of ONNX Runtime: it has a class for each status, and no base class
        return [refusal(shapes, f"ONNX Runtime refuses the inputs: {_one_line(error)}")]
    outputs = [one.name for one in session.get_outputs()]
    wanted = [as_array(value) for value in leaves(expected)]
    if all(are_detections(outputs, arrays) for arrays in (results, wanted)) and len(results[0]) == len(wanted[0]):
        return [*compare_detections(shapes, results, wanted, rtol=rtol, atol=atol)]
    rows: list[Row | DetectionRow] = [
        _compare_output(shapes, name, np.asarray(result), array, rtol, atol)
        for name, result, array in zip(outputs, results, wanted, strict=False)
    ]
    if len(outputs) != len(wanted):
        problem = f"the file has {len(outputs)} outputs, the model {len(wanted)}"
        rows.append(refusal(shapes, problem))
    return rows


def _compare_output(inputs: str, name: str, got: NDArray[Any], wanted: NDArray[Any], rtol: float, atol: float) -> Row:
    exact = wanted.dtype.kind != "f"
    tolerance = "exact" if exact else f"{atol:.0e} + {100 * rtol:g} %"

    def row(largest: float | None, relative: float | None, problem: str) -> Row:
        return Row(inputs, name, shape_text(got.shape), largest, relative, tolerance, not problem, problem)

    if got.dtype != wanted.dtype:
        return row(None, None, f"{got.dtype}, the model gives {wanted.dtype}")
    if got.shape != wanted.shape:
        return row(None, None, f"shape {shape_text(got.shape)}, the model gives {shape_text(wanted.shape)}")
    if got.dtype.kind not in "fiub":
        different = int((got != wanted).sum())
        return row(None, None, f"{different} of {got.size} values" if different else "")
    actual, target = (array.astype(np.float64) for array in (got, wanted))
    same = (got == wanted) | (np.isnan(actual) & np.isnan(target))
    with np.errstate(invalid="ignore"):  # infinity - infinity
        difference = np.where(same, 0, np.abs(actual - target))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(same, 0, difference / np.abs(target))
    # written so that NaN is no agreement
    good = same if exact else same | (np.isfinite(target) & (difference <= atol + rtol * np.abs(target)))
    bad = int(got.size - good.sum())
    largest, most = (float(numbers.max(initial=0)) for numbers in (difference, relative))
    return row(largest, most, f"{bad} of {got.size} numbers" if bad else "")


def _reference(
    model: Callable[..., Any] | str | os.PathLike[str], libraries: Sequence[str | os.PathLike[str]]
) -> Callable[[Sequence[Any]], Any]:
    if isinstance(model, (str, os.PathLike)):
        session = open_session(model, libraries)
        names = [one.name for one in session.get_inputs()]

        def run_file(values: Sequence[Any]) -> Any:
            arrays = [as_array(value) for value in leaves(values)]
            if len(names) != len(arrays):
                raise ValueError(f"verify: inputs must be {len(names)} ({', '.join(names)}), got {len(arrays)}")
            try:
                return session.run(None, dict(zip(names, arrays, strict=True)))
            except Exception as error:  # of ONNX Runtime, as above
                shapes = shapes_text(values)
                raise ValueError(
                    f"verify: {os.fspath(model)} must take the inputs, it fails with {shapes}: {_one_line(error)}"
                ) from error

        return run_file

    import torch

    function = model

    def run_model(values: Sequence[Any]) -> Any:
        tensors = [torch.from_numpy(value) if isinstance(value, np.ndarray) else value for value in values]
        with torch.no_grad():
            return function(*tensors)

    return run_model


def refusal(inputs: str, problem: str) -> Row:
    """Return the row of inputs for which there is nothing to compare."""
    return Row(inputs, "-", "-", None, None, "-", False, problem)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def leaves(value: Any) -> list[Any]:
    """Return the tensors and arrays in lists, tuples and dicts, in order; None, numbers and words are dropped."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for one in value for leaf in leaves(one)]
    return [] if value is None or isinstance(value, (bool, int, float, str)) else [value]


def as_array(value: Any) -> NDArray[Any]:
    """Return a tensor or array as an array."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def shape_text(shape: Sequence[int]) -> str:
    """Write a shape as 2x3x64x96."""
    return "x".join(map(str, shape)) or "scalar"


def shapes_text(values: Any) -> str:
    """Write the shapes of all tensors and arrays."""
    return ", ".join(shape_text(one.shape) for one in leaves(values))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _verdict(row: Row | DetectionRow) -> str:
    return "ok" if row.ok else f"DIFFERS: {row.problem}"


def _table(head: str, lines: Sequence[Sequence[str]]) -> str:
    """Lay lines out under a head, its columns apart by commas; nothing without lines."""
    if not lines:
        return ""
    return lay_out([[cell.strip() for cell in head.split(",")], *lines])
