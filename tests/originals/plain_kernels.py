"""MMCV's compiled operators that detectors need for inference, in plain torch, as ``mmcv._ext``.

They share no code with mmort's kernels, so that an error of these cannot be on both sides of a comparison.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.originals import plain_rotated_kernels


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    order = scores.argsort(descending=True, stable=True)
    boxes = boxes[order]
    suppressed, kept = np.zeros(len(boxes), bool), []
    for position in range(len(boxes)):
        if not suppressed[position]:
            kept.append(position)
            suppressed |= (_overlaps(boxes[position], boxes, offset) > iou_threshold).numpy()
    return order[kept]


def _overlaps(box: Tensor, boxes: Tensor, offset: int) -> Tensor:
    """Return the intersection over union of a box with others."""
    sides = (torch.minimum(box[2:], boxes[:, 2:]) - torch.maximum(box[:2], boxes[:, :2]) + offset).clamp(min=0)
    areas = (boxes[:, 2:] - boxes[:, :2] + offset).prod(1)
    intersection = sides.prod(1)
    return intersection / (areas + (box[2:] - box[:2] + offset).prod() - intersection)


def softnms(
    boxes: Tensor,
    scores: Tensor,
    dets: Tensor,
    iou_threshold: float,
    sigma: float,
    min_score: float,
    method: int,
    offset: int,
) -> Tensor:
    """Write boxes and decayed scores to `dets`, and return the boxes' indices."""
    scores, remaining, kept = scores.clone(), torch.arange(len(scores)), []
    while len(remaining):
        position = int(scores[remaining].argmax())
        best = remaining[position]
        dets[len(kept), :4], dets[len(kept), 4] = boxes[best], scores[best]
        kept.append(best)
        remaining = torch.cat([remaining[:position], remaining[position + 1 :]])
        overlaps = _overlaps(boxes[best], boxes[remaining], offset)
        above = overlaps >= iou_threshold
        if method == 0:
            scores[remaining] *= (~above).to(scores)
        elif method == 1:
            scores[remaining] *= torch.where(above, 1 - overlaps, torch.ones_like(overlaps))
        else:
            scores[remaining] *= (-(overlaps**2) / sigma).exp()
        remaining = remaining[scores[remaining] >= min_score]
    return torch.stack(kept) if kept else remaining


def roi_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    size = aligned_height, aligned_width
    if pool_mode == 1:
        output.copy_(_roi_align(input, rois, size, spatial_scale, sampling_ratio, aligned))
        return
    if sampling_ratio < 1:
        raise NotImplementedError("roi_align: the maximum over an adaptive number of samples")
    fine = aligned_height * sampling_ratio, aligned_width * sampling_ratio  # a bin for each sample
    output.copy_(nn.functional.max_pool2d(_roi_align(input, rois, fine, spatial_scale, 1, aligned), sampling_ratio))


def _roi_align(
    input: Tensor, rois: Tensor, size: tuple[int, int], spatial_scale: float, sampling_ratio: int, aligned: bool
) -> Tensor:
    """Average the bilinear samples of each bin: rows and columns are weighted apart, as the weights are products."""
    corners = rois[:, 1:] * spatial_scale - (0.5 if aligned else 0)
    sides = corners[:, 2:] - corners[:, :2]
    if not aligned:
        sides = sides.clamp(min=1)
    columns, rows = (
        _weights_of_bins(corners[:, axis], sides[:, axis], size[1 - axis], input.shape[3 - axis], sampling_ratio)
        for axis in (0, 1)
    )
    pooled = input.new_zeros(len(rois), input.shape[1], *size)
    for image in range(len(input)):
        chosen = rois[:, 0] == image
        pooled[chosen] = torch.einsum("kph,chw,kqw->kcpq", rows[chosen], input[image], columns[chosen])
    return pooled


