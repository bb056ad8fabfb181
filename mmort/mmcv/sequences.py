"""Operators on pairs and sequences of feature maps: correlation, and shifts in time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

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
    reach = [step * (size - 1) // 2 for size, step in zip(patch, patch_dilation, strict=True)]
    padded = functional.pad(second, (reach[1], reach[1], reach[0], reach[0]))
    ones = first.new_ones(1, 1, *kernel)
    height, width = first.shape[2:]
    displaced = [
        [
            padded[:, :, top : top + height, left : left + width]
            for left in range(0, 2 * reach[1] + 1, patch_dilation[1])
        ]
        for top in range(0, 2 * reach[0] + 1, patch_dilation[0])
    ]
    rows = [
        torch.stack(
            [
                functional.conv2d((first * tensor).sum(1, keepdim=True), ones, None, stride, padding, dilation)[:, 0]
                for tensor in row
            ],
            1,
        )
        for row in displaced
    ]
    return torch.stack(rows, 1)


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
