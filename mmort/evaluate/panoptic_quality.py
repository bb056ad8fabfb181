"""Panoptic quality, as A. Kirillov et al., "Panoptic Segmentation", CVPR 2019, define it.

A segment found and a true one match if they have the same class and an IoU above 0.5; pixels that the truth leaves
without a segment count for neither.  Found segments that lie mostly in such pixels, or in a crowd of their class, are
not counted as errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_IOU = 0.5
MAX_IGNORED = 0.5
"""The share of a segment in pixels that count for nothing from which on the segment is not counted either."""


@dataclass
class ClassCounts:
    """The matches of a class, and what is left over."""

    matched: int = 0
    iou: float = 0.0
    """The sum over the matches."""
    missing: int = 0
    extra: int = 0

    @property
    def qualities(self) -> tuple[float, float, float]:
        """Panoptic, segmentation and recognition quality; 0 without any segment."""
        total = self.matched + (self.missing + self.extra) / 2
        if not total:
            return 0.0, 0.0, 0.0
        return self.iou / total, self.iou / self.matched if self.matched else 0.0, self.matched / total

    @property
    def is_measured(self) -> bool:
        """Whether the class occurs at all."""
        return bool(self.matched + self.missing + self.extra)


@dataclass(frozen=True)
class TrueSegment:
    """A segment of the ground truth."""

    id: int
    """Its number in the map; 0 is no segment."""
    label: int
    is_crowd: bool


def add_image(
    counts: Mapping[int, ClassCounts],
    truth: NDArray[np.int64],
    segments: Sequence[TrueSegment],
    detected: NDArray[np.int64],
    labels: Sequence[int],
) -> None:
    """Add an image to the counts of each label.

    Parameters
    ----------
    counts : mapping of int to ClassCounts
        By label; changed in place.
    truth : ndarray, (H, W)
        The id of each pixel's segment, 0 for none.
    segments : sequence of TrueSegment
        All but 0.
    detected : ndarray, (H, W)
        For each pixel the index of the segment found, plus one; 0 for none.
    labels : sequence of int
        Of the segments found.

    Raises
    ------
    ValueError
        If the map has ids that are not among the segments.
    """
    ids = np.array([0, *(segment.id for segment in segments)])
    order = np.argsort(ids)
    position = np.searchsorted(ids[order], truth).clip(max=len(ids) - 1)
    index = order[position]
    if (ids[index] != truth).any():
        unknown = int(truth[ids[index] != truth][0])
        raise ValueError(f"segment {unknown} of the map is not among those of the annotation")
    columns = len(labels) + 1
    common = np.bincount((index * columns + detected).ravel(), minlength=len(ids) * columns).reshape(len(ids), columns)
    true_areas, found_areas = common.sum(1), common.sum(0)
    matched_true, matched_found = set(), set()
    for row, column in np.argwhere(common > 0).tolist():
        if not row or not column:
            continue
        segment = segments[row - 1]
        if segment.is_crowd or segment.label != labels[column - 1]:
            continue
        union = true_areas[row] + found_areas[column] - common[row, column] - common[0, column]
        iou = common[row, column] / union
        if iou > MIN_IOU:
            counts[segment.label].matched += 1
            counts[segment.label].iou += float(iou)
            matched_true.add(row)
            matched_found.add(column)
    for row, segment in enumerate(segments, 1):
        counts[segment.label].missing += row not in matched_true and not segment.is_crowd
    for column, label in enumerate(labels, 1):
        crowds = [row for row, segment in enumerate(segments, 1) if segment.is_crowd and segment.label == label]
        ignored = common[[0, *crowds], column].sum()
        if column not in matched_found and found_areas[column] and ignored / found_areas[column] <= MAX_IGNORED:
            counts[label].extra += 1


def mean_qualities(counts: Sequence[ClassCounts]) -> tuple[float, float, float]:
    """Return the means of the qualities over the classes that occur; -1 if none does."""
    measured = [count.qualities for count in counts if count.is_measured]
    if not measured:
        return -1.0, -1.0, -1.0
    panoptic, segmentation, recognition = np.mean(measured, axis=0).tolist()
    return panoptic, segmentation, recognition
