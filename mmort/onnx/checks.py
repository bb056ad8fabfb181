"""The inputs that an exported model is checked with: other batches and sizes than the example's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from mmort.onnx.verification import leaves, shape_text


@dataclass
class Symbol:
    """Dimensions that change together, and the range they are in."""

    size: int
    lowest: int
    highest: int | None
    others: list[int] = field(default_factory=list)
    """Sizes to check with."""

    def choose(self, *sizes: int) -> None:
        """Take these sizes, brought into the range, to check with."""
        self.others = [max(self.lowest, size if self.highest is None else min(size, self.highest)) for size in sizes]


def argument_names(function: Callable[..., Any], count: int) -> list[str]:
    """Return the names of a function's first arguments; numbers where they have none."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # a built-in function
        parameters = []
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return names[:count] + [f"input_{place}" for place in range(len(names), count)]


def by_argument(dynamic_shapes: Any, names: Sequence[str]) -> list[Any]:
    """Return the dynamic shapes of each argument, however they were written."""
    if dynamic_shapes is None:
        return [None] * len(names)
    if isinstance(dynamic_shapes, Mapping):
        unknown = set(dynamic_shapes) - set(names)
        if unknown:
            raise ValueError(f"export: dynamic_shapes must be of {', '.join(names)}, got {', '.join(sorted(unknown))}")
        return [dynamic_shapes.get(name) for name in names]
    if len(dynamic_shapes) != len(names):
        raise ValueError(
            f"export: dynamic_shapes must be {len(names)}, one for each argument, got {len(dynamic_shapes)}"
        )
    return list(dynamic_shapes)


def dynamic_axes(value: Any, spec: Any) -> Iterator[tuple[torch.Tensor, dict[int, Any]]]:
    """Walk along the tensors in an argument, each with those of its axes that are dynamic, and what they are given."""
    if isinstance(value, torch.Tensor):
        axes = dict(spec) if isinstance(spec, Mapping) else dict(enumerate(spec or ()))
        yield value, {axis % value.ndim: dim for axis, dim in axes.items() if is_dynamic(dim)}
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from dynamic_axes(one, spec.get(key) if spec else None)
    elif isinstance(value, (list, tuple)):
        for place, one in enumerate(value):
            yield from dynamic_axes(one, spec[place] if spec else None)


def is_dynamic(dim: Any) -> bool:
    """Whether a dimension was asked to be dynamic."""
    return not (dim is None or isinstance(dim, int) or dim is torch.export.Dim.STATIC)


