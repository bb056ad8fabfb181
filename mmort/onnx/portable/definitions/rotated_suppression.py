"""nms_rotated and nms_rotated_indices, by a loop over the boxes that are kept.

Each step measures the overlaps with the best box that is left, in whose frame the others are clipped: the area that a
polygon shares with an upright rectangle is the integral of the height, limited to the rectangle's, along its edges.
No case is decided by rounding, so nearly equal boxes are no special case, as in the kernels.  In float64, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mmort.onnx.graph.builder import DOUBLE, FLOAT, Builder, FunctionBuilder, Value
from mmort.onnx.portable.definitions.suppression import descending, greedy

COLUMNS = 7  # centre x, y, half width, half height, cosine, sine, area
NAN, ZERO, HALF, ONE = (np.array(number, np.float64) for number in (np.nan, 0, 0.5, 1))
SIGNS = np.array([[1, -1, -1, 1]], np.float64), np.array([[1, 1, -1, -1]], np.float64)
"""Of half the width and half the height, for the corners in turn."""


def nms_rotated(
    op: FunctionBuilder, dets: Value, scores: Value, labels: Value | None = None, *, attributes: Mapping[str, Any]
) -> Value:
    """Suppress among all boxes, or those of the same label."""
    rows = _measured(op, dets, clockwise=bool(attributes["clockwise"]))
    order = descending(op, scores)
    suppresses = _suppression(rows, op.number("iou_threshold"), equal=bool(attributes["suppress_equal"]))
    return greedy(op, order, suppresses, labels)


def nms_rotated_indices(op: FunctionBuilder, boxes: Value, scores: Value, *, attributes: Mapping[str, Any]) -> Value:
    """Suppress among the boxes of each image and class, which serve as labels, then order by these."""
    images, classes, count = (op.size(scores, axis) for axis in range(3))
    flat = op.Reshape(scores, [-1])
    candidates = op.Compress(op.range(op.Shape(flat)), flat > op.number("score_threshold"), axis=0)
    labels = candidates / op.Max(count, [1])
    image = labels / op.Max(classes, [1])
    box = candidates - labels * count
    rows = _measured(op, op.reshape(boxes, images * count, 5), clockwise=True)
    rows = op.Gather(rows, image * count + box)
    order = descending(op, op.Gather(flat, candidates))
    kept = greedy(op, order, _suppression(rows, op.number("iou_threshold"), equal=False), labels)
    _, by_label = op.TopK(op.Gather(labels, kept), op.Shape(kept), axis=0, largest=0, outputs=2)
    kept = op.Gather(kept, by_label)
    image, label, box = (op.Gather(values, kept) for values in (image, labels, box))
    return op.Concat(*(op.Unsqueeze(values, [1]) for values in (image, label - image * classes, box)), axis=1)


def _measured(op: Builder, boxes: Value, *, clockwise: bool) -> Value:
    """Return the rows (n, 7) of boxes (n, 5).  The area is 0 if a side is negative, NaN if a number is not finite."""
    x, y, width, height, angle = op.Split(boxes.to(DOUBLE), [1] * 5, axis=1, outputs=5)
    cosine, sine = op.Cos(angle), op.Sin(angle if clockwise else -angle)
    area = width * height
    total = x + y + width + height + angle + area
    area = op.Where(op.Equal(total - total, ZERO), op.Max(area, ZERO), NAN)
    return op.Concat(x, y, op.Abs(width) * HALF, op.Abs(height) * HALF, cosine, sine, area, axis=1)


def _suppression(rows: Value, threshold: Value, *, equal: bool) -> Callable[[Builder, Value, Value], Value]:
    """Return the test of `greedy`: overlaps above a threshold, or equal to it, too."""

    def suppresses(op: Builder, best: Value, remaining: Value) -> Value:
        overlap = op.Squeeze(_overlap(op, op.Gather(rows, best), op.Gather(rows, remaining)), [1]).to(FLOAT)
        return overlap >= threshold if equal else overlap > threshold

    return suppresses


def _overlap(op: Builder, row: Value, rows: Value) -> Value:
    """Return intersection over union (n, 1) of a row (1, 7) with others (n, 7)."""
    x, y, half_width, half_height, cosine, sine, area = op.Split(row, [1] * COLUMNS, axis=1, outputs=COLUMNS)
    columns = op.Split(rows, [1] * COLUMNS, axis=1, outputs=COLUMNS)
    other_x, other_y, other_width, other_height, other_cosine, other_sine, other_area = columns
    dx, dy = other_x - x, other_y - y
    centre_x, centre_y = dx * cosine + dy * sine, dy * cosine - dx * sine
    cosine, sine = cosine * other_cosine + sine * other_sine, cosine * other_sine - sine * other_cosine
    across, along = op.Mul(SIGNS[0], other_width), op.Mul(SIGNS[1], other_height)
    corner_x = centre_x + cosine * across - sine * along  # (n, 4)
    corner_y = centre_y + sine * across + cosine * along
    common = _shared_area(op, corner_x, corner_y, half_width, half_height)
    common = op.Min(common, op.Min(area, other_area))
    total = area + other_area
    reach_x = op.Abs(cosine) * other_width + op.Abs(sine) * other_height + half_width
    reach_y = op.Abs(sine) * other_width + op.Abs(cosine) * other_height + half_height
    touching = (op.Abs(centre_x) < reach_x) & (op.Abs(centre_y) < reach_y)
    touching = touching & (area > ZERO) & (other_area > ZERO)
    iou = op.Where(touching, common / (total - common), ZERO)
    return op.Where(op.IsNaN(total.to(FLOAT)), NAN, iou)


def _shared_area(op: Builder, x: Value, y: Value, half_width: Value, half_height: Value) -> Value:
    """Return the areas (n, 1) that polygons of corners (n, 4) share with an upright rectangle around the origin."""
    next_x, next_y = (op.Gather(values, [1, 2, 3, 0], axis=1) for values in (x, y))
    begin, end = (op.Min(op.Max(values, -half_width), half_width) for values in (x, next_x))
    run = next_x - x
    slope = (next_y - y) / op.Where(op.Equal(run, ZERO), ONE, run)
    first, last = y + (begin - x) * slope, y + (end - x) * slope
    low, high = (op.Min(op.Max(values, -half_height), half_height) for values in (first, last))
    # The mean of the limited height from `first` to `last`: the part between the limits, and what is cut off.
    rise = last - first
    level = op.Equal(rise, ZERO)
    beyond = (op.Abs(last) - op.Abs(high)) - (op.Abs(first) - op.Abs(low))
    mean = ((high - low) * (high + low) * HALF + half_height * beyond) / op.Where(level, ONE, rise)
    mean = op.Where(level, low, mean)
    return op.Abs(op.ReduceSum(mean * (end - begin), [1], keepdims=1))
