"""corner_pool, cummax and cummin by a Scan along an axis, which also exports torch.cummax and torch.cummin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx.helper

from mmort.onnx.graph.builder import END, FLOAT, INT64, Builder, FunctionBuilder, Value


def corner_pool(op: FunctionBuilder, input: Value, *, attributes: Mapping[str, Any]) -> Value:
    """Compute the running maximum of lines, forwards or backwards."""
    if attributes["mode"] not in (0, 1, 2, 3):
        raise ValueError(f"mode must be 0, 1, 2 or 3, got {attributes['mode']}")

    def step(op: Builder, maximum: Value, x: Value) -> tuple[Value, ...]:
        return (op.Where((x > maximum) | op.IsNaN(x), x, maximum),)

    mode = op.integer("mode")
    half = mode / [2]
    direction = (mode - half * 2) * 2 - 1  # top and left, 0 and 2, go backwards

    def ordered(x: Value) -> Value:
        return op.Slice(x, op.Where(direction < 0, -1, 0), op.Mul(direction, END), [0], direction)

    lines, restore = _lines(op, input, half + 2)
    (pooled,) = _scan(op, ordered(lines), step, [(FLOAT, -math.inf)])
    return restore(ordered(pooled))


def cummax(op: FunctionBuilder, input: Value, *, attributes: Mapping[str, Any]) -> tuple[Value, ...]:
    """Scan along `dim`."""
    lines, restore = _lines(op, input, _dim(op, input))
    return tuple(map(restore, cumulative(op, lines, largest=True)))


def cummin(op: FunctionBuilder, input: Value, *, attributes: Mapping[str, Any]) -> tuple[Value, ...]:
    """Scan along `dim`."""
    lines, restore = _lines(op, input, _dim(op, input))
    return tuple(map(restore, cumulative(op, lines, largest=False)))


def _dim(op: FunctionBuilder, input: Value) -> Value:
    """Return the attribute `dim`; negative ones count from the end."""
    dim = op.integer("dim")
    return op.Where(dim < 0, dim + op.Shape(op.Shape(input)), dim)


def _lines(op: Builder, input: Value, axis: Value) -> tuple[Value, Callable[[Value], Value]]:
    """Bring an input of any rank into the shape (length, outer, inner); return that, and the way back."""
    shape = op.Shape(input)
    outer = op.ReduceProd(op.Slice(shape, [0], axis), keepdims=1)
    inner = op.ReduceProd(op.Slice(shape, axis + 1, [END]), keepdims=1)
    length = op.Slice(shape, axis, axis + 1)
    lines = op.Transpose(op.reshape(input, outer, length, inner), perm=[1, 0, 2])
    return lines, lambda x: op.Reshape(op.Transpose(x, perm=[1, 0, 2]), shape, allowzero=1)


def cumulative(
    op: Builder,
    input: Value,
    *,
    largest: bool,
    rank: int = 3,
    axis: int = 0,
    element_type: int = FLOAT,
    initial: int | None = None,
) -> tuple[Value, ...]:
    """Return the largest or smallest element so far and its index: the last of equal ones, the last NaN if any.

    Integers need an `initial` element, the smallest or largest of their type, as they have no infinities (nor NaN).
    """

    def step(op: Builder, best: Value, index: Value, x: Value, i: Value) -> tuple[Value, ...]:
        replace = x >= best if largest else x <= best
        if initial is None:
            replace = replace | op.IsNaN(x)
        return op.Where(replace, x, best), op.Where(replace, i, index)

    start = (-math.inf if largest else math.inf) if initial is None else initial
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element_type)
    states = [(element_type, np.array(start, dtype)), (INT64, 0)]
    return _scan(op, input, step, states, rank=rank, axis=axis, element_type=element_type, indices=True)


def _scan(
    op: Builder,
    input: Value,
    step: Callable[..., tuple[Value, ...]],
    states: Sequence[tuple[int, Any]],
    *,
    rank: int = 3,
    axis: int = 0,
    element_type: int = FLOAT,
    indices: bool = False,
) -> tuple[Value, ...]:
    """Run ``step(op, *states, x)`` along an axis, and return the states after each step, in the input's shape.

    `states` are the types and initial values.  With `indices` the step gets the index on the axis, too.
    """
    shape = op.Shape(input)
    # Sizes of 0 become 1, as ONNX Runtime crashes in some Scans of empty tensors.
    padded = op.Pad(input, op.Concat([0] * rank, op.Equal(shape, 0).to(INT64), axis=0))
    sizes = op.Shape(padded)
    plane = op.Gather(sizes, [other for other in range(rank) if other != axis])
    scanned = [padded]
    if indices:
        scanned.append(op.Range(0, op.Squeeze(op.Gather(sizes, [axis])), 1))
    state_types = [(state_type, [None] * (rank - 1)) for state_type, _ in states]
    scanned_types = [(element_type, [None] * (rank - 1)), (INT64, [])][: len(scanned)]
    axes = {"scan_input_axes": [axis, 0][: len(scanned)], "scan_output_axes": [axis] * len(states)}
    results = op.Scan(
        *(op.Expand(start, plane) for _, start in states),
        *scanned,
        body=op.graph(
            lambda op, *values: (updated := step(op, *values)) + updated, state_types + scanned_types, state_types * 2
        ),
        num_scan_inputs=len(scanned),
        outputs=2 * len(states),
        **(axes if axis else {}),  # onnx.reference supports the first axis only
    )
    return tuple(op.Slice(result, [0] * rank, shape) for result in results[len(states) :])
