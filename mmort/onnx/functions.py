"""The operators' definitions in standard ONNX operators: for each kernel that has one, a function that writes its body.

A body computes what the kernel computes, to float32's rounding where sums are made; what it takes for granted is in
docs/portable.md.  It is written for one node's attributes, so it holds no branches for others; but where a value does
not change its form it refers to the node's attribute, so that many nodes share a body.  Inputs are the node's; an
optional input that is left out is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx

from mmort.onnx.body import BOOL, DOUBLE, FLOAT, INT64, Body, Kind, Reference, Value

OPSET = 16
"""The lowest opset that has all operators used (GridSample, RoiAlign with half pixels)."""

Attributes = Mapping[str, Any]
Writer = Callable[..., "Value | tuple[Value, ...]"]

MINUS_INFINITY = -math.inf
FAR = 100.0
"""A place outside every map, in the units of GridSample's grid, in which maps lie between -1 and 1."""


class NoBody(Exception):
    """The node's attributes ask for something that its body does not cover; the text says what."""


# ---- words for common combinations -----------------------------------------------------------------------------


def _size(op: Body, x: Value, axis: int) -> Value:
    """Return a dimension as a list of one number."""
    size: Value = op.Shape(x, start=axis, end=axis + 1)
    return size


def _reshape(op: Body, x: Value, *sizes: Value | int) -> Value:
    """Reshape to lists of one number, or numbers; 0 is a size like any other."""
    lists = [[size] if isinstance(size, int) else size for size in sizes]
    reshaped: Value = op.Reshape(x, op.Concat(*lists, axis=0), allowzero=1)
    return reshaped


def _columns(op: Body, x: Value, first: int, last: int, axis: int = 1) -> Value:
    columns: Value = op.Slice(x, [first], [last], [axis])
    return columns


def _range(op: Body, count: Value) -> Value:
    """Return 0, 1, ... below a list of one number."""
    numbers: Value = op.Range(0, op.Squeeze(count, [0]), 1)
    return numbers


def _if(
    op: Body,
    condition: Value,
    then: Callable[[Body], tuple[Value, ...]],
    otherwise: Callable[[Body], tuple[Value, ...]],
    kinds: Sequence[Kind],
) -> tuple[Value, ...]:
    """Return one result or the other; only one of them is computed."""
    branches = {"then_branch": op.graph(then, [], kinds), "else_branch": op.graph(otherwise, [], kinds)}
    results = op.If(condition, **branches, outputs=len(kinds))
    return results if isinstance(results, tuple) else (results,)


# ---- suppression -----------------------------------------------------------------------------------------------


def _corners(op: Body, boxes: Value) -> tuple[Value, Value, Value, Value]:
    return tuple(_columns(op, boxes, i, i + 1) for i in range(4))  # type: ignore[return-value]


def _iou(op: Body, chosen: Value, boxes: Value, offset: Value) -> Value:
    """Return the overlaps [n, 1] of boxes [n, 4] with one [1, 4], in the kernel's order of operations."""
    ax1, ay1, ax2, ay2 = _corners(op, chosen)
    bx1, by1, bx2, by2 = _corners(op, boxes)
    width = op.Max(op.Min(ax2, bx2) - op.Max(ax1, bx1) + offset, 0.0)
    height = op.Max(op.Min(ay2, by2) - op.Max(ay1, by1) + offset, 0.0)
    shared = width * height
    area_a = (ax2 - ax1 + offset) * (ay2 - ay1 + offset)
    area_b = (bx2 - bx1 + offset) * (by2 - by1 + offset)
    overlap: Value = shared / (area_a + area_b - shared)
    return overlap


def _descending(op: Body, scores: Value) -> Value:
    """Return the order of the scores [n]: equal ones by index, NaN last."""
    unordered = op.IsNaN(scores)
    _, order = op.TopK(op.Where(unordered, MINUS_INFINITY, scores), op.Shape(scores), axis=0, outputs=2)
    unordered = op.Gather(unordered, order)
    ordered: Value = op.Concat(op.Compress(order, ~unordered, axis=0), op.Compress(order, unordered, axis=0), axis=0)
    return ordered


