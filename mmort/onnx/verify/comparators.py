"""Running a file and its reference on the same inputs, whose outputs are compared as detections or as numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mmort.onnx.verify import detections, numbers
from mmort.onnx.verify.report import Row
from mmort.onnx.verify.sessions import feeds, one_line, open_session, refusals
from mmort.onnx.verify.values import Outputs, as_array, leaves, shapes_text
from mmort.tolerances import Tolerances

if TYPE_CHECKING:
    import onnxruntime


def compare(
    session: onnxruntime.InferenceSession,
    values: Sequence[Any],
    expected: Sequence[NDArray[Any]],
    tolerances: Tolerances,
) -> Sequence[Row]:
    """Run a session on inputs, and compare its outputs with the expected ones."""
    named = feeds(session, values)
    inputs = shapes_text(values)
    try:
        actual = session.run(None, named)
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        return [numbers.refusal(inputs, f"ONNX Runtime refuses the inputs: {one_line(error)}")]
    names = [tensor.name for tensor in session.get_outputs()]
    return compare_outputs(Outputs(inputs, names, actual, expected, tolerances))


def compare_outputs(outputs: Outputs) -> Sequence[Row]:
    """Compare outputs as those of a detector if they are, or else as numbers."""
    rows = detections.compare(outputs)
    return numbers.compare(outputs) if rows is None else rows


def reference(
    model: Callable[..., Any] | str | os.PathLike[str], libraries: Sequence[str | os.PathLike[str]]
) -> Callable[[Sequence[Any]], list[NDArray[Any]]]:
    """Return a function that computes a model's outputs, whether the model is a file or a function of tensors."""
    if isinstance(model, (str, os.PathLike)):
        return _file_reference(model, libraries)
    import torch

    function = model

    def run_model(values: Sequence[Any]) -> list[NDArray[Any]]:
        tensors = [torch.from_numpy(value) if isinstance(value, np.ndarray) else value for value in values]
        return run_in_torch(function, tensors)

    return run_model


def run_in_torch(function: Callable[..., Any], values: Sequence[Any]) -> list[NDArray[Any]]:
    """Run a module or a function of tensors without gradients."""
    import torch

    with torch.no_grad():
        return [as_array(value) for value in leaves(function(*values))]


def _file_reference(
    path: str | os.PathLike[str], libraries: Sequence[str | os.PathLike[str]]
) -> Callable[[Sequence[Any]], list[NDArray[Any]]]:
    """Return a function that runs a file."""
    session = open_session(path, libraries)

    def run_file(values: Sequence[Any]) -> list[NDArray[Any]]:
        named = feeds(session, values)
        with refusals(f"verify: inputs must suit {os.fspath(path)}, which fails with {shapes_text(values)}"):
            return list(session.run(None, named))

    return run_file
