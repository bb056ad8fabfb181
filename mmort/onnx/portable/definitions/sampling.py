"""carafe; grid_sample by ONNX's GridSample; the sampling that other definitions share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmort.onnx.graph.builder import FLOAT, Builder, FunctionBuilder, Value

OUTSIDE = 100.0
"""A coordinate outside every map, in the units of GridSample's grid, in which maps lie between -1 and 1."""

MAX_CARAFE_KERNEL = 63
"""The kernel's own limit."""


def carafe(op: FunctionBuilder, features: Value, masks: Value, *, attributes: Mapping[str, Any]) -> Value:
    """Multiply the pixels around each by the weights of those that it becomes, a row of the kernel at a time."""
    kernel = attributes["kernel_size"]
    if not (1 <= kernel <= MAX_CARAFE_KERNEL and kernel % 2):  # each weight adds three nodes
        raise ValueError(f"kernel_size must be odd and from 1 to {MAX_CARAFE_KERNEL}, got {kernel}")
    images, channels, height, width = (op.size(features, axis) for axis in range(4))
    groups, factor = op.integer("group_size"), op.integer("scale_factor")
    weights = op.reshape(masks, images, groups, kernel**2, height, factor, width, factor)
    weights = op.Transpose(weights, perm=[0, 1, 3, 4, 5, 6, 2])
    maps = op.reshape(features, images, groups, channels / groups, height, width)
    maps = op.Pad(op.Transpose(maps, perm=[0, 1, 3, 4, 2]), [0, 0, kernel // 2, kernel // 2, 0] * 2)
    total = op.value(0.0)
    for row in range(kernel):
        line = op.Unsqueeze(op.Slice(maps, [row], height + row, [2]), [3])
        taps = [op.Unsqueeze(op.Slice(line, [column], width + column, [4]), [5]) for column in range(kernel)]
        total = total + op.MatMul(op.slice(weights, kernel * row, kernel * (row + 1), 6), op.Concat(*taps, axis=5))
    total = op.reshape(total, images, groups, height * factor * width * factor, channels / groups)
    total = op.Transpose(total, perm=[0, 1, 3, 2])
    return op.reshape(total, images, channels, height * factor, width * factor)


def grid_sample(op: FunctionBuilder, input: Value, grid: Value, *, attributes: Mapping[str, Any]) -> Value:
    """Use ONNX's operator, with coordinates that are not finite replaced by finite ones of the same result."""
    mode, padding_mode = attributes["interpolation_mode"], attributes["padding_mode"]
    for name in ("interpolation_mode", "padding_mode"):
        if attributes[name] not in (0, 1, 2):
            raise ValueError(f"{name} must be 0, 1 or 2, got {attributes[name]}")
    original = op.slice(grid, 0, 2, 3)
    # Reflection takes the last pixel where they are not finite, as at 1; huge ones crash ONNX Runtime 1.20.
    grid = clipped(op, original) if padding_mode < 2 else op.Where(op.Abs(original) <= 1e4, original, 1.0)
    sampled = sample(op, input, grid, mode, padding_mode, bool(attributes["align_corners"]))
    if mode == 2:  # NaN where coordinates are not finite: these times 0
        sampled = sampled + op.Unsqueeze(op.ReduceSum(original * 0.0, [3], keepdims=0), [1])
    return sampled


def clipped(op: Builder, grid: Value) -> Value:
    """Clip huge and infinite coordinates, and NaN, to where GridSample's arithmetic holds, still outside the map."""
    return op.Clip(op.Where(op.IsNaN(grid), OUTSIDE, grid), -OUTSIDE, OUTSIDE)


def sample(
    op: Builder, input: Value, grid: Value, mode: int = 0, padding_mode: int = 0, align_corners: bool = False
) -> Value:
    """Sample by GridSample, or return 0 for a map without pixels, with which some versions crash."""

    def grid_sample(op: Builder) -> tuple[Value, ...]:
        modes = ("bilinear", "nearest", "bicubic") if op.opset < 20 else ("linear", "nearest", "cubic")
        sampled = op.GridSample(
            input,
            grid,
            mode=modes[mode],
            padding_mode=("zeros", "border", "reflection")[padding_mode],
            align_corners=int(align_corners),
        )
        return (sampled,)

    def zeros(op: Builder) -> tuple[Value, ...]:
        return (op.Expand(0.0, op.Concat(op.Shape(input, end=2), op.Shape(grid, start=1, end=3), axis=0)),)

    (sampled,) = op.choose(op.Size(input) > 0, grid_sample, zeros, [(FLOAT, [None] * 4)])
    return sampled
