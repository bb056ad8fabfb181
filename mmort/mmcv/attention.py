"""Attention: to points of several feature maps."""

from __future__ import annotations

import torch
from torch import Tensor

import mmort.torch

__all__ = ["ms_deform_attn_backward", "ms_deform_attn_forward"]


def ms_deform_attn_forward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    im2col_step: int,
) -> Tensor:
    """Return the weighted samples of each query, (N, Q, heads * channels)."""
    return mmort.torch.multi_scale_deformable_attention(
        value, value_spatial_shapes, value_level_start_index, sampling_locations, attention_weights
    )


def ms_deform_attn_backward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    grad_output: Tensor,
    grad_value: Tensor,
    grad_sampling_loc: Tensor,
    grad_attn_weight: Tensor,
    im2col_step: int,
) -> None:
    """Add the gradients of the values, locations and weights."""
    computed = torch.ops.mmort.multi_scale_deformable_attention_backward(
        grad_output,
        value,
        value_spatial_shapes,
        value_level_start_index,
        sampling_locations,
        attention_weights,
    )
    for target, gradient in zip((grad_value, grad_sampling_loc, grad_attn_weight), computed, strict=True):
        target += gradient