def _without_overlap(op: Body, boxes: Value) -> Value:
    """Replace boxes [..., 4] that overlap nothing (no area, or NaN) by 0: ONNX takes corners in any order."""
    first, last = op.Slice(boxes, [0], [2], [-1]), op.Slice(boxes, [2], [4], [-1])
    x, y = op.Split(op.Cast(last > first, to=INT64), [1, 1], axis=-1, outputs=2)
    return op.Where((x * y) > 0, boxes, 0.0)  # type: ignore[no-any-return]


def nms(op: Body, boxes: Value, scores: Value, idxs: Value | None = None, *, attributes: Attributes) -> Value:
    """Sort, then ONNX's operator; a loop where that cannot do it (`offset`, negative thresholds)."""
    iou_threshold, score_threshold = op.number("iou_threshold"), op.number("score_threshold")
    order = _descending(op, scores)
    order = op.Compress(order, (op.Gather(scores, order) > score_threshold) | (score_threshold <= 0.0), axis=0)
    if not _needs_loop(attributes):
        count = op.Shape(order)
        sorted_boxes = op.Unsqueeze(_without_overlap(op, op.Gather(boxes, order)), [0])
        ranks = op.Unsqueeze((count - _range(op, count)).to(FLOAT), [0])  # scores may be NaN
        if idxs is not None:  # a row for each class, in which the boxes of others have rank 0
            classes, _, numbers, _ = op.Unique(op.Gather(idxs, order), outputs=4)
            own = op.Equal(op.Unsqueeze(_range(op, op.Shape(classes)), [1]), op.Unsqueeze(numbers, [0]))
            ranks = op.Where(own, ranks, 0.0)
        # An overlap is at most 1, and ONNX Runtime takes no greater threshold.
        most = op.Min(iou_threshold, 1.0)
        selected = op.NonMaxSuppression(sorted_boxes, op.Unsqueeze(ranks, [0]), count, most, [0.5])
        places = op.Gather(selected, 2, axis=1)
        if idxs is not None:  # from the order of the classes to that of the scores
            places, _ = op.TopK(places, op.Shape(places), axis=0, largest=0, outputs=2)
        kept = op.Gather(order, places)
    else:
        kept = _greedy(op, boxes, order, iou_threshold, _offset(op), idxs)
    most = op.integer("max_num")
    return op.Slice(kept, [0], op.Where(most > 0, most, 2**62))  # type: ignore[no-any-return]


def _needs_loop(attributes: Attributes) -> bool:
    """Whether ONNX's NonMaxSuppression cannot do it."""
    return bool(attributes["offset"] != 0 or attributes["iou_threshold"] < 0)


def _greedy(
    op: Body, boxes: Value, order: Value, iou_threshold: Value, offset: Value, idxs: Value | None = None
) -> Value:
    """Return those of the boxes `order` that no better one suppresses, by a loop over them."""

    def step(op: Body, i: Value, go_on: Value, left: Value) -> tuple[Value, ...]:
        best, others = _columns(op, left, 0, 1, 0), op.Slice(left, [1], [2**62], [0])
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
    return op.Squeeze(rows, [1])  # type: ignore[no-any-return]


def soft_nms(op: Body, boxes: Value, scores: Value, *, attributes: Attributes) -> tuple[Value, Value]:
    """A loop over emitted boxes; those left change places as in the kernel, since that decides among equal scores."""
    if attributes["method"] not in (0, 1, 2):
        raise ValueError(f"method must be 0, 1 or 2, got {attributes['method']}")
    return _soft(op, _decay(op, attributes["method"]), op.number("min_score"), _offset(op), boxes, scores)


def _offset(op: Body) -> Value:
    return op.integer("offset").to(FLOAT)


def _decay(op: Body, method: int) -> Callable[[Body, Value], Value]:
    """Return what gives the factors of scores for overlaps with the best box."""
    if method == 2:
        sigma = op.number("sigma")
        # Rounded once: the kernel's exponential is double, too.
        return lambda op, overlap: op.Exp((-(overlap * overlap) / sigma).to(DOUBLE)).to(FLOAT)
    threshold = op.number("iou_threshold")
    return lambda op, overlap: op.Where(overlap >= threshold, 1.0 - overlap if method == 1 else 0.0, 1.0)


