"""Translations of torch's own operators that torch's exporter lacks, with standard ONNX operators.

Found by exporting with torch 2.13: cummax and cummin, sort and argsort with ``stable=True``, masked_select, amax and
amin of all elements, searchsorted and isin, cdist, kthvalue, median along a dimension; and adaptive_avg_pool2d, whose
translation is wrong at sizes other than the example's.  Each computes what torch does on the CPU, NaN and ties included
unless its docstring says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnxscript
import torch
from onnx.defs import OpSchema
from onnxscript import ir
from onnxscript import opset18 as op

Value = Any
"""A tensor in the ONNX graph that is being built, with ``shape`` and ``dtype``, or a Python number."""


def _cumulative(comparison: str) -> Callable[[Value, int], Value]:
    def translate(x: Value, dim: int) -> Value:
        """Walk along `dim`; an element that is as good as the best so far, or the first NaN, is the new best."""
        rank = len(x.shape)
        if rank == 0:
            return op.Identity(x), op.Constant(value=onnx.helper.make_tensor("zero", onnx.TensorProto.INT64, [], [0]))
        dim %= rank
        shape = op.Shape(x)
        more = op.Pad(x, _constant([0] * rank + [1] * rank))  # ONNX Runtime crashes in a Scan of nothing
        sizes = op.Shape(more)
        other = op.Gather(sizes, _constant([i for i in range(rank) if i != dim]))
        worst = op.Expand(_constant(_extreme(x.dtype, comparison == "GreaterOrEqual"), x.dtype), other)
        first = op.ConstantOfShape(other, value=onnx.helper.make_tensor("zero", onnx.TensorProto.INT64, [1], [0]))
        places = op.Range(_constant(0), op.Squeeze(op.Gather(sizes, _constant([dim]))), _constant(1))
        _, _, *results = _SCAN(
            worst,
            first,
            more,
            places,
            body=_step(x.dtype, comparison),
            num_scan_inputs=2,
            scan_input_axes=[dim, 0],
            scan_output_axes=[dim, dim],
        )
        return tuple(op.Slice(one, _constant([0] * rank), shape) for one in results)

    return translate


def _step(dtype: ir.DataType, comparison: str) -> onnx.GraphProto:
    """Build the step of a scan: best and index so far, an element and its place -> both new, twice."""
    make = onnx.helper.make_node
    nodes = [make(comparison, ["element", "best"], ["as_good"]), make("Identity", ["as_good"], ["better"])]
    if dtype.is_floating_point():
        nodes[1:] = [make("IsNaN", ["element"], ["nan"]), make("Or", ["as_good", "nan"], ["better"])]
    nodes += [
        make("Where", ["better", "element", "best"], ["new_best"]),
        make("Where", ["better", "place", "index"], ["new_index"]),
        make("Identity", ["new_best"], ["best_here"]),
        make("Identity", ["new_index"], ["index_here"]),
    ]
    kinds = {"best": dtype, "index": ir.DataType.INT64, "element": dtype, "place": ir.DataType.INT64}
    outputs = {"new_best": dtype, "new_index": ir.DataType.INT64, "best_here": dtype, "index_here": ir.DataType.INT64}
    inputs, results = (
        [onnx.helper.make_tensor_value_info(name, int(kind), None) for name, kind in names.items()]
        for names in (kinds, outputs)
    )
    return onnx.helper.make_graph(nodes, "step", inputs, results)


def _sort_stable(x: Value, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Value:
    """TopK gives the lower index first among equals, so it is stable; NaN are not sorted as torch does."""
    if len(x.shape) == 0:
        return op.Identity(x), _constant(0)
    count = op.Gather(op.Shape(x), _constant([dim % len(x.shape)]))
    return op.TopK(x, count, axis=dim, largest=int(descending), sorted=1)


def _masked_select(x: Value, mask: Value) -> Value:
    shape = op.Max(*_ranked_shapes(x, mask)) if _shapes_may_differ(x, mask) else None
    values, chosen = (value if shape is None else op.Expand(value, shape) for value in (x, mask))
    return op.Compress(op.Reshape(values, _constant([-1])), op.Reshape(chosen, _constant([-1])))


def _shapes_may_differ(x: Value, y: Value) -> bool:
    return list(x.shape) != list(y.shape)


def _ranked_shapes(*tensors: Value) -> list[Value]:
    """Shapes of tensors with as many dimensions, ones put before those of lower rank."""
    rank = max(len(tensor.shape) for tensor in tensors)
    return [op.Concat(_constant([1] * (rank - len(one.shape))), op.Shape(one), axis=0) for one in tensors]


def _extreme_over(reduce: Callable[..., Value]) -> Callable[..., Value]:
    def translate(x: Value, dim: Any = (), keepdim: bool = False) -> Value:
        axes = (_constant(list(dim)),) if dim else ()
        return reduce(x, *axes, keepdims=int(keepdim))

    return translate


def _searchsorted(
    boundaries: Value,
    values: Value,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value = None,
) -> Value:
    """Count the boundaries below a value: memory for each pair of the two; NaN values come first, not last."""
    if sorter is not None:
        boundaries = op.GatherElements(boundaries, sorter, axis=-1)
    if isinstance(values, (int, float)):
        values = op.CastLike(_constant(np.float32(values)), boundaries)
    if len(boundaries.shape) > 1:  # a list of boundaries for each list of values
        boundaries = op.Unsqueeze(boundaries, _constant([-2]))
    values = op.Unsqueeze(values, _constant([-1]))
    below = op.LessOrEqual if right or side == "right" else op.Less
    smaller: Value = op.Cast(below(boundaries, values), to=ir.DataType.INT64)
    count: Value = op.ReduceSum(smaller, _constant([-1]), keepdims=0)
    return op.Cast(count, to=ir.DataType.INT32) if out_int32 else count


def _cdist(x: Value, y: Value, p: float, compute_mode: int | None) -> Value:
    """Take all differences: memory for each pair of rows and each column."""
    difference = op.Abs(op.Sub(op.Unsqueeze(x, _constant([-2])), op.Unsqueeze(y, _constant([-3]))))
    if p == 0:
        zero = op.CastLike(_constant(np.float32(0)), x)
        return op.ReduceSum(op.CastLike(op.Greater(difference, zero), x), _constant([-1]), keepdims=0)
    if p == 1:
        return op.ReduceSum(difference, _constant([-1]), keepdims=0)
    if p == 2:
        return op.ReduceL2(difference, _constant([-1]), keepdims=0)
    if math.isinf(p):
        return op.ReduceMax(difference, _constant([-1]), keepdims=0)
    power, root = (op.CastLike(_constant(np.float32(one)), x) for one in (p, 1 / p))
    return op.Pow(op.ReduceSum(op.Pow(difference, power), _constant([-1]), keepdims=0), root)


def _kthvalue(x: Value, k: int, dim: int = -1, keepdim: bool = False) -> Value:
    """Take the k-th smallest; among equal values torch's index is any of theirs, here the highest of the first k."""
    values, indices = op.TopK(x, _constant([k]), axis=dim, largest=0, sorted=1)
    last = [op.Slice(one, _constant([-1]), _constant([2**62]), _constant([dim])) for one in (values, indices)]
    return tuple(last if keepdim else (op.Squeeze(one, _constant([dim])) for one in last))


