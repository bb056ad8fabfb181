"""Gradients of the operators that have one, in plain torch: for training now and then, not for speed.

Each is an operator of its own, ``torch.ops.mmort.<name>_backward``: torch.compile sees one node, and the node may look
at the tensors' values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from mmort.ops.grid import MODES, PADDING_MODES

Results = Sequence[Tensor | None]

_grid_sampler_backward = torch.ops.aten.grid_sampler_2d_backward


class Gradient(NamedTuple):
    """``compute(gradient of the output, **arguments)`` gives those of the inputs in ``inputs``."""

    inputs: tuple[str, ...]
    compute: Callable[..., Results]


def register(operator: Any, gradient: Gradient) -> None:
    """Make a custom operator differentiable in some of its inputs; for the others there is no gradient, as in MMCV."""
    forward = operator._opoverload._schema
    defaults = {one.name: one.default_value for one in forward.arguments}
    names = list(defaults)

    def run(output: Tensor, *values: Any) -> list[Tensor]:
        arguments = defaults | dict(zip(names, values, strict=False))  # torch leaves out what is the default
        inputs = [arguments[name] for name in gradient.inputs if arguments[name] is not None]
        if not output.numel():
            return [torch.zeros_like(one, memory_format=torch.contiguous_format) for one in inputs]
        floating = [one for one in (output, *inputs) if one.dtype.is_floating_point]
        dtype = reduce(torch.promote_types, (one.dtype for one in floating), torch.float32)
        for name, value in arguments.items():
            if isinstance(value, Tensor) and value.dtype.is_floating_point:
                arguments[name] = value.detach().to(dtype)
        results = [one for one in gradient.compute(output.detach().to(dtype), **arguments) if one is not None]
        return [one.to(given.dtype).contiguous() for one, given in zip(results, inputs, strict=True)]

    def fake(output: Tensor, *values: Any) -> list[Tensor]:
        arguments = defaults | dict(zip(names, values, strict=False))
        inputs = (arguments[name] for name in gradient.inputs)
        return [one.new_empty(one.shape) for one in inputs if one is not None]

    formals = str(forward).partition("(")[2].rpartition(") ->")[0]
    schema = f"(Tensor gradient, {formals}) -> Tensor[]"
    computed = torch.library.custom_op(f"{operator._qualname}_backward", run, mutates_args=(), schema=schema)
    computed.register_fake(fake)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        tensors = [isinstance(one, Tensor) for one in inputs]
        ctx.save_for_backward(*(one for one, is_tensor in zip(inputs, tensors, strict=True) if is_tensor))
        ctx.others = [None if is_tensor else one for one, is_tensor in zip(inputs, tensors, strict=True)]
        ctx.tensors = tensors

    def backward(ctx: Any, output: Tensor) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        values = [next(saved) if is_tensor else one for one, is_tensor in zip(ctx.others, ctx.tensors, strict=True)]
        results = iter(computed(output, *values))
        return tuple(
            next(results) if name in gradient.inputs and value is not None else None
            for name, value in zip(names, values, strict=True)
        )

    operator.register_autograd(backward, setup_context=setup_context)


def _corner_pool(output: Tensor, input: Tensor, mode: str) -> Results:
    dim = 2 if mode in ("top", "bottom") else 3
    if mode in ("top", "left"):
        input, output = input.flip(dim), output.flip(dim)
    result = torch.zeros_like(input).scatter_add_(dim, input.cummax(dim).indices, output)
    return (result.flip(dim) if mode in ("top", "left") else result,)


def _grid_sample(
    output: Tensor, input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool
) -> Results:
    modes = MODES.index(mode), PADDING_MODES.index(padding_mode)
    result, places = _grid_sampler_backward(output, input, grid[..., :2], *modes, align_corners, [True, True])
    return result, functional.pad(places, (0, grid.shape[3] - 2))


def _group_norm(output: Tensor, x: Tensor, num_groups: int, scale: Tensor, bias: Tensor, eps: float) -> Results:
    channels = (1, -1, *[1] * (x.dim() - 2))
    groups = x.reshape(len(x), num_groups, -1)
    variance, mean = torch.var_mean(groups, 2, correction=0, keepdim=True)
    deviation = (variance + eps).sqrt()
    normal = (groups - mean) / deviation
    scaled = (output * scale.reshape(channels)).reshape(normal.shape)
    slope = (scaled - scaled.mean(2, keepdim=True) - normal * (scaled * normal).mean(2, keepdim=True)) / deviation
    others = [dim for dim in range(x.dim()) if dim != 1]
    return slope.reshape(x.shape), (output * normal.reshape(x.shape)).sum(others), output.sum(others)


def _attention(
    output: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Results:
    results = [torch.zeros_like(one) for one in (value, sampling_locations, attention_weights)]
    images, _, heads, _ = value.shape
    gradient = _split(output, 2, heads).permute(0, 2, 3, 1).flatten(0, 1)[..., None]  # [B*M, D, Q, 1]
    shapes = zip(spatial_shapes.tolist(), level_start_index.tolist(), strict=True)
    for level, ((height, width), start) in enumerate(shapes):
        pixels = slice(start, start + height * width)
        maps = _split(value[:, pixels].permute(0, 2, 3, 1).flatten(0, 1), 2, height)  # [B*M, D, H, W]
        grid = 2 * sampling_locations[:, :, :, level].transpose(1, 2).flatten(0, 1) - 1  # [B*M, Q, P, 2]
        weights = attention_weights[:, :, :, level].transpose(1, 2).flatten(0, 1)  # [B*M, Q, P]
        sampled = functional.grid_sample(maps, grid, align_corners=False)  # [B*M, D, Q, P]
        weighted = (gradient * weights[:, None]).contiguous()
        map_slope, grid_slope = _grid_sampler_backward(weighted, maps, grid, 0, 0, False, [True, True])
        results[0][:, pixels] += _split(map_slope.flatten(2), 0, images).permute(0, 3, 1, 2)
        results[1][:, :, :, level] = 2 * _split(grid_slope, 0, images).transpose(1, 2)
        results[2][:, :, :, level] = _split((gradient * sampled).sum(1), 0, images).transpose(1, 2)
    return results


def _roi_align(
    output: Tensor,
    input: Tensor,
    rois: Tensor,
    output_size: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: str,
    aligned: bool,
) -> Results:
    total = torch.zeros_like(input, memory_format=torch.contiguous_format)
    shift = 0.5 if aligned else 0.0
    for roi, gradient in zip(rois, output, strict=True):
        x1, y1, x2, y2 = roi[1:] * spatial_scale - shift
        rows = _samples(y1, y2 - y1, output_size[0], input.shape[2], sampling_ratio, aligned)
        columns = _samples(x1, x2 - x1, output_size[1], input.shape[3], sampling_ratio, aligned)
        top, bottom = _touched(rows)
        left, right = _touched(columns)
        if top == bottom or left == right:
            continue
        place = int(roi[0]), slice(None), slice(top, bottom), slice(left, right)
        rows, columns = rows[:, top:bottom], columns[:, left:right]
        if pool_mode == "avg":
            rows = _split(rows, 0, output_size[0]).mean(1)
            columns = _split(columns, 0, output_size[1]).mean(1)
            total[place] += rows.T @ gradient @ columns
            continue
        samples = rows @ input[place] @ columns.T  # [C, PH * samples, PW * samples]
        bins = _split(_split(samples, 2, output_size[1]), 1, output_size[0]).transpose(2, 3)
        best = bins.flatten(3).argmax(3, keepdim=True)
        chosen = torch.zeros_like(bins.flatten(3)).scatter_(3, best, gradient[..., None])
        total[place] += rows.T @ chosen.reshape(bins.shape).transpose(2, 3).reshape(samples.shape) @ columns
    return (total,)


def _samples(start: Tensor, length: Tensor, bins: int, size: int, sampling_ratio: int, aligned: bool) -> Tensor:
    """Return the weights of an axis' pixels in its samples, [bins * samples, size]."""
    length = length if aligned else length.clamp(min=1)
    count = sampling_ratio if sampling_ratio > 0 else max(int((length / bins).ceil()), 0)
    steps = (torch.arange(count, dtype=start.dtype) + 0.5) / max(count, 1)
    place = (start + (torch.arange(bins, dtype=start.dtype)[:, None] + steps) * (length / bins)).flatten()
    inside = (place >= -1) & (place <= size)
    place = place.clamp(0, size - 1)
    weights = (1 - (place[:, None] - torch.arange(size, dtype=start.dtype)).abs()).clamp(min=0)
    return weights * inside[:, None]