def _soft(
    op: Body, decay: Callable[[Body, Value], Value], min_score: Value, offset: Value, boxes: Value, scores: Value
) -> tuple[Value, Value]:
    """Return the boxes with their lowered scores, and their places."""

    def step(op: Body, i: Value, go_on: Value, rows: Value, indices: Value) -> tuple[Value, ...]:
        found = op.Squeeze(_columns(op, rows, 4, 5), [1])
        best = op.ArgMax(op.Where(op.IsNaN(found), MINUS_INFINITY, found), axis=0, keepdims=1)
        # A NaN in the first place stays the maximum.
        best = op.Where(op.IsNaN(_columns(op, found, 0, 1, 0)), op.Mul(best, 0), best)
        # The first one takes the place of the best.
        places = op.ScatterElements(_range(op, op.Shape(found)), best, [0])
        places = op.Slice(places, [1], [2**62])
        row, index = op.Gather(rows, best), op.Gather(indices, best)
        rows, indices = op.Gather(rows, places), op.Gather(indices, places)
        overlap = _iou(op, row, rows, offset)
        decayed = _columns(op, rows, 4, 5) * decay(op, overlap)
        rows = op.Concat(_columns(op, rows, 0, 4), decayed, axis=1)
        # Whoever leaves is replaced by the last one that stays.
        leave = op.Squeeze(decayed < min_score, [1])
        stay = ~leave
        count = op.ReduceSum(stay.to(INT64), [0], keepdims=1)
        places = _range(op, op.Shape(stay))
        behind = ~(places < count)
        holes = op.Compress(places, leave & ~behind, axis=0)
        fillers = op.Slice(op.Compress(places, stay & behind, axis=0), [-1], [-(2**62)], [0], [-1])
        places = op.Slice(op.ScatterElements(places, holes, fillers), [0], count)
        rows, indices = op.Gather(rows, places), op.Gather(indices, places)
        return op.Squeeze(count > 0, [0]), rows, indices, op.Squeeze(row, [0]), index

    body = op.graph(
        step,
        [(INT64, []), (BOOL, []), (FLOAT, [None, 5]), (INT64, [None])],
        [(BOOL, []), (FLOAT, [None, 5]), (INT64, [None]), (FLOAT, [5]), (INT64, [1])],
    )
    count = op.Shape(scores)
    rows = op.Concat(boxes, op.Unsqueeze(scores, [1]), axis=1)
    any_left = op.Squeeze(count > 0, [0])
    _, _, dets, indices = op.Loop(None, any_left, rows, _range(op, count), body=body, outputs=4)
    return dets, op.Squeeze(indices, [1])