def _median(x: Value, dim: int = -1, keepdim: bool = False) -> Value:
    """Take the lower of two medians; NaN are not preferred as torch does; indices as with kthvalue."""
    count = op.Gather(op.Shape(x), _constant([dim % len(x.shape)]))
    k = op.Div(op.Add(count, _constant([1])), _constant([2]))
    values, indices = op.TopK(x, k, axis=dim, largest=0, sorted=1)
    last = [op.Slice(one, _constant([-1]), _constant([2**62]), _constant([dim])) for one in (values, indices)]
    return tuple(last if keepdim else (op.Squeeze(one, _constant([dim])) for one in last))


def _adaptive_avg_pool2d(x: Value, output_size: list[int]) -> Value:
    """Multiply by a matrix of averages from each side; torch's exporter freezes the number of pixels in a bin.

    An infinity or NaN reaches all bins of its row and column, in torch only its own.
    """
    height, width = (op.Gather(op.Shape(x), _constant(axis)) for axis in (-2, -1))
    rows, columns = (_averages(side, bins, x) for side, bins in zip((height, width), output_size, strict=True))
    return op.MatMul(op.MatMul(rows, x), op.Transpose(columns, perm=[1, 0]))


def _averages(side: Value, bins: int, like: Value) -> Value:
    """Weights [bins, side] of the pixels floor(i * side / bins) to ceil((i + 1) * side / bins), 1 / their number."""
    numbers, count = _constant(np.arange(bins)[:, None]), _constant(bins)
    begin = op.Div(op.Mul(numbers, side), count)
    end = op.Div(op.Sub(op.Add(op.Mul(op.Add(numbers, _constant(1)), side), count), _constant(1)), count)
    pixels = op.Unsqueeze(op.Range(_constant(0), side, _constant(1)), _constant([0]))
    inside = op.And(op.GreaterOrEqual(pixels, begin), op.Less(pixels, end))
    return op.Div(op.CastLike(inside, like), op.CastLike(op.Sub(end, begin), like))


