"""The overlap of masks, by which detections with equal boxes, labels and scores are told apart, too.

An overlap is the sum of the smaller values of two masks divided by the sum of the larger ones.  Unlike IoU it does not
depend on a threshold, so a probability that rounding moves across one changes next to nothing.  Two kinds of masks need
more than a share:

* A mask whose probabilities add up to less than one cell is empty, whatever the ratios of numbers near 0.  What is
  missing is divided by one cell.
* In a mask of 0 and 1 the threshold has been applied, so one cell may differ, as long as the masks share another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Overlaps = Callable[[Sequence[int] | NDArray[np.int64], int], NDArray[np.float64]]
"""From the indices of some masks, and that of an expected one, to their overlaps with it."""


class Masks:
    """The masks (K, h, w) of an image's detections, and of the expected ones (L, h, w), as probabilities or logits."""

    def __init__(self, masks: NDArray[Any], expected: NDArray[Any]) -> None:
        self._masks, self._expected = masks, expected
        self._logits = min(masks.min(initial=0), expected.min(initial=0)) < 0

    def overlaps(self, indices: Sequence[int] | NDArray[np.int64], expected: int) -> NDArray[np.float64]:
        """Return the overlaps of some masks with an expected one."""
        target = self._probabilities(self._expected[expected])
        return np.array([_overlap(self._probabilities(self._masks[index]), target) for index in indices], np.float64)

    def share_at_threshold(self, index: int, expected: int, threshold: float, tolerance: float) -> float:
        """Return the share of an expected mask's cells that another mask has on the other side of the threshold.

        It is 0 if the masks differ by more than the tolerance anywhere: then the threshold explains nothing.
        """
        mask, target = self._masks[index], self._expected[expected]
        difference = np.abs(self._probabilities(mask) - self._probabilities(target)).max(initial=0)
        changed = int(((mask > threshold) != (target > threshold)).sum())
        return changed / max(int((target > threshold).sum()), 1) if difference <= tolerance else 0.0

    def _probabilities(self, mask: NDArray[Any]) -> NDArray[np.float64]:
        """Return a mask as probabilities."""
        return probabilities(mask) if self._logits else mask.astype(np.float64)


def probabilities(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sigmoid of logits."""
    return (1 + np.tanh(logits.astype(np.float64) / 2)) / 2


def _overlap(mask: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the overlap of two masks of probabilities; 1 if both are empty."""
    difference, larger = float(np.abs(mask - other).sum()), float(np.maximum(mask, other).sum())
    if not np.isfinite(difference):
        return 0.0  # NaN agrees with nothing
    if difference == 1 < larger and are_binary(mask) and are_binary(other):
        return 1.0
    return 1 - difference / max(larger, 1.0)


def are_binary(masks: NDArray[Any]) -> bool:
    """Return whether masks are of 0 and 1, which no rounding describes."""
    return bool(((masks == 0) | (masks == 1)).all())
