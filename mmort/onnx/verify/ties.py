"""Ties: detections that differ only because scores are equal, within the tolerance, and so in no particular order.

Equal scores decide nothing, but suppression and the limit of detections need an order: which of two overlapping boxes
survives, which boxes it suppresses in turn, and which boxes are the last ones kept.  If the boxes that compete are
known (`Candidates`), other detections are ties if they are what the same suppression keeps for another order of equal
scores.  Otherwise only those at the limit are recognized (`at_limit`), and scores are equal there if torch's rounding,
where it is known, may swap them.

A tie further inside, among the boxes of a level that go into the suppression or among proposals, changes the candidates
themselves.  That is not told apart from an error, so such a file differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import mmort

if TYPE_CHECKING:
    from mmort.onnx.verify.values import Tolerances


@dataclass(frozen=True)
class Candidates:
    """What competes in the suppression of one image, and the settings of the suppression."""

    dets: NDArray[Any]
    """Boxes with scores, (P, 5)."""
    labels: NDArray[Any]
    """(P,)"""
    iou_threshold: float
    max_per_image: int
    class_agnostic: bool = False
    offset: int = 0
    indices: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Their rows among the boxes of the image, (P,)."""

    def may_be(self, kept: NDArray[np.int64], tolerances: Tolerances) -> bool:
        """Return whether the suppression keeps these candidates for some order of equal scores.

        It does if they are not more than the limit, none of them suppresses another one, and each candidate that is not
        kept is suppressed by a kept one whose score is not lower, or is beyond the limit: it has no higher score than
        the last one kept.
        """
        scores = self.dets[:, 4]
        rejected = np.setdiff1d(np.arange(len(scores)), kept)
        if 0 < self.max_per_image < len(kept):
            return False
        if self._suppresses(kept, kept)[~np.eye(len(kept), dtype=bool)].any():
            return False
        highest = scores[rejected] - tolerances.of(scores[rejected])
        explained = (self._suppresses(kept, rejected) & (scores[kept, None] >= highest)).any(0)
        if len(kept) >= self.max_per_image > 0:
            explained |= scores[kept].min() >= highest
        return bool(explained.all())

    def _suppresses(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the first candidates overlap which of the second ones enough to suppress them."""
        overlap = mmort.box_iou(self.dets[first, :4], self.dets[second, :4], offset=self.offset)
        same_class = self.class_agnostic | (self.labels[first, None] == self.labels[second])
        suppresses: NDArray[np.bool_] = same_class & (overlap > self.iou_threshold)
        return suppresses


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
