"""Detections compared as sets, image by image: the comparator of detectors.

A detector's outputs are boxes with scores (N, K, 5), or rotated ones (N, K, 6), labels (N, K) with -1 in unused rows,
and optionally masks (N, K, h, w).  The order of the rows does not matter, as equal scores may be sorted differently.
Outputs after these are compared number by number, apart from panoptic maps and the logits of stuff.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mmort.contract import BOXES, WITH_MASKS
from mmort.detections import boxes
from mmort.detections.mask_overlap import overlaps_of
from mmort.detections.matching import match_detections, used_rows, usual_limits
from mmort.onnx.verify import numbers, panoptic
from mmort.onnx.verify.report import Row, number_text
from mmort.onnx.verify.values import Outputs
from mmort.tolerances import Tolerances


@dataclass(frozen=True)
class DetectionRow:
    """The detections in one image."""

    HEADINGS: ClassVar[tuple[str, ...]] = (
        *("inputs", "image", "detections", "matched", "ties", "missing", "extra"),
        *("max box diff", "max score diff", "min mask overlap"),
    )
    NAMES: ClassVar[str] = ""

    inputs: str
    """The inputs' shapes, ``2x3x64x96, 2x2``."""
    image: int
    """The image's index in the batch."""
    detections: int
    """The number of expected detections."""
    matched: int
    ties: int
    """The number of detections that differ at the limit of K, among equal lowest scores; neither missing nor extra."""
    missing: int
    """The number of expected detections without a match."""
    extra: int
    """The number of the file's detections without a match."""
    max_box_diff: float
    """Over all matches, in pixels."""
    max_score_diff: float
    min_mask_overlap: float | None
    """Over all matches; None without masks.  See `mmort.detections.mask_overlap`."""
    mask_overlap_limit: float = Tolerances.min_mask_overlap
    proves_nothing: bool = False
    """Whether neither here nor in any other image a detection matches or differs."""

    @property
    def problem(self) -> str:
        """The difference in words, or an empty string."""
        cause = "only ties" if self.ties else "nothing detected"
        problems = [f"{cause}, which proves nothing"] if self.proves_nothing else []
        if self.missing:
            problems.append(f"{self.missing} missing")
        if self.extra:
            problems.append(f"{self.extra} extra")
        if self.min_mask_overlap is not None and self.min_mask_overlap < self.mask_overlap_limit:
            problems.append(f"mask overlap below {self.mask_overlap_limit:g}")
        return ", ".join(problems)

    @property
    def ok(self) -> bool:
        """Whether the detections are the same."""
        return not self.problem

    def cells(self) -> tuple[str, ...]:
        """Return the text of each column."""
        counts = self.image, self.detections, self.matched, self.ties, self.missing, self.extra
        differences = number_text(self.max_box_diff), number_text(self.max_score_diff)
        return self.inputs, *map(str, counts), *differences, _overlap_text(self.min_mask_overlap)


def compare(outputs: Outputs) -> list[Row] | None:
    """Compare outputs, the first of which are a detector's; None if they are not, or differ in dtype or more than K."""
    count = len(WITH_MASKS if tuple(outputs.names[: len(WITH_MASKS)]) == WITH_MASKS else BOXES)
    detections = outputs.part(slice(count))
    actual, expected = detections.actual, detections.expected
    if not all(_are_detections(detections.names, arrays) for arrays in (actual, expected)):
        return None
    if any(map(_differ_in_kind, actual, expected)):
        return None
    rows: list[Row] = [*_compare_batch(detections)]
    for index in range(count, len(outputs.names)):
        other = outputs.part(slice(index, index + 1))
        rows += panoptic.compare(other) or numbers.compare(other)
    return rows


def require_detections(rows: Sequence[Row]) -> list[Row]:
    """Mark the rows of detectors as differing if nothing at all was detected, or ties only."""
    of_detectors = [row for row in rows if isinstance(row, DetectionRow)]
    if any(row.matched or row.missing or row.extra for row in of_detectors):
        return list(rows)
    return [replace(row, proves_nothing=True) if isinstance(row, DetectionRow) else row for row in rows]


def _are_detections(names: Sequence[str], arrays: Sequence[NDArray[Any]]) -> bool:
    """Recognize a detector's outputs by their names and shapes."""
    if tuple(names) not in (BOXES, WITH_MASKS) or len(names) != len(arrays):
        return False
    dets, labels = arrays[:2]
    return (
        dets.ndim == 3
        and dets.shape[2] in boxes.COLUMNS
        and labels.dtype.kind == "i"
        and all(array.shape[:2] == dets.shape[:2] for array in arrays)
    )