def derive(args: Sequence[Any], axes: Sequence[tuple[torch.Tensor, dict[int, Any]]]) -> list[tuple[Any, ...]]:
    """Make the inputs to check with, of other sizes along the dynamic axes: two sets, none if nothing is dynamic.

    An axis is one dimension with those of the same name, or, without names, those at the same axis that are of the
    same size.  The first set has larger batches and counts than the example, the second smaller ones (or, where that is
    not possible, still larger ones).  Where a tensor's last two axes are dynamic it is an image: wider than high in the
    first set, higher than wide in the second, with sides a quarter shorter and longer than the example's, odd, so no
    multiples of a stride.
    """
    symbols: dict[Any, Symbol] = {}
    keys = [{axis: _key(axis, tensor.shape[axis], dim) for axis, dim in spec.items()} for tensor, spec in axes]
    for (tensor, spec), names in zip(axes, keys, strict=True):
        for axis, dim in spec.items():
            lowest, highest = getattr(dim, "min", None), getattr(dim, "max", None)
            symbol = Symbol(tensor.shape[axis], max(1, lowest or 1), highest if isinstance(highest, int) else None)
            symbol.choose(symbol.size + 1 + symbol.size // 4, symbol.size - 1 - symbol.size // 4)
            if symbol.others[1] >= symbol.size or symbol.size < 2:
                symbol.choose(symbol.others[0], symbol.size + 2 + symbol.size // 4)
            symbols.setdefault(names[axis], symbol)
    for (tensor, _), names in zip(axes, keys, strict=True):
        height, width = (symbols.get(names.get(tensor.ndim + axis)) for axis in (-2, -1))
        if height is None or width is None or height is width:
            continue
        short = min(height.size, width.size) * 3 // 4 | 1
        long = max(height.size, width.size) * 5 // 4 | 1
        height.choose(short, long)
        width.choose(long, short)
        if not (height.others[0] < width.others[0] and height.others[1] > width.others[1]):
            raise ValueError(
                "export: check_sizes must be given: the ranges in dynamic_shapes leave no room for images higher than "
                "wide and wider than high"
            )
    if not symbols:
        return []
    shapes = [
        [
            [symbols[names[axis]].others[check] if axis in names else size for axis, size in enumerate(tensor.shape)]
            for (tensor, _), names in zip(axes, keys, strict=True)
        ]
        for check in range(2)
    ]
    return [resized(args, one, seed) for seed, one in enumerate(shapes)]


def given(args: Sequence[Any], check_sizes: Sequence[Any], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Make the inputs that a caller asked for: a tuple of arguments, a shape of the only input, or shapes by name."""
    tensors = leaves(args)
    checks = []
    for seed, one in enumerate(check_sizes):
        if isinstance(one, Mapping):
            unknown = set(one) - set(names)
            if unknown:
                raise ValueError(f"export: check_sizes must be of inputs {', '.join(names)}, got {sorted(unknown)}")
            shapes = [one.get(name, tensor.shape) for name, tensor in zip(names, tensors, strict=True)]
            checks.append(resized(args, shapes, seed))
        elif all(isinstance(size, int) for size in one):
            if len(tensors) != 1:
                raise ValueError(
                    f"export: check_sizes must name the inputs ({', '.join(names)}) if there are several, got {one}"
                )
            checks.append(resized(args, [one], seed))
        else:
            checks.append(tuple(one))
    return checks


def assert_other_sizes(
    axes: Sequence[tuple[torch.Tensor, dict[int, Any]]], checks: Sequence[Sequence[Any]], names: Sequence[str]
) -> None:
    """Refuse checks in which a dynamic axis always has the example's size: they would prove nothing about it."""
    tensors = [leaves(check) for check in checks]
    for place, (tensor, spec) in enumerate(axes):
        for axis in spec:
            sizes = {one[place].shape[axis] for one in tensors}
            if not sizes - {tensor.shape[axis]}:
                raise ValueError(
                    f"export: check_sizes must have another size than the example's {tensor.shape[axis]} at dynamic "
                    f"axis {axis} of {names[place]}, got {sorted(sizes) or 'none'}"
                )


def resized(args: Any, shapes: Sequence[Sequence[int]], seed: int) -> tuple[Any, ...]:
    """Return arguments like the example's, with tensors of other shapes; the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    remaining = iter(shapes)

    def renew(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: renew(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(renew, value))
        return _like(value, next(remaining), generator) if isinstance(value, torch.Tensor) else value

    return tuple(map(renew, args))


def _like(example: torch.Tensor, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Return a tensor of another shape with numbers as the example's.

    Maps, [N, C, H, W], are normal random numbers of the example's mean and deviation.  Others get the example's rows
    along the axes that change, in random order, so that boxes stay boxes and indices stay in range; numbers with a
    fraction are changed a little, as equal ones may be sorted differently.
    """
    if len(shape) != example.ndim or not example.numel():
        raise ValueError(
            f"export: check_sizes must have the example's number of dimensions, which must not be empty, got "
            f"{shape_text(shape)} for {shape_text(example.shape)}"
        )
    if example.ndim == 4 and example.is_floating_point():
        spread = example.double().std(correction=0)
        noise = torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
        return (example.double().mean() + spread * noise).to(example.dtype)
    result = example
    for axis, size in enumerate(shape):
        have = result.shape[axis]
        if size != have:
            order = torch.cat([torch.randperm(have, generator=generator) for _ in range(-(-size // have))])[:size]
            result = result.index_select(axis, order)
    if result.is_floating_point():
        noise = 1 + 1e-3 * torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
        result = torch.where(result == result.round(), result, (result * noise).to(result.dtype))
    return result


def _key(axis: int, size: int, dim: Any) -> Any:
    if hasattr(dim, "root"):
        raise ValueError(f"export: check_sizes must be given for a dimension computed from another, got {dim}")
    name = dim if isinstance(dim, str) else getattr(dim, "__name__", None)
    return name or (axis, size)