def multiclass_nms(op: Body, boxes: Value, scores: Value, *, attributes: Attributes) -> tuple[Value, Value, Value]:
    """Suppression in each class of each image, by ONNX's operator if that can do it; then the best of each image."""
    in_loop = attributes["method"] != "nms" or _needs_loop(attributes)
    images, count, classes = (_size(op, scores, axis) for axis in range(3))
    each = op.ReduceProd(op.Slice(op.Shape(boxes), [2], [-1]), keepdims=1)  # sets of boxes: classes, or 1
    boxes = _reshape(op, boxes, images, count, each, 4)
    all_boxes = boxes if in_loop else _without_overlap(op, boxes)
    all_boxes = op.Expand(all_boxes, op.Concat(images, count, classes, [4], axis=0))
    candidates = count * classes

    score_threshold = op.number("score_threshold")
    scores = op.Where(scores > score_threshold, scores, MINUS_INFINITY)
    if attributes["nms_pre"] > 0:
        best, places = op.TopK(scores, op.Min(count, op.integer("nms_pre")), axis=1, outputs=2)
        scores = op.ScatterElements(op.Expand(MINUS_INFINITY, op.Shape(scores)), places, best, axis=1)
    if attributes["class_agnostic"]:
        groups, length = images, candidates
        group_boxes, group_scores = all_boxes, scores
    else:
        groups, length = images * classes, count
        group_boxes = op.Transpose(all_boxes, perm=[0, 2, 1, 3])
        group_scores = op.Transpose(scores, perm=[0, 2, 1])
    group_boxes = _reshape(op, group_boxes, groups, length, 4)
    group_scores = _reshape(op, group_scores, groups, length)
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
        places = group * length + box
        flat = _reshape(op, group_scores, groups * length)
        nothing = op.Expand(MINUS_INFINITY, op.Shape(flat))
        kept = op.ScatterElements(nothing, places, op.Gather(flat, places))
    if not attributes["class_agnostic"]:
        kept = op.Transpose(_reshape(op, kept, images, classes, count), perm=[0, 2, 1])
    kept = _reshape(op, kept, images, candidates)

    if attributes["max_per_image"] > 0:
        most = op.integer("max_per_image")
    else:
        found = op.ReduceSum(op.Cast(kept > MINUS_INFINITY, to=INT64), [1], keepdims=0)
        most = op.ReduceMax(op.Concat(found, [0], axis=0), keepdims=1)
    kept = op.Concat(kept, op.Expand(MINUS_INFINITY, op.Concat(images, most, axis=0)), axis=1)
    # Of equal scores ONNX's TopK takes the first: the lower box, then the lower class.
    best, places = op.TopK(kept, most, axis=1, outputs=2)
    used = best > MINUS_INFINITY
    box = places / op.Max(classes, [1])
    label = places - box * classes
    image = op.Unsqueeze(_range(op, images), [1])
    rows = (image * count + box) * each + op.Min(label, each - [1])
    spare = images * count * each  # a row of zeros
    rows = op.Where(used, rows, spare)
    all_rows = op.Concat(_reshape(op, boxes, spare, 4), [[0.0] * 4], axis=0)
    dets = op.Concat(op.Gather(all_rows, rows), op.Unsqueeze(op.Where(used, best, 0.0), [2]), axis=2)
    return dets, op.Where(used, label, -1), op.Where(used, box, -1)


Suppression = Callable[[Body, Value, Value], tuple[Value, Value]]
"""Takes boxes [n, 4] and scores [n]; gives places of those that stay, and their scores."""

SOFT_METHODS = {"soft_nms_naive": 0, "soft_nms_linear": 1, "soft_nms_gaussian": 2}
"""Methods of `multiclass_nms` by the numbers that `soft_nms` has for them."""


def _suppression(op: Body, attributes: Attributes) -> Suppression:
    """Return the suppression for the loop over groups; only values that it uses, as ONNX Runtime warns of others."""
    offset = _offset(op)
    if attributes["method"] == "nms":
        iou_threshold = op.number("iou_threshold")

        def greedy(op: Body, boxes: Value, scores: Value) -> tuple[Value, Value]:
            kept = _greedy(op, boxes, _descending(op, scores), iou_threshold, offset)
            return kept, op.Gather(scores, kept)

        return greedy
    decay, min_score = _decay(op, SOFT_METHODS[attributes["method"]]), op.number("min_score")

    def soft(op: Body, boxes: Value, scores: Value) -> tuple[Value, Value]:
        dets, kept = _soft(op, decay, min_score, offset, boxes, scores)
        lowered = op.Squeeze(_columns(op, dets, 4, 5), [1])
        return kept, op.Where(lowered >= min_score, lowered, MINUS_INFINITY)  # the best one comes whatever its score

    return soft


def _each_group(op: Body, suppress: Suppression, boxes: Value, scores: Value) -> Value:
    """Suppress by a loop over groups of boxes [G, n, 4]; return the scores [G, n] of those kept, -inf for others."""

    def step(op: Body, i: Value, go_on: Value) -> tuple[Value, ...]:
        found = op.Gather(scores, i)
        chosen = op.Compress(_range(op, op.Shape(found)), found > MINUS_INFINITY, axis=0)
        kept, left = suppress(op, op.Gather(op.Gather(boxes, i), chosen), op.Gather(found, chosen))
        nothing = op.Expand(MINUS_INFINITY, op.Shape(found))
        return go_on, op.ScatterElements(nothing, op.Gather(chosen, kept), left)

    body = op.graph(step, [(INT64, []), (BOOL, [])], [(BOOL, []), (FLOAT, [None])])
    return op.Loop(op.Squeeze(op.Shape(scores, end=1), [0]), True, body=body)  # type: ignore[no-any-return]


