"""filter_scores; and nms, nms_indices, soft_nms, multiclass_nms, by NonMaxSuppression if it covers the attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mmort import schemas
from mmort.onnx.graph.builder import BOOL, END, FLOAT, INT64, Builder, FunctionBuilder, Value
from mmort.onnx.portable.definitions.overlaps import shared_area
from mmort.onnx.portable.definitions.soft_suppression import MINUS_INFINITY, SoftSuppression


def filter_scores(op: FunctionBuilder, scores: Value, *, attributes: Mapping[str, Any]) -> Value:
    """Compare with the threshold and, by TopK, with the lowest of the best."""
    chosen = scores > op.number("score_threshold")
    if attributes["nms_pre"] > 0:
        images, candidates = op.size(scores, 0), op.size(scores, 1) * op.size(scores, 2)
        flat = op.reshape(op.Where(chosen, scores, MINUS_INFINITY), images, candidates)
        # One more, so that there is a lowest even of none.
        flat = op.Concat(flat, op.Expand(MINUS_INFINITY, op.Concat(images, [1], axis=0)), axis=1)
        best, _ = op.TopK(flat, op.Min(candidates + 1, op.integer("nms_pre")), axis=1, sorted=0, outputs=2)
        chosen = chosen & (scores >= op.Unsqueeze(op.reduce("ReduceMin", best, 1, keepdims=1), [2]))
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
    order = descending(op, scores)
    order = op.Compress(order, (op.Gather(scores, order) > score_threshold) | (score_threshold <= 0.0), axis=0)
    if not _needs_loop(attributes):
        count = op.Shape(order)
        sorted_boxes = op.Unsqueeze(_without_overlap(op, op.Gather(boxes, order)), [0])
        ranks = op.Unsqueeze((count - op.range(count)).to(FLOAT), [0])  # scores may be NaN
        if idxs is not None:  # a row for each class, in which the boxes of others have rank 0
            classes, _, numbers, _ = op.Unique(op.Gather(idxs, order), outputs=4)
            is_of_class = op.Equal(op.Unsqueeze(op.range(op.Shape(classes)), [1]), op.Unsqueeze(numbers, [0]))
            ranks = op.Where(is_of_class, ranks, 0.0)
        # An overlap is at most 1, and ONNX Runtime accepts no larger threshold.
        max_overlap = op.Min(iou_threshold, 1.0)
        selected = op.NonMaxSuppression(sorted_boxes, op.Unsqueeze(ranks, [0]), count, max_overlap, [0.5])
        positions = op.Gather(selected, 2, axis=1)
        if idxs is not None:  # from the order of the classes to that of the scores
            positions, _ = op.TopK(positions, op.Shape(positions), axis=0, largest=0, outputs=2)
        kept = op.Gather(order, positions)
    else:
        kept = greedy(op, order, _suppression(boxes, iou_threshold, _offset(op)), idxs)
    max_num = op.integer("max_num")
    return op.Slice(kept, [0], op.Where(max_num > 0, max_num, END))


def soft_nms(op: FunctionBuilder, boxes: Value, scores: Value, *, attributes: Mapping[str, Any]) -> tuple[Value, Value]:
    """Take one box after another, in the kernel's order, which decides among equal scores."""
    if attributes["method"] not in (0, 1, 2):
        raise ValueError(f"method must be 0, 1 or 2, got {attributes['method']}")
    soft = SoftSuppression.of(op, attributes["method"])
    everything = op.Expand(True, op.Concat([1], op.Shape(scores), axis=0))
    groups = op.Unsqueeze(boxes, [0]), op.Unsqueeze(scores, [0])
    indices, lowered, taken = (op.Squeeze(result, [0]) for result in soft.take(op, *groups, everything))
    indices, lowered = op.Compress(indices, taken, axis=0), op.Compress(lowered, taken, axis=0)
    return op.Concat(op.Gather(boxes, indices), op.Unsqueeze(lowered, [1]), axis=1), indices


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
    soft, in_loop = attributes["method"] != "nms", _needs_loop(attributes)
    images, count, classes = (op.size(scores, axis) for axis in range(3))
    sets = op.ReduceProd(op.Slice(op.Shape(boxes), [2], [-1]), keepdims=1)  # of boxes: one per class, or one for all
    boxes = op.reshape(boxes, images, count, sets, 4)
    all_boxes = boxes if soft or in_loop else _without_overlap(op, boxes)
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
    if soft:
        kept = _soft_scores(op, attributes, group_boxes, group_scores, length)
    elif in_loop:
        kept = _greedy_scores(op, group_boxes, group_scores)
    else:
        limit = length
        if attributes["max_per_image"] > 0:  # no group can have more of the best
            limit = op.Min(length, op.integer("max_per_image"))
        selected = op.NonMaxSuppression(
            group_boxes,
            op.Unsqueeze(group_scores, [1]),
            limit,
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
        kept_counts = op.ReduceSum(op.Cast(kept > MINUS_INFINITY, to=INT64), [1], keepdims=0)
        if soft:
            high_counts = op.ReduceSum(op.Cast(kept >= op.number("min_score"), to=INT64), [1], keepdims=0)
            kept_counts = op.Max(high_counts, op.Min(kept_counts, 1))
        rows = op.ReduceMax(op.Concat(kept_counts, [0], axis=0), keepdims=1)
    kept = op.Concat(kept, op.Expand(MINUS_INFINITY, op.Concat(images, rows, axis=0)), axis=1)
    # Of equal scores ONNX's TopK takes the first: the lower box, then the lower class.
    best, positions = op.TopK(kept, rows, axis=1, outputs=2)
    if soft:  # of the best boxes of groups, which are kept whatever their scores, only the best of all is below it
        first = op.range(rows) < 1
        best = op.Where(first | (best >= op.number("min_score")), best, MINUS_INFINITY)
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
    shared = shared_area(op, (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2), offset)
    area_a = (ax2 - ax1 + offset) * (ay2 - ay1 + offset)
    area_b = (bx2 - bx1 + offset) * (by2 - by1 + offset)
    return shared / (area_a + area_b - shared)


def descending(op: Builder, scores: Value) -> Value:
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


def greedy(
    op: Builder, order: Value, suppresses: Callable[[Builder, Value, Value], Value], labels: Value | None = None
) -> Value:
    """Return the indices in `order` whose boxes no better box of their label suppresses, by a loop over the boxes kept.

    `suppresses` tells, for the index of a box and those of others, which of the others it suppresses.
    """

    def step(op: Builder, i: Value, go_on: Value, left: Value) -> tuple[Value, ...]:
        best, remaining = op.slice(left, 0, 1, 0), op.Slice(left, [1], [END], [0])
        suppressed = suppresses(op, best, remaining)
        if labels is not None:
            suppressed = suppressed & op.Equal(op.Gather(labels, best), op.Gather(labels, remaining))
        remaining = op.Compress(remaining, ~suppressed, axis=0)
        return op.Squeeze(op.Shape(remaining) > 0, [0]), remaining, best

    body = op.graph(
        step,
        [(INT64, []), (BOOL, []), (INT64, [None])],
        [(BOOL, []), (INT64, [None]), (INT64, [1])],
    )
    any_left = op.Squeeze(op.Shape(order) > 0, [0])
    _, rows = op.Loop(None, any_left, order, body=body, outputs=2)
    return op.Squeeze(rows, [1])


def _suppression(boxes: Value, iou_threshold: Value, offset: Value) -> Callable[[Builder, Value, Value], Value]:
    """Return the test of `greedy`: overlaps above a threshold."""

    def suppresses(op: Builder, best: Value, remaining: Value) -> Value:
        return op.Squeeze(_iou(op, op.Gather(boxes, best), op.Gather(boxes, remaining), offset), [1]) > iou_threshold

    return suppresses


def _soft_scores(
    op: FunctionBuilder, attributes: Mapping[str, Any], boxes: Value, scores: Value, length: Value
) -> Value:
    """Return the lowered scores (G, n) of the boxes (G, n, 4) that each group keeps, -inf for others."""
    method = schemas.kernels()["soft_nms"].words("method").index(attributes["method"].removeprefix("soft_nms_"))
    soft, limit = SoftSuppression.of(op, method), None
    # Each score is then at most the one before.
    if attributes["max_per_image"] > 0 and attributes["score_threshold"] >= 0 and attributes["iou_threshold"] >= 0:
        limit = op.integer("max_per_image")
    indices, lowered, taken = soft.take(op, boxes, scores, scores > MINUS_INFINITY, limit)
    first = op.range(op.size(lowered, 1)) < 1
    kept = taken & (first | (lowered >= soft.min_score))
    nothing = op.Expand(MINUS_INFINITY, op.Concat(op.Shape(scores, end=1), length + 1, axis=0))
    indices, lowered = op.Where(kept, indices, length), op.Where(kept, lowered, MINUS_INFINITY)
    return op.slice(op.ScatterElements(nothing, indices, lowered, axis=1), 0, -1, 1)


def _greedy_scores(op: FunctionBuilder, boxes: Value, scores: Value) -> Value:
    """Return the scores (G, n) of the boxes (G, n, 4) that each group keeps, -inf for others."""
    iou_threshold, offset = op.number("iou_threshold"), _offset(op)

    def step(op: Builder, i: Value, go_on: Value) -> tuple[Value, ...]:
        score = op.Gather(scores, i)
        chosen = op.Compress(op.range(op.Shape(score)), score > MINUS_INFINITY, axis=0)
        group_boxes, group_scores = op.Gather(op.Gather(boxes, i), chosen), op.Gather(score, chosen)
        kept = greedy(op, descending(op, group_scores), _suppression(group_boxes, iou_threshold, offset))
        nothing = op.Expand(MINUS_INFINITY, op.Shape(score))
        return go_on, op.ScatterElements(nothing, op.Gather(chosen, kept), op.Gather(group_scores, kept))

    body = op.graph(step, [(INT64, []), (BOOL, [])], [(BOOL, []), (FLOAT, [None])])
    kept: Value = op.Loop(op.Squeeze(op.Shape(scores, end=1), [0]), True, body=body)
    return kept