def _touched(weights: Tensor) -> tuple[int, int]:
    """Return the range of pixels that have any weight."""
    places = weights.any(0).nonzero()
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)


def _deform_conv2d(output: Tensor, **arguments: Any) -> Results:
    input, offset, _, weight, _ = _modulated_deform_conv2d(output, mask=None, bias=None, **arguments)
    return input, offset, weight


def _modulated_deform_conv2d(
    output: Tensor,
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    deform_groups: int,
    **steps: Sequence[int],
) -> Results:
    """Tap by tap: the output is their sum.  N images, C channels, G groups, D deformable groups, P pixels."""
    taps = weight.shape[2] * weight.shape[3]
    maps = _split(input, 1, deform_groups).flatten(0, 1).flatten(2)  # [N*D, C/D, H*W]
    offsets = _split(offset.flatten(2), 1, deform_groups, taps).flatten(0, 1)  # [N*D, taps, 2, P]
    masks = None if mask is None else _split(mask.flatten(2), 1, deform_groups).flatten(0, 1)
    weights = _split(weight.flatten(2), 0, groups)  # [G, O/G, C/G, taps]
    gradient = _split(output.flatten(2), 1, groups)  # [N, G, O/G, P]
    to_maps, to_offsets, to_weights = (torch.zeros_like(one) for one in (maps, offsets, weights))
    to_masks = None if masks is None else torch.zeros_like(masks)
    for tap, (y, x) in enumerate(_taps(weight.shape[2:], output.shape[2:], steps, input.dtype)):
        column = torch.einsum("ngop,goc->ngcp", gradient, weights[..., tap]).reshape(*maps.shape[:2], -1)
        factor = 1 if masks is None else masks[:, tap, None]  # [N*D, 1, P]
        slope, sampled = column * factor, torch.zeros_like(column)
        for places, share, *slopes in _corners(y + offsets[:, tap, 0], x + offsets[:, tap, 1], input.shape[2:]):
            places = places[:, None].expand_as(column)
            values = maps.gather(2, places)
            sampled += values * share[:, None]
            to_maps.scatter_add_(2, places, slope * share[:, None])
            for axis in (0, 1):
                to_offsets[:, tap, axis] += (slope * values).sum(1) * slopes[axis]
        if to_masks is not None:
            to_masks[:, tap] = (column * sampled).sum(1)
        sampled = (sampled * factor).reshape(len(input), groups, -1, sampled.shape[2])  # [N, G, C/G, P]
        to_weights[..., tap] = torch.einsum("ngop,ngcp->goc", gradient, sampled)
    return (
        to_maps.reshape(input.shape),
        to_offsets.reshape(offset.shape),
        None if mask is None or to_masks is None else to_masks.reshape(mask.shape),
        to_weights.reshape(weight.shape),
        None if bias is None else output.sum((0, 2, 3)),
    )


