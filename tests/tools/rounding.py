"""Which of a runtime's detections differ by rounding: mmort's library finds the same in a nudged file and picture.

A nudge moves each number of the weights and of the picture to one of its two neighbours in float32, as the rounding of
any layer does.  Random layers enlarge that, so that no two runtimes agree about some detections.  A detection that a
runtime has beyond the limits is rounding's only if one of the `DRAWS` nudged runs has it within the limits, instead of
one that a nudged run has lost too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from numpy.typing import NDArray

from mmort.detections.mask_overlap import overlaps_of
from mmort.detections.matching import match_detections, used_rows, usual_limits
from mmort.onnx.graph import inspection
from mmort.tolerances import Tolerances

DRAWS = 96

SIZES = "Resize", "Upsample"
"""Nodes that read factors of sizes, which are not nudged."""

Batches = list[tuple[NDArray[np.float32], NDArray[np.int64]]]
Outputs = list[list[NDArray[Any]]]


class NudgedRuns:
    """What a file detects after nudges; `run` runs a file on batches."""

    def __init__(self, run: Callable[[Path, Batches], Outputs], source: Path, batches: Batches, work: Path) -> None:
        self._run, self._source, self._batches, self._work = run, source, batches, work

    @cached_property
    def outputs(self) -> list[Outputs]:
        """The outputs of each run, computed once they are needed."""
        rng, path = np.random.default_rng(0), self._work / "nudged.onnx"
        nodes = inspection.every_node(onnx.load(self._source))
        factors = {name for node in nodes if node.op_type in SIZES for name in node.input}
        result = []
        for _ in range(DRAWS):
            model = onnx.load(self._source)
            for tensor in model.graph.initializer:
                # A scalar may be a threshold.
                if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims and tensor.name not in factors:
                    nudged = _nudged(onnx.numpy_helper.to_array(tensor), rng)
                    tensor.CopyFrom(onnx.numpy_helper.from_array(nudged, tensor.name))
            onnx.save(model, path)
            result.append(self._run(path, [(_nudged(input, rng), shapes) for input, shapes in self._batches]))
        return result

    def count(
        self,
        actual: Sequence[NDArray[Any]],
        expected: Sequence[NDArray[Any]],
        batch: int,
        image: int,
        limits: Tolerances,
    ) -> int:
        """Return how many detections of an image differ by rounding, but for those at the limit of detections."""
        ours, wanted = _image(actual, image), _image(expected, image)
        lowest = min(wanted[0][:, -1].min(initial=np.inf), ours[0][:, -1].min(initial=np.inf))
        matches = _matches(ours, wanted, limits)

        def inside(indices: NDArray[np.int64], detections: Sequence[NDArray[Any]]) -> set[int]:
            """Return those that are not among the lowest scores, where order alone may decide."""
            scores = detections[0][indices, -1]
            return set(indices[scores > lowest + limits.of(np.asarray(lowest))].tolist())

        missing = inside(np.flatnonzero(matches < 0), wanted)
        extra = inside(np.setdiff1d(np.arange(len(ours[0])), matches), ours)
        lost, had = set[int](), set[int]()
        for outputs in self.outputs:
            nudged = _image(outputs[batch], image)
            of_wanted, of_own = _matches(nudged, wanted, limits), _matches(nudged, ours, limits)
            origin = {int(index): number for number, index in enumerate(of_wanted) if index >= 0}
            lost |= {number for number in missing if of_wanted[number] < 0}
            for number in extra:
                index = int(of_own[number])
                if index >= 0 and (index not in origin or origin[index] in missing):
                    had.add(number)
                    lost |= {origin[index]} if index in origin else set()
        return min(len(lost), len(had))


def differing(actual: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], image: int, limits: Tolerances) -> int:
    """Return how many expected detections of an image have no match."""
    return int((_matches(_image(actual, image), _image(expected, image), limits) < 0).sum())


def _nudged(numbers: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return numbers, each moved to one of its neighbours."""
    directions = np.where(rng.random(numbers.shape) < 0.5, np.float32(-np.inf), np.float32(np.inf))
    return np.nextafter(numbers, directions)


def _image(outputs: Sequence[NDArray[Any]], image: int) -> list[NDArray[Any]]:
    """Return the detections of an image: boxes with scores, labels and perhaps masks."""
    return used_rows(outputs[:3], image)


def _matches(actual: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], limits: Tolerances) -> NDArray[np.int64]:
    """Return for each expected detection the index of its match within the limits, those of masks too, or -1."""
    overlaps = overlaps_of(actual[2], expected[2]) if len(actual) > 2 else None
    tolerances = usual_limits(expected[0], limits)
    matches = match_detections(
        *actual[:2],
        *expected[:2],
        box_tolerance=tolerances.box,
        score_tolerance=tolerances.score,
        overlaps=overlaps,
    )
    if overlaps:
        for number in np.flatnonzero(matches >= 0).tolist():
            if overlaps([matches[number]], number)[0] < limits.min_mask_overlap:
                matches[number] = -1
    return matches
