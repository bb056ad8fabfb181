"""roi_align_rotated and rotated_feature_align, sampled by GridSample at points computed in the kernels' order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmort.onnx.portable.builder import FLOAT, INT64, Builder, FunctionBuilder, Value
from mmort.onnx.portable.definitions.sampling import OUTSIDE, sample


def roi_align_rotated(op: FunctionBuilder, input: Value, rois: Value, *, attributes: Mapping[str, Any]) -> Value:
    """Average the samples of each bin; with `sampling_ratio` 0 as many for each region as the largest one has."""
    aligned, ratio = attributes["aligned"], attributes["sampling_ratio"]
    images, channels, height, width = (op.size(input, axis) for axis in range(4))
    rows, columns = op.integer("output_height"), op.integer("output_width")
    scale, shift = op.number("spatial_scale"), 0.5 if aligned else 0.0
    image, centre_x, centre_y, roi_width, roi_height, angle = op.Split(rois, [1] * 6, axis=1, outputs=6)
    if attributes["clockwise"]:
        angle = -angle
    positions, counts, in_bin = [], [], []
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
        in_bin.append(op.Unsqueeze(inside, [0]) < count)
    y, x = op.Unsqueeze(positions[0], [2]), op.Unsqueeze(positions[1], [1])
    cosine, sine = op.Unsqueeze(op.Cos(angle), [2]), op.Unsqueeze(op.Sin(angle), [2])
    rotated_y = y * cosine - x * sine + op.Unsqueeze(centre_y * scale - shift, [2])
    rotated_x = y * sine + x * cosine + op.Unsqueeze(centre_x * scale - shift, [2])
    used = _on_map(op, rotated_y, rotated_x, height, width)
    if ratio <= 0:
        used = used & op.Unsqueeze(in_bin[0], [2]) & op.Unsqueeze(in_bin[1], [1])
    # The maps are one map, below each other; a wrong index is refused.
    maps = op.Transpose(_bordered(op, input), perm=[1, 0, 2, 3])
    map_height, map_width = op.size(maps, 2), op.size(maps, 3)
    first_row = op.Gather(op.range(images), op.Unsqueeze(image, [2]).to(INT64)) * map_height
    flat = op.reshape(maps, 1, channels, images * map_height, map_width)
    rotated_y = _clamped(op, rotated_y, used, height) + first_row.to(FLOAT)
    rotated_x = _clamped(op, rotated_x, used, width)
    (down, down_length), (across, across_length) = counts
    regions, samples = op.size(rois, 0), down_length * across_length

    def by_sample(points: Value) -> Value:
        points = op.reshape(points, regions, rows, down_length, columns, across_length)
        return op.Transpose(points, perm=[2, 4, 0, 1, 3])

    # The samples of a bin are apart: ReduceSum is fast along long rows.
    shape = [op.value([1]), samples * regions * rows, columns]
    sampled = _sample(op, flat, by_sample(rotated_y), by_sample(rotated_x), by_sample(used), shape)
    sums = op.ReduceSum(op.reshape(sampled, channels, samples, regions * rows * columns), [1], keepdims=0)
    counted = op.Unsqueeze(op.Max(down, 1.0) * op.Max(across, 1.0), [2])
    return op.Transpose(op.reshape(sums, channels, regions, rows, columns) / counted, perm=[1, 0, 2, 3])


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
    maps, total = _bordered(op, features), features
    for y, x in zip(rows, columns, strict=True):
        y, x = op.Squeeze(y, [3]), op.Squeeze(x, [3])
        used = _on_map(op, y, x, height, width)
        y, x = _clamped(op, y, used, height), _clamped(op, x, used, width)
        total = total + _sample(op, maps, y, x, used, [images, height, width])
    return total


def _on_map(op: FunctionBuilder, y: Value, x: Value, height: Value, width: Value) -> Value:
    """Return whether points are at most a pixel outside the map, where the border's value is taken."""
    return (y >= -1.0) & (y <= height.to(FLOAT)) & (x >= -1.0) & (x <= width.to(FLOAT))


def _clamped(op: FunctionBuilder, position: Value, inside: Value, size: Value) -> Value:
    """Move positions to the map's pixels; those not on the map, which may be NaN, to the first."""
    return op.Min(op.Max(op.Where(inside, position, 0.0), 0.0), op.Max(size - [1], [0]).to(FLOAT))


def _bordered(op: FunctionBuilder, maps: Value) -> Value:
    """Repeat the outer pixels of maps once, as rounding may take a point beyond them; leave maps without pixels."""

    def repeated(op: Builder) -> tuple[Value, ...]:
        return (op.Pad(maps, [0, 0, 1, 1] * 2, mode="edge"),)

    (bordered,) = op.choose(op.Size(maps) > 0, repeated, lambda op: (maps,), [(FLOAT, [None] * 4)])
    return bordered


def _sample(op: FunctionBuilder, maps: Value, y: Value, x: Value, used: Value, shape: list[Value]) -> Value:
    """Sample maps of `_bordered` at pixels (N, rows, columns) of the original; 0 where a point is not used."""
    units = []  # GridSample's, in which -1 and 1 are the outer edges of the map
    for position, axis in ((x, 3), (y, 2)):
        unit = (position * 2.0 + 3.0) / op.size(maps, axis).to(FLOAT) - 1.0
        units.append(op.Unsqueeze(op.Where(used, unit, OUTSIDE), [-1]))
    # Padded with zeros, ONNX Runtime's GridSample is five times as fast as with the border.
    return sample(op, maps, op.reshape(op.Concat(*units, axis=-1), *shape, 2))
