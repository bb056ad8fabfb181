"""torch's operators that detectors use, each with special values: torch against ONNX Runtime on an exported file.

Signed zeros, NaN, infinities, negative divisors, halves, int64's limits, empty tensors and sizes of 0 and 1.  A row is
an operator with its arguments; all rows are in one model, as an export takes seconds before it begins.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import mmort.ort
from mmort.onnx.export.exporters import dynamo
from mmort.onnx.export.inputs import dynamic_axes
from mmort.onnx.export.options import Example, Options

NAN, INF = math.nan, math.inf
MAX, MIN = 2**63 - 1, -(2**63)
tensor = torch.tensor


class Row(NamedTuple):
    """An operator, its arguments, and how near the file's results must be to torch's; NaN equals NaN."""

    name: str
    call: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    others: tuple[tuple[torch.Tensor, ...], ...] = ()
    """Arguments of other sizes; with them all dimensions are dynamic."""
    ulps: float = 0
    atol: float = 0
    zeros: bool = True
    """Whether zeros must have the same sign: 1 / x and atan2 depend on it."""
    limit: str = ""
    """Why torch and the file differ, if no translation makes them equal."""


def seeded(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def pairs(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each value of x with each of y."""
    x, y = torch.meshgrid(x, y, indexing="ij")
    return x.clone(), y.clone()


def long(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.int64)


ORDINARY = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.9, -0.9, 0.3, 3, -7, 1e6, INF, -INF, NAN]
MODERATE = tensor(ORDINARY)  # torch's fmod is NaN for huge quotients
FLOATS = tensor([*ORDINARY, 3.4e38, -3.4e38, 8388609, -8388607.5, 2.0**31, -1e19, 88.8, -88.8, 20, -20, 1e-8, 1e-30])
INTS = tensor([0, 1, -1, 2, -3, 7, -10, 2**24 + 1, 2**31, -(2**31) - 1, 2**53 + 1, -(2**62) - 1, MAX, MIN])
DIVISORS = tensor([1, 2, -2, 3, -7, 10, 2**24 + 1, -(2**31) - 1, 2**53 + 1, MAX, MIN])  # MIN / -1 has no result
BOOLS = pairs(tensor([True, False]), tensor([True, False]))
FLOAT_PAIRS, INT_PAIRS, DIVISIONS = pairs(FLOATS, FLOATS), pairs(INTS, INTS), pairs(INTS, DIVISORS)
QUOTIENTS = pairs(MODERATE, MODERATE)
MATRIX = tensor(
    [[1, 3, 3, -2.0], [-INF] * 4, [INF, 2, INF, -INF], [0.0, -0.0, -0.0, 0.0], [-0.0, 0.0, -1, -0.0], [5, 5, 2, 5]]
)
WITH_NAN = tensor([[1, NAN, 3.0], [NAN, NAN, INF], [-INF, 0, 1]])
INT_MATRIX = tensor([[1, 3, 3, -2], [MAX, MIN, MAX, 0], [5, 5, 5, 5], [2**53, 2**53 + 1, 2**53 + 2, 2**53 - 1]])
MASK = tensor([[True, False, True], [False, False, False], [True, True, True]])
GRID = torch.arange(12.0).reshape(3, 4)
IMAGE = seeded(2, 3, 7, 9)
HOLES = torch.where(IMAGE > 0.5, -INF, IMAGE)

ROWS: list[Row] = []


