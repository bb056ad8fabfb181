"""Ties: detections that differ only because scores are equal, within the tolerance, and so in no particular order.

Equal scores decide nothing, but suppression and the limit of detections need an order: which of two overlapping boxes
survives, which boxes it suppresses in turn, and which boxes are the last ones kept.  If the boxes that compete are
known (`Candidates`), other detections are ties if they are what the same suppression keeps for another order of equal
scores.  Otherwise only those at the limit are recognized (`at_limit`), and scores are equal there if torch's rounding,
where it is known, may swap them.

A tie further inside, among the boxes of a level that go into the suppression or among proposals, changes the candidates
themselves.  `replay` follows such a choice, if the file is at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mmort
from mmort.onnx.verify.values import Tolerances

MAX_ROUNDING = Tolerances.rtol
"""Difference up to which overlaps are equal and, as a share of the largest score, scores: the comparison's own."""

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows of boxes, and classes."""


@dataclass(frozen=True)
class Candidates:
    """What competes in the suppression of one image."""

    arguments: Mapping[str, Any]
    """Those of ``mmort::multiclass_nms``, by name."""
    boxes: NDArray[Any]
    """(N, 4) or (N, C, 4)"""
    scores: NDArray[Any]
    """(N, C)"""

    @cached_property
    def pairs(self) -> Pairs:
        """Rows and classes of the pairs of a box and a class, (P,) each."""
        rows, labels = np.nonzero(self.scores > self.arguments["score_threshold"])
        return rows, labels

    @cached_property
    def dets(self) -> NDArray[Any]:
        """Boxes with scores, (P, 5)."""
        return np.column_stack([boxes_of(self.boxes, self.pairs), self.scores[self.pairs]])

    def may_be(self, kept: NDArray[np.int64], tolerances: Tolerances) -> bool:
        """Return whether the suppression keeps these pairs, in any order, for some order of equal scores."""
        scores = self.dets[:, 4]
        kept = kept[np.argsort(-scores[kept], kind="stable")]
        rows, labels = self.pairs
        rounding = float(tolerances.of(scores).max(initial=0))
        pairs = rows[kept], labels[kept]
        return kept_scores(self.arguments, self.boxes, self.scores, pairs, rounding) is not None


def kept_scores(
    arguments: Mapping[str, Any], boxes: NDArray[Any], scores: NDArray[Any], pairs: Pairs, rounding: float
) -> NDArray[np.floating] | None:
    """Return the scores of pairs of a box and a class if the suppression of an image may keep them, or None.

    They are by descending score, none of them suppresses another one, and each pair that is not kept is suppressed by
    one with a score that is not lower, or has no higher score than the last one kept if there are as many as allowed.

    Parameters
    ----------
    arguments : mapping
        Those of ``mmort::multiclass_nms``, by name.
    boxes : ndarray, (N, 4) or (N, C, 4)
    scores : ndarray, (N, C)
    pairs : pair of ndarray of int64
        Rows of boxes, and classes.
    rounding : float
        The difference up to which scores are equal.
    """
    threshold = arguments["score_threshold"]
    rejected = scores > threshold + rounding
    rejected[pairs] = False
    of_kept: NDArray[np.floating] = scores[pairs]
    if 0 < arguments["max_per_image"] < len(of_kept):
        return None
    if len(of_kept) == arguments["max_per_image"]:
        rejected &= scores > of_kept.min() + rounding
    if (of_kept <= threshold - rounding).any() or (np.diff(of_kept) > rounding).any():
        return None
    rejected_pairs = rejected.nonzero()

    def overlaps(second: tuple[NDArray[np.int64], ...]) -> NDArray[Any]:
        """Return how far the pairs that are kept overlap others [K, P]; -1 if they do not compete."""
        first, second_boxes = boxes_of(boxes, pairs), boxes_of(boxes, second)
        competing = arguments["class_agnostic"] | (pairs[1][:, None] == second[1])
        overlap: NDArray[Any] = np.where(competing, mmort.box_iou(first, second_boxes, offset=arguments["offset"]), -1)
        return overlap

    threshold = arguments["iou_threshold"]
    among_kept = overlaps(pairs)
    np.fill_diagonal(among_kept, -1)
    if (among_kept > threshold + MAX_ROUNDING).any():
        return None
    suppressed = overlaps(rejected_pairs) > threshold - MAX_ROUNDING
    explained = (suppressed & (of_kept[:, None] >= scores[rejected_pairs] - rounding)).any(0).all()
    return of_kept if explained else None


def boxes_of(boxes: Any, pairs: tuple[Any, ...]) -> Any:
    """Return the boxes of pairs, of an array or a tensor (N, 4), or (N, C, 4) if each class has its own."""
    return boxes[pairs] if boxes.ndim == 3 else boxes[pairs[0]]


def at_limit(scores: NDArray[Any], expected_scores: NDArray[Any], matches: NDArray[np.int64], tolerance: float) -> int:
    """Count pairs of an expected and another detection without a match that both have the lowest score of their image.

    Parameters
    ----------
    scores, expected_scores : ndarray
        Of all detections in an image, which fill all rows.
    matches : ndarray of int64
        For each expected detection the index of the other that it matches, or -1.
    tolerance : float
        How far apart equal scores may be.
    """
    unmatched = np.setdiff1d(np.arange(len(scores)), matches)
    missing = np.abs(expected_scores[matches < 0] - scores.min()) <= tolerance
    extra = np.abs(scores[unmatched] - expected_scores.min()) <= tolerance
    return int(min(missing.sum(), extra.sum()))
