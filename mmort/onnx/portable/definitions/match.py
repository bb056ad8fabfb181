"""nms_match_pairs in a Loop, of which each step takes the best box that is left in every list of boxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmort.onnx.graph.builder import BOOL, DOUBLE, FLOAT, INT64, Builder, FunctionBuilder, Value
from mmort.onnx.portable.definitions.overlaps import shared_area
from mmort.onnx.portable.definitions.soft_suppression import MINUS_INFINITY

GUARD = np.array(1e-10)
"""Added to the union, which may be 0."""


def nms_match_pairs(
    op: FunctionBuilder,
    boxes: Value,
    scores: Value,
    iou_threshold: Value,
    score_threshold: Value,
    *,
    attributes: Mapping[str, Any],
) -> Value:
    """Find the keeper of each box, then list the pairs by list, keeper's rank and member's rank."""
    classes, count = op.size(scores, 1), op.size(scores, 2)
    lists = op.size(scores, 0) * classes
    iou_threshold, score_threshold = (op.slice(op.Reshape(t, [-1]), 0, 1, 0) for t in (iou_threshold, score_threshold))
    scores = op.reshape(scores, lists, count)
    order = _descending(op, scores, count)
    scores = op.GatherElements(scores, order, axis=1)
    divisor = op.Max(classes, [1])
    sorted_boxes = op.GatherND(op.Gather(boxes, op.range(lists) / divisor), op.Unsqueeze(order, [2]), batch_dims=1)
    keepers = _keepers(op, sorted_boxes, scores > score_threshold, iou_threshold, op.Unsqueeze(op.range(count), [0]))
    ranks = op.Expand(op.Unsqueeze(op.range(count), [0]), op.Shape(keepers))
    is_pair = (keepers >= 0) & ~op.Equal(keepers, ranks)
    rows = op.Transpose(op.NonZero(is_pair))  # of list and member's rank, by list
    number, rank = op.Gather(rows, 0, axis=1), op.Gather(rows, 1, axis=1)
    keeper = op.GatherND(keepers, rows)
    _, sequence = op.TopK((number * count + keeper) * count + rank, op.Shape(rank), axis=0, largest=0, outputs=2)
    number, rank, keeper = (op.Gather(column, sequence) for column in (number, rank, keeper))
    image = number / divisor
    columns = [image, number - image * divisor]
    columns += [
        op.GatherND(order, op.Concat(*(op.Unsqueeze(c, [1]) for c in (number, r)), axis=1)) for r in (keeper, rank)
    ]
    return op.Concat(*(op.Unsqueeze(column, [1]) for column in columns), axis=1)


def _descending(op: Builder, scores: Value, count: Value) -> Value:
    """Return the order of the scores (L, n) of each list: equal ones by index, NaN last."""
    unordered = op.IsNaN(scores)
    _, order = op.TopK(op.Where(unordered, MINUS_INFINITY, scores), count, axis=1, outputs=2)
    unordered = op.GatherElements(unordered.to(FLOAT), order, axis=1)
    _, nan_last = op.TopK(unordered, count, axis=1, largest=0, outputs=2)
    return op.GatherElements(order, nan_last, axis=1)


def _keepers(op: FunctionBuilder, boxes: Value, is_above: Value, iou_threshold: Value, ranks: Value) -> Value:
    """Return the rank of the box that takes each (L, n), or -1 if none whose score is above the threshold does."""
    areas = _area(op, boxes)

    def step(op: Builder, i: Value, go_on: Value, left: Value, keepers: Value) -> tuple[Value, ...]:
        keeper = op.ArgMax(left.to(FLOAT), axis=1, keepdims=1)
        box = op.Unsqueeze(op.GatherND(boxes, keeper, batch_dims=1), [1])
        area = op.GatherElements(areas, keeper, axis=1)
        common = _common(op, box, boxes)
        union = op.Sub(op.Add(area, areas), common)
        overlap = common.to(DOUBLE) / (union.to(DOUBLE) + GUARD)
        taken = left & ((overlap.to(FLOAT) >= iou_threshold) | op.Equal(ranks, keeper))
        keepers = op.Where(taken, keeper, keepers)
        left = left & ~taken
        return _any(op, op.And(left, is_above)), left, keepers

    everything = op.Expand(True, op.Shape(is_above))
    no_keepers = op.Expand(-1, op.Shape(is_above))
    state = [(BOOL, [None, None]), (INT64, [None, None])]
    body = op.graph(step, [(INT64, []), (BOOL, []), *state], [(BOOL, []), *state])
    _, keepers = op.Loop(None, _any(op, is_above), everything, no_keepers, body=body, outputs=2)
    is_kept_above = op.GatherElements(is_above.to(INT64), op.Max(keepers, 0), axis=1) > 0
    return op.Where(is_kept_above, keepers, -1)


def _any(op: Builder, values: Value) -> Value:
    return op.Squeeze(op.largest(values.to(INT64), 0) > 0, [0])


def _area(op: Builder, boxes: Value) -> Value:
    x1, y1, x2, y2 = op.Split(boxes, [1, 1, 1, 1], axis=2, outputs=4)
    return op.Squeeze((x2 - x1) * (y2 - y1), [2])


def _common(op: Builder, box: Value, boxes: Value) -> Value:
    """Return the areas (L, n) that boxes (L, n, 4) share with one of their list (L, 1, 4), in the kernel's order."""
    of_box, of_boxes = (op.Split(corners, [1, 1, 1, 1], axis=2, outputs=4) for corners in (box, boxes))
    return op.Squeeze(shared_area(op, of_box, of_boxes), [2])
