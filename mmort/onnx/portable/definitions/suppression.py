"""filter_scores; and nms, nms_indices, soft_nms, multiclass_nms, by NonMaxSuppression if it covers the attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from mmort import schemas
from mmort.onnx.portable.builder import BOOL, DOUBLE, END, FLOAT, INT64, Builder, FunctionBuilder, Value

MINUS_INFINITY = -math.inf

Decay = Callable[[Builder, Value], Value]
"""Takes overlaps with the best box (n, 1) and returns the factors of the scores."""

Suppression = Callable[[Builder, Value, Value], tuple[Value, Value]]
"""Takes boxes (n, 4) and scores (n,) and returns the indices of those that are kept, and their scores."""


def filter_scores(op: FunctionBuilder, scores: Value, *, attributes: Mapping[str, Any]) -> Value:
    """Compare with the threshold and, by TopK, with the lowest of the best."""
    chosen = scores > op.number("score_threshold")
    if attributes["nms_pre"] > 0:
        images, candidates = op.size(scores, 0), op.size(scores, 1) * op.size(scores, 2)
        flat = op.reshape(op.Where(chosen, scores, MINUS_INFINITY), images, candidates)
        # One more, so that there is a lowest even of none.
        flat = op.Concat(flat, op.Expand(MINUS_INFINITY, op.Concat(images, [1], axis=0)), axis=1)
        best, _ = op.TopK(flat, op.Min(candidates + 1, op.integer("nms_pre")), axis=1, sorted=0, outputs=2)
        chosen = chosen & (scores >= op.Unsqueeze(op.ReduceMin(best, [1], keepdims=1), [2]))
    return op.Where(chosen, scores, 0.0)


def nms(
    op: FunctionBuilder,
    boxes: Value,
    scores: Value,
    idxs: Value | None = None,
    *,
    attributes: Mapping[str, Any],
) -> Value:
    """Sort, then suppress, in a loop if there is an `offset` or a negative threshold."""
    iou_threshold, score_threshold = op.number("iou_threshold"), op.number("score_threshold")
    order = _descending(op, scores)
    order = op.Compress(order, (op.Gather(scores, order) > score_threshold) | (score_threshold <= 0.0), axis=0)
    if not _needs_loop(attributes):
        count = op.Shape(order)
        sorted_boxes = op.Unsqueeze(_without_overlap(op, op.Gather(boxes, order)), [0])
        ranks = op.Unsqueeze((count - op.range(count)).to(FLOAT), [0])  # scores may be NaN
        if idxs is not None:  # a row for each class, in which the boxes of others have rank 0
            classes, _, numbers, _ = op.Unique(op.Gather(idxs, order), outputs=4)
            own = op.Equal(op.Unsqueeze(op.range(op.Shape(classes)), [1]), op.Unsqueeze(numbers, [0]))
            ranks = op.Where(own, ranks, 0.0)
        # An overlap is at most 1, and ONNX Runtime accepts no larger threshold.
        max_overlap = op.Min(iou_threshold, 1.0)
        selected = op.NonMaxSuppression(sorted_boxes, op.Unsqueeze(ranks, [0]), count, max_overlap, [0.5])
        positions = op.Gather(selected, 2, axis=1)
        if idxs is not None:  # from the order of the classes to that of the scores
            positions, _ = op.TopK(positions, op.Shape(positions), axis=0, largest=0, outputs=2)
        kept = op.Gather(order, positions)
    else:
        kept = _greedy(op, boxes, order, iou_threshold, _offset(op), idxs)
    max_num = op.integer("max_num")
    return op.Slice(kept, [0], op.Where(max_num > 0, max_num, END))


def soft_nms(op: FunctionBuilder, boxes: Value, scores: Value, *, attributes: Mapping[str, Any]) -> tuple[Value, Value]:
    """Loop over the boxes that are kept, in the kernel's order, which decides among equal scores."""
    if attributes["method"] not in (0, 1, 2):
        raise ValueError(f"method must be 0, 1 or 2, got {attributes['method']}")
    return _soft(op, _decay(op, attributes["method"]), op.number("min_score"), _offset(op), boxes, scores)


def nms_indices(op: FunctionBuilder, boxes: Value, scores: Value, *, attributes: Mapping[str, Any]) -> Value:
    """Use NonMaxSuppression, which is the same function."""
    max_per_class = op.integer("max_per_class")
    limits = [op.Where(max_per_class > 0, max_per_class, END), op.number("iou_threshold")]
    if attributes["score_threshold"] != MINUS_INFINITY:
        limits.append(op.number("score_threshold"))
    selected: Value = op.NonMaxSuppression(boxes, scores, *limits, center_point_box=attributes["center_point_box"])
    return selected