def row(name: str, call: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> None:
    """Add a row."""
    ROWS.append(Row(name, call, inputs, **options))


def empty_rows(*, columns: bool = True) -> list[tuple[torch.Tensor, ...]]:
    """Matrices like [3, 4] of other sizes, some without rows or columns."""
    return [(torch.zeros(0, 4),), (torch.ones(1, 7),), *([(torch.ones(3, 0),)] if columns else [])]


# one number
for name in ("abs", "neg", "floor", "ceil", "round", "relu", "isnan", "isinf", "isfinite", "square"):
    row(name, getattr(torch, name), FLOATS)
for name in ("sqrt", "rsqrt", "reciprocal", "exp", "log", "log2", "tanh", "sin", "cos", "atan", "erf", "exp2"):
    row(name, getattr(torch, name), FLOATS, ulps=4)
for name in ("relu6", "hardsigmoid", "hardtanh", "softplus", "leaky_relu", "elu"):
    row(name, getattr(F, name), FLOATS, ulps=4, zeros=False)
row("trunc", torch.trunc, FLOATS, zeros=False)
row("sigmoid", torch.sigmoid, FLOATS, ulps=4, atol=1e-8)  # ONNX Runtime's error is absolute: 0 below -18
row("silu", F.silu, FLOATS, ulps=4, atol=1e-7, zeros=False)  # as it multiplies x by its sigmoid
# The error of 1 + erf is absolute.  What torch gives for infinity differs between processors: NaN with oneDNN.
row("gelu", F.gelu, FLOATS[FLOATS.abs() < 1e30], ulps=4, atol=1e-7, zeros=False)
row("hardswish", F.hardswish, FLOATS[FLOATS.abs() != 3.4e38], ulps=4, zeros=False)  # x * 6 / 6 overflows in torch
row("log_sigmoid", F.logsigmoid, FLOATS, ulps=4, atol=1e-7, zeros=False)
row("logit", lambda x: torch.log(x.clamp(min=1e-5) / (1 - x).clamp(min=1e-5)), FLOATS[FLOATS.abs() < 1], ulps=4)
for name in ("abs", "neg", "sign", "square", "bitwise_not", "logical_not"):
    row(f"{name}, integers", getattr(torch, name), INTS)

# two numbers
row("atan2", torch.atan2, *FLOAT_PAIRS, ulps=2)
row("atan2 after sums", lambda y, x: torch.atan2(y * -1.0, x - 1), *FLOAT_PAIRS, ulps=2)
for name in ("add", "sub", "mul", "div", "minimum", "maximum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and"):
    row(name, getattr(torch, name), *FLOAT_PAIRS)
for name in ("add", "sub", "mul", "minimum", "maximum", "eq", "lt", "ge", "bitwise_and", "bitwise_or", "bitwise_xor"):
    row(f"{name}, integers", getattr(torch, name), *INT_PAIRS)
for name in ("remainder", "floor_divide", "div"):
    row(f"{name}, integers", getattr(torch, name), *DIVISIONS)
for name in ("remainder", "floor_divide"):
    row(name, getattr(torch, name), *QUOTIENTS, zeros=False)
for mode in ("floor", "trunc"):
    divide = functools.partial(torch.div, rounding_mode=mode)
    row(f"div, {mode}", divide, *QUOTIENTS, zeros=False)
    row(f"div, {mode}, integers", divide, *DIVISIONS)
    row(f"div, {mode}, by a number", lambda x, divide=divide: (divide(x, 0.3), divide(x, -2)), MODERATE, zeros=False)
    row(f"div, {mode}, integers by a number", lambda x, divide=divide: (divide(x, 3), divide(x, -80)), INTS)
    row(f"div, {mode}, integers by a float", lambda x, divide=divide: divide(x, 2.5), INTS[:7], zeros=False)
row("remainder of a number", lambda x: (x % 0.3, x % -2, x % INF, 7 % x), MODERATE, zeros=False)
row("remainder of integers by a number", lambda x: (x % 3, x % -80, x % MAX), INTS)
row("remainder of integers by a float", lambda x: x % 2.5, INTS[:7], zeros=False)
row("floor_divide by a number", lambda x: (x // 0.3, x // -2), MODERATE, zeros=False)
row("floor_divide of integers by a number", lambda x: (x // 3, x // -80, x // MAX), INTS)
row("pow", lambda x: (x**2, x**3, x**-1, x**0, x**2.5), FLOATS, ulps=8)
row("pow of a number", lambda x: (2.0**x, 10000**x, (-2) ** x, 0**x), FLOATS, ulps=8)
row("square root as a power", lambda x: x**0.5, FLOATS[FLOATS > 0], ulps=1)
row(
    "integers and floats",
    lambda x, y: (x >= y, x < y, x * y, x + y),
    tensor([1, 2, 2**24 + 1]),
    tensor([[1.0], [1.5], [2.0**24]]),
)
row("bools", lambda x, y: (x & y, x | y, x ^ y, ~x, x == y, x * 2, x + 1.5), *BOOLS)
row("0 added to -0.0", lambda x: x + 0, tensor([-0.0]), limit="ONNX Runtime removes additions of 0")

# limits
row("clamp", lambda x: x.clamp(-1, 1), FLOATS, zeros=False)
row("clamp, crossed", lambda x: x.clamp(1, -1), FLOATS, zeros=False)
row(
    "clamp at one end",
    lambda x: (x.clamp(min=0), x.clamp(min=0.5), x.clamp(max=0), x.clamp(max=-1)),
    FLOATS,
    zeros=False,
)
row("clamp_min, clamp_max", lambda x: (x.clamp_min(0), x.clamp_min(1), x.clamp_max(1)), FLOATS, zeros=False)
row("clamp, tensors", lambda x, y: (x.clamp(y, y + 1), x.clamp(min=y), x.clamp(max=y)), *FLOAT_PAIRS, zeros=False)
row("clamp_min, clamp_max, tensors", lambda x, y: (x.clamp_min(y), x.clamp_max(y)), *FLOAT_PAIRS, zeros=False)
row("clamp, integers", lambda x: (x.clamp(0, 5), x.clamp(min=0), x.clamp(max=-3)), INTS)
row(
    "clamp, a size",
    lambda x: (x.clamp(max=x.shape[1]), x.long().clamp(0, x.shape[0])),
    9 * GRID,
    others=[(torch.ones(5, 2) * 3,)],
)
row(
    "clamp, NaN as a limit", lambda x: x.clamp(min=NAN), FLOATS, limit="ONNX Runtime's Clip ignores limits that are NaN"
)

# choices
row("where", lambda x, y: torch.where(x > y, x, y), *FLOAT_PAIRS, zeros=False)
row(
    "where, numbers",
    lambda x: (torch.where(x > 0, x, -INF), torch.where(x > 0, NAN, x), torch.where(x > 0, 1, 0)),
    FLOATS,
    zeros=False,
)
row("where, integers", lambda x, y: (torch.where(x > y, x, y), x.masked_fill(x < y, MAX)), *INT_PAIRS)
row(
    "where, -0.0",
    lambda x: torch.where(x == 0, x, 1.0),
    tensor([-0.0]),
    limit="ONNX Runtime's Where returns 0.0 for -0.0",
)
row("masked_fill", lambda x: (x.masked_fill(x < 0, -INF), x.masked_fill(x.isnan(), 0)), FLOATS, zeros=False)

# conversions
row("floats to integers", lambda x: (x.long(), x.int(), x.bool()), MODERATE[MODERATE.isfinite()])
row("large floats to integers", lambda x: x.long(), tensor([9.2e18, -9.223372e18, 8388607.5, -0.99999994]))
row("NaN and infinities to integers and bools", lambda x: (x.long(), x.bool()), tensor([NAN, INF, -INF, 1e19, -1e19]))
row("integers to others", lambda x: (x.float(), x.bool(), x.int(), x.to(torch.uint8)), INTS)
row("bools to others", lambda x, y: (x.long(), y.float()), *BOOLS)

# reductions
LIMIT_OF_MAXIMA = "ONNX Runtime's ReduceMax and ArgMax ignore NaN, and a pass over all scores more would cost time"
for name in ("amax", "amin", "argmax", "argmin"):
    reduce = getattr(torch.Tensor, name)
    row(name, lambda x, reduce=reduce: (reduce(x, 1), reduce(x, 0, keepdim=True)), MATRIX, zeros=False)
    row(f"{name}, integers", lambda x, reduce=reduce: (reduce(x, 1), reduce(x, 0)), INT_MATRIX)
    row(f"{name}, NaN", lambda x, reduce=reduce: reduce(x, 1), WITH_NAN, limit=LIMIT_OF_MAXIMA)
for name in ("max", "min"):
    reduce = getattr(torch.Tensor, name)
    row(name, lambda x, reduce=reduce: [*reduce(x, 1), *reduce(x, 0, keepdim=True), reduce(x)], MATRIX, zeros=False)
    row(f"{name}, NaN", lambda x, reduce=reduce: [*reduce(x, 1)], WITH_NAN, limit=LIMIT_OF_MAXIMA)
row("sum, prod", lambda x: (x.sum(1), x.sum(), x.prod(1)), torch.cat([MATRIX[:, :3], WITH_NAN]), ulps=4)
row("sum, prod, empty", lambda x: (x.sum(1), x.sum(0), x.sum(), x.prod(1)), GRID[:, 1:] * 1, others=empty_rows())
row(
    "sum, integers",
    lambda x: (x.sum(1), x.prod(1), x.sum()),
    tensor([[1, -3], [2**40, 2**10]]),
    others=[(long(0, 3),), (long(3, 0),)],
)
row("sum, large integers", lambda x: x.sum(1), INT_MATRIX, limit="ONNX Runtime adds int64 as float64: exact to 2**53")
row("sum, bools", lambda x: (x.sum(1), x.sum(1, dtype=torch.float32), x.cumsum(0)), MASK)
row("mean", lambda x: (x.mean(1), x.mean((0, 1), keepdim=True), x.mean(), x.mean(dtype=torch.float64)), MATRIX, ulps=4)
row(
    "mean, empty",
    lambda x: (x.mean(1), x.mean(-1, keepdim=True), x.mean((0, 1)), x.mean()),
    GRID[:2],
    others=empty_rows(),
    ulps=4,
)
row("any, all", lambda x: (x.any(), x.all(), x.any(1), x.all(0, keepdim=True), x.any((0, 1)), x.all((0, 1))), MASK)
row("any, all, numbers", lambda x: (x.any(1), x.all(1), x.any(), x.all(), (x[0, 0] > 2).any()), WITH_NAN)
row(
    "any, all, empty",
    lambda x: (x.any(), x.all(), x.any(1), x.all(1), x.any(0, keepdim=True), x.any((0, 1))),
    MASK[:2],
    others=[(MASK[:0],), (MASK[:, :0],)],
)
row("cumsum", lambda x: (x.cumsum(1), x.cumsum(0)), tensor([[1, INF, -INF, 2], [NAN, 1, 2, 3]]))
row("cumsum, integers", lambda x: x.cumsum(1), INT_MATRIX)
row("cumsum, empty", lambda x: x.cumsum(0), GRID[:2], others=empty_rows())
row("cummax, cummin", lambda x: [*torch.cummax(x, 1), *torch.cummin(x, 0)], WITH_NAN, zeros=False)
for p in (1, 2, INF, 0):
    row(
        f"vector_norm {p}",
        lambda x, p=p: torch.linalg.vector_norm(x, ord=p, dim=1),
        tensor([[0, -0.0], [INF, 1], [3, -4]]),
        ulps=4,
    )
row("vector_norm, empty", lambda x: x.norm(dim=1), GRID[:2], others=empty_rows(), ulps=4)
row("normalize", lambda x: F.normalize(x, dim=1), tensor([[0, -0.0], [1e-8, 1e-8], [NAN, 1], [3, -4]]), ulps=4)
SOFTMAX = tensor(
    [[1, 2, 3.0], [-INF, 0, 1], [-INF, -INF, -INF], [INF, 0, 1], [NAN, 0, 1], [3.4e38, -3.4e38, 0], [1e3, 0, -1e3]]
)
row("softmax", lambda x: (x.softmax(1), x.softmax(0), x.log_softmax(1), x.logsumexp(1)), SOFTMAX, ulps=8)
row("softmax, empty", lambda x: (x.softmax(1), x.softmax(0)), GRID[:2], others=empty_rows(), ulps=8)
row(
    "layer_norm",
    lambda x: F.layer_norm(x, (4,), torch.ones(4) * 2, torch.ones(4)),
    tensor([[1.0] * 4, [0] * 4, [1, 2, 3, 4], [INF, 1, 1, 1], [NAN, 1, 1, 1]]),
    ulps=16,
)
row(
    "group_norm",
    lambda x: F.group_norm(x, 2, torch.ones(4) * 2, torch.ones(4)),
    torch.stack([torch.ones(4, 2, 2), torch.zeros(4, 2, 2)]),
    ulps=16,
)
row("batch_norm", lambda x: F.batch_norm(x, tensor([0, INF, 1]), tensor([0, 1, INF])), IMAGE, ulps=16)
FOUR = torch.arange(1.0, 5)


def four(x: torch.Tensor, dim: int = 1) -> torch.Tensor:
    """Return four channels, as dimensions of other sizes are dynamic."""
    return torch.stack([x, x + 1, x * 2, -x], dim)


for name, call in {
    "group_norm": lambda x: F.group_norm(four(x), 2, FOUR, FOUR),
    "group_norm without weights": lambda x: F.group_norm(four(x), 2),
    "group_norm of vectors": lambda x: F.group_norm(four(x)[:, :, 0, 0], 2, FOUR, FOUR),
    "layer_norm": lambda x: F.layer_norm(four(x, -1), (4,), FOUR, FOUR),
    "batch_norm": lambda x: F.batch_norm(four(x), FOUR, FOUR, FOUR, FOUR),
    "instance_norm": lambda x: F.instance_norm(four(x)),  # with weights torch takes no empty batch
}.items():
    others = [(seeded(0, 3, 5),), (seeded(1, 4, 2),)]
    row(f"{name}, empty batch", call, seeded(2, 3, 5), others=others, ulps=16, atol=1e-5)

# order
LIMIT_OF_TIES = "of equal elements torch may take any; ONNX Runtime takes the first"
row(
    "topk",
    lambda x: [*x.topk(3), *x.topk(2, largest=False)],
    tensor([[1, INF, -INF, 0.5], [3, -1, 2, 7], [0.0, 1, NAN, -1]]),
)
row(
    "topk, dynamic",
    lambda x: [*x.topk(min(3, x.shape[1]))],
    seeded(4, 9),
    others=[(seeded(0, 9),), (seeded(3, 1),), (seeded(3, 0),)],
)
row("topk, k = 0", lambda x: [*x.topk(0)], GRID)
row("topk, ties", lambda x: x.topk(3)[0], MATRIX, zeros=False)
row("topk, order of ties", lambda x: x.topk(3)[1], MATRIX, limit=LIMIT_OF_TIES)
row("sort", lambda x: [*x.sort(1), *x.sort(0, descending=True)], tensor([[1, INF, -INF], [3, -1, NAN], [0.5, 7, 2]]))
row("sort, empty", lambda x: [*x.sort(1)], GRID[:2], others=empty_rows())
row(
    "sort, stable",
    lambda x: [*x.sort(dim=1, stable=True), *x.sort(dim=1, stable=True, descending=True)],
    MATRIX,
    zeros=False,
)
row("sort, stable, integers", lambda x: [*x.sort(dim=1, stable=True)], INT_MATRIX)
row(
    "unique",
    lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    tensor([3, 1, 1, MAX, MIN]),
    others=[(long(0),)],
)
VALUES = tensor([-INF, -2, -1, -0.0, 0, 1, 2, INF, NAN])
BOUNDARIES = tensor([-INF, -1.0, 0.0, 0.0, 2.0, INF])
row("searchsorted", lambda b, v: (torch.searchsorted(b, v), torch.searchsorted(b, v, right=True)), BOUNDARIES, VALUES)
row(
    "searchsorted, empty",
    torch.searchsorted,
    BOUNDARIES,
    VALUES,
    others=[(torch.zeros(0), VALUES), (BOUNDARIES, torch.zeros(0))],
)
row("bucketize", lambda b, v: (torch.bucketize(v, b), torch.bucketize(v, b, right=True)), BOUNDARIES, VALUES)
row("isin", lambda x, y: torch.isin(x, y), tensor([1, NAN, 0.0]), tensor([NAN, -0.0]))

# elements
INDICES = tensor([0, -1, 2, -3])
row("index", lambda x, i: (x[i], x[:, i], x[i, i], x[:, None, i], x[i[:, None], i[None]], x[i, 1:3]), GRID, INDICES)
row("index, empty", lambda x, i: (x[i], x[:, i]), GRID, INDICES, others=[(GRID, long(0)), (torch.zeros(5, 6), INDICES)])
row(
    "index, a mask",
    lambda x, m: x[m],
    GRID,
    tensor([True, False, True]),
    others=[(torch.ones(4, 3), torch.zeros(4) > 1), (torch.ones(0, 3), torch.ones(0) > 0)],
)
row(
    "index_select",
    lambda x, i: x.index_select(0, i),
    GRID,
    tensor([0, 2, 1]),
    others=[(GRID, long(0)), (torch.zeros(0, 4), long(0))],
)
row(
    "gather",
    lambda x, i: x.gather(1, i),
    GRID,
    tensor([[0, 1], [3, 2], [1, 1]]),
    others=[(GRID, long(3, 0)), (torch.zeros(0, 4), long(0, 2))],
)
row(
    "scatter",
    lambda x, i, s: (x.scatter(1, i, s), x.scatter(1, i, 7.0), x.scatter_add(1, i, s)),
    GRID,
    tensor([[0, 1], [3, 2], [1, 0]]),
    seeded(3, 2),
)
row(
    "scatter, empty",
    lambda x, i, s: (x.scatter(0, i, s), x.scatter_add(0, i, s)),
    torch.zeros(5),
    tensor([1, 2]),
    torch.ones(2),
    others=[(torch.zeros(5), long(0), torch.ones(0))],
)
row(
    "scatter_add, repeated",
    lambda x, i, s: x.scatter_add(1, i, s),
    GRID,
    tensor([[0, 0], [3, 3], [1, 0]]),
    torch.ones(3, 2),
)
for reduction in ("sum", "prod", "amax", "amin"):
    row(
        f"scatter_reduce {reduction}",
        lambda x, i, s, r=reduction: (x.scatter_reduce(1, i, s, r), x.scatter_reduce(1, i, s, r, include_self=False)),
        GRID,
        tensor([[0, 0], [3, 2], [1, 1]]),
        tensor([[5, INF], [-5, 1], [2.0, 3]]),
    )
row(
    "index_put",
    lambda x, i, v: (torch.index_put(x, (i,), v), torch.index_put(x, (i * 0,), v * 0 + 1, accumulate=True)),
    GRID,
    tensor([0, -1]),
    torch.ones(2, 4),
)
row(
    "index_put, two",
    lambda x, i, j, v: torch.index_put(x, (i, j), v),
    GRID,
    tensor([0, -1]),
    tensor([-1, 1]),
    tensor([8.0, NAN]),
)
row(
    "index_put, accumulated",
    lambda x, i, v: torch.index_put(x, (i,), v, accumulate=True),
    GRID,
    tensor([-1, -1]),
    torch.ones(2, 4),
)
row(
    "index_put, empty",
    lambda x, i: torch.index_put(x, (i,), tensor(True)),
    torch.zeros(5) > 1,
    tensor([1, 3]),
    others=[(torch.zeros(5) > 1, long(0))],
)
row(
    "index_put, a mask",
    lambda x, m: torch.index_put(x, (m,), tensor(-1.0)),
    GRID,
    tensor([True, False, True]),
    others=[(GRID, torch.zeros(3) > 1)],
)
row(
    "masked_select",
    lambda x, m: x.masked_select(m),
    tensor([[1.0, -0.0, NAN]] * 3),
    MASK,
    others=[(torch.ones(0, 3), MASK[:0]), (torch.ones(3, 3), MASK & False)],
)
row("nonzero", torch.nonzero, WITH_NAN)
row("nonzero, empty", lambda x: (torch.nonzero(x), *torch.where(x)), MASK[:2], others=[(MASK[:0],), (MASK & False,)])
row("one_hot", lambda x: F.one_hot(x, 4), tensor([0, 3, 1]), others=[(long(0),)])
row("select, slice", lambda x: (x[-1], x[:, -2], x[-2:], x[:, -3:-1], x[1:100], x[5:], x[2:1], x[:, ::2]), GRID)
row("slice, dynamic", lambda x: (x[-2:], x[:, -3:-1], x[1:100], x[:, ::2]), GRID, others=empty_rows())


# shapes
def sizes(x: torch.Tensor) -> list[torch.Tensor]:
    h, w = x.shape
    return [x.sum() * 0 + size for size in (-(-h // 2), -h % 4, (h - 7) // 3, (3 - w) // 4, (2 - h) % 3, h // 2 * 2)]


row(
    "arithmetic of sizes",
    sizes,
    torch.rand(5, 9),
    others=[(torch.rand(6, 2),), (torch.rand(9, 9),), (torch.rand(8, 20),)],
)
row(
    "arange",
    lambda x: [torch.arange(x.shape[0]) + x[:, 0] * 0, torch.arange(0, x.shape[0], 2), torch.arange(x.shape[1], 0, -1)],
    GRID[:2],
    others=[(torch.ones(1, 7),), (torch.ones(9, 2),)],
)
row(
    "full",
    lambda x: (torch.full((x.shape[0],), -INF), x.new_full((2, x.shape[0]), 7), torch.full((x.shape[0],), 2**53 + 1)),
    GRID[:2],
    others=empty_rows(),
)
row(
    "reshape",
    lambda x: (x.flatten(1), x.flatten(0, 1), x.transpose(0, 2), x.unflatten(2, (2, -1)), x[None]),
    seeded(2, 3, 4),
    others=[(seeded(0, 3, 4),), (seeded(1, 3, 6),)],
)
row(
    "cat, stack",
    lambda x, y: (torch.cat([x, y]), torch.cat([x, y, x]), torch.stack([x, x], -1)),
    GRID[:2],
    GRID,
    others=[(GRID[:0], GRID), (GRID[:0], GRID[:0])],
)
row("split", lambda x: [*x.split(2, 1), *x.split([1, 3], 1), *x.chunk(3, 1), *x.unbind(1)], GRID)
row(
    "expand, repeat",
    lambda x: (x[None].expand(2, -1, -1), x.repeat(2, 3), x.repeat_interleave(2, 0)),
    GRID[:2],
    others=empty_rows(columns=False),
)
row("repeat_interleave", lambda x, r: x.repeat_interleave(r, 0), tensor([1.0, 2, 3]), tensor([2, 0, 1]))
row(
    "roll, flip",
    lambda x: (x.roll(1, 0), x.roll((-1, 3), (0, 1)), x.flip(0), x.flip((0, 1))),
    GRID[:2],
    others=[(torch.ones(1, 7),), (torch.ones(5, 1),)],
)
row(
    "meshgrid",
    lambda x, y: [*torch.meshgrid(x, y, indexing="ij"), x[:, None] < y[None]],
    seeded(3),
    seeded(4),
    others=[(seeded(0), seeded(4)), (seeded(1), seeded(1))],
)
row(
    "pad",
    lambda x: (
        F.pad(x, (1, 2, 0, 1), value=-INF),
        F.pad(x, (-1, 2)),
        F.pad(x, (1, 1, 1, 1), "reflect"),
        F.pad(x, (1, 1, 1, 1), "replicate"),
    ),
    IMAGE,
)
row(
    "pad to a multiple",
    lambda x: F.pad(x, (0, -x.shape[3] % 4, 0, -x.shape[2] % 4)),
    IMAGE,
    others=[(seeded(1, 3, 8, 8),), (seeded(0, 3, 5, 5),), (seeded(1, 3, 3, 1),)],
)
row(
    "pixel_shuffle",
    lambda x: F.pixel_shuffle(x, 2),
    seeded(2, 8, 3, 4),
    others=[(seeded(0, 8, 3, 4),), (seeded(1, 8, 1, 1),)],
)
row(
    "unfold",
    lambda x: F.unfold(x, 3, padding=1, stride=2),
    IMAGE,
    others=[(seeded(1, 3, 5, 6),), (seeded(1, 3, 3, 3),)],
)
row("tril, triu", lambda x: (x.tril(), x.triu(1)), tensor([[NAN, INF, 1], [1, -INF, -0.0], [2, NAN, 0]]))

# products
row(
    "matmul, empty",
    torch.matmul,
    seeded(3, 4),
    seeded(4, 5),
    others=[(seeded(0, 4), seeded(4, 5)), (seeded(3, 0), seeded(0, 5))],
    atol=1e-5,
)
row(
    "bmm, empty",
    torch.bmm,
    seeded(2, 3, 4),
    seeded(2, 4, 5),
    others=[(seeded(0, 3, 4), seeded(0, 4, 5)), (seeded(2, 3, 0), seeded(2, 0, 5))],
    atol=1e-5,
)
row(
    "addmm, baddbmm",
    lambda c, a, b: (torch.addmm(c, a, b, beta=0.5, alpha=2), torch.baddbmm(c[None], a[None], b[None])),
    seeded(3, 5),
    seeded(3, 4),
    seeded(4, 5),
    atol=1e-5,
)
row("matmul, infinities", torch.matmul, tensor([[INF, 0], [NAN, 1], [0, 0]]), tensor([[0.0, 1], [1, INF]]))
row(
    "cdist",
    lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, p=1)),
    tensor([[0, 0.0], [NAN, 1], [1, 1]]),
    tensor([[0, 0.0], [INF, 1]]),
    ulps=4,
)

# images
for name, settings in {"padded": {"padding": 1}, "ceil_mode": {"ceil_mode": True}, "dilated": {"dilation": 2}}.items():
    row(
        f"max_pool2d, {name}",
        lambda x, settings=settings: F.max_pool2d(x, 3, 2, **settings),
        IMAGE,
        others=[(seeded(1, 3, 6, 5),), (seeded(0, 3, 6, 5),), (seeded(1, 3, 8, 12),)],
    )
    if name != "dilated":
        row(
            f"avg_pool2d, {name}",
            lambda x, settings=settings: (
                F.avg_pool2d(x, 3, 2, **settings),
                F.avg_pool2d(x, 3, 2, count_include_pad=False, **settings),
            ),
            IMAGE,
            others=[(seeded(1, 3, 6, 5),), (seeded(1, 3, 8, 12),)],
            atol=1e-6,
        )
row("max_pool2d, -inf", lambda x: F.max_pool2d(x, 5, 1, 2), HOLES)
row(
    "max_pool2d of -inf only",
    lambda x: F.max_pool2d(x, 3, 1, 1),
    torch.full((1, 1, 4, 4), -INF),
    limit="ONNX Runtime's MaxPool begins at the lowest float",
)
row(
    "max_pool2d, NaN",
    lambda x: F.max_pool2d(x, 3),
    tensor([[[[1, 2, 3], [4, NAN, 6], [7, 8, 9]]]]),
    limit="ONNX Runtime's MaxPool ignores NaN",
)
row(
    "adaptive_avg_pool2d",
    lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool2d(x, (9, 11))),
    IMAGE,
    others=[(seeded(1, 3, 5, 6),), (seeded(1, 3, 2, 3),)],
    atol=1e-6,
)
for mode in ("nearest", "bilinear"):
    row(
        f"interpolate, {mode}",
        lambda x, y, mode=mode: F.interpolate(x, y.shape, mode=mode),
        IMAGE,
        seeded(14, 18),
        others=[
            (seeded(1, 3, 5, 6), seeded(11, 7)),
            (seeded(2, 3, 1, 3), seeded(5, 5)),
            (seeded(2, 3, 60, 75), seeded(49, 67)),
        ],
        atol=4e-5,  # twice the error of torch, which rounds coordinates up to 75
    )
    row(
        f"interpolate, {mode}, by a factor",
        lambda x, mode=mode: (
            F.interpolate(x, scale_factor=2, mode=mode),
            F.interpolate(x, scale_factor=0.5, mode=mode),
            F.interpolate(x, scale_factor=1.5, mode=mode),
        ),
        IMAGE,
        others=[(seeded(1, 3, 5, 6),)],
        atol=1e-5,
    )
row("interpolate, nearest, infinities", lambda x: F.interpolate(x, (13, 5)), HOLES)
POINTS = tensor([[[[-1, -1], [1, 1], [0, 0], [-1.2, 0.3], [1.2, -5], [-0.99999, 0.99999], [0.25, -0.25]]]]).expand(
    2, -1, -1, -1
)
for mode, padding in (("bilinear", "zeros"), ("bilinear", "border"), ("bilinear", "reflection"), ("nearest", "zeros")):
    row(
        f"grid_sample, {mode}, {padding}",
        lambda x, g, mode=mode, padding=padding: (
            F.grid_sample(x, g, mode, padding, False),
            F.grid_sample(x, g, mode, padding, True),
        ),
        IMAGE,
        POINTS,
        atol=1e-5,
    )
row(
    "grid_sample, NaN and infinities",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    IMAGE,
    tensor([[[[INF, 0], [NAN, 0]]]] * 2),
    limit="ONNX Runtime's GridSample takes such coordinates as others",
)


def tensors(results: Any) -> list[torch.Tensor]:
    """Return the tensors in nested sequences."""
    return [results] if isinstance(results, torch.Tensor) else [x for part in results for x in tensors(part)]


class Model(torch.nn.Module):
    """Some rows, each with its own inputs."""

    def __init__(self, rows: list[Row]) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, inputs: list[tuple[torch.Tensor, ...]]) -> list[list[torch.Tensor]]:
        return [tensors(row.call(*arguments)) for row, arguments in zip(self.rows, inputs, strict=True)]


def arguments_of(row: Row, number: int) -> tuple[torch.Tensor, ...]:
    """Return the example, or arguments of another size; a row that has no more begins again."""
    return (row.inputs, *row.others)[number % (1 + len(row.others))]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Export all rows, and return the file's results: for each set of arguments and each row the tensors."""
    example = [tuple(x.clone() for x in row.inputs) for row in ROWS]  # an input used twice would be one input
    axes = [
        tuple(dict.fromkeys(range(x.ndim), torch.export.Dim.DYNAMIC) if row.others else {} for x in row.inputs)
        for row in ROWS
    ]
    path = tmp_path_factory.mktemp("special_values") / "rows.onnx"
    pairs = list(dynamic_axes(example, axes))
    names = [f"input_{number}" for number in range(len(pairs))]
    dynamo(Example(Model(ROWS).eval(), (example,), (axes,), pairs, names), path, Options())
    session = mmort.ort.session(path)
    found = []
    for number in range(1 + max(len(row.others) for row in ROWS)):
        feeds = [x.numpy() for row in ROWS for x in arguments_of(row, number)]
        outputs = iter(session.run(None, dict(zip(names, feeds, strict=True))))
        found.append([[next(outputs) for _ in tensors(row.call(*row.inputs))] for row in ROWS])
    return found


def differences(row: Row, expected: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Return where the file's numbers are not torch's."""
    if expected.dtype.kind != "f":
        return actual != expected
    same = (actual == expected) & ~(row.zeros & (np.signbit(actual) != np.signbit(expected)))
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(actual - expected) <= row.atol + row.ulps * np.spacing(np.abs(expected))
    near &= np.isfinite(expected) & ~((expected == 0) & (actual == 0))
    return ~(same | near | (np.isnan(actual) & np.isnan(expected)))


def problems(row: Row, results: list[list[np.ndarray]]) -> list[str]:
    """Return the numbers that differ, for each set of arguments and each output."""
    found = []
    for number, outputs in enumerate(results[: 1 + len(row.others)]):
        arguments = arguments_of(row, number)
        for expected, actual in zip(tensors(row.call(*arguments)), outputs, strict=True):
            if (actual.dtype, actual.shape) != (expected.numpy().dtype, expected.shape):
                found.append(f"{row.name}: torch {expected.dtype} {expected.shape}, file {actual.dtype} {actual.shape}")
            elif (differs := differences(row, expected.numpy(), actual)).any():
                given = [x[differs].tolist()[:9] for x in arguments if x.shape == expected.shape]
                found.append(f"{row.name} {given}: torch {expected.numpy()[differs][:9]}, file {actual[differs][:9]}")
    return found


def test_torch_and_file_are_equal(results):
    """One test for all rows, as each worker of pytest would export them again; what rows with a limit give is open."""
    rows = [(index, row) for index, row in enumerate(ROWS) if not row.limit]
    assert [text for index, row in rows for text in problems(row, [outputs[index] for outputs in results])] == []