# ---- sampling --------------------------------------------------------------------------------------------------


def roi_align(op: Body, input: Value, rois: Value, *, attributes: Attributes) -> Value:
    """ONNX's operator, whose average is the same; the maximum is one over its samples, taken one by one."""
    ratio = max(attributes["sampling_ratio"], 0)
    if op.opset > 21:
        raise NoBody(f"ONNX Runtime has RoiAlign up to opset 21, the model has {op.opset}")
    if attributes["mode"] == "max" and not ratio:
        raise NoBody("mode max with sampling_ratio 0")
    if attributes["spatial_scale"] < 0:
        raise NoBody(f"spatial_scale {attributes['spatial_scale']:g}")
    corners = _columns(op, rois, 1, 5)
    if attributes["aligned"] and not ratio:  # negative sizes have no samples
        first, last = op.Split(corners, [2, 2], axis=1, outputs=2)
        corners = op.Concat(first, op.Max(first, last), axis=1)
    images = op.Gather(_range(op, _size(op, input, 0)), op.Gather(rois, 0, axis=1).to(INT64))  # refuses wrong ones
    common = {
        "spatial_scale": Reference("spatial_scale", onnx.AttributeProto.FLOAT),
        "mode": "avg",
        "coordinate_transformation_mode": "half_pixel" if attributes["aligned"] else "output_half_pixel",
    }
    if attributes["mode"] == "avg":
        sizes = {"output_height": Reference("output_height"), "output_width": Reference("output_width")}
        return op.RoiAlign(input, corners, images, sampling_ratio=ratio, **sizes, **common)  # type: ignore[no-any-return]
    finer = {name: attributes[name] * ratio for name in ("output_height", "output_width")}
    samples = op.RoiAlign(input, corners, images, sampling_ratio=1, **finer, **common)
    window = {"kernel_shape": [ratio, ratio], "strides": [ratio, ratio]}
    unordered = op.MaxPool(op.IsNaN(samples).to(FLOAT), **window) > 0.0  # MaxPool need not propagate NaN
    return op.Where(unordered, math.nan, op.MaxPool(samples, **window))  # type: ignore[no-any-return]


def _near(op: Body, grid: Value) -> Value:
    """Bring huge and infinite places, and NaN, to where GridSample's arithmetic holds, but still outside the map."""
    near: Value = op.Clip(op.Where(op.IsNaN(grid), FAR, grid), -FAR, FAR)
    return near


def _sampled(
    op: Body, input: Value, grid: Value, mode: int = 0, padding_mode: int = 0, align_corners: bool = False
) -> Value:
    """Sample; a map without pixels gives 0, where some GridSample crashes."""

    def sample(op: Body) -> tuple[Value, ...]:
        modes = ("bilinear", "nearest", "bicubic") if op.opset < 20 else ("linear", "nearest", "cubic")
        sampled = op.GridSample(
            input,
            grid,
            mode=modes[mode],
            padding_mode=("zeros", "border", "reflection")[padding_mode],
            align_corners=int(align_corners),
        )
        return (sampled,)

    def nothing(op: Body) -> tuple[Value, ...]:
        return (op.Expand(0.0, op.Concat(op.Shape(input, end=2), op.Shape(grid, start=1, end=3), axis=0)),)

    (sampled,) = _if(op, op.Size(input) > 0, sample, nothing, [(FLOAT, [None] * 4)])
    return sampled


