"""Regions that are pooled in plain torch: RoI pooling, precise and deformable RoI pooling, BorderAlign, BezierAlign."""

from __future__ import annotations

import torch
from torch import Tensor

from mmort.mmcv.derivatives import gradients
from mmort.mmcv.memory import write
from mmort.mmcv.sampling import bilinear, gradient_of_samples
from mmort.torch.gradients import bin_positions

__all__ = [
    "bezier_align_backward",
    "bezier_align_forward",
    "border_align_backward",
    "border_align_forward",
    "deform_roi_pool_backward",
    "deform_roi_pool_forward",
    "prroi_pool_backward",
    "prroi_pool_coor_backward",
    "prroi_pool_forward",
    "roi_pool_backward",
    "roi_pool_forward",
]


def roi_pool_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Write the maximum of each bin into `output`, and its flat index in the map, or -1, into `argmax`."""
    height, width = input.shape[2:]
    for index, roi in enumerate(rois):
        left, top, right, bottom = (roi[1:] + torch.tensor([0, 0, 1, 1])) * spatial_scale
        if right <= left or bottom <= top:
            continue
        rows = _pixels_of_bins(top, bottom, pooled_height, height)  # (PH, h)
        columns = _pixels_of_bins(left, right, pooled_width, width)  # (PW, w)
        pixels = rows[:, None, :, None] * width + columns[None, :, None, :]
        outside = ((rows < 0)[:, None, :, None] | (columns < 0)[None, :, None, :]).flatten(2)  # (PH, PW, h * w)
        if outside.shape[2] == 0:
            output[index], argmax[index] = 0, -1
            continue
        flat = pixels.flatten(2).masked_fill(outside, 0)
        values = input[int(roi[0])].flatten(1)[:, flat].masked_fill(outside, -torch.inf)
        maxima, positions = values.max(3)  # (C, PH, PW)
        empty = outside.all(2)
        output[index] = maxima.masked_fill(empty, 0)
        indices = flat.expand(len(values), -1, -1, -1).gather(3, positions[..., None])[..., 0]
        argmax[index] = indices.masked_fill(empty, -1).to(argmax.dtype)


def _pixels_of_bins(start: Tensor, end: Tensor, bins: int, size: int) -> Tensor:
    """Return the indices of the pixels that each bin of a range touches, (bins, pixels), filled up with -1."""
    edges = torch.arange(bins + 1, dtype=start.dtype) * ((end - start) / bins) + start
    first, last = edges[:-1].floor().clamp(0, size).long(), edges[1:].ceil().clamp(0, size).long()
    indices = first[:, None] + torch.arange(max(int((last - first).max()), 0))
    return torch.where(indices < last[:, None], indices, -1)


def roi_pool_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax: Tensor,
    grad_input: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Add each output's gradient to the pixel that is its maximum."""
    _, channels, height, width = grad_input.shape
    plane = rois[:, :1].long() * channels + torch.arange(channels)  # (K, C)
    pixels = plane[:, :, None, None] * (height * width) + argmax.clamp(min=0)
    values = grad_output * (argmax >= 0)
    flat = torch.zeros_like(grad_input).flatten().index_add_(0, pixels.flatten(), values.flatten())
    grad_input += flat.reshape(grad_input.shape)


def prroi_pool_forward(
    input: Tensor, rois: Tensor, output: Tensor, pooled_height: int, pooled_width: int, spatial_scale: float
) -> None:
    """Write the mean of the interpolated map over each bin into `output`."""
    write(output, _prroi_pool(input, rois, (pooled_height, pooled_width), spatial_scale))


def prroi_pool_backward(
    grad_output: Tensor, rois: Tensor, grad_input: Tensor, pooled_height: int, pooled_width: int, spatial_scale: float
) -> None:
    """Add the gradient of the map to `grad_input`."""

    def pool(input: Tensor) -> Tensor:
        return _prroi_pool(input, rois, (pooled_height, pooled_width), spatial_scale)

    grad_input += gradients(pool, [torch.zeros_like(grad_input)], grad_output)[0]