def _weights_of_bins(start: Tensor, side: Tensor, bins: int, cells: int, sampling_ratio: int) -> Tensor:
    """Return the weight of each cell of an axis in each bin of each region, (K, bins, cells)."""
    counts = torch.full_like(side, sampling_ratio) if sampling_ratio > 0 else (side / bins).ceil()
    counts = counts[:, None, None]  # 0 for a side of 0, and below for one that ends before it begins
    samples = torch.arange(int(counts.max()) if len(counts) else 0)
    width = (side / bins)[:, None, None]
    positions = start[:, None, None] + torch.arange(bins)[:, None] * width
    positions = positions + (samples + 0.5) * width / counts.clamp(min=1)
    used = (samples < counts) & (positions >= -1) & (positions <= cells)
    positions = positions.clamp(0, cells - 1)
    distances = (positions[..., None] - torch.arange(cells)).abs()
    weights = (1 - distances).clamp(min=0) * used[..., None] / counts.clamp(min=1)[..., None]
    return weights.sum(2)


def roi_pool_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    height, width = input.shape[2:]
    for roi, pooled in zip(rois.tolist(), output, strict=True):
        left, top, right, bottom = (int(np.floor(side * spatial_scale + 0.5)) for side in roi[1:])
        rows = _cells_of_bins(top, bottom, pooled_height, height)
        columns = _cells_of_bins(left, right, pooled_width, width)
        for row, (first_row, last_row) in enumerate(rows):
            for column, (first, last) in enumerate(columns):
                cells = input[int(roi[0]), :, first_row:last_row, first:last].flatten(1)
                pooled[:, row, column] = cells.amax(1) if cells.numel() else 0


def _cells_of_bins(start: int, end: int, bins: int, cells: int) -> list[tuple[int, int]]:
    """Return the first and the last cell, exclusive, of each bin of an axis."""
    side = np.float32(max(end - start + 1, 1)) / np.float32(bins)
    edges = [(int(np.floor(bin * side)) + start, int(np.ceil((bin + 1) * side)) + start) for bin in range(bins)]
    return [(min(max(first, 0), cells), min(max(last, 0), cells)) for first, last in edges]