def _differ_in_kind(array: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two arrays differ in their dtypes or their shapes, apart from the number of detections."""
    return array.dtype != other.dtype or array.shape[:1] + array.shape[2:] != other.shape[:1] + other.shape[2:]


def compare_detections(
    inputs: str, actual: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], *, rtol: float, atol: float
) -> list[DetectionRow]:
    """Compare detections image by image.

    Parameters
    ----------
    inputs : str
        The text for the rows' ``inputs``.
    actual, expected : sequences of arrays
        Boxes with scores (N, K, 5), or rotated ones (N, K, 6), labels (N, K) with -1 in unused rows, and optionally
        masks (N, K, h, w).  K may differ.
    rtol, atol : float
        A score ``a`` may differ from the expected ``b`` by ``atol + rtol * b``.  For the corners of a box ``b`` is its
        largest expected coordinate, or a tenth of the largest one in the image if that is more.

    Returns
    -------
    list of DetectionRow
        Where all K rows are used, which detections of the same lowest score are the last ones is arbitrary.  Missing
        and extra detections with a score within the tolerance of the lowest one are then counted as ties, in pairs, if
        no more than there are matches.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.onnx.verify.detections import compare_detections
    >>> expected = np.array([[[0, 0, 10, 10, 0.9], [5, 5, 9, 9, 0.8]]]), np.array([[1, 2]])
    >>> actual = np.array([[[5, 5, 9, 9.001, 0.8], [0, 0, 0, 0, 0]]]), np.array([[2, -1]])
    >>> (row,) = compare_detections("1x3x64x96", actual, expected, rtol=1e-3, atol=1e-4)
    >>> row.matched, row.missing, row.extra, round(row.max_box_diff, 3), row.problem
    (1, 1, 0, 0.001, '1 missing')
    """
    return _compare_batch(Outputs(inputs, WITH_MASKS, actual, expected, Tolerances(rtol, atol)))


def _compare_batch(outputs: Outputs) -> list[DetectionRow]:
    """Compare detections image by image."""
    return [_compare_image(outputs, image) for image in range(len(outputs.actual[1]))]


def _compare_image(outputs: Outputs, image: int) -> DetectionRow:
    """Compare the detections of one image with the expected ones."""
    dets, labels, *masks = used_rows(outputs.actual, image)
    expected_dets, expected_labels, *expected_masks = used_rows(outputs.expected, image)
    overlaps = overlaps_of(masks[0], expected_masks[0]) if masks else None
    limits = usual_limits(expected_dets, outputs.tolerances)
    matches = match_detections(
        *(dets, labels, expected_dets, expected_labels),
        box_tolerance=limits.box,
        score_tolerance=limits.score,
        overlaps=overlaps,
    )
    matched = np.flatnonzero(matches >= 0).tolist()
    box_differences = boxes.distances(dets[matches[matched]], expected_dets[matched])
    score_differences = np.abs(dets[matches[matched], -1] - expected_dets[matched, -1])
    missing, extra, ties = len(expected_dets) - len(matched), len(dets) - len(matched), 0
    if len(dets) == outputs.actual[1].shape[1] and len(expected_dets) == outputs.expected[1].shape[1]:
        ties = _ties_at_limit(dets[:, -1], expected_dets[:, -1], matches, limits.score)
    return DetectionRow(
        outputs.inputs,
        image,
        detections=len(expected_dets),
        matched=len(matched),
        ties=ties,
        missing=missing - ties,
        extra=extra - ties,
        max_box_diff=float(box_differences.max(initial=0)),
        max_score_diff=float(score_differences.max(initial=0)),
        min_mask_overlap=min([float(overlaps([matches[index]], index)[0]) for index in matched], default=1.0)
        if overlaps
        else None,
        mask_overlap_limit=outputs.tolerances.min_mask_overlap,
    )


def _ties_at_limit(
    scores: NDArray[Any], expected_scores: NDArray[Any], matches: NDArray[np.int64], tolerances: NDArray[Any]
) -> int:
    """Count pairs of a missing and an extra detection that both have the lowest score of their image.

    Both images must be full.  It is 0 if there are more of them than matches, as these confirm too little then.
    """
    if (matches >= 0).all():
        return 0
    tolerance = tolerances.min()
    unmatched = np.setdiff1d(np.arange(len(scores)), matches)
    missing = np.abs(expected_scores[matches < 0] - scores.min(initial=np.inf)) <= tolerance
    extra = np.abs(scores[unmatched] - expected_scores.min()) <= tolerance
    pairs = int(min(missing.sum(), extra.sum()))
    return pairs if pairs <= (matches >= 0).sum() else 0


def _overlap_text(overlap: float | None) -> str:
    """Write an overlap, rounded down, so that it never looks larger than a limit that it is below."""
    return "-" if overlap is None else f"{math.floor(overlap * 1e4) / 1e4:g}"
