"""The operators in torch's exporter by torch.export ("dynamo"): its table of custom translations.

Operators of mmort become one node each.  Those of torch that its exporter lacks, or translates wrongly, become standard
ONNX operators.  Found by exporting with torch 2.13: cummax and cummin, sort and argsort with ``stable=True``,
masked_select, amax and amin of all elements, searchsorted and isin, cdist, kthvalue, median along a dimension, and
adaptive_avg_pool2d, whose own translation is wrong at sizes other than the example's.  Each computes what torch does on
the CPU, including NaN and ties unless its docstring says otherwise; amax and amin ignore NaN.  Those that are wrong for
special values only are in `mmort.onnx.export.special_values`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np
import onnx.defs
import onnxscript
import torch
from onnx.defs import OpSchema
from onnxscript import ir

from mmort import schemas
from mmort.onnx.export import special_values
from mmort.onnx.export.calls import arrange, exported_operators
from mmort.onnx.graph.builder import END, Builder, Value
from mmort.onnx.op_schemas import VERSION, op_schema
from mmort.onnx.portable.definitions.scans import cumulative

Translation = Callable[..., Any]
"""Takes the arguments of a torch operator, its tensors as onnxscript's, and adds ONNX nodes for it."""

OPSET = 18
"""The opset of the operators used; torch's exporter converts them to the opset of the file."""


def translation_table(
    mmcv_nodes: Collection[str], operators: Iterable[schemas.Operator]
) -> dict[Callable[..., Any], Translation]:
    """Implement `mmort.onnx.translation_table`."""
    table = {overload: _written(write) for overload, write in _WRITERS.items()}
    for overload, operator in exported_operators(mmcv_nodes, operators):
        table[overload] = _node(overload, operator)
    return {overload: _with_signature(overload, translation) for overload, translation in table.items()}


def _node(overload: Any, operator: schemas.Operator) -> Translation:
    """Return the translation of a torch operator to one node."""
    node = onnxscript.values.Op(onnxscript.values.Opset(operator.domain, VERSION), operator.type, op_schema(operator))

    def translate(*args: Any, **kwargs: Any) -> Any:
        inputs, attributes = arrange(overload, operator, args, kwargs)
        return node(*inputs, **attributes)

    return translate


def _with_signature(overload: Any, translation: Translation) -> Translation:
    """Give a translation the signature of torch's operator, by which torch 2.9 prefers it to its own."""

    def translate(*args: Any, **kwargs: Any) -> Any:
        return translation(*args, **kwargs)

    translate.__signature__ = _signature(overload)  # type: ignore[attr-defined]
    translate.__annotations__ = {}
    return translate


def _signature(overload: Any) -> Signature:
    """Return the signature of torch's operator, or of Python's for sizes."""
    if not isinstance(overload, torch._ops.OpOverload):
        return signature(overload)
    return Signature(
        [
            Parameter(
                argument.name,
                Parameter.KEYWORD_ONLY if argument.kwarg_only else Parameter.POSITIONAL_OR_KEYWORD,
                default=argument.default_value if argument.has_default_value() else Parameter.empty,
            )
            for argument in overload._schema.arguments
        ]
    )


class ExportBuilder(Builder):
    """Adds nodes to the graph that torch is exporting.

    A value's handle is onnxscript's tensor, whose rank and type are known.  Inner graphs cannot use outer values.
    """

    def __init__(self) -> None:
        super().__init__(OPSET)
        self._opset = onnxscript.values.Opset("", OPSET)

    def _add(self, op_type: str, inputs: Sequence[Any], outputs: int, attributes: dict[str, Any]) -> Any:
        handles = [None if value is None else self.value(value).handle for value in inputs]
        operator = onnxscript.values.Op(self._opset, op_type, self._schema(op_type, len(inputs), outputs, attributes))
        results = operator(*handles, **attributes)
        if outputs == 1:
            return Value(self, results)
        return tuple(Value(self, result) for result in results)

    @staticmethod
    def _schema(op_type: str, inputs: int, outputs: int, attributes: dict[str, Any]) -> OpSchema:
        """Return ONNX's schema, or for Scan one with this number of outputs, which ONNX's own leaves open."""
        schema = onnx.defs.get_schema(op_type, OPSET)
        if op_type != "Scan":
            return schema
        any_type = next(constraint for constraint in schema.type_constraints if constraint.type_param_str == "V")
        types = [f"T{index}" for index in range(max(inputs, outputs))]
        return OpSchema(
            op_type,
            "",
            schema.since_version,
            inputs=[OpSchema.FormalParameter(f"input_{index}", types[index]) for index in range(inputs)],
            outputs=[OpSchema.FormalParameter(f"output_{index}", types[index]) for index in range(outputs)],
            type_constraints=[(name, any_type.allowed_type_strs, "") for name in types],
            attributes=[OpSchema.Attribute(name, schema.attributes[name].type) for name in attributes],
        )


