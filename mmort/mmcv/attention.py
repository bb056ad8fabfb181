"""Attention: to points of several feature maps, and of each point to a window around it."""

from __future__ import annotations

import torch
from torch import Tensor

import mmort.torch
from mmort.mmcv.memory import write

__all__ = ["ms_deform_attn_backward", "ms_deform_attn_forward", "psamask_backward", "psamask_forward"]


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


def psamask_forward(
    input: Tensor,
    output: Tensor,
    psa_type: int,
    num_: int,
    h_feature: int,
    w_feature: int,
    h_mask: int,
    w_mask: int,
    half_h_mask: int,
    half_w_mask: int,
) -> None:
    """Write each position's mask (N, h_mask * w_mask, H, W) into a map of the whole feature map.

    Collecting, the channels of `output` are the map, distributing, the position.
    """
    _require_sizes("psamask_forward", input, output, num_, (h_feature, w_feature), (h_mask, w_mask))
    rows, columns = _window(h_feature, h_mask, half_h_mask), _window(w_feature, w_mask, half_w_mask)
    position, source, target = _pairs_in_window(rows, columns, w_feature, w_mask)
    attention = input.new_zeros(num_, h_feature * w_feature, h_feature * w_feature)
    attention[:, target, position] = input.reshape(num_, h_mask * w_mask, h_feature * w_feature)[:, source, position]
    write(output, attention if psa_type == 0 else attention.transpose(1, 2))


def psamask_backward(
    grad_output: Tensor,
    grad_input: Tensor,
    psa_type: int,
    num_: int,
    h_feature: int,
    w_feature: int,
    h_mask: int,
    w_mask: int,
    half_h_mask: int,
    half_w_mask: int,
) -> None:
    """Write the gradient of the masks into `grad_input`, which is zero."""
    _require_sizes("psamask_backward", grad_input, grad_output, num_, (h_feature, w_feature), (h_mask, w_mask))
    rows, columns = _window(h_feature, h_mask, half_h_mask), _window(w_feature, w_mask, half_w_mask)
    position, source, target = _pairs_in_window(rows, columns, w_feature, w_mask)
    gradient = grad_output.reshape(num_, h_feature * w_feature, h_feature * w_feature)
    if psa_type == 1:
        gradient = gradient.transpose(1, 2)
    masks = gradient.new_zeros(num_, h_mask * w_mask, h_feature * w_feature)
    masks[:, source, position] = gradient[:, target, position]
    write(grad_input, masks)


def _require_sizes(
    function: str, masks: Tensor, maps: Tensor, images: int, feature: tuple[int, int], mask: tuple[int, int]
) -> None:
    """Raise ValueError if sizes are not those of the masks and of the maps: memory grows with the sizes."""
    height, width = feature
    sizes = images * mask[0] * mask[1] * height * width, images * (height * width) ** 2
    if min(images, *feature, *mask) < 0 or sizes != (masks.numel(), maps.numel()):
        raise ValueError(
            f"mmcv._ext.{function}: num_ {images}, features {[*feature]} and masks {[*mask]} must be those of the "
            f"tensors, got {[*masks.shape]} and {[*maps.shape]}"
        )


def _window(size: int, mask: int, half: int) -> Tensor:
    """Return (position, index in the mask, position that it is for) along an axis, (3, pairs), inside the map."""
    position, index = torch.meshgrid(torch.arange(size), torch.arange(mask), indexing="ij")
    triples = torch.stack([position, index, position + index - half]).flatten(1)
    return triples[:, (triples[2] >= 0) & (triples[2] < size)]


def _pairs_in_window(rows: Tensor, columns: Tensor, width: int, mask_width: int) -> Tensor:
    """Return the flat (position, index in the mask, position that it is for) of both axes, (3, pairs)."""
    strides = torch.tensor([width, mask_width, width])[:, None, None]
    return (rows[:, :, None] * strides + columns[:, None, :]).flatten(1)