def multiclass_nms(
    op: FunctionBuilder, boxes: Value, scores: Value, *, attributes: Mapping[str, Any]
) -> tuple[Value, Value, Value]:
    """Suppress in each class of each image, then take the best of each image."""
    in_loop = attributes["method"] != "nms" or _needs_loop(attributes)
    images, count, classes = (op.size(scores, axis) for axis in range(3))
    sets = op.ReduceProd(op.Slice(op.Shape(boxes), [2], [-1]), keepdims=1)  # of boxes: one per class, or one for all
    boxes = op.reshape(boxes, images, count, sets, 4)
    all_boxes = boxes if in_loop else _without_overlap(op, boxes)
    all_boxes = op.Expand(all_boxes, op.Concat(images, count, classes, [4], axis=0))
    candidates = count * classes

    score_threshold = op.number("score_threshold")
    scores = op.Where(scores > score_threshold, scores, MINUS_INFINITY)
    if attributes["nms_pre"] > 0:
        best, positions = op.TopK(scores, op.Min(count, op.integer("nms_pre")), axis=1, outputs=2)
        scores = op.ScatterElements(op.Expand(MINUS_INFINITY, op.Shape(scores)), positions, best, axis=1)
    if attributes["class_agnostic"]:
        groups, length = images, candidates
        group_boxes, group_scores = all_boxes, scores
    else:
        groups, length = images * classes, count
        group_boxes = op.Transpose(all_boxes, perm=[0, 2, 1, 3])
        group_scores = op.Transpose(scores, perm=[0, 2, 1])
    group_boxes = op.reshape(group_boxes, groups, length, 4)
    group_scores = op.reshape(group_scores, groups, length)
    if in_loop:
        kept = _each_group(op, _suppression(op, attributes), group_boxes, group_scores)
    else:
        selected = op.NonMaxSuppression(
            group_boxes,
            op.Unsqueeze(group_scores, [1]),
            length,
            op.Min(op.number("iou_threshold"), 1.0),
            score_threshold,
        )
        group, box = op.Gather(selected, 0, axis=1), op.Gather(selected, 2, axis=1)
        positions = group * length + box
        flat = op.reshape(group_scores, groups * length)
        nothing = op.Expand(MINUS_INFINITY, op.Shape(flat))
        kept = op.ScatterElements(nothing, positions, op.Gather(flat, positions))
    if not attributes["class_agnostic"]:
        kept = op.Transpose(op.reshape(kept, images, classes, count), perm=[0, 2, 1])
    kept = op.reshape(kept, images, candidates)

    if attributes["max_per_image"] > 0:
        rows = op.integer("max_per_image")
    else:
        found = op.ReduceSum(op.Cast(kept > MINUS_INFINITY, to=INT64), [1], keepdims=0)
        rows = op.ReduceMax(op.Concat(found, [0], axis=0), keepdims=1)
    kept = op.Concat(kept, op.Expand(MINUS_INFINITY, op.Concat(images, rows, axis=0)), axis=1)
    # Of equal scores ONNX's TopK takes the first: the lower box, then the lower class.
    best, positions = op.TopK(kept, rows, axis=1, outputs=2)
    return _detections(op, boxes, best, positions, (images, count, classes, sets))


def _detections(
    op: Builder, boxes: Value, scores: Value, positions: Value, sizes: tuple[Value, Value, Value, Value]
) -> tuple[Value, Value, Value]:
    """Return dets, labels and indices of the candidates at `positions` [image, box * classes + class]."""
    images, count, classes, sets = sizes
    used = scores > MINUS_INFINITY
    box = positions / op.Max(classes, [1])
    label = positions - box * classes
    image = op.Unsqueeze(op.range(images), [1])
    rows = (image * count + box) * sets + op.Min(label, sets - [1])
    unused = images * count * sets  # a row of zeros
    rows = op.Where(used, rows, unused)
    all_rows = op.Concat(op.reshape(boxes, unused, 4), [[0.0] * 4], axis=0)
    dets = op.Concat(op.Gather(all_rows, rows), op.Unsqueeze(op.Where(used, scores, 0.0), [2]), axis=2)
    return dets, op.Where(used, label, -1), op.Where(used, box, -1)


