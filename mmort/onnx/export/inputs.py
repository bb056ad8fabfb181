"""The inputs that an exported model is checked with: other batches and sizes than the example's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

import torch

from mmort.onnx.verify.values import leaves, shape_text

DynamicAxes = tuple[torch.Tensor, dict[int, Any]]
"""A tensor of the example, and for each of its dynamic axes the dimension: a name or torch.export's ``Dim``."""


@dataclass
class Symbol:
    """A size that several axes share, and the range that it may vary in."""

    size: int
    """The size in the example."""
    min_size: int
    max_size: int | None
    check_sizes: list[int] = field(default_factory=list)

    def choose(self, *sizes: int) -> None:
        """Set the sizes to check with, clipped to the range."""
        clipped = sizes if self.max_size is None else (min(size, self.max_size) for size in sizes)
        self.check_sizes = [max(self.min_size, size) for size in clipped]


def argument_names(function: Callable[..., Any], count: int) -> list[str]:
    """Return the names of a function's first arguments, numbered where they have none."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # a built-in function
        parameters = []
    positional = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
    names = [parameter.name for parameter in parameters if parameter.kind in positional]
    return names[:count] + [f"input_{index}" for index in range(len(names), count)]


def by_argument(dynamic_shapes: Any, names: Sequence[str]) -> list[Any]:
    """Return the dynamic shapes of each argument, whether they were given in order or by name."""
    if dynamic_shapes is None:
        return [None] * len(names)
    if isinstance(dynamic_shapes, Mapping):
        unknown = set(dynamic_shapes) - set(names)
        if unknown:
            raise ValueError(f"export: dynamic_shapes must name {', '.join(names)}, got {', '.join(sorted(unknown))}")
        return [dynamic_shapes.get(name) for name in names]
    if len(dynamic_shapes) != len(names):
        raise ValueError(
            f"export: dynamic_shapes must have length {len(names)}, an entry per argument, got {len(dynamic_shapes)}"
        )
    return list(dynamic_shapes)


def dynamic_axes(value: Any, spec: Any) -> Iterator[DynamicAxes]:
    """Yield each tensor in an argument with its dynamic axes."""
    if isinstance(value, torch.Tensor):
        axes = dict(spec) if isinstance(spec, Mapping) else dict(enumerate(spec or ()))
        yield value, {axis % value.ndim: dim for axis, dim in axes.items() if is_dynamic(dim)}
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from dynamic_axes(item, spec.get(key) if spec else None)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from dynamic_axes(item, spec[index] if spec else None)


def is_dynamic(dim: Any) -> bool:
    """Return whether a dimension is to be dynamic."""
    return not (dim is None or isinstance(dim, int) or dim is torch.export.Dim.STATIC)


def check_inputs(
    args: tuple[Any, ...], axes: Sequence[DynamicAxes], check_sizes: Sequence[Any] | None, names: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Return the inputs to check with: the example, and those of `check_sizes` or, by default, two other sets."""
    if check_sizes is not None:
        checks = given(args, check_sizes, names)
        require_other_sizes(axes, checks, names)
    else:
        shapes = [tensor.shape for tensor, _ in axes]
        checks = derive(args, axes) or [resized(args, shapes, seed) for seed in range(2)]
    return [args, *checks]


def derive(args: Sequence[Any], axes: Sequence[DynamicAxes]) -> list[tuple[Any, ...]]:
    """Make two sets of inputs of other sizes along the dynamic axes; none if no axis is dynamic.

    Axes of the same name share a size; without names, those at the same axis with the same size do.  The first set has
    larger batches and counts than the example, the second smaller ones (or, where that is impossible, even larger
    ones).  A tensor whose last two axes are dynamic is an image: wider than high in the first set, higher than wide in
    the second.  Its sides are a quarter shorter and longer than the example's, and odd, so not multiples of a stride.
    """
    symbols: dict[Any, Symbol] = {}
    keys = [{axis: _key(axis, tensor.shape[axis], dim) for axis, dim in dynamic.items()} for tensor, dynamic in axes]
    for (tensor, dynamic), names in zip(axes, keys, strict=True):
        for axis, dim in dynamic.items():
            symbols.setdefault(names[axis], _symbol(tensor.shape[axis], dim))
    for (tensor, _), names in zip(axes, keys, strict=True):
        height, width = (symbols.get(names.get(tensor.ndim + axis)) for axis in (-2, -1))
        if height is not None and width is not None and height is not width:
            _choose_images(height, width)
    if not symbols:
        return []
    shapes = [
        [
            [
                symbols[names[axis]].check_sizes[check] if axis in names else size
                for axis, size in enumerate(tensor.shape)
            ]
            for (tensor, _), names in zip(axes, keys, strict=True)
        ]
        for check in range(2)
    ]
    return [resized(args, check_shapes, seed) for seed, check_shapes in enumerate(shapes)]


