"""The comparator of a detector's output ``panoptic``: segment by segment, as rounding numbers instances otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.detections.panoptic import INSTANCE_OFFSET
from mmort.onnx.verify.numbers import NumbersRow
from mmort.onnx.verify.values import Outputs, shape_text

NAME = "panoptic"


def compare(outputs: Outputs) -> list[NumbersRow] | None:
    """Compare an output that is a panoptic map (N, H, W); return None if it is none, or differs in dtype or shape."""
    if tuple(outputs.names) != (NAME,) or len(outputs.expected) != 1:
        return None
    (actual,), (expected,) = outputs.actual, outputs.expected
    if actual.dtype.kind != "i" or actual.ndim != 3 or (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return None
    min_overlap = outputs.tolerances.min_mask_overlap
    counts = [_count_differing(*maps, min_overlap) for maps in zip(actual, expected, strict=True)]
    differing, segments = np.sum(counts, 0, dtype=int) if counts else (0, 0)
    problem = f"{differing} of {segments} segments" if differing else ""
    shape = shape_text(actual.shape)
    return [NumbersRow(outputs.inputs, NAME, shape, None, None, f"overlap {min_overlap:g}", problem)]


def _count_differing(map: NDArray[Any], expected: NDArray[Any], min_overlap: float) -> tuple[int, int]:
    """Count the segments of both maps, once if they match, that differ; pixels without a segment are one, too.

    Segments match if they have the same label, and their IoU is the smallest overlap, or they differ in one pixel.
    """
    found_ids, found_areas = np.unique(map, return_counts=True)
    ids, areas = np.unique(expected, return_counts=True)
    pairs = np.stack([np.searchsorted(ids, expected).ravel(), np.searchsorted(found_ids, map).ravel()])
    (rows, columns), common = np.unique(pairs, axis=1, return_counts=True)
    union = areas[rows] + found_areas[columns] - common
    same_label = ids[rows] % INSTANCE_OFFSET == found_ids[columns] % INSTANCE_OFFSET
    agrees = union - common <= np.maximum(1, (1 - min_overlap) * union)
    matched = int((same_label & (2 * common > union) & agrees).sum())
    segments = len(ids) + len(found_ids) - matched
    return segments - matched, segments
