"""Deformable convolutions, and convolutions of only some positions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

import mmort.torch
from mmort.mmcv.derivatives import gradients
from mmort.mmcv.memory import write

__all__ = [
    "active_rotated_filter_backward",
    "active_rotated_filter_forward",
    "deform_conv_backward_input",
    "deform_conv_backward_parameters",
    "deform_conv_forward",
    "masked_col2im_forward",
    "masked_im2col_forward",
    "modulated_deform_conv_backward",
    "modulated_deform_conv_forward",
]


def deform_conv_forward(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    output: Tensor,
    columns: Tensor,
    ones: Tensor,
    kW: int,
    kH: int,
    dW: int,
    dH: int,
    padW: int,
    padH: int,
    dilationW: int,
    dilationH: int,
    group: int,
    deformable_group: int,
    im2col_step: int,
) -> None:
    """Write the deformable convolution into `output`."""
    write(
        output,
        mmort.torch.deform_conv2d(
            input, offset, weight, (dH, dW), (padH, padW), (dilationH, dilationW), group, deformable_group
        ),
    )


def deform_conv_backward_input(
    input: Tensor,
    offset: Tensor,
    gradOutput: Tensor,
    gradInput: Tensor,
    gradOffset: Tensor,
    weight: Tensor,
    columns: Tensor,
    kW: int,
    kH: int,
    dW: int,
    dH: int,
    padW: int,
    padH: int,
    dilationW: int,
    dilationH: int,
    group: int,
    deformable_group: int,
    im2col_step: int,
) -> None:
    """Write the gradients of input and offsets into `gradInput` and `gradOffset`."""
    steps = [dH, dW], [padH, padW], [dilationH, dilationW]
    input_gradient, offset_gradient, _ = torch.ops.mmort.deform_conv2d_backward(
        gradOutput, input, offset, weight, *steps, group, deformable_group
    )
    write(gradInput, input_gradient)
    write(gradOffset, offset_gradient)


def deform_conv_backward_parameters(
    input: Tensor,
    offset: Tensor,
    gradOutput: Tensor,
    gradWeight: Tensor,
    columns: Tensor,
    ones: Tensor,
    kW: int,
    kH: int,
    dW: int,
    dH: int,
    padW: int,
    padH: int,
    dilationW: int,
    dilationH: int,
    group: int,
    deformable_group: int,
    scale: float,
    im2col_step: int,
) -> None:
    """Add the gradient of the weights, times `scale`, to `gradWeight`."""
    steps = [dH, dW], [padH, padW], [dilationH, dilationW]
    weight = torch.zeros_like(gradWeight)  # the gradient does not depend on it
    *_, weight_gradient = torch.ops.mmort.deform_conv2d_backward(
        gradOutput, input, offset, weight, *steps, group, deformable_group
    )
    gradWeight += scale * weight_gradient


def modulated_deform_conv_forward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    output: Tensor,
    columns: Tensor,
    kernel_h: int,
    kernel_w: int,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    group: int,
    deformable_group: int,
    with_bias: bool,
) -> None:
    """Write the modulated deformable convolution into `output`."""
    write(
        output,
        mmort.torch.modulated_deform_conv2d(
            input,
            _of_output_size("offset", offset, 2 * deformable_group * kernel_h * kernel_w, output.shape[2:]),
            _of_output_size("mask", mask, deformable_group * kernel_h * kernel_w, output.shape[2:]),
            weight,
            bias if with_bias else None,
            (stride_h, stride_w),
            (pad_h, pad_w),
            (dilation_h, dilation_w),
            group,
            deformable_group,
        ),
    )


def modulated_deform_conv_backward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    columns: Tensor,
    grad_input: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    grad_offset: Tensor,
    grad_mask: Tensor,
    grad_output: Tensor,
    kernel_h: int,
    kernel_w: int,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    group: int,
    deformable_group: int,
    with_bias: bool,
) -> None:
    """Write the gradients of input, offsets and mask, and add those of the parameters."""
    size = grad_output.shape[2:]
    input_gradient, offset_gradient, mask_gradient, *parameter_gradients = (
        torch.ops.mmort.modulated_deform_conv2d_backward(
            grad_output,
            input,
            _of_output_size("offset", offset, 2 * deformable_group * kernel_h * kernel_w, size),
            _of_output_size("mask", mask, deformable_group * kernel_h * kernel_w, size),
            weight,
            bias if with_bias else None,
            [stride_h, stride_w],
            [pad_h, pad_w],
            [dilation_h, dilation_w],
            group,
            deformable_group,
        )
    )
    write(grad_input, input_gradient)
    for target, gradient in ((grad_offset, offset_gradient), (grad_mask, mask_gradient)):
        used = gradient.shape[1:].numel()  # MMCV fills this much of each image's gradient, whatever its shape
        write(target, functional.pad(gradient.flatten(1), (0, target.shape[1:].numel() - used)))
    for target, gradient in zip((grad_weight, grad_bias), parameter_gradients, strict=False):
        target += gradient


def _of_output_size(name: str, tensor: Tensor, channels: int, size: torch.Size) -> Tensor:
    """Return offsets or a mask as (N, channels, *size).

    MMCV indexes both by the output's size, whatever theirs is, and models rely on it.
    """
    if tensor.shape[1:] == (channels, *size):
        return tensor
    values, needed = tensor.flatten(1), channels * size[0] * size[1]
    if values.shape[1] < needed:
        raise ValueError(
            f"modulated_deform_conv: {name} must have {channels} channels of {size[0]} x {size[1]}, "
            f"got shape {tuple(tensor.shape)}"
        )
    return values[:, :needed].reshape(-1, channels, *size)


def masked_im2col_forward(
    im: Tensor,
    mask_h_idx: Tensor,
    mask_w_idx: Tensor,
    col: Tensor,
    kernel_h: int,
    kernel_w: int,
    pad_h: int,
    pad_w: int,
) -> None:
    """Write the values that the kernel reads at each position of the mask into a column of `col`."""
    padded = functional.pad(im[0], (pad_w, kernel_w, pad_h, kernel_h))  # a kernel may start at the last pixel
    rows = mask_h_idx + torch.arange(kernel_h)[:, None, None]
    columns = mask_w_idx + torch.arange(kernel_w)[:, None]
    write(col, padded[:, rows, columns])


def masked_col2im_forward(
    col: Tensor, mask_h_idx: Tensor, mask_w_idx: Tensor, im: Tensor, height: int, width: int, channels: int
) -> None:
    """Write the columns of `col` to the positions of the mask in `im`."""
    im[0, :, mask_h_idx, mask_w_idx] = col


def active_rotated_filter_forward(input: Tensor, indices: Tensor, output: Tensor) -> None:
    """Write the filters of all orientations into `output`."""
    write(output, mmort.torch.active_rotated_filter(input, indices))


def active_rotated_filter_backward(grad_out: Tensor, indices: Tensor, grad_in: Tensor) -> None:
    """Add the gradient of the filters to `grad_in`."""

    def rotate(filters: Tensor) -> Tensor:
        return mmort.torch.active_rotated_filter(filters, indices)

    grad_in += gradients(rotate, [torch.zeros_like(grad_in)], grad_out)[0]
