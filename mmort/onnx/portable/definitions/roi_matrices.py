"""roi_align's average by matrices: each region's window of the map, between the weights of its rows and columns.

A bilinear sample is a product of two hats, and a bin's samples form a grid.  So the weights of a bin's pixels are a
product of weights along y and along x.  RoiAlign of ONNX Runtime reads the pixels of all samples one by one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from mmort.onnx.graph.builder import FLOAT, INT64, FunctionBuilder, Value
from mmort.onnx.portable.definitions.pixel_sampling import clamped_pixels, on_axis, sample_positions

MAX_SAMPLES = 64.0
"""Of a bin along an axis: all regions get room for as many as the largest one has."""

REGION_COST = 20_000.0
"""The cost of a step of the loop, in samples of a channel in RoiAlign."""


class Axis(NamedTuple):
    """The bins of regions (K, 1) along an axis: where they start, their size in pixels, the samples in each."""

    bins: Value
    start: Value
    bin_size: Value
    samples: Value


class Weights(NamedTuple):
    """The weights of the pixels of each region's window along an axis (K, bins, pixels), and which pixels these are."""

    first: Value
    extent: Value
    matrices: Value


def axes_of(op: FunctionBuilder, corners: Value, aligned: bool, ratio: int) -> tuple[Axis, Axis]:
    """Return the bins of regions along y and along x."""
    corners = corners * op.number("spatial_scale") - (0.5 if aligned else 0.0)
    x1, y1, x2, y2 = op.Split(corners, [1] * 4, axis=1, outputs=4)
    axes = []
    for start, end, bins in ((y1, y2, op.integer("output_height")), (x1, x2, op.integer("output_width"))):
        size = end - start if aligned else op.Max(end - start, 1.0)
        bin_size = size / bins.to(FLOAT)
        samples = op.Expand(float(ratio), op.Shape(bin_size)) if ratio else op.Ceil(bin_size)
        axes.append(Axis(bins, start, bin_size, samples))
    return axes[0], axes[1]


def are_faster(op: FunctionBuilder, input: Value, y: Axis, x: Axis) -> Value:
    """Return whether windows are faster than RoiAlign; not if a pixel may be NaN or infinite, as weights of 0 reach it.

    Regions that are not finite, or far too large, are left to RoiAlign too.
    """
    samples = op.ReduceSum(op.Abs(y.samples * x.samples), keepdims=0) * (y.bins * x.bins).to(FLOAT)
    pays = samples * op.size(input, 1).to(FLOAT) > op.size(y.start, 0).to(FLOAT) * REGION_COST
    few = op.ReduceMax(op.Concat(y.samples, x.samples, [[0.0]], axis=0), keepdims=0) <= MAX_SAMPLES
    finite = op.Abs(op.ReduceSum(input, keepdims=0)) < math.inf
    return op.Squeeze(pays, [0]) & few & finite & (op.Size(input) > 0)


def average(op: FunctionBuilder, maps: Value, images: Value, y: Axis, x: Axis) -> Value:
    """Return the averages of the bins of regions (K, channels, rows, columns).

    Maps are (N, height, width, channels); `images` (K) has the regions' indices of them.
    """
    regions = op.size(images, 0)
    count, height, width, channels = (op.size(maps, axis) for axis in range(4))
    y, x = (Axis(*map(op.Identity, axis)) for axis in (y, x))  # of this branch, to which their arithmetic adds nodes
    down, across = _weights(op, y, height), _weights(op, x, width)
    rows = op.reshape(maps, count * height, width, channels)
    first = op.Concat(op.Unsqueeze(images, [1]) * height + down.first, across.first, axis=1)
    end = first + op.Concat(down.extent, across.extent, axis=1)

    def pool(op: FunctionBuilder, i: Value) -> Value:
        window = op.Slice(rows, op.Gather(first, i), op.Gather(end, i), [0, 1])
        for weights in (across, down):
            matrix = op.Slice(op.Gather(weights.matrices, i), [0], op.Gather(weights.extent, i), [1])
            window = op.Reshape(op.MatMul(matrix, window), [0, -1])  # (height, columns * channels), then (rows, ...)
        return op.Transpose(op.Reshape(window, by_bin))  # here, where the processor's cache holds it

    by_bin = op.Concat(y.bins * x.bins, channels, axis=0)
    pooled = op.stack(regions, pool, (FLOAT, [None, None]))
    return op.reshape(pooled, regions, channels, y.bins, x.bins)


def _weights(op: FunctionBuilder, axis: Axis, size: Value) -> Weights:
    """Return the weights of pixels of a map of a size along an axis: the mean of the hats around each bin's samples."""
    position, room, counted = sample_positions(op, axis.start, axis.bin_size, axis.bins, axis.samples)
    used = counted & on_axis(op, position, size)
    position = clamped_pixels(op, position, used, size)
    near = op.Floor(position)
    beyond, last = position - near, size - [1]
    near = near.to(INT64)
    far = op.Min(near + 1, last)
    first = op.reduce("ReduceMin", op.Where(used, near, last), 1, keepdims=1)
    extent = op.Max(op.reduce("ReduceMax", op.Where(used, far, 0), 1, keepdims=1) - first, 0) + 1
    share = op.Where(used, op.Div(1.0, op.Max(axis.samples, 1.0)), 0.0)

    def in_bins(near: Value, far: Value) -> Value:
        by_bin = [op.reshape(values, op.size(axis.start, 0), axis.bins, room) for values in (near, far)]
        return op.Concat(*by_bin, axis=2)

    indices = in_bins(op.Max(near - first, 0), op.Max(far - first, 0))
    weights = in_bins((op.Sub(1.0, beyond)) * share, beyond * share)
    zeros = op.Expand(0.0, op.Concat(op.size(axis.start, 0), axis.bins, op.largest(extent, 1), axis=0))
    return Weights(first, extent, op.ScatterElements(zeros, indices, weights, axis=2, reduction="add"))