def grid_sample(op: Body, input: Value, grid: Value, *, attributes: Attributes) -> Value:
    """ONNX's operator, with places that are not finite replaced by finite ones of the same result."""
    mode, padding_mode = attributes["interpolation_mode"], attributes["padding_mode"]
    for name in ("interpolation_mode", "padding_mode"):
        if attributes[name] not in (0, 1, 2):
            raise ValueError(f"{name} must be 0, 1 or 2, got {attributes[name]}")
    given = _columns(op, grid, 0, 2, 3)
    # Reflected, places that are not finite are the last one, as 1 is; huge ones crash ONNX Runtime 1.20's GridSample.
    grid = _near(op, given) if padding_mode < 2 else op.Where(op.Abs(given) <= 1e4, given, 1.0)
    sampled = _sampled(op, input, grid, mode, padding_mode, bool(attributes["align_corners"]))
    if mode == 2:  # NaN there, which is what such places times 0 are
        sampled = sampled + op.Unsqueeze(op.ReduceSum(given * 0.0, [3], keepdims=0), [1])
    return sampled


def _deform_conv(op: Body, input: Value, offset: Value, mask: Value | None, weight: Value, bias: Value | None) -> Value:
    """Columns by GridSample, then a product of matrices."""
    (stride_y, stride_x), (pad_y, pad_x), (dilation_y, dilation_x) = map(op.pair, ("stride", "padding", "dilation"))
    groups, parts = op.integer("groups"), op.integer("deform_groups")
    images, channels, height, width = (_size(op, input, axis) for axis in range(4))
    outputs, kernel_height, kernel_width = _size(op, weight, 0), _size(op, weight, 2), _size(op, weight, 3)
    rows, columns = _size(op, offset, 2), _size(op, offset, 3)
    taps, places = kernel_height * kernel_width, rows * columns

    tap = _range(op, taps)
    down = tap / kernel_width
    right = tap - down * kernel_width
    y = op.Unsqueeze(down * dilation_y, [1, 2]) + op.Unsqueeze(_range(op, rows) * stride_y - pad_y, [0, 2])
    x = op.Unsqueeze(right * dilation_x, [1, 2]) + op.Unsqueeze(_range(op, columns) * stride_x - pad_x, [0, 1])
    offset = _reshape(op, offset, images * parts, taps, 2, rows, columns)
    y = y.to(FLOAT) + op.Gather(offset, 0, axis=2)
    x = x.to(FLOAT) + op.Gather(offset, 1, axis=2)
    # In GridSample's units -1 and 1 are the outer edges of the map.
    y = (y * 2.0 + 1.0) / height.to(FLOAT) - 1.0
    x = (x * 2.0 + 1.0) / width.to(FLOAT) - 1.0
    grid = op.Concat(op.Unsqueeze(x, [4]), op.Unsqueeze(y, [4]), axis=4)
    sampled = _sampled(
        op,
        _reshape(op, input, images * parts, channels / parts, height, width),
        _near(op, _reshape(op, grid, images * parts, taps * rows, columns, 2)),
    )
    if mask is not None:
        sampled = _reshape(op, sampled, images * parts, channels / parts, taps, places)
        sampled = sampled * _reshape(op, mask, images * parts, 1, taps, places)
    each = channels / groups * taps
    weights = op.Expand(_reshape(op, weight, groups, outputs / groups, each), op.Concat(images, [1, 1, 1], axis=0))
    product = op.MatMul(weights, _reshape(op, sampled, images, groups, each, places))
    output = _reshape(op, product, images, outputs, rows, columns)
    return output if bias is None else output + op.Unsqueeze(bias, [1, 2])


def deform_conv2d(op: Body, input: Value, offset: Value, weight: Value, *, attributes: Attributes) -> Value:
    """As the modulated one, without mask and bias."""
    return _deform_conv(op, input, offset, None, weight, None)


def modulated_deform_conv2d(
    op: Body,
    input: Value,
    offset: Value,
    mask: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    attributes: Attributes,
) -> Value:
    """Samples by GridSample, then a product of matrices."""
    return _deform_conv(op, input, offset, mask, weight, bias)