def _constant(value: Any, dtype: ir.DataType | None = None) -> Value:
    array = np.asarray(value, np.int64 if isinstance(value, (int, list)) else None)
    tensor = onnx.helper.make_tensor(
        "constant", int(dtype or ir.DataType.from_numpy(array.dtype)), array.shape, array.flatten().tolist()
    )
    return op.Constant(value=tensor)


def _extreme(dtype: ir.DataType, lowest: bool) -> float | int:
    if dtype.is_floating_point():
        return -math.inf if lowest else math.inf
    limits = np.iinfo(dtype.numpy())
    return int(limits.min if lowest else limits.max)


def _scan() -> onnxscript.values.Op:
    """Return ONNX's Scan with two states and two lists; its own schema leaves the number of outputs open."""
    names = ("state", "other_state", "list", "other_list")
    any_type = next(one for one in onnx.defs.get_schema("Scan", 18).type_constraints if one.type_param_str == "V")
    schema = OpSchema(
        "Scan",
        "",
        16,
        inputs=[OpSchema.FormalParameter(name, name) for name in names],
        outputs=[OpSchema.FormalParameter(f"new_{name}", name) for name in names],
        type_constraints=[(name, any_type.allowed_type_strs, "") for name in names],
        attributes=[
            OpSchema.Attribute("body", OpSchema.AttrType.GRAPH),
            OpSchema.Attribute("num_scan_inputs", OpSchema.AttrType.INT),
            OpSchema.Attribute("scan_input_axes", OpSchema.AttrType.INTS),
            OpSchema.Attribute("scan_output_axes", OpSchema.AttrType.INTS),
        ],
    )
    return onnxscript.values.Op(onnxscript.values.Opset("", 18), "Scan", schema)


_SCAN = _scan()
_aten = torch.ops.aten

TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    _aten.cummax.default: _cumulative("GreaterOrEqual"),
    _aten.cummin.default: _cumulative("LessOrEqual"),
    _aten.sort.stable: _sort_stable,
    _aten.masked_select.default: _masked_select,
    _aten.amax.default: _extreme_over(op.ReduceMax),
    _aten.amin.default: _extreme_over(op.ReduceMin),
    _aten.searchsorted.Tensor: _searchsorted,
    _aten.searchsorted.Scalar: _searchsorted,
    _aten._cdist_forward.default: _cdist,
    _aten.kthvalue.default: _kthvalue,
    _aten.median.dim: _median,
    _aten._adaptive_avg_pool2d.default: _adaptive_avg_pool2d,
}