def _symbol(size: int, dim: Any) -> Symbol:
    """Return the symbol of a dimension, with a larger size to check with and, where possible, a smaller one."""
    min_size, max_size = getattr(dim, "min", None), getattr(dim, "max", None)
    symbol = Symbol(size, max(1, min_size or 1), max_size if isinstance(max_size, int) else None)
    symbol.choose(size + 1 + size // 4, size - 1 - size // 4)
    if symbol.check_sizes[1] >= size or size < 2:
        symbol.choose(symbol.check_sizes[0], size + 2 + size // 4)
    return symbol


def _choose_images(height: Symbol, width: Symbol) -> None:
    """Choose sides of which the first image is wider than high, and the second higher than wide."""
    short = min(height.size, width.size) * 3 // 4 | 1
    long = max(height.size, width.size) * 5 // 4 | 1
    height.choose(short, long)
    width.choose(long, short)
    heights, widths = height.check_sizes, width.check_sizes
    if not (heights[0] < widths[0] and heights[1] > widths[1]):
        raise ValueError(
            "export: check_sizes must be given: the ranges in dynamic_shapes leave no room for images higher than "
            "wide and wider than high"
        )


def given(args: Sequence[Any], check_sizes: Sequence[Any], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Make the inputs of `check_sizes`: tuples of arguments, shapes of the only input, or shapes by name."""
    tensors = leaves(args)
    checks = []
    for seed, sizes in enumerate(check_sizes):
        if isinstance(sizes, Mapping):
            unknown = set(sizes) - set(names)
            if unknown:
                raise ValueError(f"export: check_sizes must name {', '.join(names)}, got {', '.join(sorted(unknown))}")
            shapes = [sizes.get(name, tensor.shape) for name, tensor in zip(names, tensors, strict=True)]
            checks.append(resized(args, shapes, seed))
        elif all(isinstance(size, int) for size in sizes):
            if len(tensors) != 1:
                raise ValueError(
                    f"export: check_sizes must name the inputs ({', '.join(names)}) if there are several, got {sizes}"
                )
            checks.append(resized(args, [sizes], seed))
        else:
            checks.append(tuple(sizes))
    return checks


def require_other_sizes(axes: Sequence[DynamicAxes], checks: Sequence[Sequence[Any]], names: Sequence[str]) -> None:
    """Refuse checks in which a dynamic axis always has the example's size, as they would prove nothing about it."""
    tensors = [leaves(check) for check in checks]
    for index, (tensor, dynamic) in enumerate(axes):
        for axis in dynamic:
            sizes = {check[index].shape[axis] for check in tensors}
            if not sizes - {tensor.shape[axis]}:
                raise ValueError(
                    f"export: check_sizes must have another size than the example's {tensor.shape[axis]} at dynamic "
                    f"axis {axis} of {names[index]}, got {sorted(sizes) or 'none'}"
                )


def resized(args: Any, shapes: Sequence[Sequence[int]], seed: int) -> tuple[Any, ...]:
    """Return arguments like the example's with tensors of other shapes, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    remaining = iter(shapes)

    def renew(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: renew(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(renew, value))
        return _like(value, next(remaining), generator) if isinstance(value, torch.Tensor) else value

    return tuple(map(renew, args))


def _like(example: torch.Tensor, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Return a tensor of another shape with values like the example's.

    Maps (N, C, H, W) are normal random numbers of the example's mean and deviation.  Other tensors get the example's
    rows along the axes that change, in random order, so that boxes stay boxes and indices stay in range.  Fractions are
    changed slightly, as equal ones may be sorted differently.
    """
    if not example.numel():
        raise ValueError(f"export: args must not have empty tensors, got shape {shape_text(example.shape)}")
    if len(shape) != example.ndim:
        raise ValueError(
            f"export: check_sizes must have the example's number of dimensions, got {shape_text(shape)} for "
            f"{shape_text(example.shape)}"
        )
    if example.ndim == 4 and example.is_floating_point():
        spread = example.double().std(correction=0)
        noise = torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
        return (example.double().mean() + spread * noise).to(example.dtype)
    result = example
    for axis, size in enumerate(shape):
        count = result.shape[axis]
        if size != count:
            order = torch.cat([torch.randperm(count, generator=generator) for _ in range(-(-size // count))])[:size]
            result = result.index_select(axis, order)
    if result.is_floating_point():
        noise = 1 + 1e-3 * torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
        result = torch.where(result == result.round(), result, (result * noise).to(result.dtype))
    return result


def _key(axis: int, size: int, dim: Any) -> Any:
    """Return the key of axes that share a size: the dimension's name, or the axis and its size."""
    if hasattr(dim, "root"):
        raise ValueError(f"export: check_sizes must be given for a dimension computed from another, got {dim}")
    name = dim if isinstance(dim, str) else getattr(dim, "__name__", None)
    return name or (axis, size)
