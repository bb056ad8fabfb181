"""Operators that torch's exporter translates, but wrongly for some values: signed zeros, infinities, negative numbers.

Found by feeding them with special values (tests/onnx/test_special_values.py), with torch 2.13 and ONNX Runtime 1.32.
Each writer takes a builder and the arguments of the torch operator, and computes what torch does on the CPU, but for
the sign of a zero where its docstring says so.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from onnxscript import ir

from mmort.onnx.graph.builder import Builder, Value

Number = Value | float


def _like(op: Builder, number: Number, x: Value) -> Value:
    """Return a number in the element type of `x`."""
    if isinstance(number, Value):
        return op.CastLike(number, x)
    return op.value(np.asarray(number, x.handle.dtype.numpy()))


def _is_floating_point(x: Value) -> bool:
    return bool(x.handle.dtype.is_floating_point())


def _is_negative(op: Builder, x: Value) -> Value:
    """Return where the sign bit is set: at -0.0, too, whose reciprocal is -inf."""
    zero = _like(op, 0, x)
    return (x < zero) | (op.Reciprocal(x) < zero)


def _atan2(op: Builder, y: Value, x: Value) -> Value:
    """Compute the angle in the first quadrant, where 0 / 0 is 0 and inf / inf is 1, and mirror it by both signs."""
    height, width = op.Abs(y), op.Abs(x)
    above = op.CastLike(height > _like(op, 0, y), y)
    angle = op.Atan(op.Where(op.Equal(height, width), above, height / width))
    angle = op.Where(_is_negative(op, x), _like(op, math.pi, x) - angle, angle)
    sign = op.CastLike(_is_negative(op, y), y) * _like(op, -2, y) + _like(op, 1, y)
    return angle * sign  # as ONNX Runtime's Where has no -0.0


def _division(op: Builder, x: Number, y: Number) -> tuple[Value, Value, Value]:
    """Return the tensor among dividend and divisor, whose type is known, and both of them in that type."""
    tensor = x if isinstance(x, Value) else y
    assert isinstance(tensor, Value)  # of a torch operator one argument is a tensor
    dividend, divisor = (number if isinstance(number, Value) else _like(op, number, tensor) for number in (x, y))
    return tensor, dividend, divisor


def _against_divisor(op: Builder, remainder: Value, divisor: Value, zero: Value) -> Value:
    """Return where the quotient was rounded up: fmod's remainder is not 0 and has the other sign than the divisor."""
    return ~op.Equal(remainder, zero) & op.Xor(remainder < zero, divisor < zero)


def _remainder(op: Builder, x: Number, y: Number) -> Value:
    """Compute x modulo y, with the sign of y; a zero may have either sign."""
    tensor, dividend, divisor = _division(op, x, y)
    if not _is_floating_point(tensor):
        return op.Mod(dividend, divisor)
    remainder = op.Mod(dividend, divisor, fmod=1)
    is_against = _against_divisor(op, remainder, divisor, _like(op, 0, tensor))
    return op.Where(is_against, remainder + divisor, remainder)


def _floor_divide(op: Builder, x: Number, y: Number) -> Value:
    """Round the exact quotient down, as a rounded one may be the next integer; a zero may have either sign."""
    tensor, dividend, divisor = _division(op, x, y)
    zero = _like(op, 0, tensor)
    if not _is_floating_point(tensor):
        quotient = dividend / divisor
        if not tensor.handle.dtype.is_signed():
            return quotient
        is_rounded_up = op.Xor(dividend < zero, divisor < zero) & op.Mod(dividend, divisor).to(ir.DataType.BOOL)
        return quotient - op.CastLike(is_rounded_up, tensor)
    remainder = op.Mod(dividend, divisor, fmod=1)
    quotient = (dividend - remainder) / divisor  # an integer, but for its rounding
    quotient = quotient - op.CastLike(_against_divisor(op, remainder, divisor, zero), tensor)
    floor = op.Floor(quotient)
    floor = floor + op.CastLike(quotient - floor > _like(op, 0.5, tensor), tensor)
    return op.Where(op.Equal(divisor, zero), dividend / divisor, floor)


def _divide(op: Builder, x: Number, y: Number, rounding_mode: str | None = None) -> Value:
    """Divide and round; torch's exporter divides integers as float32.  A zero may have either sign."""
    if rounding_mode == "floor":
        return _floor_divide(op, x, y)
    tensor, dividend, divisor = _division(op, x, y)
    if rounding_mode == "trunc":
        quotient = dividend / divisor
        return op.Sign(quotient) * op.Floor(op.Abs(quotient)) if _is_floating_point(tensor) else quotient
    if not _is_floating_point(tensor):
        dividend, divisor = dividend.to(ir.DataType.FLOAT), divisor.to(ir.DataType.FLOAT)
    return dividend / divisor