def deform_roi_pool_forward(
    input: Tensor,
    rois: Tensor,
    offset: Tensor,
    output: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    gamma: float,
) -> None:
    """Pool each bin from a region that is moved by the bin's offset."""
    size = rois[:, 3:] - rois[:, 1:3]
    for row in range(pooled_height):
        for column in range(pooled_width):
            moved = rois.clone()
            if offset.numel():
                moved[:, 1:] += (gamma * size * offset[:, :, row, column]).repeat(1, 2)
            size_in_bins = pooled_height, pooled_width
            pooled = _roi_align(input, moved, size_in_bins, spatial_scale, sampling_ratio, aligned=True)
            output[:, :, row, column] = pooled[:, :, row, column]


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
    if input.shape[1] != weight.shape[1] * group:
        raise ValueError(f"deform_conv: {input.shape[1]} channels for weights {tuple(weight.shape)} and {group} groups")
    ones = offset.new_ones(len(offset), offset.shape[1] // 2, *offset.shape[2:])
    output.copy_(_deform_conv(input, weight, offset, ones, (dH, dW), (padH, padW), (dilationH, dilationW)))


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
    side = output.shape[2:]
    steps = (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w)
    result = _deform_conv(input, weight, _of_side(offset, side), _of_side(mask, side), *steps)
    output.copy_(result + bias[:, None, None] if with_bias else result)


def _deform_conv(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> Tensor:
    """Sample the input at each tap's moved positions, and multiply the samples with the weights."""
    number, channels = input.shape[:2]
    height, width = offset.shape[2:]
    taps = weight.shape[2] * weight.shape[3]
    groups = offset.shape[1] // (2 * taps)
    grid = [torch.arange(count) * stride[axis] - padding[axis] for axis, count in enumerate((height, width))]
    kernel = [torch.arange(weight.shape[2 + axis]) * dilation[axis] for axis in range(2)]
    rows = grid[0][:, None] + kernel[0].repeat_interleave(weight.shape[3])[:, None, None]
    columns = grid[1] + kernel[1].repeat(weight.shape[2])[:, None, None]
    moves = offset.reshape(number, groups, taps, 2, height, width)
    samples = _bilinear(
        input.reshape(number, groups, channels // groups, *input.shape[2:]),
        rows + moves[:, :, :, 0],
        columns + moves[:, :, :, 1],
    )
    samples = samples * mask.reshape(number, groups, 1, taps, height, width)
    of_groups = samples.reshape(number, channels // weight.shape[1], weight.shape[1] * taps, height, width)
    weights = weight.reshape(of_groups.shape[1], -1, weight.shape[1] * taps)
    return torch.einsum("gok,ngkhw->ngohw", weights, of_groups).reshape(number, -1, height, width)


def _bilinear(input: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Sample (N, G, C, H, W) at positions (N, G, ...); zeros are outside."""
    height, width = input.shape[3:]
    flat, top, left = input.flatten(3), rows.floor(), columns.floor()
    total = torch.zeros((), dtype=input.dtype)
    for row, row_weight in ((top, top + 1 - rows), (top + 1, rows - top)):
        for column, column_weight in ((left, left + 1 - columns), (left + 1, columns - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            cell = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long()
            index = cell.flatten(2)[:, :, None].expand(-1, -1, flat.shape[2], -1)
            values = flat.gather(3, index).reshape(*flat.shape[:3], *cell.shape[2:])
            total = total + values * (row_weight * column_weight * inside)[:, :, None]
    return total


def _of_side(maps: Tensor, side: tuple[int, ...]) -> Tensor:
    """Return maps as MMCV's kernel reads them: as if they were of the output's size, whatever theirs."""
    if maps.shape[2:] == side:
        return maps
    count, channels = maps.shape[:2]
    return maps.reshape(count, -1)[:, : channels * side[0] * side[1]].reshape(count, channels, *side)


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
    number, channels, height, width = features.shape
    patches = nn.functional.unfold(features, kernel_size, padding=kernel_size // 2)
    patches = patches.reshape(number, channels * kernel_size**2, height, width)
    patches = nn.functional.interpolate(patches, scale_factor=scale_factor, mode="nearest")
    shape = height * scale_factor, width * scale_factor
    patches = patches.reshape(number, group_size, channels // group_size, kernel_size**2, *shape)
    weights = masks.reshape(number, group_size, 1, kernel_size**2, *shape)
    output.copy_((patches * weights).sum(3).reshape(output.shape))


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
    columns = nn.functional.unfold(im[:1], (kernel_h, kernel_w), padding=(pad_h, pad_w))[0]
    width = im.shape[3] + 2 * pad_w - kernel_w + 1
    col.copy_(columns[:, mask_h_idx * width + mask_w_idx])


def masked_col2im_forward(
    col: Tensor, mask_h_idx: Tensor, mask_w_idx: Tensor, im: Tensor, height: int, width: int, channels: int
) -> None:
    im[0, :, mask_h_idx, mask_w_idx] = col


class _PlainKernels(ModuleType):
    """``mmcv._ext``; an operator that is not here raises when it is called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*arguments: Any, **keywords: Any) -> None:
            raise NotImplementedError(f"mmcv._ext.{name}")

        return missing


def install() -> None:
    """Make MMCV import these kernels.

    Raises
    ------
    ImportError
        If MMCV has others already.
    """
    if isinstance(sys.modules.get("mmcv._ext"), _PlainKernels):
        return
    if "mmcv._ext" in sys.modules:
        raise ImportError("mmcv._ext is loaded already, from elsewhere")
    module = _PlainKernels("mmcv._ext")
    module.__spec__ = ModuleSpec("mmcv._ext", None)  # MMCV asks whether there is such a module
    kernels = (
        nms,
        softnms,
        roi_align_forward,
        roi_pool_forward,
        deform_roi_pool_forward,
        deform_conv_forward,
        modulated_deform_conv_forward,
        carafe_forward,
        masked_im2col_forward,
        masked_col2im_forward,
        *plain_rotated_kernels.KERNELS,
    )
    for kernel in kernels:
        setattr(module, kernel.__name__, kernel)
    sys.modules["mmcv._ext"] = module
