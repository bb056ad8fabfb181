"""Gradients of the operators that have one, in plain torch: simple enough to check, fast enough for fine-tuning.

The backward pass of an operator is an operator itself, ``torch.ops.mmort.<name>_backward``: torch.compile and
torch.export see one node, and its implementation may branch on the values of tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from mmort import schemas

Gradients = Sequence[Tensor | None]

_grid_sampler_backward = torch.ops.aten.grid_sampler_2d_backward


class Gradient(NamedTuple):
    """The differentiable inputs of an operator, and the function that computes their gradients.

    ``compute(output_gradient, **arguments)`` takes the operator's arguments and returns the gradients in the order of
    ``inputs``, None for an optional input that is not given.
    """

    inputs: tuple[str, ...]
    compute: Callable[..., Gradients]


def register(operator: Any, gradient: Gradient) -> None:
    """Make a custom operator differentiable in the inputs of `gradient`; the others get none, as in MMCV."""
    forward = operator._opoverload._schema
    defaults = {argument.name: argument.default_value for argument in forward.arguments}
    names = list(defaults)

    def compute(output_gradient: Tensor, *values: Any) -> list[Tensor]:
        arguments = defaults | dict(zip(names, values, strict=False))  # torch drops trailing defaults
        inputs = [arguments[name] for name in gradient.inputs if arguments[name] is not None]
        if not output_gradient.numel():
            return [torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in inputs]
        floating = [tensor for tensor in (output_gradient, *inputs) if tensor.dtype.is_floating_point]
        dtype = reduce(torch.promote_types, (tensor.dtype for tensor in floating), torch.float32)
        for name, value in arguments.items():
            if isinstance(value, Tensor) and value.dtype.is_floating_point:
                arguments[name] = value.detach().to(dtype)
        gradients = gradient.compute(output_gradient.detach().to(dtype), **arguments)
        computed = [tensor for tensor in gradients if tensor is not None]
        return [result.to(tensor.dtype).contiguous() for result, tensor in zip(computed, inputs, strict=True)]

    def fake(output_gradient: Tensor, *values: Any) -> list[Tensor]:
        arguments = defaults | dict(zip(names, values, strict=False))
        inputs = (arguments[name] for name in gradient.inputs)
        return [tensor.new_empty(tensor.shape) for tensor in inputs if tensor is not None]

    parameters = str(forward).partition("(")[2].rpartition(") ->")[0]
    schema = f"(Tensor gradient, {parameters}) -> Tensor[]"
    backward_operator = torch.library.custom_op(
        f"{operator._qualname}_backward", compute, mutates_args=(), schema=schema
    )
    backward_operator.register_fake(fake)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*(value for value in inputs if isinstance(value, Tensor)))
        ctx.is_tensor = [isinstance(value, Tensor) for value in inputs]
        ctx.constants = [value for value in inputs if not isinstance(value, Tensor)]

    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:
        tensors, constants = iter(ctx.saved_tensors), iter(ctx.constants)
        values = [next(tensors if is_tensor else constants) for is_tensor in ctx.is_tensor]
        gradients = iter(backward_operator(output_gradient, *values))
        return tuple(
            next(gradients) if name in gradient.inputs and value is not None else None
            for name, value in zip(names, values, strict=True)
        )

    operator.register_autograd(backward, setup_context=setup_context)


def _corner_pool(output_gradient: Tensor, input: Tensor, mode: str) -> Gradients:
    """Add each output's gradient to the element that is its maximum."""
    dim = 2 if mode in ("top", "bottom") else 3
    if mode in ("top", "left"):  # cummax runs towards higher indices
        input, output_gradient = input.flip(dim), output_gradient.flip(dim)
    gradient = torch.zeros_like(input).scatter_add_(dim, input.cummax(dim).indices, output_gradient)
    return (gradient.flip(dim) if mode in ("top", "left") else gradient,)


def _grid_sample(
    output_gradient: Tensor, input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool
) -> Gradients:
    """Call torch's own backward operator, whose modes have the row's numbers."""
    row = schemas.kernels()["grid_sample"]
    modes = row.words("mode").index(mode), row.words("padding_mode").index(padding_mode)
    input_gradient, grid_gradient = _grid_sampler_backward(
        output_gradient, input, grid[..., :2], *modes, align_corners, [True, True]
    )
    return input_gradient, functional.pad(grid_gradient, (0, grid.shape[3] - 2))


