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

from mmort.detections import boxes
from mmort.onnx.verify import numbers, panoptic, rounding
from mmort.onnx.verify.limits import (
    MAX_WIDENING,
    differ_in_shape,
    mask_limits,
    match_runs,
    match_widened,
    row_distances,
    runs_in_torch,
    tie_tolerance,
    widened_limits,
)
from mmort.onnx.verify.masks import Masks, are_binary
from mmort.onnx.verify.matching import Rows, match_within, scale_of, used_rows, usual_limits
from mmort.onnx.verify.report import Row, number_text
from mmort.onnx.verify.ties import at_limit
from mmort.onnx.verify.values import Outputs, Reference, Tolerances

NAMES = ("dets", "labels", "masks")
"""The names of a detector's outputs; `masks` is optional."""

MAX_CHANGE = 5
"""By how much more than the share of a mask's cells that change sides its score may change: by that share with the mean
inside the mask, and by 4 times as much with the Gaussian decay of SOLO's matrix NMS, exp(-2 IoU^2)."""


MIN_SCORE = 2**-23
"""ONNX Runtime's sigmoid is off by as much as 2**-24, and 0 below -18: where a detector's threshold is 0, it may drop
detections with scores below this that torch keeps."""


@dataclass(frozen=True)
class DetectionRow:
    """The detections in one image."""

    HEADINGS: ClassVar[tuple[str, ...]] = (
        *("inputs", "image", "detections", "matched", "ties", "missing", "extra"),
        *("max box diff", "max score diff", "min mask overlap"),
    )

    inputs: str
    """The inputs' shapes, ``2x3x64x96, 2x2``."""
    image: int
    """The image's index in the batch."""
    detections: int
    """The number of expected detections."""
    matched: int
    ties: int
    """The number of detections that differ because scores are equal, to each other or to 0; they are neither missing
    nor extra."""
    missing: int
    """The number of expected detections without a match."""
    extra: int
    """The number of the file's detections without a match."""
    max_box_diff: float
    """Over all matches, in pixels."""
    max_score_diff: float
    min_mask_overlap: float | None
    """Over all matches, and all ties whose candidates are known; None without masks.  See `mmort.onnx.verify.masks`."""
    mask_overlap_limit: float = Tolerances.min_mask_overlap
    note: str = ""
    """What the table says of a row that is ok."""
    proves_nothing: bool = False
    """Whether neither here nor in any other image a detection matches or differs."""

    @property
    def problem(self) -> str:
        """What differs, or an empty string."""
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
    count = len(NAMES) if tuple(outputs.names[: len(NAMES)]) == NAMES else 2
    detections = outputs.part(slice(count))
    actual, expected = detections.actual, detections.expected
    if not all(_are_detections(detections.names, arrays) for arrays in (actual, expected)):
        return None
    if any(map(_differ_in_kind, actual, expected)):
        return None
    rows: list[Row] = [*_compare_batch(detections), *_compare_rounding(detections)]
    for index in range(count, len(outputs.names)):
        other = outputs.part(slice(index, index + 1))
        rows += panoptic.compare(other) or panoptic.compare_logits(other) or numbers.compare(other)
    return rows


def require_detections(rows: Sequence[Row]) -> list[Row]:
    """Mark the rows of detectors as differing if nothing at all was detected, or ties only."""
    of_detectors = [row for row in rows if isinstance(row, DetectionRow)]
    if any(row.matched or row.missing or row.extra for row in of_detectors):
        return list(rows)
    return [replace(row, proves_nothing=True) if isinstance(row, DetectionRow) else row for row in rows]


def _are_detections(names: Sequence[str], arrays: Sequence[NDArray[Any]]) -> bool:
    """Recognize a detector's outputs by their names and shapes."""
    if tuple(names) != NAMES[: len(names)] or len(names) < 2 or len(names) != len(arrays):
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
    return array.dtype != other.dtype or differ_in_shape(array, other)


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
        Without candidates, ties are recognized only if all rows are used, among the lowest scores, and only as many as
        there are matches: see `mmort.onnx.verify.ties`.

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
    return _compare_batch(Outputs(inputs, NAMES, actual, Reference(expected), Tolerances(rtol, atol)))