def prroi_pool_coor_backward(
    output: Tensor,
    grad_output: Tensor,
    input: Tensor,
    rois: Tensor,
    grad_rois: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Add the gradient of the regions' corners to `grad_rois`."""

    def pool(corners: Tensor) -> Tensor:
        regions = torch.cat([rois[:, :1], corners], 1)
        return _prroi_pool(input, regions, (pooled_height, pooled_width), spatial_scale)

    grad_rois[:, 1:] += gradients(pool, [rois[:, 1:]], grad_output)[0]


def _prroi_pool(input: Tensor, rois: Tensor, size: tuple[int, int], spatial_scale: float) -> Tensor:
    """Integrate over bins; interpolation is separable, so that ``integrals = rows @ pixels @ columns.T``."""
    left, top, right, bottom = (rois[:, 1:] * spatial_scale).unbind(1)
    rows = _integrals(top, bottom, size[0], input.shape[2])  # (K, PH, H)
    columns = _integrals(left, right, size[1], input.shape[3])  # (K, PW, W)
    pooled = [row @ input[int(image)] @ column.T for image, row, column in zip(rois[:, 0], rows, columns, strict=True)]
    return torch.stack(pooled) if pooled else input.new_zeros((0, input.shape[1], *size))


def _integrals(start: Tensor, end: Tensor, bins: int, size: int) -> Tensor:
    """Return the mean weight of each pixel in each bin of ranges (K,), (K, bins, size); 0 in empty ranges."""
    length = (end - start).clamp(min=0)
    edges = start[:, None] + length[:, None] / bins * torch.arange(bins + 1, dtype=start.dtype)
    offsets = (edges[..., None] - torch.arange(size, dtype=start.dtype)).clamp(-1, 1)
    below = torch.where(offsets < 0, (1 + offsets) ** 2 / 2, 1 - (1 - offsets) ** 2 / 2)  # integral of 1 - |t|
    step = (length / bins)[:, None, None]
    return (below[:, 1:] - below[:, :-1]) * torch.where(step > 0, 1 / torch.where(step > 0, step, 1), 0)


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
    """Write the mean of each bin's samples, moved by its offset, into `output`; `offset` may be empty."""
    size = pooled_height, pooled_width
    write(output, _deform_roi_pool(input, offset, rois, size, spatial_scale, sampling_ratio, gamma))


def deform_roi_pool_backward(
    grad_output: Tensor,
    input: Tensor,
    rois: Tensor,
    offset: Tensor,
    grad_input: Tensor,
    grad_offset: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    gamma: float,
) -> None:
    """Add the gradients of the map and the offsets."""
    size = pooled_height, pooled_width

    def pool(input: Tensor, offset: Tensor) -> Tensor:
        return _deform_roi_pool(input, offset, rois, size, spatial_scale, sampling_ratio, gamma)

    input_gradient, offset_gradient = gradients(pool, [input, offset], grad_output)
    grad_input += input_gradient
    grad_offset += offset_gradient


def _deform_roi_pool(
    input: Tensor,
    offset: Tensor,
    rois: Tensor,
    size: tuple[int, int],
    spatial_scale: float,
    sampling_ratio: int,
    gamma: float,
) -> Tensor:
    """Pool region by region, as each may have another number of samples."""
    pooled = [input.new_zeros((0, input.shape[1], *size))]
    for index, roi in enumerate(rois):
        left, top, right, bottom = roi[1:] * spatial_scale - 0.5
        rows = bin_positions(top, bottom - top, size[0], sampling_ratio)
        columns = bin_positions(left, right - left, size[1], sampling_ratio)
        y, x = rows[:, None, :, None], columns[None, :, None, :]  # (PH, 1, samples, 1), (1, PW, 1, samples)
        if offset.numel():
            x = x + gamma * (right - left) * offset[index, 0, :, :, None, None]
            y = y + gamma * (bottom - top) * offset[index, 1, :, :, None, None]
        pooled.append(_mean_of_samples(input, roi[0], y, x, (*size, rows.shape[1], columns.shape[1])))
    return torch.cat(pooled)


def _mean_of_samples(input: Tensor, image: Tensor, y: Tensor, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the means (1, C, PH, PW) of samples at positions that expand to (PH, PW, rows, columns); 0 for none."""
    y, x = y.expand(shape).flatten(), x.expand(shape).flatten()
    samples = bilinear(input, image.long().expand_as(y), y, x)
    return (samples.reshape(1, -1, *shape).sum((4, 5))) / max(shape[2] * shape[3], 1)


def bezier_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> None:
    """Write the mean of each bin between two Bezier curves into `output`."""
    size = aligned_height, aligned_width
    write(output, _bezier_align(input, rois, size, spatial_scale, sampling_ratio, aligned))


def bezier_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> None:
    """Add the gradient of the map to `grad_input`."""
    size = aligned_height, aligned_width

    def align(input: Tensor) -> Tensor:
        return _bezier_align(input, rois, size, spatial_scale, sampling_ratio, aligned)

    grad_input += gradients(align, [torch.zeros_like(grad_input)], grad_output)[0]


def _bezier_align(
    input: Tensor, rois: Tensor, size: tuple[int, int], spatial_scale: float, sampling_ratio: int, aligned: bool
) -> Tensor:
    """Pool region by region: bins are upright boxes around points between the upper and the lower curve."""
    pooled = [input.new_zeros((0, input.shape[1], *size))]
    across = torch.arange(size[1], dtype=rois.dtype) / size[1]
    down = (torch.arange(size[0], dtype=rois.dtype) / size[0])[:, None, None]
    basis = torch.stack([(1 - across) ** 3, 3 * across * (1 - across) ** 2, 3 * across**2 * (1 - across), across**3], 1)
    for roi in rois:
        points = (roi[1:] * spatial_scale).reshape(8, 2)
        upper, lower = basis @ points[:4], basis @ points[4:].flip(0)  # (PW, 2); the lower curve runs backwards
        centres = upper * (1 - down) + lower * down - (0.5 if aligned else 0)  # (PH, PW, 2)
        sides = torch.maximum((points[0] - points[3]).abs(), (points[4] - points[7]).abs())
        bin_width, bin_height = (sides if aligned else sides.clamp(min=1)) / torch.tensor([size[1], size[0]])
        rows = bin_positions(-bin_height / 2, bin_height, 1, sampling_ratio)[0]
        columns = bin_positions(-bin_width / 2, bin_width, 1, sampling_ratio)[0]
        y = centres[..., 1, None, None] + rows[:, None]
        x = centres[..., 0, None, None] + columns
        pooled.append(_mean_of_samples(input, roi[0], y, x, (*size, len(rows), len(columns))))
    return torch.cat(pooled)


def border_align_forward(input: Tensor, boxes: Tensor, output: Tensor, argmax_idx: Tensor, pool_size: int) -> None:
    """Write the largest sample along each side of the boxes into `output`, and its number into `argmax_idx`."""
    maps = torch.unflatten(input, 1, (4, -1)).flatten(0, 1)  # (N * 4, C, H, W)
    index = torch.arange(len(maps)).reshape(-1, 1, 4).expand(-1, boxes.shape[1], -1).flatten()
    output.fill_(-torch.inf)
    for step in range(pool_size + 1):  # step by step, as all samples of large maps would take gigabytes
        y, x = _border_positions(boxes, step, pool_size)
        samples = bilinear(maps, index, y.flatten(), x.flatten())
        values = samples.reshape(maps.shape[1], *y.shape).transpose(0, 1)  # (N, C, boxes, 4)
        larger = values > output
        output[larger], argmax_idx[larger] = values[larger], step


def border_align_backward(
    grad_output: Tensor, boxes: Tensor, argmax_idx: Tensor, grad_input: Tensor, pool_size: int
) -> None:
    """Add the gradient of the map to `grad_input`."""
    y, x = _border_positions(boxes[:, None], argmax_idx, pool_size)  # (N, C, boxes, 4)
    images, channels = argmax_idx.shape[:2]
    side = torch.arange(images)[:, None, None, None] * 4 + torch.arange(4)
    plane = (side * channels + torch.arange(channels)[:, None, None]).expand_as(argmax_idx)
    grad_input += gradient_of_samples(torch.zeros_like(grad_input), plane, y, x, grad_output)


def _border_positions(boxes: Tensor, step: Tensor | int, pool_size: int) -> tuple[Tensor, Tensor]:
    """Return y and x of a sample on the upper, left, lower and right side of boxes (..., 4)."""
    left, top, right, bottom = boxes.unbind(-1)
    nowhere = torch.zeros_like(left)
    width, height = (right - left) / pool_size, (bottom - top) / pool_size
    y = torch.stack([top, top, bottom, bottom], -1) + torch.stack([nowhere, height, nowhere, -height], -1) * step
    x = torch.stack([left, left, right, right], -1) + torch.stack([width, nowhere, -width, nowhere], -1) * step
    return y, x
