"""What the heads of a detector compute, compared with the same tensors of its file.

Detections hide most of what a network computes, and in an image without objects nearly all.  So a detector is traced
with the outputs of its heads as further outputs, which gives the tensors names; the finished file has the names, but
not the outputs.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray
from torch import Tensor, nn

from mmort.detect.detector import Detector
from mmort.onnx import Report
from mmort.onnx.graph import files
from mmort.onnx.verify.detections import DetectionRow
from mmort.onnx.verify.inner_tensors import run_tensors
from mmort.onnx.verify.numbers import compare, refusal
from mmort.onnx.verify.report import Row
from mmort.onnx.verify.values import Outputs, Reference, Tolerances, leaves, shapes_text
from mmort.predict.engines.splitting import needed_nodes

Arguments = tuple[Tensor, ...]

MIN_DETECTIONS = 10
"""The number of matches, over the images of a batch, below which detections alone prove too little."""

PREFIX = "heads/"
"""How the names begin that tensors of a file have as outputs of heads."""


class WithHeads(nn.Module):
    """A module with a detector in it; it returns the outputs of the detector's heads too, in the order of their calls.

    Parameters
    ----------
    module, detector : nn.Module
    """

    def __init__(self, module: nn.Module, detector: Detector) -> None:
        super().__init__()
        self.module = module
        self._layers = dict.fromkeys(head_layers(detector))
        self._raw_names, self._last_head = detector.raw_names, detector.heads[-1]

        def forward(*args: Tensor) -> tuple[Tensor, ...]:
            return self._outputs(*args)

        forward.__signature__ = inspect.signature(module.forward)  # type: ignore[attr-defined]  # names the inputs
        self.forward = forward
        self.eval()

    def _outputs(self, *args: Tensor) -> tuple[Tensor, ...]:
        """Return the module's outputs and those of the heads."""
        outputs: list[Tensor] = []

        def record(layer: nn.Module, arguments: Any, output: Any) -> None:
            outputs.extend(tensor.clone() for tensor in leaves(output))  # it may be changed in place later

        hooks = [layer.register_forward_hook(record) for layer in self._layers]
        try:
            results = self.module(*args)
        finally:
            for hook in hooks:
                hook.remove()
        return *results, *outputs

    def names(self, count: int) -> list[str]:
        """Return the names of `count` outputs of heads: those of `Detector.raw`, then numbers."""
        more = (f"{self._last_head}_{index}" for index in range(count - len(self._raw_names)))
        return [*self._raw_names, *more]


def head_layers(detector: Detector) -> Iterator[nn.Module]:
    """Yield the heads of a detector."""
    for name in detector.heads:
        head = detector.get_submodule(name)
        yield from head if isinstance(head, nn.ModuleList) else [head]


def hide(model: onnx.ModelProto) -> None:
    """Turn the outputs of heads into inner tensors of the graph, without the nodes that nothing else needs."""
    graph = model.graph
    outputs = [value for value in graph.output if not value.name.startswith(PREFIX)]
    nodes, needed = needed_nodes(graph.node, [value.name for value in outputs])
    initializers = [tensor for tensor in graph.initializer if tensor.name in needed]
    computed = {name for node in nodes for name in node.output}
    values = [value for value in graph.value_info if value.name in computed]
    for field, kept in (
        (graph.output, outputs),
        (graph.node, nodes),
        (graph.initializer, initializers),
        (graph.value_info, values),
    ):
        copies = [type(message).FromString(message.SerializeToString()) for message in kept]
        del field[:]
        field.extend(copies)


def few_detections(report: Report, inputs: Sequence[Arguments]) -> list[Arguments]:
    """Return those inputs in which too few detections match; ties prove nothing."""
    texts = set(map(shapes_text, inputs))
    matches = iter([row.matched for row in report.rows if isinstance(row, DetectionRow) and row.inputs in texts])
    return [args for args in inputs if sum(itertools.islice(matches, len(args[0]))) < MIN_DETECTIONS]


def note_few(report: Report, inputs: Sequence[Arguments]) -> Report:
    """Note at detections of some inputs that they are few, and that the heads' outputs prove what they do not."""
    shapes = {shapes_text(args) for args in inputs}
    return Report(
        tuple(
            replace(row, note="few detections, see the outputs of the heads", proves_nothing=False)
            if isinstance(row, DetectionRow) and row.inputs in shapes
            else row
            for row in report.rows
        )
    )


def run_heads(
    draft: Path, args: Arguments, names: Sequence[str], outputs: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """Return those outputs of heads with these names that a file computes, after some outputs of the file."""
    computed = {name for node in files.load(draft).graph.node for name in node.output}
    tensors = [*outputs, *(PREFIX + name for name in names if PREFIX + name in computed)]
    return run_tensors(draft, tensors, args) if tensors else {}


def compare_heads(
    tensors: Mapping[str, NDArray[Any]], args: Arguments, names: Sequence[str], reference: Reference
) -> list[Row]:
    """Compare the outputs of heads that a file computes; `reference` has all of them, by these names."""
    text = shapes_text(args)
    rows: list[Row] = []
    for index, name in enumerate(names):
        if PREFIX + name in tensors:
            expected = reference.part(slice(index, index + 1))
            rows += compare(Outputs(text, (name,), [tensors[PREFIX + name]], expected, Tolerances()))
    return rows or [refusal(text, "the file has no tensors with the names of the heads' outputs")]
