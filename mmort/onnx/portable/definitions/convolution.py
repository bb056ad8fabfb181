"""deform_conv2d and modulated_deform_conv2d: columns sampled by GridSample, then a product of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmort.onnx.graph.builder import FLOAT, FunctionBuilder, Value
from mmort.onnx.portable.definitions.sampling import clipped, sample


def deform_conv2d(
    op: FunctionBuilder, input: Value, offset: Value, weight: Value, *, attributes: Mapping[str, Any]
) -> Value:
    """Convolve without mask and bias."""
    return _deform_conv(op, input, offset, None, weight, None)


def modulated_deform_conv2d(
    op: FunctionBuilder,
    input: Value,
    offset: Value,
    mask: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    attributes: Mapping[str, Any],
) -> Value:
    """Multiply the samples by a mask, and add a bias if there is one."""
    return _deform_conv(op, input, offset, mask, weight, bias)


def _deform_conv(
    op: FunctionBuilder, input: Value, offset: Value, mask: Value | None, weight: Value, bias: Value | None
) -> Value:
    """Sample columns by GridSample, and multiply them by the weights."""
    (stride_y, stride_x), (pad_y, pad_x), (dilation_y, dilation_x) = map(op.pair, ("stride", "padding", "dilation"))
    groups, parts = op.integer("groups"), op.integer("deform_groups")
    images, channels, height, width = (op.size(input, axis) for axis in range(4))
    outputs, kernel_height, kernel_width = op.size(weight, 0), op.size(weight, 2), op.size(weight, 3)
    rows, columns = op.size(offset, 2), op.size(offset, 3)
    taps, locations = kernel_height * kernel_width, rows * columns

    tap = op.range(taps)
    down = tap / kernel_width
    right = tap - down * kernel_width
    y = op.Unsqueeze(down * dilation_y, [1, 2]) + op.Unsqueeze(op.range(rows) * stride_y - pad_y, [0, 2])
    x = op.Unsqueeze(right * dilation_x, [1, 2]) + op.Unsqueeze(op.range(columns) * stride_x - pad_x, [0, 1])
    offset = op.reshape(offset, images * parts, taps, 2, rows, columns)
    y = y.to(FLOAT) + op.Gather(offset, 0, axis=2)
    x = x.to(FLOAT) + op.Gather(offset, 1, axis=2)
    # In GridSample's units -1 and 1 are the outer edges of the map.
    y = (y * 2.0 + 1.0) / height.to(FLOAT) - 1.0
    x = (x * 2.0 + 1.0) / width.to(FLOAT) - 1.0
    grid = op.Concat(op.Unsqueeze(x, [4]), op.Unsqueeze(y, [4]), axis=4)
    sampled = sample(
        op,
        op.reshape(input, images * parts, channels / parts, height, width),
        clipped(op, op.reshape(grid, images * parts, taps * rows, columns, 2)),
    )
    if mask is not None:
        sampled = op.reshape(sampled, images * parts, channels / parts, taps, locations)
        sampled = sampled * op.reshape(mask, images * parts, 1, taps, locations)
    length = channels / groups * taps
    weights = op.Expand(op.reshape(weight, groups, outputs / groups, length), op.Concat(images, [1, 1, 1], axis=0))
    product = op.MatMul(weights, op.reshape(sampled, images, groups, length, locations))
    output = op.reshape(product, images, outputs, rows, columns)
    return output if bias is None else output + op.Unsqueeze(bias, [1, 2])
