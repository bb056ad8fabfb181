"""CARAFE: upsampling with predicted kernels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

import mmort.torch
from mmort.mmcv.derivatives import gradients
from mmort.mmcv.memory import write

__all__ = ["carafe_backward", "carafe_forward", "carafe_naive_backward", "carafe_naive_forward"]


def carafe_naive_forward(
    features: Tensor, masks: Tensor, output: Tensor, kernel_size: int, group_size: int, scale_factor: int
) -> None:
    """Write the upsampled features into `output`."""
    write(output, mmort.torch.carafe(features, masks, kernel_size, group_size, scale_factor))


def carafe_naive_backward(
    top_grad: Tensor,
    features: Tensor,
    masks: Tensor,
    bottom_grad: Tensor,
    mask_grad: Tensor,
    kernel_size: int,
    group_size: int,
    scale_factor: int,
) -> None:
    """Add the gradients of features and masks."""

    def upsample(features: Tensor, masks: Tensor) -> Tensor:
        images, channels, height, width = features.shape
        windows = functional.unfold(features, kernel_size, padding=kernel_size // 2)  # (N, C * taps, H * W)
        windows = windows.reshape(images, group_size, channels // group_size, kernel_size**2, height, width)
        scaled = masks.reshape(images, group_size, kernel_size**2, height, scale_factor, width, scale_factor)
        return torch.einsum("ngcthw,ngthywx->ngchywx", windows, scaled).reshape(images, channels, *masks.shape[2:])

    feature_gradient, mask_gradient = gradients(upsample, [features, masks], top_grad)
    bottom_grad += feature_gradient
    mask_grad += mask_gradient


def carafe_forward(
    features: Tensor,
    masks: Tensor,
    rfeatures: Tensor,
    routput: Tensor,
    rmasks: Tensor,
    output: Tensor,
    kernel_size: int,
    group_size: int,
    scale_factor: int,
) -> None:
    """Write the upsampled features into `output`; `rfeatures` hands the features to the backward pass."""
    write(rfeatures, features)
    carafe_naive_forward(features, masks, output, kernel_size, group_size, scale_factor)


def carafe_backward(
    top_grad: Tensor,
    rfeatures: Tensor,
    masks: Tensor,
    rtop_grad: Tensor,
    rbottom_grad_hs: Tensor,
    rbottom_grad: Tensor,
    rmask_grad: Tensor,
    bottom_grad: Tensor,
    mask_grad: Tensor,
    kernel_size: int,
    group_size: int,
    scale_factor: int,
) -> None:
    """Add the gradients of features and masks."""
    carafe_naive_backward(top_grad, rfeatures, masks, bottom_grad, mask_grad, kernel_size, group_size, scale_factor)