def _iou(op: Builder, box: Value, boxes: Value, offset: Value) -> Value:
    """Return the overlaps (n, 1) of boxes (n, 4) with one box (1, 4), in the kernel's order of operations."""
    ax1, ay1, ax2, ay2 = (op.slice(box, edge, edge + 1, 1) for edge in range(4))
    bx1, by1, bx2, by2 = (op.slice(boxes, edge, edge + 1, 1) for edge in range(4))
    width = op.Max(op.Min(ax2, bx2) - op.Max(ax1, bx1) + offset, 0.0)
    height = op.Max(op.Min(ay2, by2) - op.Max(ay1, by1) + offset, 0.0)
    shared = width * height
    area_a = (ax2 - ax1 + offset) * (ay2 - ay1 + offset)
    area_b = (bx2 - bx1 + offset) * (by2 - by1 + offset)
    return shared / (area_a + area_b - shared)


def _descending(op: Builder, scores: Value) -> Value:
    """Return the order of the scores (n,): equal ones by index, NaN last."""
    unordered = op.IsNaN(scores)
    _, order = op.TopK(op.Where(unordered, MINUS_INFINITY, scores), op.Shape(scores), axis=0, outputs=2)
    unordered = op.Gather(unordered, order)
    return op.Concat(op.Compress(order, ~unordered, axis=0), op.Compress(order, unordered, axis=0), axis=0)


def _without_overlap(op: Builder, boxes: Value) -> Value:
    """Replace boxes (..., 4) that overlap nothing (no area, or NaN) by 0, as ONNX takes corners in any order."""
    first, last = op.Slice(boxes, [0], [2], [-1]), op.Slice(boxes, [2], [4], [-1])
    x, y = op.Split(op.Cast(last > first, to=INT64), [1, 1], axis=-1, outputs=2)
    return op.Where((x * y) > 0, boxes, 0.0)


def _needs_loop(attributes: Mapping[str, Any]) -> bool:
    """Return whether ONNX's NonMaxSuppression does not cover the attributes."""
    return bool(attributes["offset"] != 0 or attributes["iou_threshold"] < 0)


def _offset(op: FunctionBuilder) -> Value:
    """Return the attribute `offset` as a float, in a list of one number."""
    return op.integer("offset").to(FLOAT)


def _greedy(
    op: Builder, boxes: Value, order: Value, iou_threshold: Value, offset: Value, idxs: Value | None = None
) -> Value:
    """Return the indices in `order` whose boxes no better box suppresses, by a loop over the boxes kept."""

    def step(op: Builder, i: Value, go_on: Value, left: Value) -> tuple[Value, ...]:
        best, others = op.slice(left, 0, 1, 0), op.Slice(left, [1], [END], [0])
        overlap = _iou(op, op.Gather(boxes, best), op.Gather(boxes, others), offset)
        suppressed = op.Squeeze(overlap, [1]) > iou_threshold
        if idxs is not None:
            suppressed = suppressed & op.Equal(op.Gather(idxs, best), op.Gather(idxs, others))
        others = op.Compress(others, ~suppressed, axis=0)
        return op.Squeeze(op.Shape(others) > 0, [0]), others, best

    body = op.graph(
        step,
        [(INT64, []), (BOOL, []), (INT64, [None])],
        [(BOOL, []), (INT64, [None]), (INT64, [1])],
    )
    any_left = op.Squeeze(op.Shape(order) > 0, [0])
    _, rows = op.Loop(None, any_left, order, body=body, outputs=2)
    return op.Squeeze(rows, [1])


def _decay(op: FunctionBuilder, method: int) -> Decay:
    """Return the decay of a method of `soft_nms`."""
    if method == 2:
        sigma = op.number("sigma")
        # Computed in float64 and rounded once, as in the kernel.
        return lambda op, overlap: op.Exp((-(overlap * overlap) / sigma).to(DOUBLE)).to(FLOAT)
    threshold = op.number("iou_threshold")
    return lambda op, overlap: op.Where(overlap >= threshold, 1.0 - overlap if method == 1 else 0.0, 1.0)