def _written(write: Callable[..., Any]) -> Translation:
    """Return a function for torch's exporter that calls ``write(op, ...)`` with values instead of tensors."""

    def translate(*args: Any, **kwargs: Any) -> Any:
        op = ExportBuilder()

        def wrap(argument: Any) -> Any:
            return Value(op, argument) if isinstance(argument, ir.Value) else argument

        results = write(op, *map(wrap, args), **{name: wrap(argument) for name, argument in kwargs.items()})
        return tuple(result.handle for result in results) if isinstance(results, tuple) else results.handle

    return translate


def _rank(x: Value) -> int:
    """Return the number of dimensions."""
    return len(x.handle.shape)


def _length(op: Builder, x: Value, dim: int) -> Value:
    """Return a dimension, as a list of one number."""
    return op.Gather(op.Shape(x), [dim % _rank(x)])


def _cumulative(largest: bool) -> Callable[..., tuple[Value, ...]]:
    """Return the translation of cummax or of cummin."""

    def write(op: Builder, x: Value, dim: int) -> tuple[Value, ...]:
        """Scan along `dim`."""
        if _rank(x) == 0:
            return op.Identity(x), op.value(0)
        dtype: ir.DataType = x.handle.dtype
        initial = None
        if not dtype.is_floating_point():
            limits = np.iinfo(dtype.numpy())
            initial = int(limits.min if largest else limits.max)
        rank = _rank(x)
        return cumulative(op, x, largest=largest, rank=rank, axis=dim % rank, element_type=int(dtype), initial=initial)

    return write


def _sort_stable(
    op: Builder, x: Value, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, ...]:
    """Sort by TopK, which is stable: of equal elements the lower index comes first.  NaN are sorted unlike in torch."""
    if _rank(x) == 0:
        return op.Identity(x), op.value(0)
    return op.TopK(x, _length(op, x, dim), axis=dim, largest=int(descending), sorted=1, outputs=2)


def _masked_select(op: Builder, x: Value, mask: Value) -> Value:
    """Broadcast both, flatten them, and keep the selected elements."""
    if list(x.handle.shape) != list(mask.handle.shape):
        rank = max(_rank(x), _rank(mask))
        shape = op.Max(*(op.Concat([1] * (rank - _rank(tensor)), op.Shape(tensor), axis=0) for tensor in (x, mask)))
        x, mask = op.Expand(x, shape), op.Expand(mask, shape)
    return op.Compress(op.Reshape(x, [-1]), op.Reshape(mask, [-1]))


def _reduction(op_type: str) -> Callable[..., Value]:
    """Return the translation of amax or of amin; without axes they reduce all."""

    def write(op: Builder, x: Value, dim: Sequence[int] = (), keepdim: bool = False) -> Value:
        axes = (list(dim),) if dim else ()
        return op.node(op_type, x, *axes, keepdims=int(keepdim))

    return write


