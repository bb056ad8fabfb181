"""Comparison of what the heads of a detector compute, for inputs in which it detects too little to prove anything.

The heads' outputs are no outputs of the file, and their names in it are those that torch's exporter chose.  So they are
searched among all tensors of the file that have the right shape, with the smallest inputs.  That a file computes a
whole map of the right numbers by accident is impossible.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mmort.detect.detector import Detector
from mmort.onnx import Report
from mmort.onnx.graph import files
from mmort.onnx.verify.detections import DetectionRow
from mmort.onnx.verify.masks import probabilities
from mmort.onnx.verify.numbers import compare_output, refusal
from mmort.onnx.verify.report import Row
from mmort.onnx.verify.sessions import feeds, open_session
from mmort.onnx.verify.values import Outputs, Reference, Tolerances, leaves, shapes_text

Arguments = tuple[Tensor, ...]

MASK_LOGITS = "mask_pred"
"""The output of a head with the masks of queries."""

MIN_DETECTIONS = 10
"""The number of matches, over the images of a batch, below which detections alone prove too little."""


def few_detections(report: Report, inputs: Sequence[Arguments]) -> list[Arguments]:
    """Return those inputs in which too few detections match; ties prove nothing."""
    texts = set(map(shapes_text, inputs))
    matches = iter([row.matched for row in report.rows if isinstance(row, DetectionRow) and row.inputs in texts])
    return [args for args in inputs if sum(itertools.islice(matches, len(args[0]))) < MIN_DETECTIONS]


def add_outputs(
    report: Report, draft: Path, detector: Detector, module: nn.Module, inputs: Sequence[Arguments]
) -> Report:
    """Add rows for the heads' outputs, for all inputs with few detections, and notes that say so.

    Parameters
    ----------
    report : Report
        Rows of detections, in the order of `inputs`.
    draft : Path
        The file.
    detector, module : nn.Module
        The detector, and the module with it that the file was made of.
    inputs : sequence of tuples of Tensor
        The module's arguments.
    """
    few = few_detections(report, inputs)
    shapes = {shapes_text(args) for args in few}
    rows: list[Row] = [
        replace(row, note="few detections, see the outputs of the heads", proves_nothing=False)
        if isinstance(row, DetectionRow) and row.inputs in shapes
        else row
        for row in report.rows
    ]
    return Report((*rows, *_compare(draft, detector, module, sorted(few, key=lambda args: args[0].numel()))))


def _compare(draft: Path, detector: Detector, module: nn.Module, inputs: Sequence[Arguments]) -> Iterator[Row]:
    """Yield a row for each output of a head and each of the inputs, the smallest first."""
    sources: list[str] = []  # the names in the file of the heads' outputs
    for args in inputs:
        expected = _head_outputs(detector, module, args)
        found = run_tensors(draft, sources or _candidates(files.load(draft), list(expected.values())), args)
        sources = sources or [_nearest(found, array) for array in expected.values()]
        text = shapes_text(args)
        for source, (name, array) in zip(sources, expected.items(), strict=True):
            if not source:
                yield refusal(text, f"no tensor of the file has the shape of {name}")
                continue
            yield compare_maps(text, name, found[source], array)


def compare_maps(inputs: str, name: str, found: NDArray[Any], expected: NDArray[Any]) -> Row:
    """Compare a head's output in the file with torch's; logits of masks as probabilities, as in detections.

    Among the millions of logits of a query's mask at full size, some near 0 are sums of large numbers.
    """
    if name == MASK_LOGITS:
        found, expected = (probabilities(logits).astype(np.float32) for logits in (found, expected))
    outputs = Outputs(inputs, (), (), Reference(()), Tolerances())
    return compare_output(outputs, name, _unordered(found), _unordered(expected))


def _head_outputs(detector: Detector, module: nn.Module, args: Arguments) -> dict[str, NDArray[Any]]:
    """Return the outputs of all calls of the detector's heads by name, those of `Detector.raw` first."""
    outputs: list[NDArray[Any]] = []

    def record(layer: nn.Module, given: Any, output: Any) -> None:
        outputs.extend(tensor.numpy() for tensor in leaves(output))

    heads = [detector.get_submodule(name) for name in detector.heads]
    layers = [layer for head in heads for layer in (head if isinstance(head, nn.ModuleList) else [head])]
    hooks = [layer.register_forward_hook(record) for layer in layers]
    try:
        with torch.no_grad():
            module(*args)
    finally:
        for hook in hooks:
            hook.remove()
    names = detector.raw_names
    more = [f"{detector.heads[-1]}_{index}" for index in range(len(outputs) - len(names))]
    return dict(zip((*names, *more), outputs, strict=True))


def _candidates(model: onnx.ModelProto, expected: Sequence[NDArray[Any]]) -> list[str]:
    """Return the names of the tensors computed by a graph that may have the shape of one of the expected ones."""
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.value_info
    }

    def may_have(name: str, shape: tuple[int, ...]) -> bool:
        known = shapes.get(name)
        if known is None:
            return True
        return len(known) == len(shape) and all(size in (0, other) for size, other in zip(known, shape, strict=True))

    names = [name for node in model.graph.node for name in node.output if name]
    return [name for name in names if any(may_have(name, array.shape) for array in expected)]


@contextmanager
def _with_outputs(draft: Path, names: Sequence[str]) -> Iterator[Path]:
    """Write a copy of a file whose outputs are these tensors, and remove it at the end of the block."""
    model = files.load(draft)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    path = draft.with_name(f"heads-{draft.name}")
    try:
        path.write_bytes(model.SerializeToString())
        yield path
    finally:
        path.unlink(missing_ok=True)


def run_tensors(draft: Path, names: Sequence[str], args: Arguments) -> dict[str, NDArray[Any]]:
    """Return tensors that a file computes, by name."""
    names = [name for name in dict.fromkeys(names) if name]
    with _with_outputs(draft, names) as path:
        session = open_session(path)
        return dict(zip(names, session.run(names, feeds(session, args)), strict=True))


def _nearest(found: dict[str, NDArray[Any]], expected: NDArray[Any]) -> str:
    """Return the name of the tensor that is nearest to the expected one, an empty text if none has its shape."""
    distances = {
        name: np.nan_to_num(np.abs(_unordered(array) - _unordered(expected)).max(initial=0), nan=np.inf)
        for name, array in found.items()
        if array.shape == expected.shape and array.dtype == expected.dtype
    }
    return min(distances, key=lambda name: distances[name], default="")


def _unordered(array: NDArray[Any]) -> NDArray[Any]:
    """Return rows of regions with each column sorted: nearly equal scores of proposals may swap rows."""
    return np.sort(array, axis=0) if array.ndim == 2 else array
