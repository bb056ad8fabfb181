"""roi_align_rotated and rotated_feature_align, sampled by GridSample at points computed in the kernels' order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmort.onnx.graph.builder import FLOAT, FunctionBuilder, Value
from mmort.onnx.portable.definitions.pixel_sampling import (
    bordered,
    clamped_pixels,
    on_map,
    sample_pixels,
    sample_positions,
    stacked,
)


def roi_align_rotated(op: FunctionBuilder, input: Value, rois: Value, *, attributes: Mapping[str, Any]) -> Value:
    """Average the samples of each bin; with `sampling_ratio` 0 as many for each region as the largest one has."""
    aligned, ratio = attributes["aligned"], attributes["sampling_ratio"]
    channels, height, width = (op.size(input, axis) for axis in range(1, 4))
    rows, columns = op.integer("output_height"), op.integer("output_width")
    scale, shift = op.number("spatial_scale"), 0.5 if aligned else 0.0
    image, centre_x, centre_y, roi_width, roi_height, angle = op.Split(rois, [1] * 6, axis=1, outputs=6)
    if attributes["clockwise"]:
        angle = -angle
    axes, counted = [], op.value(1.0)
    for size, bins in ((roi_height, rows), (roi_width, columns)):
        size = size * scale if aligned else op.Max(size * scale, 1.0)
        bin_size = size / bins.to(FLOAT)  # (K, 1)
        count = op.Ceil(bin_size) if ratio <= 0 else op.value([[float(ratio)]])
        axes.append(sample_positions(op, -(size / 2.0), bin_size, bins, count))
        counted = counted * op.Max(count, 1.0)
    (y, down, counted_down), (x, across, counted_across) = axes
    y, x = op.Unsqueeze(y, [2]), op.Unsqueeze(x, [1])
    cosine, sine = op.Unsqueeze(op.Cos(angle), [2]), op.Unsqueeze(op.Sin(angle), [2])
    rotated_y = y * cosine - x * sine + op.Unsqueeze(centre_y * scale - shift, [2])
    rotated_x = y * sine + x * cosine + op.Unsqueeze(centre_x * scale - shift, [2])
    used = on_map(op, rotated_y, rotated_x, height, width)
    if ratio <= 0:
        used = used & op.Unsqueeze(counted_down, [2]) & op.Unsqueeze(counted_across, [1])
    maps, first_row = stacked(op, input, image)
    rotated_y = clamped_pixels(op, rotated_y, used, height) + first_row
    rotated_x = clamped_pixels(op, rotated_x, used, width)
    regions, samples = op.size(rois, 0), down * across

    def by_sample(points: Value) -> Value:
        points = op.reshape(points, regions, rows, down, columns, across)
        return op.Transpose(points, perm=[2, 4, 0, 1, 3])

    # The samples of a bin are apart: ReduceSum is fast along long rows.
    shape = [op.value([1]), samples * regions * rows, columns]
    sampled = sample_pixels(op, maps, by_sample(rotated_y), by_sample(rotated_x), by_sample(used), shape)
    sums = op.ReduceSum(op.reshape(sampled, channels, samples, regions * rows * columns), [1], keepdims=0)
    mean = op.reshape(sums, channels, regions, rows, columns) / op.Unsqueeze(counted, [2])
    return op.Transpose(mean, perm=[1, 0, 2, 3])


def rotated_feature_align(
    op: FunctionBuilder, features: Value, best_rbboxes: Value, *, attributes: Mapping[str, Any]
) -> Value:
    """Add the samples at the points of each location's box, of which MMCV takes the first number for the row."""
    points = attributes["points"]
    if not 1 <= points <= 5:
        raise ValueError(f"points must be from 1 to 5, got {points}")
    images, height, width = (op.size(features, axis) for axis in (0, 2, 3))
    numbers, angle = op.Split(best_rbboxes, [4, 1], axis=3, outputs=2)
    y, x, box_width, box_height = op.Split(numbers * op.number("spatial_scale"), [1] * 4, axis=3, outputs=4)
    half_width, half_height = box_width / 2.0, box_height / 2.0
    cosine, sine = op.Cos(angle), op.Sin(angle)
    ax, ay, bx, by = cosine * half_width, sine * half_width, -sine * half_height, cosine * half_height
    rows = [y, y + ay + by, y - ay + by, y - ay - by, y + ay - by][:points]
    columns = [x, x + ax + bx, x - ax + bx, x - ax - bx, x + ax - bx][:points]
    maps, total = bordered(op, features), features
    for y, x in zip(rows, columns, strict=True):
        y, x = op.Squeeze(y, [3]), op.Squeeze(x, [3])
        used = on_map(op, y, x, height, width)
        y, x = clamped_pixels(op, y, used, height), clamped_pixels(op, x, used, width)
        total = total + sample_pixels(op, maps, y, x, used, [images, height, width])
    return total
