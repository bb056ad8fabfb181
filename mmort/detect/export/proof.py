"""The comparison of a detector's draft with torch: detections at all sizes, and the outputs of the heads.

The smallest inputs come first, and are compared by torch's own rounding, heads included.  Larger ones show what was
frozen, and are compared by tolerances, their heads only where there are few detections.  Then come the smallest once
more, crowded with detections.  If something differs, torch makes the draft's choices wherever rounding decides, and all
is compared again.  Constants, extremes and limits of integers, some of which hardly any input shows, are compared as
they are, and crowded detections are in the order of their scores if torch's are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mmort.detect.detector import Detector
from mmort.detect.export.constants import compare_constants
from mmort.detect.export.crowd import VIEWS, Crowded, crowd, view, with_noise
from mmort.detect.export.exported_detector import Exported
from mmort.detect.export.extremes import compare_extremes
from mmort.detect.export.head_outputs import (
    Arguments,
    WithHeads,
    compare_heads,
    few_detections,
    note_few,
    run_heads,
    run_tensors,
)
from mmort.detect.export.limited_integers import compare_limited_integers
from mmort.onnx import Report
from mmort.onnx.export.draft import ALONE, compare_draft, expected_outputs
from mmort.onnx.export.options import Options
from mmort.onnx.graph import files
from mmort.onnx.verify.numbers import refusal
from mmort.onnx.verify.operator_calls import Intercepted
from mmort.onnx.verify.replay import CHOICES, COMPARISONS, Choice, Replay
from mmort.onnx.verify.report import Row
from mmort.onnx.verify.sessions import feeds, open_session
from mmort.onnx.verify.values import Reference, Tolerances, index_of_smallest, shapes_text


class Proof:
    """Compares drafts of a detector's file with the module that they were made of.

    Parameters
    ----------
    detector, module : nn.Module
        The detector, and the module with it.
    path : Path
        The file that a draft is to become, for messages.
    options : Options
        Those of the export.
    heads : bool, default True
        Whether the outputs of heads are compared too.
    """

    def __init__(
        self, detector: Detector, module: nn.Module, path: Path, options: Options, *, heads: bool = True
    ) -> None:
        self.detector, self.module, self.path, self.options, self.heads = detector, module, path, options, heads

    def __call__(self, draft: Path, inputs: Sequence[Arguments], begin: Callable[[str], None]) -> Report:
        """Compare a draft with torch; `begin` takes the text of a further step."""
        module: nn.Module = self.module
        report = self._report(draft, module, inputs, begin)
        if not report.ok:
            module = ReplayingModule(module, draft)
            report = self._report(draft, module, inputs, begin)
        if self.options.portable == "inlined":  # the definitions of mmort's operators have clips and reductions, too
            return report
        args = inputs[index_of_smallest(inputs)]
        # Which of many scores of 0 are the best, areas show, but no detections.
        replaying = ReplayingModule(self.module, draft)
        return Report(
            (
                *report.rows,
                *compare_constants(draft, self.module, args),
                *compare_extremes(draft, replaying, args),
                *compare_limited_integers(draft, replaying, args),
            )
        )

    def _report(
        self, draft: Path, module: nn.Module, inputs: Sequence[Arguments], begin: Callable[[str], None]
    ) -> Report:
        """Compare a draft with a module, first for the smallest inputs: if they differ, no others are needed."""
        first = index_of_smallest(inputs)
        with_heads = WithHeads(module, self.detector) if self.heads else module
        count = len(files.load(draft).graph.output)
        smallest = self.expected(with_heads, inputs[first], decides=True)
        report = compare_draft(draft, self.path, [inputs[first]], [smallest.part(slice(count))], self.options)
        remaining = [args for index, args in enumerate(inputs) if index != first]
        if remaining and report.ok:
            references = [self.expected(module, args, decides=False) for args in remaining]
            report = Report((*report.rows, *compare_draft(draft, self.path, remaining, references, self.options).rows))
        order = [shapes_text(args) for args in inputs]
        order += ["-", *(f"{text}{ALONE}" for text in order)]  # "-" stands for a file that cannot be loaded
        report = Report(tuple(sorted(report.rows, key=lambda row: order.index(row.inputs))))
        if not isinstance(with_heads, WithHeads) or not report.ok:
            return report
        few = few_detections(report, inputs)
        begin("comparing the outputs of the heads" + ", also where there are few detections" * bool(few))
        rows: list[Row] = [*note_few(report, few).rows]
        for args in [inputs[first], *(args for args in few if args is not inputs[first])]:
            reference = smallest if args is inputs[first] else self.expected(with_heads, args, decides=False)
            names = with_heads.names(len(reference.outputs) - count)
            rows += compare_heads(run_heads(draft, args, names), args, names, reference.part(slice(count, None)))
        if not Report(tuple(rows)).ok:
            return Report(tuple(rows))
        begin("comparing crowded detections, by noise in the outputs of the heads")
        names = with_heads.names(len(smallest.outputs) - count)
        return Report((*rows, *self._crowded(draft, inputs[first], names)))

    def expected(self, module: nn.Module, args: Arguments, *, decides: bool) -> Reference:
        """Return what a module, which is the proof's or contains it, computes."""
        return expected_outputs(module, args, decides=decides)

    def crowds(self, args: Arguments) -> Iterator[tuple[str, Crowded, Arguments]]:
        """Yield views of some arguments, how they are called, and a module that gives the heads' outputs noise."""
        for seed, (label, (axis, padding, scenes)) in enumerate(VIEWS.items()):
            shown = view(args[0], axis, seed), *args[1:]
            if padding and isinstance(self.module, Exported):  # which takes img_shape last
                shown = *shown[:-1], args[-1] - args[-1] // padding
            noisy, _ = crowd(WithHeads(self.module, self.detector), self.detector, shown, seed, scenes)
            yield label, noisy, shown

    def _crowded(self, draft: Path, args: Arguments, names: Sequence[str]) -> list[Row]:
        """Compare the detections of a draft and of torch with noise in the outputs of the heads."""
        rows: list[Row] = []
        for label, noisy, shown in self.crowds(args):
            with with_noise(draft, names, noisy.changes) as path:
                report = self._compared(path, noisy, shown, names)
                report = report if report.ok else self._compared(path, ReplayingModule(noisy, path), shown, names)
            rows += [replace(row, inputs=f"{row.inputs}{label}") for row in report.rows]
        return rows

    def _compared(self, path: Path, module: nn.Module, args: Arguments, names: Sequence[str]) -> Report:
        """Compare a file with a module that returns the outputs of heads, too; of these show what differs."""
        reference = self.expected(module, args, decides=True)
        count = len(reference.outputs) - len(names)
        report = compare_draft(path, self.path, [args], [reference.part(slice(count))], self.options)
        dets = files.load(path).graph.output[0].name
        tensors = run_heads(path, args, names, [dets])
        heads = compare_heads(tensors, args, names, reference.part(slice(count, None)))
        order = _compare_order(tensors[dets], reference.outputs[0], shapes_text(args))
        return Report((*report.rows, *(row for row in heads if row.problem), *order))


