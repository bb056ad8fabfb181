"""multi_scale_deformable_attention: rows of channels are gathered, and multiplied by the weights of samples.

With GridSample, which reads single numbers, ONNX Runtime takes more than twice as long.  Inlined files have it, because
OpenVINO in bfloat16 takes five times as long without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mmort.onnx.graph.builder import BOOL, FLOAT, INT64, Builder, FunctionBuilder, Value
from mmort.onnx.portable.definitions.sampling import clipped, sample

MAX_GATHERED = 2**17
"""Numbers that are gathered at once: half a megabyte, which a processor's cache holds until they are multiplied."""

MAX_PIECES = 16
"""How many times as many queries share the computation of weights, so that its nodes start less often."""

OUTSIDE = -9.0
"""A position outside every map, in pixels and in the units of locations."""


class Samples(NamedTuple):
    """Values that the samples of all queries share: (width), or (2, 1, width) of x and y."""

    float_size: Value
    shift: Value
    last: Value
    float_last: Value
    stride: Value
    """Rows from a pixel to the next in x, and in y."""
    first: Value
    """The row of the map's first pixel, in the first image."""


def multi_scale_deformable_attention(
    op: FunctionBuilder,
    value: Value,
    spatial_shapes: Value,
    level_start_index: Value,
    sampling_locations: Value,
    attention_weights: Value,
    *,
    attributes: Mapping[str, Any],
) -> Value:
    """Attend where there is something to read; else return 0."""
    if op.inlined:
        return _by_grid_sample(op, value, spatial_shapes, level_start_index, sampling_locations, attention_weights)
    images, heads, channels = op.size(value, 0), op.size(value, 2), op.size(value, 3)
    shape = op.Concat(images, op.size(sampling_locations, 1), heads * channels, axis=0)

    def attend(op: FunctionBuilder) -> tuple[Value, ...]:
        sums = _sums(op, value, spatial_shapes, level_start_index, sampling_locations, attention_weights)
        return (op.Reshape(sums, shape),)

    readable = (op.Size(value) > 0) & (op.Size(attention_weights) > 0)
    (output,) = op.choose(readable, attend, lambda op: (op.Expand(0.0, shape),), [(FLOAT, [None] * 3)])
    return output


def _by_grid_sample(
    op: FunctionBuilder, value: Value, shapes: Value, starts: Value, locations: Value, weights: Value
) -> Value:
    """Add the samples of each level, multiplied by their weights."""
    images, heads, channels = op.size(value, 0), op.size(value, 2), op.size(value, 3)
    queries, points = op.size(locations, 1), op.size(locations, 4)
    maps = images * heads
    pixels = op.Transpose(value, perm=[0, 2, 3, 1])
    locations = op.Transpose(locations, perm=[3, 0, 2, 4, 1, 5])  # [L, B, M, P, Q, 2]
    weights = op.Transpose(weights, perm=[3, 0, 2, 4, 1])

    def level(op: Builder, i: Value, go_on: Value, total: Value) -> tuple[Value, ...]:
        shape = op.Gather(shapes, i)
        height, width = op.slice(shape, 0, 1, 0), op.slice(shape, 1, 2, 0)
        start = op.Unsqueeze(op.Gather(starts, i), [0])
        image = op.reshape(op.Slice(pixels, start, start + height * width, [3]), maps, channels, height, width)
        grid = op.reshape(op.Gather(locations, i), maps, points, queries, 2) * 2.0 - 1.0
        sampled = sample(op, image, clipped(op, grid))
        sampled = sampled * op.reshape(op.Gather(weights, i), maps, 1, points, queries)
        return go_on, total + op.ReduceSum(sampled, [2], keepdims=0)

    total_type = FLOAT, [None] * 3
    body = op.graph(level, [(INT64, []), (BOOL, []), total_type], [(BOOL, []), total_type])
    zeros = op.Expand(0.0, op.Concat(maps, channels, queries, axis=0))
    total = op.Loop(op.Squeeze(op.size(shapes, 0), [0]), True, zeros, body=body)
    total = op.Transpose(op.reshape(total, images, heads, channels, queries), perm=[0, 3, 1, 2])
    return op.reshape(total, images, queries, heads * channels)