def _compare_batch(outputs: Outputs) -> list[DetectionRow]:
    """Compare detections image by image."""
    rows = [_compare_image(outputs, image) for image in range(len(outputs.actual[1]))]
    if len(outputs.actual) == len(NAMES) and outputs.reference.reselected and any(row.ties for row in rows):
        rows = _with_masks_of_ties(outputs, rows)
    return rows


def _with_masks_of_ties(outputs: Outputs, rows: Sequence[DetectionRow]) -> list[DetectionRow]:
    """Compare the masks of images with ties with those that the model makes of the file's detections."""
    dets, labels, masks = outputs.actual
    assert outputs.reference.candidates
    assert outputs.reference.reselected
    tied = []
    indices = np.full(labels.shape, -1)
    for image in [row.image for row in rows if row.ties]:
        candidates, used = outputs.reference.candidates[image], labels[image] >= 0
        limits = usual_limits(dets[image][used], outputs.tolerances)
        rows_of_boxes, classes = candidates.pairs
        kept = match_within(candidates.dets, classes, dets[image][used], labels[image][used], limits)
        if (kept >= 0).all():  # otherwise scores are equal to 0, and the file has no other detections
            indices[image][used] = rows_of_boxes[kept]
            tied.append(image)
    expected_masks = outputs.reference.reselected(dets, labels, indices)[2]
    compared = list(rows)
    for image in tied:
        used = labels[image] >= 0
        both = Masks(masks[image][used], expected_masks[image][used])
        overlaps = [both.overlaps([index], index)[0] for index in range(used.sum())]
        compared[image] = replace(rows[image], min_mask_overlap=float(min(overlaps)))
    return compared


def _compare_rounding(outputs: Outputs) -> list[rounding.RoundingRow]:
    """Compare matching detections once more, by torch's rounding, if its outputs in float64 decide.

    Rounding may let torch choose other boxes in float64.  The detections that it has in both are compared.
    """
    exact = outputs.reference.exact
    decides = exact is not None and exact.decides and outputs.tolerances.by_rounding
    if not decides or not (in_torch := runs_in_torch(outputs)):
        return []
    rows = _judge_by_runs(outputs, in_torch)
    if all(row.ok or row.may_be_accident for row in rows) and not all(row.ok for row in rows):
        rows = _judge_by_runs(outputs, runs_in_torch(outputs, further=True))
    return rows