def _soft(
    op: Builder, decay: Decay, min_score: Value, offset: Value, boxes: Value, scores: Value
) -> tuple[Value, Value]:
    """Return the boxes with their lowered scores (n, 5), and their indices."""

    def step(op: Builder, i: Value, go_on: Value, rows: Value, indices: Value) -> tuple[Value, ...]:
        found = op.Squeeze(op.slice(rows, 4, 5, 1), [1])
        best = op.ArgMax(op.Where(op.IsNaN(found), MINUS_INFINITY, found), axis=0, keepdims=1)
        # A NaN at the first position stays the maximum.
        best = op.Where(op.IsNaN(op.slice(found, 0, 1, 0)), op.Mul(best, 0), best)
        # The first box moves to the position of the best.
        positions = op.ScatterElements(op.range(op.Shape(found)), best, [0])
        positions = op.Slice(positions, [1], [END])
        row, index = op.Gather(rows, best), op.Gather(indices, best)
        rows, indices = op.Gather(rows, positions), op.Gather(indices, positions)
        overlap = _iou(op, row, rows, offset)
        decayed = op.slice(rows, 4, 5, 1) * decay(op, overlap)
        rows = op.Concat(op.slice(rows, 0, 4, 1), decayed, axis=1)
        # A box that leaves is replaced by the last one that stays.
        leave = op.Squeeze(decayed < min_score, [1])
        stay = ~leave
        count = op.ReduceSum(stay.to(INT64), [0], keepdims=1)
        positions = op.range(op.Shape(stay))
        behind = ~(positions < count)
        holes = op.Compress(positions, leave & ~behind, axis=0)
        fillers = op.Slice(op.Compress(positions, stay & behind, axis=0), [-1], [-END], [0], [-1])
        positions = op.Slice(op.ScatterElements(positions, holes, fillers), [0], count)
        rows, indices = op.Gather(rows, positions), op.Gather(indices, positions)
        return op.Squeeze(count > 0, [0]), rows, indices, op.Squeeze(row, [0]), index

    body = op.graph(
        step,
        [(INT64, []), (BOOL, []), (FLOAT, [None, 5]), (INT64, [None])],
        [(BOOL, []), (FLOAT, [None, 5]), (INT64, [None]), (FLOAT, [5]), (INT64, [1])],
    )
    count = op.Shape(scores)
    rows = op.Concat(boxes, op.Unsqueeze(scores, [1]), axis=1)
    any_left = op.Squeeze(count > 0, [0])
    _, _, dets, indices = op.Loop(None, any_left, rows, op.range(count), body=body, outputs=4)
    return dets, op.Squeeze(indices, [1])


def _suppression(op: FunctionBuilder, attributes: Mapping[str, Any]) -> Suppression:
    """Return the suppression of a group.  It adds no values that it does not use, as ONNX Runtime warns of them."""
    offset = _offset(op)
    if attributes["method"] == "nms":
        iou_threshold = op.number("iou_threshold")

        def greedy(op: Builder, boxes: Value, scores: Value) -> tuple[Value, Value]:
            kept = _greedy(op, boxes, _descending(op, scores), iou_threshold, offset)
            return kept, op.Gather(scores, kept)

        return greedy
    method = schemas.kernels()["soft_nms"].words("method").index(attributes["method"].removeprefix("soft_nms_"))
    decay, min_score = _decay(op, method), op.number("min_score")

    def soft(op: Builder, boxes: Value, scores: Value) -> tuple[Value, Value]:
        dets, kept = _soft(op, decay, min_score, offset, boxes, scores)
        lowered = op.Squeeze(op.slice(dets, 4, 5, 1), [1])
        return kept, op.Where(lowered >= min_score, lowered, MINUS_INFINITY)  # the best box is kept even below it

    return soft


def _each_group(op: Builder, suppress: Suppression, boxes: Value, scores: Value) -> Value:
    """Suppress in each group of boxes (G, n, 4); return the scores (G, n) of those kept, -inf for others."""

    def step(op: Builder, i: Value, go_on: Value) -> tuple[Value, ...]:
        found = op.Gather(scores, i)
        chosen = op.Compress(op.range(op.Shape(found)), found > MINUS_INFINITY, axis=0)
        kept, left = suppress(op, op.Gather(op.Gather(boxes, i), chosen), op.Gather(found, chosen))
        nothing = op.Expand(MINUS_INFINITY, op.Shape(found))
        return go_on, op.ScatterElements(nothing, op.Gather(chosen, kept), left)

    body = op.graph(step, [(INT64, []), (BOOL, [])], [(BOOL, []), (FLOAT, [None])])
    return op.Loop(op.Squeeze(op.Shape(scores, end=1), [0]), True, body=body)
