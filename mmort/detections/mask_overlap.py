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


def overlaps_of(masks: NDArray[Any], expected: NDArray[Any]) -> Overlaps:
    """Return the function of the overlaps of masks (K, h, w) with expected ones (L, h, w), probabilities or logits."""
    are_logits = min(masks.min(initial=0), expected.min(initial=0)) < 0

    def probabilities(mask: NDArray[Any]) -> NDArray[np.float64]:
        values = mask.astype(np.float64)
        return (1 + np.tanh(values / 2)) / 2 if are_logits else values

    def overlaps(indices: Sequence[int] | NDArray[np.int64], index: int) -> NDArray[np.float64]:
        target = probabilities(expected[index])
        return np.array([_overlap(probabilities(masks[other]), target) for other in indices], np.float64)

    return overlaps


def _overlap(mask: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the overlap of two masks of probabilities; 1 if both are empty."""
    difference, larger = float(np.abs(mask - other).sum()), float(np.maximum(mask, other).sum())
    if not np.isfinite(difference):
        return 0.0  # NaN agrees with nothing
    if difference == 1 < larger and _is_binary(mask) and _is_binary(other):
        return 1.0
    return 1 - difference / max(larger, 1.0)


def _is_binary(mask: NDArray[np.float64]) -> bool:
    """Return whether a mask is of 0 and 1."""
    return bool(((mask == 0) | (mask == 1)).all())