def _compare_order(dets: NDArray[Any], expected: NDArray[Any], inputs: str) -> list[Row]:
    """Return a row if the detections of a file are not in the order of their scores, and torch's are.

    Detections are compared as sets otherwise.
    """
    if _descend(dets[..., -1]) or not _descend(expected[..., -1]):
        return []
    return [refusal(inputs, "detections are not by descending score, as torch's are")]


def _descend(scores: NDArray[Any]) -> bool:
    """Return whether scores descend in each row, but for rounding."""
    return not (np.diff(scores) > Tolerances().of(scores[..., :-1])).any()


class ReplayingModule(nn.Module):
    """A module that chooses as a file does, where rounding decides."""

    def __init__(self, module: nn.Module, draft: Path) -> None:
        super().__init__()
        self.module, self.draft = module, draft
        graph = files.load(draft).graph
        probabilities = {node.output[0] for node in graph.node if node.op_type == "Sigmoid"}
        self.choices = [
            (node.op_type, [name for index, name in enumerate(node.output) if index in CHOICES[node.op_type]])
            for node in graph.node
            if node.op_type in CHOICES and (node.op_type not in COMPARISONS or node.input[0] in probabilities)
        ]
        self._last: tuple[list[NDArray[Any]], list[Choice]] | None = None
        self.outputs = [value.name for value in graph.output]  # kept, so that ONNX Runtime runs the same graph
        self.eval()

    def forward(self, *args: Tensor) -> tuple[Tensor, ...]:
        """Return the module's outputs, also in float64, for the choices that the file makes in float32."""
        replay = Replay(self._choices(args))
        with Intercepted(replay.call):
            outputs: tuple[Tensor, ...] = self.module(*args)
        return outputs

    def _choices(self, args: Sequence[Tensor]) -> list[Choice]:
        """Return what the file chooses for some arguments; those of the last call are remembered."""
        arrays = [tensor.numpy() for tensor in args]
        arrays = [array.astype(np.float32) if array.dtype == np.float64 else array for array in arrays]
        if self._last is None or not all(map(np.array_equal, self._last[0], arrays)):
            names = [name for _, outputs in self.choices for name in outputs]
            tensors = run_tensors(self.draft, [*names, *self.outputs], arrays)
            choices: list[Choice] = [
                (kind, [torch.from_numpy(tensors[name]) for name in outputs if name]) for kind, outputs in self.choices
            ]
            self._last = arrays, choices
        return self._last[1]


def check_optional(path: Path, args: Sequence[Tensor]) -> None:
    """Check that a file without ``img_shape``, the last argument, computes the same bits as with the input's size."""
    batch, _, height, width = args[0].shape
    session = open_session(path)
    inputs = feeds(session, args[:-1])
    defaults = session.run(None, inputs)
    explicit = session.run(None, inputs | {"img_shape": np.array([[height, width]] * batch, np.int64)})
    if not all(map(np.array_equal, defaults, explicit)):
        raise ValueError(
            "export: without img_shape the file must detect the same as with the size of the input, got differences"
        )
