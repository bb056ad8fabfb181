"""Limits of detections, wider for those that torch's own rounding moves: by this much they may be off."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.detections import boxes
from mmort.onnx.verify.masks import Masks, Overlaps
from mmort.onnx.verify.matching import Limits, Rows, match_within, used_rows, usual_limits
from mmort.onnx.verify.rounding import EPSILON
from mmort.onnx.verify.values import Outputs

MAX_OF_ROUNDING = 8
"""How many times as far as torch's own rounding moves it, or most of its image, a detection may be off."""

MAX_WIDENING = 50
"""How many times its tolerances a detection may be off."""

MAX_OF_BOX = 400
"""How many times its tolerance a box may be off whose position differs in all runs of torch."""

MIN_OVERLAP = 0.5
"""What the masks of one detection overlap by in two runs of torch, at least."""


def widened_limits(outputs: Outputs, image: int, expected: Rows) -> Limits:
    """Return the limits of an image's detections, wider for those that torch's own rounding moves.

    Its runs may agree on one detection by accident, so all may be as far off as most of them are.  If a box
    has another position in each run, the file's may be a further one; if it has two, rounding chooses one of them.
    """
    limits = usual_limits(expected[0], outputs.tolerances)
    runs = _same_detections(outputs, image, expected, limits)
    if not runs:
        return limits
    pairs = itertools.combinations([expected[0], *runs], 2)
    apart = [row_distances(first, second) / limits.box for first, second in pairs]
    scores = [np.abs(run[:, -1] - expected[0][:, -1]) / limits.score for run in runs]
    nearest = np.minimum.reduce(apart)
    widened = limits.box * _widening(np.fmax(*apart[:2]))
    farther = limits.box * np.minimum(MAX_OF_ROUNDING * nearest, MAX_OF_BOX)
    return Limits(widened, limits.score * _widening(np.fmax(*scores)), np.fmax(widened, farther))


def match_widened(
    outputs: Outputs, image: int, detections: Rows, expected: Rows, overlaps: Overlaps | None = None
) -> NDArray[np.int64]:
    """Match detections of an image with expected ones within the limits that torch's rounding widens."""
    limits = widened_limits(outputs, image, expected)
    return match_within(detections[0], detections[1], expected[0], expected[1], limits, overlaps)


def tie_tolerance(outputs: Outputs, image: int, expected: Rows) -> float:
    """Return how far apart equal scores at the limit of an image's detections may be.

    Eight times as far as torch's rounding moves any of its scores, if that is less than the tolerance: the scores of a
    crowd are all within the tolerance of 1.
    """
    usual = usual_limits(expected[0], outputs.tolerances)
    tolerance = float(usual.score.min())
    runs = _same_detections(outputs, image, expected, usual) if outputs.tolerances.by_rounding else []
    if not runs:
        return tolerance
    moved = [np.abs(run - expected[0])[:, -1] for run in runs]
    return min(tolerance, MAX_OF_ROUNDING * float(np.fmax.reduce(np.ravel(moved), initial=EPSILON)))


def match_runs(outputs: Outputs, run: Rows, expected: Rows, limits: Limits) -> NDArray[np.int64]:
    """Match detections of two of torch's runs.  Where boxes and scores are those of masks, a detection is its mask."""
    if outputs.mask_threshold is None:
        return match_within(run[0], run[1], expected[0], expected[1], limits)
    overlaps = Masks(run[2], expected[2]).overlaps
    return match_within(run[0], run[1], expected[0], expected[1], limits, overlaps, MIN_OVERLAP)


def _same_detections(outputs: Outputs, image: int, expected: Rows, usual: Limits) -> list[NDArray[Any]]:
    """Return for each other run of torch the boxes and scores of the expected detections; NaN if it lacks one."""
    limits = Limits(MAX_WIDENING * usual.box, MAX_WIDENING * usual.score, MAX_OF_BOX * usual.box)
    missing = np.full_like(expected[0], np.nan, shape=(1, expected[0].shape[1]))
    runs = [used_rows(run, image) for run in runs_in_torch(outputs)]
    return [np.append(run[0], missing, 0)[match_runs(outputs, run, expected, limits)] for run in runs]


def _widening(moved: NDArray[Any]) -> NDArray[Any]:
    """Return what to multiply the limits of an image's detections by, as rounding moves them by such shares of these.

    The share of a detection that torch has in float32 only is NaN.
    """
    known = moved[~np.isnan(moved)]
    typical = np.median(known) if len(known) else 0
    return np.clip(MAX_OF_ROUNDING * np.fmax(moved, typical), 1, MAX_WIDENING)


def mask_limits(outputs: Outputs, image: int, expected: Rows) -> NDArray[Any]:
    """Return what the masks of an image's detections must overlap by, less for those that torch's rounding changes."""
    tolerance = 1 - outputs.tolerances.min_mask_overlap
    changed = np.full(len(expected[0]), np.nan)
    for run in runs_in_torch(outputs):
        detections = used_rows(run, image)
        masks = Masks(detections[2], expected[2])
        matches = match_widened(outputs, image, detections, expected, masks.overlaps)
        for index in np.flatnonzero(matches >= 0).tolist():
            share = (1 - masks.overlaps([matches[index]], index)[0]) / tolerance
            changed[index] = np.fmax(changed[index], share)
    return 1 - tolerance * _widening(changed)


def runs_in_torch(outputs: Outputs, *, further: bool = False) -> list[Sequence[NDArray[Any]]]:
    """Return what torch computes in float64, and in float32 with other rounding; none where it cannot.

    Boxes are infinite in all runs where float32 does not hold them.
    """
    exact = outputs.reference.exact
    runs: list[Sequence[NDArray[Any]]] = []
    if exact is not None:
        more = exact.further() if further else ()
        runs += [(_within_float32(run[0]), *run[1:]) for run in (*exact.outputs(), *more) if run]
    expected = outputs.expected
    alike = (len(run) == len(expected) and not any(map(differ_in_shape, run, expected)) for run in runs)
    return runs if all(alike) else []


def _within_float32(array: NDArray[Any]) -> NDArray[Any]:
    """Return numbers, infinite ones for those that are too large for float32."""
    return np.where(np.abs(array) > np.finfo(np.float32).max, np.copysign(np.inf, array), array)


def differ_in_shape(array: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two arrays differ in their shapes, apart from the number of detections."""
    return array.shape[:1] + array.shape[2:] != other.shape[:1] + other.shape[2:]


def row_distances(dets: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """Return the distances between the boxes of two arrays of detections (K, 5 or 6), row by row."""
    return np.array([boxes.distances(box[None], other)[0] for box, other in zip(dets, others, strict=True)])