def _judge_by_runs(outputs: Outputs, in_torch: Sequence[Sequence[NDArray[Any]]]) -> list[rounding.RoundingRow]:
    """Compare the detections that a file and all runs of torch have."""
    runs = outputs.actual, outputs.expected, *in_torch
    images = []
    for image in range(len(outputs.actual[1])):
        detections = [used_rows(run, image) for run in runs]
        dets, labels, *_ = detections[1]
        limits = widened_limits(outputs, image, detections[1])
        # Instances with the same box are told apart by their masks, which are compared by rounding below.
        overlaps = [Masks(run[2], detections[1][2]).overlaps if len(run) == len(NAMES) else None for run in detections]
        matches = np.array(
            [
                match_within(run[0], run[1], dets, labels, limits, of_run)
                for run, of_run in zip(detections, overlaps, strict=True)
            ]
        )
        matches = matches[:, (matches >= 0).all(0)]
        images.append([[array[rows] for array in run] for run, rows in zip(detections, matches, strict=True)])
    arrays = [[np.concatenate(parts) for parts in zip(*run, strict=True)] for run in zip(*images, strict=True)]
    if not len(arrays[0][0]):
        return []
    rows = []
    farther: NDArray[Any] = np.ones(len(arrays[0][0]))
    steady = np.ones(len(arrays[0][0]), bool)
    if outputs.mask_threshold is None:  # otherwise a cell at the threshold changes box and score
        found, expected, exact_dets, *rounded = (run[0] for run in arrays)
        difference = np.fmin(row_distances(found, expected), row_distances(found, exact_dets))
        spread = np.fmax.reduce([row_distances(run, exact_dets) for run in (expected, *rounded)])
        reach = boxes.reach(exact_dets)
        scale = scale_of(reach)
        rows.append(rounding.row_of(outputs.inputs, "boxes", found[:, :-1].shape, difference, spread, reach, scale))
        rows.append(rounding.compare_by_rounding(outputs.inputs, "scores", *(run[0][:, -1] for run in arrays)))
        # A mask follows its box, which is judged above: a narrow box that torch happens to compute well in both of its
        # runs is off by thirty times as much in a right file, and its mask with it.
        farther = np.maximum(1, difference / np.maximum(spread, rounding.EPSILON * scale))
        # That of a box which rounding moves elsewhere shows something else; how far masks overlap is judged apart.
        steady = spread <= MAX_WIDENING * outputs.tolerances.of(scale)
    if len(runs[0]) == len(NAMES) and steady.any() and not are_binary(arrays[1][2]):
        masks = [run[2][steady] for run in arrays]
        # Far outside an object the numbers of a mask are tiny, and mean nothing.
        settings = {"magnitude": np.abs(masks[2]).max(keepdims=True), "farther": farther[steady, None, None]}
        rows.append(rounding.compare_by_rounding(outputs.inputs, "masks", *masks, **settings))
    return rows


def _compare_image(outputs: Outputs, image: int) -> DetectionRow:
    """Compare the detections of one image with torch's; if they differ, each with those of its other runs, too.

    Rounding decides what is suppressed at an overlap that is the threshold, and how a box lies whose sides are equal.
    """
    expected = used_rows(outputs.expected, image)
    row = _compare_with(outputs, image, expected)
    if row.problem and outputs.tolerances.by_rounding and (runs := runs_in_torch(outputs)):
        in_runs = [expected, *(used_rows(run, image) for run in runs)]
        of_any = _compare_with(outputs, image, _of_any(outputs, image, in_runs))
        row = row if of_any.problem else of_any
    return row


def _of_any(outputs: Outputs, image: int, runs: Sequence[Rows]) -> Rows:
    """Return the detections that all of torch's runs have, and of the others those that the file has, too.

    If these are fewer than each run has, the file lacks some, and those of the first run are returned.
    """
    every, shared = runs[0], np.ones(len(runs[0][0]), bool)
    for run in runs[1:]:
        matches = match_runs(outputs, run, every, widened_limits(outputs, image, every))
        unmatched = [np.delete(array, matches[matches >= 0], 0) for array in run]
        every = [np.concatenate(arrays) for arrays in zip(every, unmatched, strict=True)]
        shared = np.append(shared & (matches >= 0), np.zeros(len(unmatched[0]), bool))
    of_all, of_some = ([array[rows] for array in every] for rows in (shared, ~shared))
    actual = used_rows(outputs.actual, image)
    in_file = match_widened(outputs, image, actual, of_all)
    rest = [np.delete(array, in_file[in_file >= 0], 0) for array in actual]
    chosen = match_widened(outputs, image, rest, of_some) >= 0
    if len(of_all[0]) + chosen.sum() < min(len(run[0]) for run in runs):
        return runs[0]
    return [np.concatenate([array, other[chosen]]) for array, other in zip(of_all, of_some, strict=True)]