def _searchsorted(
    op: Builder,
    boundaries: Value,
    values: Value | float,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """Count the boundaries below each value, with memory for each pair; NaN values come last."""
    is_floating_point, rank = boundaries.handle.dtype.is_floating_point(), _rank(boundaries)
    if sorter is not None:
        boundaries = op.GatherElements(boundaries, sorter, axis=-1)
    if not isinstance(values, Value):
        values = op.CastLike(float(values), boundaries)
    if rank > 1:  # a list of boundaries for each list of values
        boundaries = op.Unsqueeze(boundaries, [-2])
    values = op.Unsqueeze(values, [-1])
    smaller = boundaries <= values if right or side == "right" else boundaries < values
    if is_floating_point:
        smaller = smaller | op.IsNaN(values)
    count = op.ReduceSum(smaller.to(ir.DataType.INT64), [-1], keepdims=0)
    return count.to(ir.DataType.INT32) if out_int32 else count


def _cdist(op: Builder, x: Value, y: Value, p: float, compute_mode: int | None) -> Value:
    """Compute all differences at once, with memory for each pair of rows and each column."""
    difference = op.Abs(op.Unsqueeze(x, [-2]) - op.Unsqueeze(y, [-3]))
    if p == 0:
        return op.ReduceSum(op.CastLike(difference > op.CastLike(0.0, x), x), [-1], keepdims=0)
    if p == 1:
        return op.ReduceSum(difference, [-1], keepdims=0)
    if p == 2:
        return op.ReduceL2(difference, [-1], keepdims=0)
    if math.isinf(p):
        return op.ReduceMax(difference, [-1], keepdims=0)
    power, root = op.CastLike(float(p), x), op.CastLike(1 / p, x)
    return op.Pow(op.ReduceSum(op.Pow(difference, power), [-1], keepdims=0), root)


def _kthvalue(op: Builder, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Value, ...]:
    """Return the k-th smallest; of equal values the index may differ from torch's, which may be any of theirs."""
    return _last_of_smallest(op, x, op.value([k]), dim, keepdim)


def _median(op: Builder, x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, ...]:
    """Return the lower of two medians; torch returns NaN if there is one.  Indices are those of kthvalue."""
    return _last_of_smallest(op, x, (_length(op, x, dim) + 1) / 2, dim, keepdim)


def _last_of_smallest(op: Builder, x: Value, k: Value, dim: int, keepdim: bool) -> tuple[Value, ...]:
    """Return the last of the k smallest elements, and its index."""
    smallest = op.TopK(x, k, axis=dim, largest=0, sorted=1, outputs=2)
    last = [op.slice(part, -1, END, dim) for part in smallest]
    return tuple(last if keepdim else (op.Squeeze(part, [dim]) for part in last))


def _adaptive_avg_pool2d(op: Builder, x: Value, output_size: Sequence[int]) -> Value:
    """Average by a matrix product along each axis, as torch's exporter freezes the number of pixels in a bin.

    An infinity or NaN affects all bins of its row and column, in torch only its own.
    """
    height, width = (op.Gather(op.Shape(x), axis) for axis in (-2, -1))
    rows, columns = (_averages(op, side, bins, x) for side, bins in zip((height, width), output_size, strict=True))
    return op.MatMul(op.MatMul(rows, x), op.Transpose(columns, perm=[1, 0]))


def _averages(op: Builder, side: Value, bins: int, like: Value) -> Value:
    """Return the weights [bins, side]: of bin i, 1 / n for its n pixels, i * side / bins to (i + 1) * side / bins."""
    numbers, count = op.value(np.arange(bins)[:, None]), op.value(bins)
    begin = numbers * side / count
    end = ((numbers + 1) * side + count - 1) / count
    pixels = op.Unsqueeze(op.Range(0, side, 1), [0])
    inside = (pixels >= begin) & (pixels < end)
    return op.CastLike(inside, like) / op.CastLike(end - begin, like)


_aten = torch.ops.aten

_WRITERS: dict[Callable[..., Any], Callable[..., Any]] = {
    _aten.cummax.default: _cumulative(largest=True),
    _aten.cummin.default: _cumulative(largest=False),
    _aten.sort.stable: _sort_stable,
    _aten.masked_select.default: _masked_select,
    _aten.amax.default: _reduction("ReduceMax"),
    _aten.amin.default: _reduction("ReduceMin"),
    _aten.searchsorted.Tensor: _searchsorted,
    _aten.searchsorted.Scalar: _searchsorted,
    _aten._cdist_forward.default: _cdist,
    _aten.kthvalue.default: _kthvalue,
    _aten.median.dim: _median,
    _aten._adaptive_avg_pool2d.default: _adaptive_avg_pool2d,
    **special_values.WRITERS,
}
"""For each of torch's operators (overloads), what writes it with a builder."""
