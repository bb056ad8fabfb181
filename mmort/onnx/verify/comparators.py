"""Running a session and a reference on the same inputs, whose outputs are compared as detections or as numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mmort.onnx.verify import detections, numbers
from mmort.onnx.verify.report import Row
from mmort.onnx.verify.sessions import feeds, one_line, open_session, refusals
from mmort.onnx.verify.values import Outputs, Reference, Tolerances, shapes_text

if TYPE_CHECKING:
    import onnxruntime


def compare(
    session: onnxruntime.InferenceSession, values: Sequence[Any], expected: Reference, tolerances: Tolerances
) -> Sequence[Row]:
    """Run a session on inputs, and compare its outputs with the expected ones."""
    named = feeds(session, values)
    inputs = shapes_text(values)
    try:
        actual = session.run(None, named)
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        return [numbers.refusal(inputs, f"ONNX Runtime refuses the inputs: {one_line(error)}")]
    names = [tensor.name for tensor in session.get_outputs()]
    return compare_outputs(Outputs(inputs, names, actual, expected, tolerances, mask_threshold(session)))


def compare_outputs(outputs: Outputs) -> Sequence[Row]:
    """Compare outputs as those of a detector if they are, or else as numbers."""
    rows = detections.compare(outputs)
    return numbers.compare(outputs) if rows is None else rows


def mask_threshold(session: onnxruntime.InferenceSession) -> float | None:
    """Return the threshold of the masks of a detector that makes its boxes of them, by its file's metadata."""
    text = session.get_modelmeta().custom_metadata_map.get("masks", "{}")
    try:
        described = json.loads(text)
        return float(described["threshold"]) if described.get("boxes") == "masks" else None
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):  # another tool's metadata
        return None


def reference(
    model: Callable[..., Any] | str | os.PathLike[str], libraries: Sequence[str | os.PathLike[str]]
) -> Callable[[Sequence[Any], bool], Reference]:
    """Return a function that computes a model's outputs, whether the model is a file or a function of tensors.

    Its second argument says whether the outputs of a function in float64 decide.
    """
    if isinstance(model, (str, os.PathLike)):
        return _file_reference(model, libraries)
    import torch

    from mmort.onnx.verify.torch_reference import run

    function = model

    def run_model(values: Sequence[Any], decides: bool) -> Reference:
        tensors = [torch.from_numpy(value) if isinstance(value, np.ndarray) else value for value in values]
        return run(function, tensors, decides=decides)

    return run_model


def _file_reference(
    path: str | os.PathLike[str], libraries: Sequence[str | os.PathLike[str]]
) -> Callable[[Sequence[Any], bool], Reference]:
    """Return a function that runs a file, in float32 only."""
    session = open_session(path, libraries)

    def run_file(values: Sequence[Any], decides: bool) -> Reference:
        named = feeds(session, values)
        with refusals(f"verify: inputs must suit {os.fspath(path)}, which fails with {shapes_text(values)}"):
            return Reference(session.run(None, named))

    return run_file