def _split(tensor: Tensor, dim: int, *sizes: int) -> Tensor:
    """Make several dimensions of one: of the sizes given, and what is left."""
    return tensor.reshape(*tensor.shape[:dim], *sizes, -1, *tensor.shape[dim + 1 :])


def _taps(
    kernel: Sequence[int], size: Sequence[int], steps: dict[str, Sequence[int]], dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield where each tap reads for each pixel of the output, were there no offsets: y and x, [P]."""
    settings = list(zip(size, steps["stride"], steps["padding"], steps["dilation"], strict=True))
    for tap in itertools.product(*map(range, kernel)):
        axes = [
            torch.arange(count, dtype=dtype) * stride - padding + place * dilation
            for place, (count, stride, padding, dilation) in zip(tap, settings, strict=True)
        ]
        y, x = torch.meshgrid(*axes, indexing="ij")
        yield y.flatten(), x.flatten()


def _corners(y: Tensor, x: Tensor, size: Sequence[int]) -> Iterator[tuple[Tensor, ...]]:
    """Yield the four pixels around points [M, P]: places, shares, and the shares' slopes along y and x.

    Outside pixels have no share.  At a pixel the slope is that towards the next one.
    """
    top, left = y.floor(), x.floor()
    for row, vertical, down in ((top, top + 1 - y, -1), (top + 1, y - top, 1)):
        for column, horizontal, right in ((left, left + 1 - x, -1), (left + 1, x - left, 1)):
            inside = (row >= 0) & (row < size[0]) & (column >= 0) & (column < size[1])
            places = torch.where(inside, row * size[1] + column, 0).long()
            shares = vertical * horizontal, down * horizontal, right * vertical
            yield places, *(torch.where(inside, share, 0) for share in shares)


GRADIENTS = {
    "corner_pool": Gradient(("input",), _corner_pool),
    "deform_conv2d": Gradient(("input", "offset", "weight"), _deform_conv2d),
    "grid_sample": Gradient(("input", "grid"), _grid_sample),
    "group_norm": Gradient(("x", "scale", "bias"), _group_norm),
    "modulated_deform_conv2d": Gradient(("input", "offset", "mask", "weight", "bias"), _modulated_deform_conv2d),
    "multi_scale_deformable_attention": Gradient(("value", "sampling_locations", "attention_weights"), _attention),
    "roi_align": Gradient(("input",), _roi_align),
}
"""By the operator's name; the others have none."""
