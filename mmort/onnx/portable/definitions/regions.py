"""roi_align by ONNX's RoiAlign or by matrices.

Its maximum over a number of samples that differs between regions is GridSample's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import onnx

from mmort.onnx.graph.builder import FLOAT, INT64, FunctionBuilder, NotCoveredError, Reference, Value
from mmort.onnx.portable.definitions import roi_matrices
from mmort.onnx.portable.definitions.pixel_sampling import (
    clamped_pixels,
    on_map,
    sample_pixels,
    sample_positions,
    stacked,
)

NOWHERE = [-1e6, -1e6, -999_999.0, -999_999.0]
"""A small region outside every map."""

NO_SAMPLES = -10000.0
"""The maximum of a region without samples."""


def roi_align(op: FunctionBuilder, input: Value, rois: Value, *, attributes: Mapping[str, Any]) -> Value:
    """Use ONNX's operator, whose average is the same; the maximum is taken of its samples, one for each output."""
    ratio = max(attributes["sampling_ratio"], 0)
    if attributes["mode"] == "max" and not ratio:
        return _adaptive_maximum(op, input, rois, bool(attributes["aligned"]))
    if op.opset > 21:
        raise NotCoveredError(f"ONNX Runtime has RoiAlign up to opset 21, the model has {op.opset}")
    if attributes["spatial_scale"] < 0:
        raise NotCoveredError(f"spatial_scale {attributes['spatial_scale']:g}")
    corners = op.Where(op.Size(input) > 0, op.slice(rois, 1, 5, 1), [NOWHERE])  # a map without pixels has none to read
    if attributes["aligned"] and not ratio:  # regions without pixels give 0, which OpenVINO would divide by 0
        x1, y1, x2, y2 = op.Split(corners, [1] * 4, axis=1, outputs=4)
        corners = op.Where((x2 > x1) & (y2 > y1), corners, [NOWHERE])
    images = op.Gather(op.range(op.size(input, 0)), op.Gather(rois, 0, axis=1).to(INT64))  # refuses wrong indices
    common = {
        "spatial_scale": Reference("spatial_scale", onnx.AttributeProto.FLOAT),
        "mode": "avg",
        "coordinate_transformation_mode": "half_pixel" if attributes["aligned"] else "output_half_pixel",
    }
    if attributes["mode"] == "avg":
        sizes = {"output_height": Reference("output_height"), "output_width": Reference("output_width")}

        def by_onnx(op: FunctionBuilder) -> tuple[Value, ...]:
            return (op.RoiAlign(input, corners, images, sampling_ratio=ratio, **sizes, **common),)

        if op.inlined:  # OpenVINO would compile a product for each size of window, and GPUs have a fast RoiAlign
            return by_onnx(op)[0]
        y, x = roi_matrices.axes_of(op, corners, bool(attributes["aligned"]), ratio)
        is_faster = roi_matrices.are_faster(op, input, y, x)
        # Not in the branch: here ONNX Runtime transposes a map once for all nodes that pool from it.
        channels_last = op.Transpose(input, perm=[0, 2, 3, 1])

        def by_windows(op: FunctionBuilder) -> tuple[Value, ...]:
            return (roi_matrices.average(op, channels_last, images, y, x),)

        return op.choose(is_faster, by_windows, by_onnx, [(FLOAT, [None] * 4)])[0]
    finer = {name: attributes[name] * ratio for name in ("output_height", "output_width")}
    samples = op.RoiAlign(input, corners, images, sampling_ratio=1, **finer, **common)
    window = {"kernel_shape": [ratio, ratio], "strides": [ratio, ratio]}
    unordered = op.MaxPool(op.IsNaN(samples).to(FLOAT), **window) > 0.0  # MaxPool need not propagate NaN
    return op.Where(unordered, math.nan, op.MaxPool(samples, **window))


def _adaptive_maximum(op: FunctionBuilder, input: Value, rois: Value, aligned: bool) -> Value:
    """Take as many samples in each bin as the largest region has, of which the others count their own."""
    channels, height, width = (op.size(input, axis) for axis in range(1, 4))
    image, corners = op.Split(rois, [1, 4], axis=1, outputs=2)
    axes = roi_matrices.axes_of(op, corners, aligned, ratio=0)
    is_empty = (axes[0].samples <= 0.0) | (axes[1].samples <= 0.0)
    (y, down, counted_down), (x, across, counted_across) = (
        sample_positions(op, axis.start, axis.bin_size, axis.bins, axis.samples) for axis in axes
    )
    rows, columns = (axis.bins for axis in axes)
    y, x = op.Unsqueeze(y, [2]), op.Unsqueeze(x, [1])
    is_counted = op.Unsqueeze(counted_down, [2]) & op.Unsqueeze(counted_across, [1])
    used = is_counted & on_map(op, y, x, height, width)
    maps, first_row = stacked(op, input, image)
    y, x = clamped_pixels(op, y, used, height) + first_row, clamped_pixels(op, x, used, width)
    regions, samples = op.size(rois, 0), down * across

    def by_sample(points: Value) -> Value:
        points = op.reshape(points, regions, rows, down, columns, across)
        return op.reshape(op.Transpose(points, perm=[2, 4, 0, 1, 3]), 1, samples * regions * rows, columns)

    shape = [op.value([1]), samples * regions * rows, columns]
    sampled = sample_pixels(op, maps, by_sample(y), by_sample(x), by_sample(used), shape)
    sampled = op.Where(op.Unsqueeze(by_sample(is_counted), [1]), sampled, -math.inf)
    sampled = op.reshape(sampled, channels, samples, regions * rows * columns)
    unordered = op.reduce("ReduceMax", op.IsNaN(sampled).to(FLOAT), 1) > 0.0  # ReduceMax need not propagate NaN
    best = op.Where(unordered, math.nan, op.reduce("ReduceMax", sampled, 1))
    best = op.Transpose(op.reshape(best, channels, regions, rows, columns), perm=[1, 0, 2, 3])
    return op.Where(op.Unsqueeze(is_empty, [2, 3]), NO_SAMPLES, best)
