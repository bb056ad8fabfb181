"""Operators on pairs and sequences of feature maps: correlation, and shifts in time."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from mmort.limits import MAX_KERNEL_ELEMENTS, MAX_REPEATED
from mmort.mmcv.derivatives import gradients
from mmort.mmcv.memory import write

__all__ = ["correlation_backward", "correlation_forward", "tin_shift_backward", "tin_shift_forward"]


def correlation_forward(
    input1: Tensor,
    input2: Tensor,
    output: Tensor,
    kH: int,
    kW: int,
    patchH: int,
    patchW: int,
    padH: int,
    padW: int,
    dilationH: int,
    dilationW: int,
    dilation_patchH: int,
    dilation_patchW: int,
    dH: int,
    dW: int,
) -> None:
    """Write the products of windows of the two maps, for each displacement of a patch, into `output`."""
    kernel = (kH, kW), (padH, padW), (dilationH, dilationW), (dH, dW)
    _require_sizes("correlation_forward", input1, output, (patchH, patchW), *kernel)
    write(output, _correlation(input1, input2, (patchH, patchW), (dilation_patchH, dilation_patchW), *kernel))


def correlation_backward(
    grad_output: Tensor,
    input1: Tensor,
    input2: Tensor,
    grad_input1: Tensor,
    grad_input2: Tensor,
    kH: int,
    kW: int,
    patchH: int,
    patchW: int,
    padH: int,
    padW: int,
    dilationH: int,
    dilationW: int,
    dilation_patchH: int,
    dilation_patchW: int,
    dH: int,
    dW: int,
) -> None:
    """Write the gradients of both maps into `grad_input1` and `grad_input2`."""
    kernel = (kH, kW), (padH, padW), (dilationH, dilationW), (dH, dW)
    _require_sizes("correlation_backward", input1, grad_output, (patchH, patchW), *kernel)

    def correlate(first: Tensor, second: Tensor) -> Tensor:
        return _correlation(first, second, (patchH, patchW), (dilation_patchH, dilation_patchW), *kernel)

    for target, gradient in zip(
        (grad_input1, grad_input2), gradients(correlate, [input1, input2], grad_output), strict=True
    ):
        write(target, gradient)


def _correlation(
    first: Tensor,
    second: Tensor,
    patch: tuple[int, int],
    patch_dilation: tuple[int, int],
    kernel: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    stride: tuple[int, int],
) -> Tensor:
    """Return (N, patch height, patch width, H, W): sums over windows of products with the displaced second map."""
    ones = first.new_ones(1, 1, *kernel)
    shifts = [
        [step * index - step * (size - 1) // 2 for index in range(size)]
        for size, step in zip(patch, patch_dilation, strict=True)
    ]
    rows = [
        torch.stack(
            [
                functional.conv2d(_products(first, second, down, right), ones, None, stride, padding, dilation)[:, 0]
                for right in shifts[1]
            ],
            1,
        )
        for down in shifts[0]
    ]
    return torch.stack(rows, 1)


def _products(first: Tensor, second: Tensor, down: int, right: int) -> Tensor:
    """Return the sums (N, 1, H, W) over channels of products with the second map from further down and right."""
    height, width = first.shape[2:]
    rows, columns = _overlap(height, down), _overlap(width, right)
    taken = second[:, :, rows.start + down : rows.stop + down, columns.start + right : columns.stop + right]
    sums = (first[:, :, rows, columns] * taken).sum(1, keepdim=True)
    return functional.pad(sums, (columns.start, width - columns.stop, rows.start, height - rows.stop))


def _overlap(size: int, shift: int) -> slice:
    """Return the positions that are inside of the map still when they are shifted."""
    begin = min(max(-shift, 0), size)
    return slice(begin, max(min(size - shift, size), begin))


def _require_sizes(
    function: str,
    map: Tensor,
    output: Tensor,
    patch: tuple[int, int],
    kernel: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    stride: tuple[int, int],
) -> None:
    """Raise ValueError if sizes are not those of the output (N, patch, patch, H, W), or out of proportion to it."""
    if math.prod(kernel) > MAX_KERNEL_ELEMENTS or max(padding) > MAX_REPEATED:
        raise ValueError(
            f"mmcv._ext.{function}: a kernel may have {MAX_KERNEL_ELEMENTS} elements and a padding of {MAX_REPEATED}, "
            f"got {[*kernel]} and {[*padding]}"
        )
    if min(*stride, *dilation, *kernel, *patch) < 1 or min(padding) < 0:
        raise ValueError(
            f"mmcv._ext.{function}: patch, kernel, dilation and stride must be at least 1, and padding 0, "
            f"got {[*patch]}, {[*kernel]}, {[*dilation]}, {[*stride]} and {[*padding]}"
        )
    sizes = [
        (size + 2 * pad - step * (side - 1) - 1) // by + 1
        for size, side, pad, step, by in zip(map.shape[2:], kernel, padding, dilation, stride, strict=True)
    ]
    expected = [len(map), *patch, *sizes]
    if expected != [*output.shape]:
        raise ValueError(f"mmcv._ext.{function}: output must be {expected} by the sizes, got {[*output.shape]}")


def tin_shift_forward(input: Tensor, shift: Tensor, output: Tensor) -> None:
    """Write each group of channels, shifted in time, into `output`; what is shifted in is left as it is."""
    for image, channels, source, target in _shifts(input, shift):
        output[image, target, channels] = input[image, source, channels]


def tin_shift_backward(grad_output: Tensor, shift: Tensor, grad_input: Tensor) -> None:
    """Write the gradient of the input into `grad_input`."""
    for image, channels, source, target in _shifts(grad_input, shift):
        grad_input[image, source, channels] = grad_output[image, target, channels]


def _shifts(input: Tensor, shift: Tensor) -> Iterator[tuple[int, slice, slice, slice]]:
    """Yield image, channels, the times they are taken from and those they are moved to."""
    times, channels = input.shape[1], input.shape[2] // shift.shape[1]
    for image, steps in enumerate(shift.tolist()):
        for group, step in enumerate(steps):
            first, last = max(-step, 0), max(min(times, times - step), 0)
            if first < last:
                members = slice(group * channels, (group + 1) * channels)
                yield image, members, slice(first, last), slice(first + step, last + step)
