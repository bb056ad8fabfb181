"""multi_scale_deformable_attention: a loop over levels, each sampled by GridSample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmort.onnx.portable.builder import BOOL, FLOAT, INT64, Builder, FunctionBuilder, Value
from mmort.onnx.portable.definitions.sampling import clipped, sample


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
    """Add the samples of each level, multiplied by their weights."""
    images, heads, channels = op.size(value, 0), op.size(value, 2), op.size(value, 3)
    queries, points = op.size(sampling_locations, 1), op.size(sampling_locations, 4)
    maps = images * heads
    pixels = op.Transpose(value, perm=[0, 2, 3, 1])
    locations = op.Transpose(sampling_locations, perm=[3, 0, 2, 4, 1, 5])  # [L, B, M, P, Q, 2]
    weights = op.Transpose(attention_weights, perm=[3, 0, 2, 4, 1])

    def level(op: Builder, i: Value, go_on: Value, total: Value) -> tuple[Value, ...]:
        shape = op.Gather(spatial_shapes, i)
        height, width = op.slice(shape, 0, 1, 0), op.slice(shape, 1, 2, 0)
        start = op.Unsqueeze(op.Gather(level_start_index, i), [0])
        image = op.reshape(op.Slice(pixels, start, start + height * width, [3]), maps, channels, height, width)
        grid = op.reshape(op.Gather(locations, i), maps, points, queries, 2) * 2.0 - 1.0
        sampled = sample(op, image, clipped(op, grid))
        sampled = sampled * op.reshape(op.Gather(weights, i), maps, 1, points, queries)
        return go_on, total + op.ReduceSum(sampled, [2], keepdims=0)

    body = op.graph(
        level,
        [(INT64, []), (BOOL, []), (FLOAT, [None, None, None])],
        [(BOOL, []), (FLOAT, [None, None, None])],
    )
    zeros = op.Expand(0.0, op.Concat(maps, channels, queries, axis=0))
    total = op.Loop(op.Squeeze(op.size(spatial_shapes, 0), [0]), True, zeros, body=body)
    total = op.Transpose(op.reshape(total, images, heads, channels, queries), perm=[0, 3, 1, 2])
    return op.reshape(total, images, queries, heads * channels)