def _compare_with(outputs: Outputs, image: int, expected: Rows) -> DetectionRow:
    """Compare the detections of one image with the expected ones."""
    tolerances, candidates = outputs.tolerances, outputs.reference.candidates
    dets, labels, *values = used_rows(outputs.actual, image)
    expected_dets, expected_labels, *expected_values = expected
    masks = Masks(values[0], expected_values[0]) if values else None
    overlaps_of = masks.overlaps if masks else None
    limits = usual_limits(expected_dets, tolerances)
    matches = match_within(dets, labels, expected_dets, expected_labels, limits, overlaps_of)
    if (matches < 0).any() and tolerances.by_rounding:
        matches = match_widened(outputs, image, [dets, labels], expected, overlaps_of)
    if masks and outputs.mask_threshold is not None:
        _match_at_threshold(matches, masks, outputs, dets, labels, expected_dets, expected_labels)
    matched = np.flatnonzero(matches >= 0)
    box_differences = [boxes.distances(dets[[matches[index]]], expected_dets[index])[0] for index in matched.tolist()]
    score_differences = np.abs(dets[matches[matched], -1] - expected_dets[matched, -1])
    overlaps = np.array([masks.overlaps([matches[index]], index)[0] for index in matched.tolist()] if masks else [])
    mask_limit = tolerances.min_mask_overlap
    if overlaps.min(initial=1) < mask_limit and tolerances.by_rounding:
        least = mask_limits(outputs, image, expected)[matched]
        mask_limit = float(max(least[overlaps < least], default=least.min()))
    unmatched_scores = expected_dets[matches < 0, -1], np.delete(dets[:, -1], matches[matched])
    near_zero = [int((scores < MIN_SCORE).sum()) for scores in unmatched_scores]
    missing, extra = (len(scores) - count for scores, count in zip(unmatched_scores, near_zero, strict=True))
    ties = 0
    if missing or extra:
        if candidates is not None:
            before_limit = candidates[image]
            limits = usual_limits(dets, tolerances)
            kept = match_within(before_limit.dets, before_limit.pairs[1], dets, labels, limits)
            if (kept >= 0).all() and before_limit.may_be(kept, tolerances):
                ties = max(missing, extra)
        elif len(dets) == outputs.actual[1].shape[1] and len(expected_dets) == outputs.expected[1].shape[1]:
            tolerance = tie_tolerance(outputs, image, expected)
            pairs = at_limit(dets[:, -1], expected_dets[:, -1], matches, tolerance)
            ties = pairs if pairs <= len(matched) else 0
    return DetectionRow(
        outputs.inputs,
        image,
        detections=len(expected_dets),
        matched=len(matched),
        ties=ties + max(near_zero),
        missing=max(0, missing - ties),
        extra=max(0, extra - ties),
        max_box_diff=float(max(box_differences, default=0)),
        max_score_diff=float(score_differences.max(initial=0)),
        min_mask_overlap=float(overlaps.min(initial=1)) if masks else None,
        mask_overlap_limit=mask_limit,
    )


def _match_at_threshold(
    matches: NDArray[np.int64],
    masks: Masks,
    outputs: Outputs,
    dets: NDArray[Any],
    labels: NDArray[Any],
    expected_dets: NDArray[Any],
    expected_labels: NDArray[Any],
) -> None:
    """Match detections whose scores differ because a cell of their masks lies at the threshold.

    A score has the mean inside the mask as a factor, and perhaps what masks of other detections leave of it, so the
    share of cells that change sides bounds how far it changes.
    """
    tolerances = outputs.tolerances
    assert outputs.mask_threshold is not None
    for expected in np.flatnonzero(matches < 0).tolist():
        target = expected_dets[expected]
        box_tolerance = tolerances.of(np.abs(target[:4]).max())
        for index in np.setdiff1d(np.flatnonzero(labels == expected_labels[expected]), matches).tolist():
            if np.abs(dets[index, :4] - target[:4]).max() > box_tolerance:
                continue
            share = masks.share_at_threshold(index, expected, outputs.mask_threshold, tolerances.atol)
            if abs(dets[index, 4] - target[4]) <= tolerances.of(target[4]) + MAX_CHANGE * share * target[4]:
                matches[expected] = index
                break


def _overlap_text(overlap: float | None) -> str:
    """Write an overlap, rounded down, so that it never looks larger than a limit that it is below."""
    return "-" if overlap is None else f"{math.floor(overlap * 1e4) / 1e4:g}"