def _floor_divide_sizes(op: Builder, size: Value, divisor: Number) -> Value:
    """Round down like Python, as in -(-size // 2); torch's exporter rounds towards 0."""
    size, divisor = op.value(size), op.value(divisor)
    return (size - op.Mod(size, divisor)) / divisor


def _clamp(op: Builder, x: Value, min: Number | None = None, max: Number | None = None) -> Value:
    """Clip; an infinite bound is explicit, as without it ONNX Runtime's Clip bounds infinities by the largest float."""
    if _is_floating_point(x):
        if max is None and not isinstance(min, Value) and min == 0:
            return op.Relu(x)
        min, max = -math.inf if min is None else min, math.inf if max is None else max
    bounds = (None if bound is None else _like(op, bound, x) for bound in (min, max))
    return op.Clip(x, *bounds)


def _clamp_min(op: Builder, x: Value, min: Number) -> Value:
    if isinstance(min, Value) and len(min.handle.shape) > 0:
        return op.Max(x, min)
    return _clamp(op, x, min)


def _clamp_max(op: Builder, x: Value, max: Number) -> Value:
    if isinstance(max, Value) and len(max.handle.shape) > 0:
        return op.Min(x, max)
    return _clamp(op, x, None, max)


def _any(op: Builder, x: Value, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Value:
    """Compare the maximum with 0; that of no elements is the smallest integer, which is True as a bool."""
    selected = x.to(ir.DataType.BOOL)
    if not x.handle.shape:
        return selected
    axes = [dim] if isinstance(dim, int) else list(dim or ())
    numbers = selected.to(ir.DataType.INT64)
    return op.node("ReduceMax", numbers, *([axes] if axes else []), keepdims=int(keepdim)) > 0


def _mean_of_all(op: Builder, x: Value, dtype: int | None = None) -> Value:
    return _mean(op, x, None, False, dtype)


def _mean(
    op: Builder, x: Value, dim: int | Sequence[int] | None, keepdim: bool = False, dtype: int | None = None
) -> Value:
    """Divide the sum by the count where the count may be 0, for NaN as in torch; ReduceMean returns 0 then."""
    shape = x.handle.shape
    if dtype is not None and dtype != -1:
        x = x.to(dtype)
    if not shape:
        return op.Identity(x)
    axes = [dim] if isinstance(dim, int) else list(dim or range(len(shape)))
    if all(isinstance(shape[axis], int) and shape[axis] > 0 for axis in axes):
        return op.ReduceMean(x, axes, keepdims=int(keepdim))
    count = op.ReduceProd(op.Gather(op.Shape(x), [axis % len(shape) for axis in axes]), keepdims=0)
    return op.ReduceSum(x, axes, keepdims=int(keepdim)) / op.CastLike(count, x)


def _group_norm(
    op: Builder,
    x: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:
    """Normalize each group as a channel, of which torch's exporter leaves the length open: none fits an empty batch."""
    ones, zeros = (op.value(np.full(num_groups, number, x.handle.dtype.numpy())) for number in (1, 0))
    length = op.ReduceProd(op.node("Shape", x, start=1), keepdims=1) / num_groups
    groups = op.reshape(x, op.size(x, 0), num_groups, length)
    result: Value = op.InstanceNormalization(groups, ones, zeros, epsilon=eps)
    result = op.Reshape(result, op.Shape(x), allowzero=1)
    axes = list(range(1, len(x.handle.shape) - 1))
    if weight is not None:
        result = result * (op.Unsqueeze(weight, axes) if axes else weight)
    if bias is not None:
        result = result + (op.Unsqueeze(bias, axes) if axes else bias)
    return result


def _log_sigmoid(op: Builder, x: Value) -> Value:
    """Use Softplus, as the logarithm of a sigmoid is -inf from -88 downwards."""
    return -op.Softplus(-x)


_aten = torch.ops.aten

WRITERS: dict[Callable[..., Any], Callable[..., Any]] = {
    _aten.atan2.default: _atan2,
    _aten.remainder.Tensor: _remainder,
    _aten.remainder.Scalar: _remainder,
    _aten.remainder.Scalar_Tensor: _remainder,
    _aten.floor_divide.default: _floor_divide,
    _aten.floor_divide.Scalar: _floor_divide,
    _aten.div.Tensor_mode: _divide,
    _aten.div.Scalar_mode: _divide,
    operator.floordiv: _floor_divide_sizes,
    _aten.clamp.default: _clamp,
    _aten.clamp_min.default: _clamp_min,
    _aten.clamp_min.Tensor: _clamp_min,
    _aten.clamp_max.default: _clamp_max,
    _aten.clamp_max.Tensor: _clamp_max,
    _aten.any.default: _any,
    _aten.any.dim: _any,
    _aten.any.dims: _any,
    _aten.mean.default: _mean_of_all,
    _aten.mean.dim: _mean,
    _aten.group_norm.default: _group_norm,
    _aten.log_sigmoid.default: _log_sigmoid,
}
"""For each torch operator, or Python operator of sizes, the function that writes it with a builder."""
