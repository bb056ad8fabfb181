"""The comparison of a detector's draft with torch: detections at all sizes, and the outputs of the heads.

The smallest inputs come first, and are compared by torch's own rounding, heads included.  Larger ones show what was
frozen, and are compared by tolerances, their heads only where there are few detections.  Then come the smallest once
more, crowded with detections.  If something differs, torch makes the draft's choices wherever rounding decides, and all
is compared again.  What hardly any input shows (`unseen`) is compared as it is, and crowded detections are in the order
of their scores if torch's are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from mmort.detect.detector import Detector
from mmort.detect.export.crowd import VIEWS, Crowded, crowd, view, with_noise
from mmort.detect.export.exported_detector import Exported
from mmort.detect.export.head_outputs import (
    Arguments,
    WithHeads,
    compare_heads,
    few_detections,
    note_few,
    run_heads,
)
from mmort.detect.export.unseen import compare_unseen
from mmort.onnx import Report
from mmort.onnx.export.draft import ALONE, compare_draft, expected_outputs
from mmort.onnx.export.options import Options
from mmort.onnx.graph import files
from mmort.onnx.verify.numbers import refusal
from mmort.onnx.verify.replay import ReplayingModule
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
        report = _or_replayed(partial(self._report, draft=draft, inputs=inputs, begin=begin), self.module, draft)
        if self.options.portable == "inlined":  # the definitions of mmort's operators have clips and reductions, too
            return report
        return Report((*report.rows, *compare_unseen(draft, self.module, inputs[index_of_smallest(inputs)])))

    def _report(
        self, module: nn.Module, *, draft: Path, inputs: Sequence[Arguments], begin: Callable[[str], None]
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
                report = _or_replayed(partial(self._compared, path=path, args=shown, names=names), noisy, path)
            rows += [replace(row, inputs=f"{row.inputs}{label}") for row in report.rows]
        return rows

    def _compared(self, module: nn.Module, *, path: Path, args: Arguments, names: Sequence[str]) -> Report:
        """Compare a file with a module that returns the outputs of heads, too; of these show what differs."""
        reference = self.expected(module, args, decides=True)
        count = len(reference.outputs) - len(names)
        report = compare_draft(path, self.path, [args], [reference.part(slice(count))], self.options)
        dets = files.load(path).graph.output[0].name
        tensors = run_heads(path, args, names, [dets])
        heads = compare_heads(tensors, args, names, reference.part(slice(count, None)))
        order = _compare_order(tensors[dets], reference.outputs[0], shapes_text(args))
        return Report((*report.rows, *(row for row in heads if row.problem), *order))


def _or_replayed(compare: Callable[[nn.Module], Report], module: nn.Module, path: Path) -> Report:
    """Compare a file with a module and, if they differ, with the module that makes the file's choices."""
    report = compare(module)
    return report if report.ok else compare(ReplayingModule(module, path))


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
