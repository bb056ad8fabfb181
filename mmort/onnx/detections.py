"""Whether two sets of detections are the same, whatever their order: what `verify` reports of detectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAMES = ("dets", "labels", "masks")
"""The outputs of a detector; `masks` may be absent."""

MASK_OVERLAP = 0.99
"""Masks of the same detection overlap at least so much."""


@dataclasses.dataclass(frozen=True)
class DetectionRow:
    """The detections in one image.

    A detection of the file is matched with one of the model that has the same label, and box and score within the
    tolerances.
    """

    inputs: str
    """The inputs' shapes, ``2x3x64x96, 2x2``."""
    image: int
    """Its place in the batch."""
    detections: int
    """Of the model."""
    matched: int
    missing: int
    """Detections of the model that the file has not."""
    extra: int
    """Detections that only the file has."""
    max_box_diff: float
    """Of the matched, in pixels."""
    max_score_diff: float
    min_mask_overlap: float | None
    """Of the matched: the sum of the smaller over the sum of the larger probabilities.  None without masks."""

    @property
    def problem(self) -> str:
        """What differs; empty if nothing does."""
        problems = []
        if self.missing:
            problems.append(f"{self.missing} missing")
        if self.extra:
            problems.append(f"{self.extra} extra")
        if self.min_mask_overlap is not None and self.min_mask_overlap < MASK_OVERLAP:
            problems.append("masks")
        return ", ".join(problems)

    @property
    def ok(self) -> bool:
        """Whether the detections are the same."""
        return not self.problem


def are_detections(names: Sequence[str], outputs: Sequence[NDArray[Any]]) -> bool:
    """Tell whether outputs are a detector's, by their names and shapes: [N, K, 5], [N, K] and perhaps [N, K, h, w]."""
    if tuple(names) != NAMES[: len(names)] or len(names) < 2 or len(names) != len(outputs):
        return False
    dets, labels = outputs[:2]
    return (
        dets.ndim == 3
        and dets.shape[2] == 5
        and labels.dtype.kind == "i"
        and all(one.shape[:2] == dets.shape[:2] for one in outputs)
    )


def compare_detections(
    inputs: str, got: Sequence[NDArray[Any]], wanted: Sequence[NDArray[Any]], *, rtol: float, atol: float
) -> list[DetectionRow]:
    """Compare detections image by image.

    Parameters
    ----------
    inputs : str
        What to write into the rows.
    got, wanted : sequences of arrays
        Boxes with scores [N, K, 5] and labels [N, K], -1 in rows that are not used, perhaps masks [N, K, h, w] too; of
        the file and of the model.  K may differ.
    rtol, atol : float
        A score ``a`` may differ from the model's ``b`` by ``atol + rtol * b``; the corners of a box by the same with
        its largest coordinate for ``b``.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.onnx.detections import compare_detections
    >>> wanted = np.array([[[0, 0, 10, 10, 0.9], [5, 5, 9, 9, 0.8]]]), np.array([[1, 2]])
    >>> got = np.array([[[5, 5, 9, 9.001, 0.8], [0, 0, 0, 0, 0]]]), np.array([[2, -1]])
    >>> (row,) = compare_detections("1x3x64x96", got, wanted, rtol=1e-3, atol=1e-4)
    >>> row.matched, row.missing, row.extra, round(row.max_box_diff, 3), row.problem
    (1, 1, 0, 0.001, '1 missing')
    """
    images = zip(zip(*got, strict=True), zip(*wanted, strict=True), strict=True)
    return [_compare_image(inputs, image, ours, theirs, rtol, atol) for image, (ours, theirs) in enumerate(images)]


def _compare_image(
    inputs: str, image: int, got: Sequence[NDArray[Any]], wanted: Sequence[NDArray[Any]], rtol: float, atol: float
) -> DetectionRow:
    (dets, labels, *masks), (wanted_dets, wanted_labels, *wanted_masks) = map(_used, (got, wanted))
    free = np.ones(len(dets), bool)
    boxes, scores, overlaps = [], [], []
    for index in np.argsort(-wanted_dets[:, 4], kind="stable"):
        row = wanted_dets[index]
        box = np.abs(dets[:, :4] - row[:4]).max(1, initial=0)  # [K]
        score = np.abs(dets[:, 4] - row[4])
        possible = (
            free
            & (labels == wanted_labels[index])
            & (box <= atol + rtol * np.abs(row[:4]).max())
            & (score <= atol + rtol * abs(row[4]))
        )
        if not possible.any():
            continue
        best = int(np.where(possible, box, np.inf).argmin())
        free[best] = False
        boxes.append(box[best])
        scores.append(score[best])
        overlaps += [_overlap(one[best], other[index]) for one, other in zip(masks, wanted_masks, strict=True)]
    matched = len(boxes)
    return DetectionRow(
        inputs,
        image,
        len(wanted_dets),
        matched,
        len(wanted_dets) - matched,
        int(free.sum()),
        float(max(boxes, default=0)),
        float(max(scores, default=0)),
        float(min(overlaps, default=1)) if masks else None,
    )


def _used(outputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    used = outputs[1] >= 0
    return [one[used].astype(np.float64) for one in outputs]


def _overlap(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return the overlap of two masks of probabilities: no number of it hangs on a threshold."""
    larger = float(np.maximum(first, second).sum())
    return float(np.minimum(first, second).sum()) / larger if larger else 1.0
