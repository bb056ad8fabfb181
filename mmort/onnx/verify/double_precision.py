"""Runs of a torch model in float64, and in float32 with other rounding: the yardstick of what rounding does to outputs.

Nothing of the model is changed: the arguments of each operator are converted when it is called.  So parameters, buffers
and constants of all kinds follow, and dtypes that the code names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mmort.onnx.verify.operator_calls import Intercepted, arguments_by_name

MAX_COLUMNS = 1 << 24
"""How many numbers a convolution may unfold its input into at once: 128 MB."""

_CONVOLUTION = torch.ops.aten.convolution.default
_SIGMOID = torch.ops.aten.sigmoid.default
_MEANS = torch.ops.aten.mean.default, torch.ops.aten.mean.dim
_SUMS = _CONVOLUTION, *_MEANS, *(getattr(torch.ops.aten, name).default for name in ("addmm", "baddbmm", "bmm", "mm"))
"""Operators that add up terms, which ONNX Runtime does in order, or in blocks, and torch in a tree."""

_ARITHMETIC = {
    "aten": "add addmm baddbmm bmm convolution cos div exp log mean mm mul pow rsqrt sigmoid sin _softmax sqrt sub "
    "tanh",
    "mmort": "deform_conv2d modulated_deform_conv2d multi_scale_deformable_attention roi_align",
}
ROUNDED = frozenset(f"{namespace}::{name}" for namespace, names in _ARITHMETIC.items() for name in names.split())
"""Operators whose rounding differs from one implementation to another: sums in any order, products, functions."""

_GROUP_NORM, _LAYER_NORM = torch.ops.aten.native_group_norm.default, torch.ops.aten.native_layer_norm.default
_NORMALIZATIONS = (
    _GROUP_NORM,
    _LAYER_NORM,
    *(getattr(torch.ops.aten, name).default for name in ("native_batch_norm", "_native_batch_norm_legit_no_training")),
)
"""Operators that subtract a mean: rounding of their input counts, which may be far larger than its deviation."""

_GATES = torch.ops.aten.silu.default, torch.ops.aten.gelu.default
"""Products of a number and a sigmoid of it."""

BLOCK = 16
"""The square root of the number of terms that are summed up before sums are."""

LENGTH = 1_000_003
"""How many numbers of noise are drawn: no multiple of the rows of a tensor, which so have different noise."""

GRID = 64
"""Numbers that are a multiple of its reciprocal, such as coordinates of cells, are taken to be exact."""


@contextmanager
def in_float64() -> Iterator[None]:
    """Let all operators in the block compute in float64 what they would compute in float32."""
    with Intercepted(_call), _Widening():
        yield


def rounded_otherwise(seed: int) -> Intercepted:
    """Return a context manager in which results are rounded otherwise than they are, in the same way for a seed."""
    noise = _Noise(seed)

    def call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func in _NORMALIZATIONS and args[0].dtype == torch.float32:
            results = func(noise(args[0]).mul_(args[0]).add_(args[0]), *args[1:], **kwargs)
            if func in (_GROUP_NORM, _LAYER_NORM) and args[0].numel():
                results[0].add_(noise(results[0]).mul_(_size_of_means(arguments_by_name(func, args, kwargs), *results)))
            return results
        result = func(*args, **kwargs)
        if func in _GATES and result.dtype == torch.float32:
            return noise(result).mul_(result.abs() + args[0].abs() / 4).add_(result)
        if func._schema.name not in ROUNDED or func._schema.is_mutable or result.dtype != torch.float32:
            return result
        if func in _SUMS and result.numel():
            return noise(result).mul_(result.abs().add_(_size_of_terms(func, args, kwargs))).add_(result)
        if func is _SIGMOID:  # ONNX Runtime adds a half last, so that a tiny result is as far off as a large one
            return noise(result).mul_(result + 0.25).add_(result).clamp_(0, 1)
        scaled = result * GRID
        return noise(result).mul_(result.abs()).masked_fill_(scaled == scaled.round(), 0).add_(result)

    return Intercepted(call)


class _Noise:
    """Normal noise of the size of float32's rounding: parts of one row, as drawing all numbers takes long."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._row = torch.randn(LENGTH, generator=self._generator) * torch.finfo(torch.float32).eps

    def __call__(self, tensor: Tensor) -> Tensor:
        """Return noise for a tensor, which may be changed."""
        begin = int(torch.randint(LENGTH, (), generator=self._generator))
        end = begin + tensor.numel()
        rows = [self._row] * -(-end // LENGTH)
        rows[-1] = rows[-1][: (end - 1) % LENGTH + 1]
        rows[0] = rows[0][begin:]
        return torch.cat(rows).reshape(tensor.shape)


def _size_of_terms(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    """Return how large the terms of a mean or of a sum of products are, for each output; they may cancel each other.

    Of many terms in order, each sum is rounded, and sums grow.
    """
    if func is _CONVOLUTION:
        weight, groups = args[1], args[8]
        terms, size = weight[0].numel(), _size_in_convolution(args[0], weight, args[6], groups)
    elif func in _MEANS:
        arguments = arguments_by_name(func, args, kwargs)
        input, axes = arguments["self"], arguments.get("dim") or [*range(args[0].ndim)]
        size = input.square().mean(axes, arguments.get("keepdim", False)).sqrt()
        terms = input.numel() // size.numel()
    else:
        input, weight = args[-2:]
        norms = weight.norm(dim=-2, keepdim=weight.ndim > 2)
        terms, size = weight.shape[-2], input.square().mean(-1, keepdim=True).sqrt() * norms
    return size * _of_order(terms)


def _of_order(terms: int) -> float:
    """Return how many times a sum of that many terms is rounded more if they are added in order."""
    return max(1.0, terms**0.5 / BLOCK)


def _size_of_means(arguments: Mapping[str, Any], result: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Return the size of the mean that a normalization of many numbers subtracts, for each output; 0 for few numbers.

    Its rounding is divided by the deviation, and multiplied by a weight.
    """
    terms, weight = result.numel() // mean.numel(), arguments["weight"]
    if terms <= BLOCK**2:
        return torch.zeros(())
    size = (mean * scale).square().add_(1).sqrt_() * _of_order(terms)
    if "group" not in arguments:
        return size if weight is None else size * weight.abs()
    images, groups = mean.shape
    size = size[..., None].expand(images, groups, arguments["C"] // groups).reshape(images, -1)
    return (size if weight is None else size * weight.abs()).reshape(images, -1, *[1] * (result.ndim - 2))


def _size_in_convolution(input: Tensor, weight: Tensor, transposed: bool, groups: int) -> Tensor:
    """Return how large the terms of a convolution's sums are, for each image and channel of the output."""
    batch = input if input.ndim == weight.ndim else input[None]
    powers = batch.square().flatten(2).mean(2).reshape(len(batch), groups, -1)
    squares = weight.square().flatten(2).sum(2).reshape(groups, -1, weight.shape[1])
    sums = torch.einsum("ngi,gio->ngo" if transposed else "ngi,goi->ngo", powers, squares)
    size = sums.flatten(1).sqrt().reshape(len(batch), -1, *[1] * (weight.ndim - 2))
    return size if input.ndim == weight.ndim else size[0]


class _Widening(TorchFunctionMode):
    """Converts the arguments of functions that compare dtypes before they call an operator, such as convolutions."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not getattr(func, "__name__", "_").endswith("_"):  # those change their first argument
            args, kwargs = _widened(args), _widened(kwargs)
        return func(*args, **(kwargs or {}))


def _call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call an operator with wider arguments."""
    if func._schema.is_mutable:
        _refuse_float32(func, args, kwargs)
    args, kwargs = _widened(args), _widened(kwargs)
    if func is _CONVOLUTION:
        return _convolution(arguments_by_name(func, args, kwargs))
    return _widened(func(*args, **kwargs))


def _widened(value: Any) -> Any:
    """Return float64 for float32, both of tensors and of dtypes, also in the collections that calls have."""
    if isinstance(value, Tensor):
        return value.double() if value.dtype == torch.float32 else value
    kind = type(value)
    if kind is tuple or kind is list:
        return kind(map(_widened, value))
    if kind is dict:
        return {key: _widened(item) for key, item in value.items()}
    return torch.float64 if value is torch.float32 else value


def _refuse_float32(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse to change a tensor of float32, of which only a copy would change."""
    values = arguments_by_name(func, args, kwargs)
    for formal in func._schema.arguments:
        value = values[formal.name]
        written = formal.alias_info is not None and formal.alias_info.is_write
        if written and isinstance(value, Tensor) and value.dtype == torch.float32:
            raise TypeError(f"{func.name()} changes a tensor of the model")


def _convolution(arguments: Mapping[str, Any]) -> Tensor:
    """Convolve strip by strip: torch unfolds the input of a convolution in float64, which takes gigabytes."""
    input, weight, strides, dilation = (arguments[name] for name in ("input", "weight", "stride", "dilation"))
    if input.ndim != 4 or arguments["transposed"] or 0 in input.shape:
        return _called(arguments)
    above, beside = arguments["padding"] if len(arguments["padding"]) == 2 else arguments["padding"] * 2
    stride, reach = strides[0], dilation[0] * (weight.shape[2] - 1) + 1
    rows = (input.shape[2] + 2 * above - reach) // stride + 1
    columns = weight[0].numel() * input.shape[3]  # of a row of an image
    strip = max(1, MAX_COLUMNS // columns)
    if strip >= rows * len(input):
        return _called(arguments)
    padded = F.pad(input, (0, 0, above, above))
    return torch.cat([
        torch.cat([
            _called({
                **arguments,
                "input": image[None, :, stride * first : stride * (min(first + strip, rows) - 1) + reach],
                "padding": [0, beside],
            })
            for first in range(0, rows, strip)
        ], 2)
        for image in padded
    ])  # fmt: skip


def _called(arguments: Mapping[str, Any]) -> Tensor:
    """Convolve."""
    result: Tensor = _CONVOLUTION(*arguments.values())
    return result
