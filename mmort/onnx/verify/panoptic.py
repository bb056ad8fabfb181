"""Comparators of a detector's outputs ``panoptic``, segment by segment, and ``semantic``, by probabilities.

Rounding decides about pixels for which two segments compete with equal probabilities, and about the numbers of
instances where it decides about a segment.  So segments are paired by their pixels and their label, not by their ids.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mmort.detections.panoptic import INSTANCE_OFFSET
from mmort.onnx.verify import numbers
from mmort.onnx.verify.report import Row
from mmort.onnx.verify.values import Outputs, Reference, Tolerances

NAME = "panoptic"
LOGITS = "semantic"


@dataclass(frozen=True)
class PanopticRow:
    """The segments of one image; pixels without a segment are one, too."""

    HEADINGS: ClassVar[tuple[str, ...]] = (
        *("inputs", "image", "segments", "matched", "missing", "extra", "different pixels", "min overlap"),
    )

    inputs: str
    """The inputs' shapes, ``2x3x64x96, 2x2``."""
    image: int
    """The image's index in the batch."""
    segments: int
    """The number of expected segments."""
    matched: int
    """The number of segments that have the label and more than half of their union's pixels in common."""
    missing: int
    extra: int
    different_pixels: int
    """Of all matches."""
    min_overlap: float
    """The smallest IoU of a match."""
    differing: int
    """The number of matches that have more different pixels than rounding explains."""

    @property
    def problem(self) -> str:
        """What differs, or an empty string."""
        counts = {"missing": self.missing, "extra": self.extra, "with other pixels": self.differing}
        return ", ".join(f"{count} {problem}" for problem, count in counts.items() if count)

    def cells(self) -> tuple[str, ...]:
        """Return the text of each column."""
        counts = self.image, self.segments, self.matched, self.missing, self.extra, self.different_pixels
        return self.inputs, *map(str, counts), f"{int(self.min_overlap * 1e4) / 1e4:g}"


def compare(outputs: Outputs) -> list[PanopticRow] | None:
    """Compare an output that is a panoptic map (N, H, W); return None if it is none, or differs in dtype or shape."""
    if tuple(outputs.names) != (NAME,) or len(outputs.expected) != 1:
        return None
    (actual,), (expected,) = outputs.actual, outputs.expected
    if actual.dtype.kind != "i" or actual.ndim != 3 or (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return None
    return [
        _compare_image(outputs.inputs, image, *maps, outputs.tolerances)
        for image, maps in enumerate(zip(actual, expected, strict=True))
    ]


def compare_logits(outputs: Outputs) -> list[Row] | None:
    """Compare logits of stuff (N, S, H, W), or if they differ the probabilities, which decide; None of other outputs.

    Logits of hundreds differ by more than the tolerance of numbers near 0 in the same map, which no pixel depends on.
    """
    if tuple(outputs.names) != (LOGITS,) or len(outputs.expected) != 1:
        return None
    (actual,), (expected,) = outputs.actual, outputs.expected
    if any(array.ndim != 4 or array.dtype.kind != "f" for array in (actual, expected)):
        return None
    rows = numbers.compare(outputs)
    if not any(row.problem for row in rows):
        return rows
    reference = Reference([_probabilities(expected)])
    return numbers.compare(replace(outputs, actual=[_probabilities(actual)], reference=reference))


def _probabilities(logits: NDArray[Any]) -> NDArray[Any]:
    """Return the softmax of logits (N, S, H, W) over S, of the same dtype."""
    powers = np.exp(logits - logits.max(1, keepdims=True, initial=-np.inf))
    probabilities: NDArray[Any] = powers / powers.sum(1, keepdims=True)
    return probabilities


def _compare_image(
    inputs: str, image: int, map: NDArray[Any], expected: NDArray[Any], tolerances: Tolerances
) -> PanopticRow:
    """Compare the segments of one image."""
    found_ids, found_areas = np.unique(map, return_counts=True)
    ids, areas = np.unique(expected, return_counts=True)
    pairs = np.stack([np.searchsorted(ids, expected).ravel(), np.searchsorted(found_ids, map).ravel()])
    (rows, columns), common = np.unique(pairs, axis=1, return_counts=True)
    union = areas[rows] + found_areas[columns] - common
    same_label = ids[rows] % INSTANCE_OFFSET == found_ids[columns] % INSTANCE_OFFSET
    matches = same_label & (2 * common > union)
    union, different = union[matches], (union - common)[matches]
    limits = np.maximum(1, (1 - tolerances.min_mask_overlap) * union)
    return PanopticRow(
        inputs,
        image,
        segments=len(ids),
        matched=len(union),
        missing=len(ids) - len(union),
        extra=len(found_ids) - len(union),
        different_pixels=int(different.sum()),
        min_overlap=float((1 - different / union).min(initial=1)),
        differing=int((different > limits).sum()),
    )