def multi_scale_deformable_attention(
    op: Body,
    value: Value,
    spatial_shapes: Value,
    level_start_index: Value,
    sampling_locations: Value,
    attention_weights: Value,
    *,
    attributes: Attributes,
) -> Value:
    """A loop over levels, each sampled by GridSample and added with its weights."""
    images, heads, channels = _size(op, value, 0), _size(op, value, 2), _size(op, value, 3)
    queries, points = _size(op, sampling_locations, 1), _size(op, sampling_locations, 4)
    maps = images * heads
    pixels = op.Transpose(value, perm=[0, 2, 3, 1])
    locations = op.Transpose(sampling_locations, perm=[3, 0, 2, 1, 4, 5])  # [L, B, M, Q, P, 2]
    weights = op.Transpose(attention_weights, perm=[3, 0, 2, 1, 4])

    def level(op: Body, i: Value, go_on: Value, total: Value) -> tuple[Value, ...]:
        shape = op.Gather(spatial_shapes, i)
        height, width = _columns(op, shape, 0, 1, 0), _columns(op, shape, 1, 2, 0)
        start = op.Unsqueeze(op.Gather(level_start_index, i), [0])
        image = _reshape(op, op.Slice(pixels, start, start + height * width, [3]), maps, channels, height, width)
        grid = _reshape(op, op.Gather(locations, i), maps, queries, points, 2) * 2.0 - 1.0
        sampled = _sampled(op, image, _near(op, grid))
        sampled = sampled * _reshape(op, op.Gather(weights, i), maps, 1, queries, points)
        return go_on, total + op.ReduceSum(sampled, [3], keepdims=0)

    body = op.graph(
        level,
        [(INT64, []), (BOOL, []), (FLOAT, [None, None, None])],
        [(BOOL, []), (FLOAT, [None, None, None])],
    )
    zeros = op.Expand(0.0, op.Concat(maps, channels, queries, axis=0))
    total = op.Loop(op.Squeeze(_size(op, spatial_shapes, 0), [0]), True, zeros, body=body)
    total = op.Transpose(_reshape(op, total, images, heads, channels, queries), perm=[0, 3, 1, 2])
    return _reshape(op, total, images, queries, heads * channels)


# ---- along a line ----------------------------------------------------------------------------------------------


def _scan(
    op: Body,
    input: Value,
    axis: Value,
    step: Callable[..., tuple[Value, ...]],
    states: Sequence[tuple[int, Any]],
    places: bool = False,
    order: Value | None = None,
) -> Any:
    """Run ``step(op, *states, x)`` along an axis; its states, which are its outputs, too, begin with the given values.

    With `places` it gets the place on the line, too.  Order -1 goes backwards.  An empty input comes back: ONNX
    Runtime's Scan crashes on some.
    """
    shape = op.Shape(input)
    outer = op.ReduceProd(op.Slice(shape, [0], axis), keepdims=1)
    inner = op.ReduceProd(op.Slice(shape, axis + 1, [2**62]), keepdims=1)
    length = op.Slice(shape, axis, axis + 1)
    flat = _reshape(op, input, outer, length, inner)  # so that the rank need not be known
    planes: list[Kind] = [(element_type, [None, None]) for element_type, _ in states]
    lines: list[Kind] = [(FLOAT, [None, None]), (INT64, [])] if places else [(FLOAT, [None, None])]
    all_planes: list[Kind] = [(element_type, [None, None, None]) for element_type, _ in states]

    def ordered(op: Body, x: Value) -> Value:
        if order is None:
            return x
        return op.Slice(x, op.Where(order < 0, -1, 0), op.Mul(order, 2**62), [0], order)  # type: ignore[no-any-return]

    def scan(op: Body) -> tuple[Value, ...]:
        plane = op.Concat(outer, inner, axis=0)
        scanned = op.Scan(  # along the first axis and forwards: onnx.reference has no other
            *(op.Expand(value, plane) for _, value in states),
            ordered(op, op.Transpose(flat, perm=[1, 0, 2])),
            *[_range(op, length)][:places],
            body=op.graph(lambda op, *values: (updated := step(op, *values)) + updated, planes + lines, planes * 2),
            num_scan_inputs=len(lines),
            outputs=2 * len(states),
        )
        return tuple(op.Transpose(ordered(op, one), perm=[1, 0, 2]) for one in scanned[len(states) :])

    def nothing(op: Body) -> tuple[Value, ...]:
        return tuple(op.Cast(flat, to=element_type) for element_type, _ in states)

    scanned = _if(op, op.Size(input) > 0, scan, nothing, all_planes)
    return tuple(op.Reshape(one, shape, allowzero=1) for one in scanned)


