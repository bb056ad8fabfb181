"""roi_align_rotated and rotated_feature_align, sampled by GridSample at points computed in the kernels' order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmort.onnx.portable.builder import FLOAT, INT64, FunctionBuilder, Value
from mmort.onnx.portable.definitions.sampling import sample


def roi_align_rotated(op: FunctionBuilder, input: Value, rois: Value, *, attributes: Mapping[str, Any]) -> Value:
    """Average the samples of each bin; with `sampling_ratio` 0 as many for each region as the largest one has."""
    aligned, ratio = attributes["aligned"], attributes["sampling_ratio"]
    images, channels, height, width = (op.size(input, axis) for axis in range(4))
    rows, columns = op.integer("output_height"), op.integer("output_width")
    scale, shift = op.number("spatial_scale"), 0.5 if aligned else 0.0
    image, centre_x, centre_y, roi_width, roi_height, angle = op.Split(rois, [1] * 6, axis=1, outputs=6)
    if attributes["clockwise"]:
        angle = -angle
    positions, counts, used = [], [], []
    for size, bins in ((roi_height, rows), (roi_width, columns)):
        size = size * scale if aligned else op.Max(size * scale, 1.0)
        bin_size = size / bins.to(FLOAT)  # (K, 1)
        count = op.Ceil(bin_size) if ratio <= 0 else op.value([[float(ratio)]])
        length = op.ReduceMax(op.Concat(op.Reshape(count.to(INT64), [-1]), [1], axis=0), keepdims=1)
        index = op.range(bins * length)
        bin_index = index / length
        inside = (index - bin_index * length).to(FLOAT)
        start = -(size / 2.0) + bin_index.to(FLOAT) * bin_size
        positions.append(start + (inside + 0.5) * bin_size / count)  # (K, bins * length)
        counts.append((count, length))
        used.append(op.Unsqueeze(inside, [0]) < count)
    y, x = op.Unsqueeze(positions[0], [2]), op.Unsqueeze(positions[1], [1])
    cosine, sine = op.Unsqueeze(op.Cos(angle), [2]), op.Unsqueeze(op.Sin(angle), [2])
    rotated_y = y * cosine - x * sine + op.Unsqueeze(centre_y * scale - shift, [2])
    rotated_x = y * sine + x * cosine + op.Unsqueeze(centre_x * scale - shift, [2])
    inside = _on_map(op, rotated_y, rotated_x, height, width)
    # The maps are one map, below each other; a wrong index is refused.
    first_row = op.Gather(op.range(images), op.Unsqueeze(image, [2]).to(INT64)) * height
    flat = op.reshape(op.Transpose(input, perm=[1, 0, 2, 3]), 1, channels, images * height, width)
    rotated_y = _clamped(op, rotated_y, inside, height) + first_row.to(FLOAT)
    grid = _grid(op, rotated_y, _clamped(op, rotated_x, inside, width), images * height, width)
    (down, down_length), (across, across_length) = counts
    regions, points = op.size(rois, 0), columns * across_length
    sampled = sample(op, flat, op.reshape(grid, 1, regions * rows * down_length, points, 2), padding_mode=1)
    counted = inside & op.Unsqueeze(used[0], [2]) & op.Unsqueeze(used[1], [1])
    sampled = op.reshape(sampled, channels, regions, rows * down_length, points)
    sums = op.reshape(op.Where(counted, sampled, 0.0), channels, regions, rows, down_length, columns, across_length)
    sums = op.ReduceSum(sums, [3, 5], keepdims=0)
    mean = sums / op.Unsqueeze(op.Max(down, 1.0) * op.Max(across, 1.0), [2])
    return op.Transpose(mean, perm=[1, 0, 2, 3])


def rotated_feature_align(
    op: FunctionBuilder, features: Value, best_rbboxes: Value, *, attributes: Mapping[str, Any]
) -> Value:
    """Add the samples at the points of each location's box, of which MMCV takes the first number for the row."""
    points = attributes["points"]
    if not 1 <= points <= 5:
        raise ValueError(f"points must be from 1 to 5, got {points}")
    images, channels, height, width = (op.size(features, axis) for axis in range(4))
    numbers, angle = op.Split(best_rbboxes, [4, 1], axis=3, outputs=2)
    y, x, box_width, box_height = op.Split(numbers * op.number("spatial_scale"), [1] * 4, axis=3, outputs=4)
    half_width, half_height = box_width / 2.0, box_height / 2.0
    cosine, sine = op.Cos(angle), op.Sin(angle)
    ax, ay, bx, by = cosine * half_width, sine * half_width, -sine * half_height, cosine * half_height
    rows = [y, y + ay + by, y - ay + by, y - ay - by, y + ay - by][:points]
    columns = [x, x + ax + bx, x - ax + bx, x - ax - bx, x + ax - bx][:points]
    y, x = op.Concat(*rows, axis=3), op.Concat(*columns, axis=3)  # (N, H, W, points)
    inside = _on_map(op, y, x, height, width)
    grid = _grid(op, _clamped(op, y, inside, height), _clamped(op, x, inside, width), height, width)
    sampled = sample(op, features, op.reshape(grid, images, height, width * points, 2), padding_mode=1)
    sampled = op.reshape(sampled, images, channels, height, width, points)
    return features + op.ReduceSum(op.Where(op.Unsqueeze(inside, [1]), sampled, 0.0), [4], keepdims=0)


def _on_map(op: FunctionBuilder, y: Value, x: Value, height: Value, width: Value) -> Value:
    """Return whether points are at most a pixel outside the map, where the border's value is taken."""
    return (y >= -1.0) & (y <= height.to(FLOAT)) & (x >= -1.0) & (x <= width.to(FLOAT))


def _clamped(op: FunctionBuilder, position: Value, inside: Value, size: Value) -> Value:
    """Move positions to the map's pixels; those not on the map, which may be NaN, to the first."""
    return op.Min(op.Max(op.Where(inside, position, 0.0), 0.0), op.Max(size - [1], [0]).to(FLOAT))


def _grid(op: FunctionBuilder, y: Value, x: Value, height: Value, width: Value) -> Value:
    """Return pixels in GridSample's units, in which -1 and 1 are the outer edges of the map."""
    y = (y * 2.0 + 1.0) / height.to(FLOAT) - 1.0
    x = (x * 2.0 + 1.0) / width.to(FLOAT) - 1.0
    return op.Concat(op.Unsqueeze(x, [-1]), op.Unsqueeze(y, [-1]), axis=-1)
