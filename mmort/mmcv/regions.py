"""Regions that mmort's kernels pool: RoIAlign and its rotated variants, and the features of rotated boxes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

import mmort.torch
from mmort.mmcv.derivatives import gradients
from mmort.mmcv.memory import write
from mmort.mmcv.sampling import bilinear, gradient_of_samples
from mmort.torch.gradients import bin_positions

__all__ = [
    "riroi_align_rotated_backward",
    "riroi_align_rotated_forward",
    "roi_align_backward",
    "roi_align_forward",
    "roi_align_rotated_backward",
    "roi_align_rotated_forward",
    "rotated_feature_align_backward",
    "rotated_feature_align_forward",
]

POOL_MODES: tuple[Literal["max"], Literal["avg"]] = ("max", "avg")


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
    """Write pooled regions into `output`; for "max", also the position of each maximum."""
    size, mode = (aligned_height, aligned_width), POOL_MODES[pool_mode]
    write(output, mmort.torch.roi_align(input, rois, size, spatial_scale, sampling_ratio, mode, aligned))
    if mode == "max":
        for index, roi in enumerate(rois):
            y, x = _positions_of_maxima(input, roi, size, spatial_scale, sampling_ratio, aligned)
            argmax_y[index], argmax_x[index] = y, x


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Add the gradient of the input to `grad_input`."""
    if POOL_MODES[pool_mode] == "max":
        channels = grad_input.shape[1]
        plane = rois[:, :1].long() * channels + torch.arange(channels)  # (K, C)
        planes = plane[:, :, None, None].expand_as(argmax_y)
        grad_input += gradient_of_samples(torch.zeros_like(grad_input), planes, argmax_y, argmax_x, grad_output)
        return
    size = [aligned_height, aligned_width]
    (gradient,) = torch.ops.mmort.roi_align_backward(
        grad_output, grad_input, rois, size, spatial_scale, sampling_ratio, "avg", aligned
    )
    grad_input += gradient


def _positions_of_maxima(
    input: Tensor, roi: Tensor, size: tuple[int, int], spatial_scale: float, sampling_ratio: int, aligned: bool
) -> list[Tensor]:
    """Return y and x of the largest sample of each bin of a region, (C, PH, PW) each; -1 where there are no samples."""
    left, top, right, bottom = roi[1:] * spatial_scale - (0.5 if aligned else 0.0)
    lengths = [side if aligned else side.clamp(min=1) for side in (bottom - top, right - left)]
    y, x = (
        bin_positions(start, length, bins, sampling_ratio)
        for start, length, bins in zip((top, left), lengths, size, strict=True)
    )
    if not y.numel() * x.numel():
        return [input.new_full((input.shape[1], *size), -1)] * 2
    grid = [
        positions.expand(*size, y.shape[1], x.shape[1]).flatten(2)
        for positions in (y[:, None, :, None], x[None, :, None, :])
    ]
    values = bilinear(input, roi[0].long().expand(grid[0].numel()), *(positions.flatten() for positions in grid))
    largest = values.reshape(-1, *grid[0].shape).argmax(3, keepdim=True)  # (C, PH, PW, 1)
    return [positions.expand(len(largest), -1, -1, -1).gather(3, largest)[..., 0] for positions in grid]


def roi_align_rotated_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    clockwise: bool,
) -> None:
    """Write pooled rotated regions into `output`."""
    size = pooled_height, pooled_width
    write(output, mmort.torch.roi_align_rotated(input, rois, size, spatial_scale, sampling_ratio, aligned, clockwise))


def roi_align_rotated_backward(
    grad_output: Tensor,
    rois: Tensor,
    grad_input: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
    clockwise: bool,
) -> None:
    """Add the gradient of the input to `grad_input`."""
    size = [pooled_height, pooled_width]
    (gradient,) = torch.ops.mmort.roi_align_rotated_backward(
        grad_output, grad_input, rois, size, spatial_scale, sampling_ratio, aligned, clockwise
    )
    grad_input += gradient


def riroi_align_rotated_forward(
    features: Tensor,
    rois: Tensor,
    output: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    num_samples: int,
    num_orientations: int,
    clockwise: bool,
) -> None:
    """Write pooled rotated regions, whose orientations turn with them, into `output`."""
    size = pooled_height, pooled_width
    write(
        output,
        mmort.torch.riroi_align_rotated(features, rois, size, spatial_scale, num_samples, num_orientations, clockwise),
    )


def riroi_align_rotated_backward(
    grad_output: Tensor,
    rois: Tensor,
    grad_input: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    num_samples: int,
    num_orientations: int,
    clockwise: bool,
) -> None:
    """Add the gradient of the features to `grad_input`."""
    size = pooled_height, pooled_width

    def pool(features: Tensor) -> Tensor:
        return mmort.torch.riroi_align_rotated(
            features, rois, size, spatial_scale, num_samples, num_orientations, clockwise
        )

    grad_input += gradients(pool, [torch.zeros_like(grad_input)], grad_output)[0]


def rotated_feature_align_forward(
    features: Tensor, best_bboxes: Tensor, output: Tensor, spatial_scale: float, points: int
) -> None:
    """Write features plus their samples at the points of each location's rotated box into `output`."""
    boxes = _of_locations(best_bboxes, features)
    write(output, mmort.torch.rotated_feature_align(features, boxes, spatial_scale, points))


def rotated_feature_align_backward(
    grad_output: Tensor, best_bboxes: Tensor, grad_input: Tensor, spatial_scale: float, points: int
) -> None:
    """Add the gradient of the features to `grad_input`."""
    best_bboxes = _of_locations(best_bboxes, grad_input)
    centre_y, centre_x, width, height = (best_bboxes[..., :4] * spatial_scale).unbind(-1)  # (N, H, W), as MMCV reads
    cos, sin = best_bboxes[..., 4].cos() / 2, best_bboxes[..., 4].sin() / 2
    signs = [(0, 0)] if points == 1 else [(0, 0), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    image = torch.arange(len(best_bboxes))[:, None, None].expand_as(centre_x).flatten()

    def align(features: Tensor) -> Tensor:
        sampled = features.transpose(0, 1).flatten(1)  # (C, N * H * W)
        for along, down in signs:
            x = centre_x + along * width * cos - down * height * sin
            y = centre_y + along * width * sin + down * height * cos
            sampled = sampled + bilinear(features, image, y.flatten(), x.flatten())
        return torch.unflatten(sampled, 1, centre_x.shape).transpose(0, 1)

    grad_input += gradients(align, [torch.zeros_like(grad_input)], grad_output)[0]


def _of_locations(boxes: Tensor, features: Tensor) -> Tensor:
    """Return boxes as (N, H, W, 5), one for each location of the features; MMRotate gives them as (N * H * W, 5)."""
    images, _, height, width = features.shape
    return boxes.reshape(images, height, width, 5)