def _sums(op: FunctionBuilder, value: Value, shapes: Value, starts: Value, locations: Value, weights: Value) -> Value:
    """Return the weighted sums of all images' queries (images * queries, heads * channels)."""
    images, pixels, heads, channels = (op.size(value, axis) for axis in range(4))
    queries, levels, points = op.size(locations, 1), op.size(locations, 3), op.size(locations, 4)
    samples, total = levels * points, images * queries
    width = heads * samples
    rows = op.reshape(value, images * pixels * heads, channels)
    locations, weights = op.reshape(locations, total, width * 2), op.reshape(weights, total, width)
    fixed = _fixed(op, value, shapes, starts, points)
    piece = op.Max(op.Min(op.Div(MAX_GATHERED, width * channels * 4), total), 1)  # queries
    chunks = _rounded_up(total, piece * MAX_PIECES)
    pieces = _rounded_up(total, piece * chunks)
    count = pieces * piece
    pairs, by_piece = op.Concat([2], count, width, axis=0), op.Concat(pieces, piece * heads, samples, axis=0)

    def chunk(op: FunctionBuilder, i: Value) -> Value:
        index = op.Min(i * count + op.range(count), op.Sub(total, 1))  # the last query again in the last chunk
        position = op.Reshape(op.Transpose(op.Reshape(op.Gather(locations, index), [-1, 2])), pairs)
        position = op.Where(op.IsNaN(position), OUTSIDE, position) * fixed.float_size + fixed.shift
        inside = op.Min(position, fixed.float_last)
        near = op.Max(op.Floor(inside), 0.0)
        near_weight, far_weight = op.Relu(op.Sub(1.0, op.Abs(position - near))), op.Relu(inside - near)
        near = near.to(INT64)
        far = op.Min(near + 1, fixed.last)
        image = op.Unsqueeze(index / queries * op.Mul(pixels, heads), [1])
        sides = []
        for pixel, weight in ((near, near_weight), (far, far_weight)):
            column, row = op.Split(pixel * fixed.stride, [1, 1], axis=0, outputs=2)
            sides.append((column, row + (image + fixed.first), *op.Split(weight, [1, 1], axis=0, outputs=2)))
        indices, factors = [], []
        for _, row, _, height in sides:
            height = height * op.Gather(weights, index)
            for column, _, breadth, _ in sides:
                indices.append(op.Reshape(row + column, by_piece))
                factors.append(op.Reshape(height * breadth, by_piece))
        indices, factors = op.Concat(*indices, axis=2), op.Unsqueeze(op.Concat(*factors, axis=2), [2])

        def multiply(op: FunctionBuilder, i: Value) -> Value:
            return op.MatMul(op.Gather(factors, i), op.Gather(rows, op.Gather(indices, i)))

        return op.stack(pieces, multiply, (FLOAT, [None] * 3))

    return op.Slice(op.reshape(op.stack(chunks, chunk, (FLOAT, [None] * 4)), -1, heads * channels), [0], total, [0])


def _rounded_up(number: Value, divisor: Value) -> Value:
    """Divide integers and round up."""
    return (number + divisor - 1) / divisor


def _fixed(op: FunctionBuilder, value: Value, shapes: Value, starts: Value, points: Value) -> Samples:
    """Return the values that all queries share."""
    pixels, heads = op.size(value, 1), op.size(value, 2)
    samples = op.size(shapes, 0) * points
    width = heads * samples

    def by_sample(numbers: Value) -> Value:
        """Repeat the numbers of each level (levels, n) for all samples of a query (n, 1, width)."""
        each = op.Unsqueeze(op.Transpose(numbers), [1, 3])
        return op.reshape(op.Expand(each, op.Concat([1], heads, [1], points, axis=0)), op.size(each, 0), 1, width)

    size = op.Gather(by_sample(shapes), [1, 0], axis=0)  # x before y, as in locations
    float_size = size.to(FLOAT)
    stride = op.Where(np.array([[[True]], [[False]]]), heads, op.Gather(size, [0], axis=0) * heads)
    start = op.Min(by_sample(op.Unsqueeze(starts, [1])), pixels - 1)
    head = op.Expand(op.Unsqueeze(op.range(heads), [1]), op.Concat(heads, samples, axis=0))
    return Samples(
        float_size,
        shift=op.Where(size > 0, -0.5, OUTSIDE),  # nothing is read from a map without pixels
        last=op.Max(size - 1, 0),
        float_last=op.Max(float_size - 1.0, 0.0),
        stride=stride,
        first=op.Squeeze(start, [0]) * heads + op.reshape(head, 1, width),
    )
