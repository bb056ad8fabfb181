"""group_norm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmort.onnx.graph.builder import DOUBLE, END, FLOAT, FunctionBuilder, Value


def group_norm(op: FunctionBuilder, x: Value, scale: Value, bias: Value, *, attributes: Mapping[str, Any]) -> Value:
    """Compute mean and variance of each group in float64, as the kernel does."""
    images, channels = op.size(x, 0), op.size(x, 1)
    shape, groups = op.Shape(x), op.integer("num_groups")
    if attributes["num_groups"] < 1:
        raise ValueError(f"num_groups must be at least 1, got {attributes['num_groups']}")
    pixels = op.ReduceProd(op.Slice(shape, [2], [END]), keepdims=1)
    length = channels / groups * pixels
    count = length.to(DOUBLE)
    double = op.reshape(x.to(DOUBLE), images, groups, length)
    differences = double - op.ReduceSum(double, [2], keepdims=1) / count
    variance = op.ReduceSum(differences * differences, [2], keepdims=1) / count
    deviation = op.Sqrt(variance + op.number("epsilon").to(DOUBLE))
    normal = op.reshape(differences / deviation, images, channels, pixels)
    scaled = normal * op.Unsqueeze(scale.to(DOUBLE), [1]) + op.Unsqueeze(bias.to(DOUBLE), [1])
    return op.Reshape(scaled.to(FLOAT), shape, allowzero=1)