def _group_norm(
    output_gradient: Tensor, x: Tensor, num_groups: int, scale: Tensor, bias: Tensor, eps: float
) -> Gradients:
    """Differentiate with respect to x, scale and bias, group by group."""
    channels = (1, -1, *[1] * (x.dim() - 2))
    groups = x.reshape(len(x), num_groups, -1)
    variance, mean = torch.var_mean(groups, 2, correction=0, keepdim=True)
    deviation = (variance + eps).sqrt()
    normalized = (groups - mean) / deviation
    scaled = (output_gradient * scale.reshape(channels)).reshape(normalized.shape)
    mean_product = (scaled * normalized).mean(2, keepdim=True)
    x_gradient = (scaled - scaled.mean(2, keepdim=True) - normalized * mean_product) / deviation
    reduced = [dim for dim in range(x.dim()) if dim != 1]
    return (
        x_gradient.reshape(x.shape),
        (output_gradient * normalized.reshape(x.shape)).sum(reduced),
        output_gradient.sum(reduced),
    )


def _attention(
    output_gradient: Tensor,
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Gradients:
    """Differentiate level by level; B images, M heads of D channels, Q queries, P points."""
    inputs = value, sampling_locations, attention_weights
    value_gradient, location_gradient, weight_gradient = (torch.zeros_like(tensor) for tensor in inputs)
    images, _, heads, _ = value.shape
    gradient = _split(output_gradient, 2, heads).permute(0, 2, 3, 1).flatten(0, 1)[..., None]  # (B*M, D, Q, 1)
    levels = zip(spatial_shapes.tolist(), level_start_index.tolist(), strict=True)
    for level, ((height, width), start) in enumerate(levels):
        pixels = slice(start, start + height * width)
        maps = _split(value[:, pixels].permute(0, 2, 3, 1).flatten(0, 1), 2, height)  # (B*M, D, H, W)
        grid = 2 * sampling_locations[:, :, :, level].transpose(1, 2).flatten(0, 1) - 1  # (B*M, Q, P, 2)
        weights = attention_weights[:, :, :, level].transpose(1, 2).flatten(0, 1)  # (B*M, Q, P)
        sampled = functional.grid_sample(maps, grid, align_corners=False)  # (B*M, D, Q, P)
        weighted = (gradient * weights[:, None]).contiguous()
        map_gradient, grid_gradient = _grid_sampler_backward(weighted, maps, grid, 0, 0, False, [True, True])
        value_gradient[:, pixels] += _split(map_gradient.flatten(2), 0, images).permute(0, 3, 1, 2)
        location_gradient[:, :, :, level] = 2 * _split(grid_gradient, 0, images).transpose(1, 2)
        weight_gradient[:, :, :, level] = _split((gradient * sampled).sum(1), 0, images).transpose(1, 2)
    return value_gradient, location_gradient, weight_gradient


def _roi_align(
    output_gradient: Tensor,
    input: Tensor,
    rois: Tensor,
    output_size: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: str,
    aligned: bool,
) -> Gradients:
    """Differentiate region by region: sampling is linear and separable, ``samples = rows @ pixels @ columns.T``."""
    input_gradient = torch.zeros_like(input, memory_format=torch.contiguous_format)
    shift = 0.5 if aligned else 0.0
    for roi, gradient in zip(rois, output_gradient, strict=True):
        x1, y1, x2, y2 = roi[1:] * spatial_scale - shift
        rows = _sampling_matrix(y1, y2 - y1, output_size[0], input.shape[2], sampling_ratio, aligned)
        columns = _sampling_matrix(x1, x2 - x1, output_size[1], input.shape[3], sampling_ratio, aligned)
        top, bottom = _sampled_range(rows)
        left, right = _sampled_range(columns)
        if top == bottom or left == right:
            continue
        window = int(roi[0]), slice(None), slice(top, bottom), slice(left, right)
        rows, columns = rows[:, top:bottom], columns[:, left:right]
        if pool_mode == "avg":
            rows = _split(rows, 0, output_size[0]).mean(1)
            columns = _split(columns, 0, output_size[1]).mean(1)
            input_gradient[window] += rows.T @ gradient @ columns
            continue
        samples = rows @ input[window] @ columns.T  # (C, PH * samples, PW * samples)
        bins = _split(_split(samples, 2, output_size[1]), 1, output_size[0]).transpose(2, 3)
        argmax = bins.flatten(3).argmax(3, keepdim=True)
        bin_gradient = torch.zeros_like(bins.flatten(3)).scatter_(3, argmax, gradient[..., None])
        sample_gradient = bin_gradient.reshape(bins.shape).transpose(2, 3).reshape(samples.shape)
        input_gradient[window] += rows.T @ sample_gradient @ columns
    return (input_gradient,)


def _roi_align_rotated(
    output_gradient: Tensor,
    input: Tensor,
    rois: Tensor,
    output_size: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    clockwise: bool,
) -> Gradients:
    """Differentiate region by region: each sample's gradient goes to the four pixels around it."""
    height, width = input.shape[2:]
    input_gradient = torch.zeros_like(input, memory_format=torch.contiguous_format)
    for roi, gradient in zip(rois, output_gradient, strict=True):
        centre_x, centre_y = roi[1:3] * spatial_scale - (0.5 if aligned else 0.0)
        sizes = (roi[3:5] * spatial_scale).flip(0)  # height, width
        axes = [
            bin_positions(-size / 2, size, bins, sampling_ratio)
            for size, bins in zip(sizes if aligned else sizes.clamp(min=1), output_size, strict=True)
        ]
        down, across = torch.meshgrid(*(positions.flatten() for positions in axes), indexing="ij")
        angle = -roi[5] if clockwise else roi[5]
        y = down * angle.cos() - across * angle.sin() + centre_y
        x = down * angle.sin() + across * angle.cos() + centre_x
        inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
        counts = [positions.shape[1] for positions in axes]
        of_samples = gradient.repeat_interleave(counts[0], 1).repeat_interleave(counts[1], 2) * inside
        of_samples = of_samples.flatten(1) / max(counts[0] * counts[1], 1)  # (C, samples)
        points = y.clamp(0, height - 1).flatten()[None], x.clamp(0, width - 1).flatten()[None]
        for indices, weights, *_ in _bilinear_neighbors(*points, (height, width)):
            input_gradient[int(roi[0])].view(len(gradient), -1).index_add_(1, indices[0], of_samples * weights)
    return (input_gradient,)


def bin_positions(start: Tensor, length: Tensor, bins: int, sampling_ratio: int) -> Tensor:
    """Return the positions of samples in the bins of a range, (bins, samples): `sampling_ratio` or one for each pixel.

    Start and length are numbers; the samples of a bin are evenly spaced.
    """
    count = sampling_ratio if sampling_ratio > 0 else max(int((length / bins).ceil()), 0)
    steps = (torch.arange(count, dtype=start.dtype) + 0.5) / max(count, 1)
    return start + (torch.arange(bins, dtype=start.dtype)[:, None] + steps) * (length / bins)


def _sampling_matrix(start: Tensor, length: Tensor, bins: int, size: int, sampling_ratio: int, aligned: bool) -> Tensor:
    """Return the weights of an axis' pixels in its samples, (bins * samples, size)."""
    position = bin_positions(start, length if aligned else length.clamp(min=1), bins, sampling_ratio).flatten()
    inside = (position >= -1) & (position <= size)
    position = position.clamp(0, size - 1)
    weights = (1 - (position[:, None] - torch.arange(size, dtype=start.dtype)).abs()).clamp(min=0)
    return weights * inside[:, None]


def _sampled_range(weights: Tensor) -> tuple[int, int]:
    """Return the first pixel with a nonzero weight and the one after the last; (0, 0) if there is none."""
    indices = weights.any(0).nonzero()
    return (int(indices[0]), int(indices[-1]) + 1) if len(indices) else (0, 0)


def _deform_conv2d(output_gradient: Tensor, **arguments: Any) -> Gradients:
    """Differentiate as a modulated convolution without mask and bias."""
    input, offset, _, weight, _ = _modulated_deform_conv2d(output_gradient, mask=None, bias=None, **arguments)
    return input, offset, weight


def _modulated_deform_conv2d(
    output_gradient: Tensor,
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    deform_groups: int,
    **steps: Sequence[int],
) -> Gradients:
    """Differentiate tap by tap: the output is a sum over taps.

    N images, C channels, G groups, D deformable groups, P output pixels.
    """
    taps = weight.shape[2] * weight.shape[3]
    maps = _split(input, 1, deform_groups).flatten(0, 1).flatten(2)  # (N*D, C/D, H*W)
    offsets = _split(offset.flatten(2), 1, deform_groups, taps).flatten(0, 1)  # (N*D, taps, 2, P)
    masks = None if mask is None else _split(mask.flatten(2), 1, deform_groups).flatten(0, 1)  # (N*D, taps, P)
    weights = _split(weight.flatten(2), 0, groups)  # (G, O/G, C/G, taps)
    gradient = _split(output_gradient.flatten(2), 1, groups)  # (N, G, O/G, P)
    map_gradient, offset_gradient, weight_gradient = (torch.zeros_like(tensor) for tensor in (maps, offsets, weights))
    mask_gradient = None if masks is None else torch.zeros_like(masks)
    for tap, (y, x) in enumerate(_tap_positions(weight.shape[2:], output_gradient.shape[2:], steps, input.dtype)):
        column_gradient = torch.einsum("ngop,goc->ngcp", gradient, weights[..., tap]).reshape(*maps.shape[:2], -1)
        factor = 1 if masks is None else masks[:, tap, None]  # (N*D, 1, P)
        sample_gradient, sampled = column_gradient * factor, torch.zeros_like(column_gradient)
        neighbors = _bilinear_neighbors(y + offsets[:, tap, 0], x + offsets[:, tap, 1], input.shape[2:])
        for indices, bilinear, *derivatives in neighbors:
            indices = indices[:, None].expand_as(sampled)
            values = maps.gather(2, indices)
            sampled += values * bilinear[:, None]
            map_gradient.scatter_add_(2, indices, sample_gradient * bilinear[:, None])
            for axis in (0, 1):
                offset_gradient[:, tap, axis] += (sample_gradient * values).sum(1) * derivatives[axis]
        if mask_gradient is not None:
            mask_gradient[:, tap] = (column_gradient * sampled).sum(1)
        column = (sampled * factor).reshape(len(input), groups, -1, sampled.shape[2])  # (N, G, C/G, P)
        weight_gradient[..., tap] = torch.einsum("ngop,ngcp->goc", gradient, column)
    return (
        map_gradient.reshape(input.shape),
        offset_gradient.reshape(offset.shape),
        None if mask is None or mask_gradient is None else mask_gradient.reshape(mask.shape),
        weight_gradient.reshape(weight.shape),
        None if bias is None else output_gradient.sum((0, 2, 3)),
    )


def _split(tensor: Tensor, dim: int, *sizes: int) -> Tensor:
    """Unflatten a dimension into the given sizes and a last one that is inferred."""
    return tensor.reshape(*tensor.shape[:dim], *sizes, -1, *tensor.shape[dim + 1 :])


def _tap_positions(
    kernel: Sequence[int], size: Sequence[int], steps: dict[str, Sequence[int]], dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for each tap the positions that output pixels read without an offset: y and x, (P,) each."""
    axes = list(zip(size, steps["stride"], steps["padding"], steps["dilation"], strict=True))
    for tap in itertools.product(*map(range, kernel)):
        positions = [
            torch.arange(count, dtype=dtype) * stride - padding + index * dilation
            for index, (count, stride, padding, dilation) in zip(tap, axes, strict=True)
        ]
        y, x = torch.meshgrid(*positions, indexing="ij")
        yield y.flatten(), x.flatten()


def _bilinear_neighbors(y: Tensor, x: Tensor, size: Sequence[int]) -> Iterator[tuple[Tensor, ...]]:
    """Yield the four pixels around points (M, P): flat indices, weights, and the weights' derivatives by y and x.

    Pixels outside the map have weight zero.  At a pixel's centre the derivative is the one towards the next pixel; at
    -1, where the map begins to count, it is 0 as in MMCV, whose new layers with padding have many points there.
    """
    top, left = y.floor(), x.floor()
    begun = (y > -1) & (x > -1)
    for row, vertical, along_y in ((top, top + 1 - y, -1), (top + 1, y - top, 1)):
        for column, horizontal, along_x in ((left, left + 1 - x, -1), (left + 1, x - left, 1)):
            inside = begun & (row >= 0) & (row < size[0]) & (column >= 0) & (column < size[1])
            indices = torch.where(inside, row * size[1] + column, 0).long()
            factors = vertical * horizontal, along_y * horizontal, along_x * vertical
            yield indices, *(torch.where(inside, factor, 0) for factor in factors)


GRADIENTS = {
    "corner_pool": Gradient(("input",), _corner_pool),
    "deform_conv2d": Gradient(("input", "offset", "weight"), _deform_conv2d),
    "grid_sample": Gradient(("input", "grid"), _grid_sample),
    "group_norm": Gradient(("x", "scale", "bias"), _group_norm),
    "modulated_deform_conv2d": Gradient(("input", "offset", "mask", "weight", "bias"), _modulated_deform_conv2d),
    "multi_scale_deformable_attention": Gradient(("value", "sampling_locations", "attention_weights"), _attention),
    "roi_align": Gradient(("input",), _roi_align),
    "roi_align_rotated": Gradient(("input",), _roi_align_rotated),
}
"""Gradients by the operator's name; operators that are not listed have none."""
