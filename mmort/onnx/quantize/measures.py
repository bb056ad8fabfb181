"""How far quantization moves the results of a file, by the file's task: from 0, not at all, to 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from mmort.contract import (
    BOXES,
    CLASSIFICATION,
    DETECTION,
    POSE,
    SEGMENTATION,
    TEXT_DETECTION,
    TEXT_RECOGNITION,
    Interface,
)
from mmort.contract.metadata import version_and_task
from mmort.contract.tasks import CHARACTERS, HEATMAPS, LOGITS, PROBABILITY, SCORES, SIMCC_X, SIMCC_Y, TASKS
from mmort.onnx.quantize.costs import detection_loss

Results = Sequence[Sequence[NDArray[Any]]]
"""The outputs for each set of inputs."""


@dataclass(frozen=True)
class Measure:
    """The measure of a task's files.

    Parameters
    ----------
    outputs : tuple of str
    loss : callable
        Takes the outputs before and after, and returns how far they moved.
    unit : str
        Of the results.
    """

    outputs: tuple[str, ...]
    loss: Callable[[Results, Results], float]
    unit: str


def overlap_loss(expected: Results, results: Results) -> float:
    """Return which share of the probabilities, or of the values of heatmaps, lies elsewhere."""
    shared, total = 0.0, 0.0
    for arrays in zip(expected, results, strict=True):
        for before, after in zip(*arrays, strict=True):
            pair = [np.maximum(array.astype(np.float64), 0) for array in (before, after)]
            shared, total = shared + float(np.minimum(*pair).sum()), total + float(np.maximum(*pair).sum())
    return 1 - shared / total if total else 0.0


def label_loss(expected: Results, results: Results) -> float:
    """Return which share of the pixels has another class."""
    labels = [
        [array.argmax(axis=1) if array.shape[1] > 1 else array > 0 for (array,) in arrays]
        for arrays in (expected, results)
    ]
    other = sum(int((before != after).sum()) for before, after in zip(*labels, strict=True))
    return other / max(1, sum(array.size for array in labels[0]))


_MEASURES = {
    DETECTION.name: (Measure(BOXES, detection_loss, "detections"),),
    CLASSIFICATION.name: (Measure((SCORES.name,), overlap_loss, "probabilities"),),
    SEGMENTATION.name: (Measure((LOGITS.name,), label_loss, "pixels"),),
    POSE.name: tuple(
        Measure(names, overlap_loss, "scores of keypoints")
        for names in ((HEATMAPS.name,), (SIMCC_X.name, SIMCC_Y.name))
    ),
    TEXT_RECOGNITION.name: (Measure((CHARACTERS.name,), overlap_loss, "probabilities"),),
    TEXT_DETECTION.name: (Measure((PROBABILITY.name,), overlap_loss, "probabilities"),),
}
"""Those of each task; of files with other outputs nothing is measured."""


def measure_of(model: onnx.ModelProto) -> Measure | None:
    """Return the measure of a file; None if its outputs do not have the names and types of its task."""
    interface = Interface.of_model(model)
    task = TASKS[version_and_task(interface.metadata)[1]]
    dtypes = {output.name: output.dtype for output in interface.outputs}
    for measure in _MEASURES[task.name]:
        if all(dtypes.get(tensor.name) == tensor.dtype for tensor in task.tensors(measure.outputs)):
            return measure
    return None