def corner_pool(op: Body, input: Value, *, attributes: Attributes) -> Value:
    """A Scan along the lines, forwards or backwards."""
    if attributes["mode"] not in (0, 1, 2, 3):
        raise ValueError(f"mode must be 0, 1, 2 or 3, got {attributes['mode']}")

    def step(op: Body, maximum: Value, x: Value) -> tuple[Value, ...]:
        return (op.Where((x > maximum) | op.IsNaN(x), x, maximum),)

    mode = op.integer("mode")
    half = mode / [2]
    order = (mode - half * 2) * 2 - 1  # top and left, 0 and 2, go backwards
    (pooled,) = _scan(op, input, half + 2, step, [(FLOAT, MINUS_INFINITY)], order=order)
    return pooled  # type: ignore[no-any-return]


def _dimension(op: Body, input: Value) -> Value:
    """Return the attribute `dim`; negative ones count from the end."""
    dim = op.integer("dim")
    dimension: Value = op.Where(dim < 0, dim + op.Shape(op.Shape(input)), dim)
    return dimension


def cummax(op: Body, input: Value, *, attributes: Attributes) -> tuple[Value, Value]:
    """A Scan along `dim`."""

    def step(op: Body, best: Value, place: Value, x: Value, i: Value) -> tuple[Value, ...]:
        replace = (x >= best) | op.IsNaN(x)
        return op.Where(replace, x, best), op.Where(replace, i, place)

    start = [(FLOAT, MINUS_INFINITY), (INT64, 0)]
    return _scan(op, input, _dimension(op, input), step, start, places=True)  # type: ignore[no-any-return]


def cummin(op: Body, input: Value, *, attributes: Attributes) -> tuple[Value, Value]:
    """A Scan along `dim`."""

    def step(op: Body, best: Value, place: Value, x: Value, i: Value) -> tuple[Value, ...]:
        replace = (x <= best) | op.IsNaN(x)
        return op.Where(replace, x, best), op.Where(replace, i, place)

    start = [(FLOAT, math.inf), (INT64, 0)]
    return _scan(op, input, _dimension(op, input), step, start, places=True)  # type: ignore[no-any-return]


# ---- normalization ---------------------------------------------------------------------------------------------


def group_norm(op: Body, x: Value, scale: Value, bias: Value, *, attributes: Attributes) -> Value:
    """Mean and variance of each group in float64, as in the kernel."""
    images, channels = _size(op, x, 0), _size(op, x, 1)
    shape, groups = op.Shape(x), op.integer("num_groups")
    if attributes["num_groups"] < 1:
        raise ValueError(f"num_groups must be at least 1, got {attributes['num_groups']}")
    pixels = op.ReduceProd(op.Slice(shape, [2], [2**62]), keepdims=1)
    length = channels / groups * pixels
    count = length.to(DOUBLE)
    double = _reshape(op, x.to(DOUBLE), images, groups, length)
    differences = double - op.ReduceSum(double, [2], keepdims=1) / count
    variance = op.ReduceSum(differences * differences, [2], keepdims=1) / count
    deviation = op.Sqrt(variance + op.number("epsilon").to(DOUBLE))
    normal = _reshape(op, differences / deviation, images, channels, pixels)
    scaled = normal * op.Unsqueeze(scale.to(DOUBLE), [1]) + op.Unsqueeze(bias.to(DOUBLE), [1])
    result: Value = op.Reshape(scaled.to(FLOAT), shape, allowzero=1)
    return result


WRITERS: dict[str, Writer] = {
    writer.__name__: writer
    for writer in (
        nms,
        soft_nms,
        multiclass_nms,
        roi_align,
        grid_sample,
        deform_conv2d,
        modulated_deform_conv2d,
        multi_scale_deformable_attention,
        corner_pool,
        cummax,
        cummin,
        group_norm,
    )
}
"""For each kernel that has a body: the function that writes it."""
