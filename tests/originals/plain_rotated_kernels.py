"""MMCV's compiled operators for rotated boxes in plain torch, as far as detectors need them for inference."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import shapely
import torch
from torch import Tensor, nn


def nms_rotated(
    boxes: Tensor,
    scores: Tensor,
    order: Tensor,
    sorted_boxes: Tensor,
    labels: Tensor,
    iou_threshold: float,
    multi_label: bool,
) -> Tensor:
    if multi_label:
        raise NotImplementedError("nms_rotated: labels")
    rectangles = shapely.polygons(_corners(boxes[order].double()).numpy())
    areas = shapely.area(rectangles)
    suppressed, kept = np.zeros(len(boxes), bool), []
    for position in range(len(boxes)):
        if suppressed[position]:
            continue
        kept.append(position)
        later = np.arange(position + 1, len(boxes))
        common = shapely.area(shapely.intersection(rectangles[position], rectangles[later]))
        overlaps = common / np.maximum(areas[position] + areas[later] - common, 1e-300)
        suppressed[later] |= overlaps >= iou_threshold  # as in MMCV on a CPU; on CUDA at more than the threshold
    return order[kept]


def _corners(boxes: Tensor) -> Tensor:
    """Return the corners (N, 4, 2) of boxes: centre x, y, width, height, angle."""
    turn = torch.stack([boxes[:, 4].cos(), boxes[:, 4].sin(), -boxes[:, 4].sin(), boxes[:, 4].cos()], 1)
    halves = boxes.new_tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * boxes[:, None, 2:4] / 2
    return boxes[:, None, :2] + halves @ turn.reshape(-1, 2, 2)


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
    for roi, pooled in zip(rois, output, strict=True):
        centre = roi[1:3] * spatial_scale - (0.5 if aligned else 0)
        sides = roi[3:5] * spatial_scale
        region = torch.cat([centre, sides if aligned else sides.clamp(min=1), roi[5:]])
        pooled.copy_(_pooled(input[int(roi[0])], region, (pooled_height, pooled_width), sampling_ratio, clockwise))


def _pooled(features: Tensor, region: Tensor, size: tuple[int, int], sampling_ratio: int, clockwise: bool) -> Tensor:
    """Average the samples in each bin of a region in cells: centre x, y, width, height, angle."""
    centre, sides, angle = region[:2], region[2:4], region[4] if clockwise else -region[4]
    across, along = (
        _sample_positions(float(side), bins, sampling_ratio) for side, bins in zip(sides, size[::-1], strict=True)
    )
    if not len(across) or not len(along):
        return features.new_zeros(len(features), *size)
    x, y = (values.to(features) for values in (across, along[:, None]))
    columns = centre[0] + x * angle.cos() - y * angle.sin()
    rows = centre[1] + x * angle.sin() + y * angle.cos()
    samples = _samples(features, rows, columns)
    samples = samples.reshape(len(features), size[0], len(along) // size[0], size[1], len(across) // size[1])
    return samples.mean((2, 4))


def _sample_positions(side: float, bins: int, sampling_ratio: int) -> Tensor:
    """Return where a side is sampled, from its middle."""
    count = bins * (sampling_ratio if sampling_ratio > 0 else math.ceil(np.float32(side) / np.float32(bins)))
    return ((torch.arange(count, dtype=torch.float64) + 0.5) / max(count, 1) - 0.5) * side


def _samples(features: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Sample features (C, H, W) between their cells, as at the edge up to a cell outside, and as 0 beyond."""
    height, width = features.shape[1:]
    inside = (rows >= -1) & (rows <= height) & (columns >= -1) & (columns <= width)
    grid = torch.stack([2 * columns / max(width - 1, 1) - 1, 2 * rows / max(height - 1, 1) - 1], 2)
    options = {"mode": "bilinear", "padding_mode": "border", "align_corners": True}
    return nn.functional.grid_sample(features[None], grid[None].to(features), **options)[0] * inside


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
    """Pool regions whose orientation channels are turned by the region's angle too."""
    for roi, pooled in zip(rois, output, strict=True):
        region = torch.cat([roi[1:3] * spatial_scale, (roi[3:5] * spatial_scale).clamp(min=1), roi[5:]])
        maps = _pooled(features[int(roi[0])], region, (pooled_height, pooled_width), num_samples, clockwise)
        maps = maps.reshape(-1, num_orientations, pooled_height, pooled_width)
        steps = roi[5] * num_orientations / (2 * math.pi)
        whole = int(steps.floor())
        part = steps - whole
        turned = (1 - part) * maps.roll(whole, 1) + part * maps.roll(whole - 1, 1)
        pooled.copy_(turned.reshape(pooled.shape))


def rotated_feature_align_forward(
    features: Tensor, best_bboxes: Tensor, output: Tensor, spatial_scale: float, points: int
) -> None:
    """Add to each cell the samples at its box's centre, and at its corners if there are 5 points.

    MMCV reads the first number of a box as y and the second as x.
    """
    height, width = features.shape[2:]
    for maps, boxes, result in zip(features, best_bboxes.reshape(len(features), -1, 5), output, strict=True):
        cells = torch.cat([boxes[:, [1, 0, 2, 3]] * spatial_scale, boxes[:, 4:]], 1)
        positions = cells[:, None, :2]
        if points == 5:
            positions = torch.cat([positions, _corners(cells)], 1)
        samples = _samples(maps, positions[..., 1], positions[..., 0])
        result.copy_(maps + samples.sum(2).reshape(-1, height, width))


def active_rotated_filter_forward(input: Tensor, indices: Tensor, output: Tensor) -> None:
    filters, channels = input.shape[:2]
    rotations = indices.shape[3]
    turned = output.reshape(filters, rotations, channels, -1)
    for rotation in range(rotations):
        turned[:, rotation, :, indices[..., rotation].flatten().long() - 1] = input.flatten(2)


def min_area_polygons(pointsets: Tensor, polygons: Tensor) -> None:
    """Write the smallest rectangle around each set of points: it has a side along a line through two of them.

    The first of equally small ones, as those around a triangle are: rounding decides between them in MMCV and mmort.
    """
    points = pointsets.reshape(len(pointsets), -1, 2).double()
    pairs = torch.tensor(list(combinations(range(points.shape[1]), 2)))
    ways = points[:, pairs[:, 1]] - points[:, pairs[:, 0]]
    angles = torch.atan2(ways[..., 1], ways[..., 0]) % (math.pi / 2)
    along = torch.stack([angles.cos(), angles.sin()], 2)
    across = torch.stack([-angles.sin(), angles.cos()], 2)
    x, y = points @ along.mT, points @ across.mT
    areas = (x.amax(1) - x.amin(1)) * (y.amax(1) - y.amin(1))
    smallest = areas <= areas.amin(1, keepdim=True) * (1 + 1e-9)
    best = torch.arange(len(points)), smallest.int().argmax(1)
    left, right, top, bottom = (extreme(1)[best][:, None] for extreme in (x.amin, x.amax, y.amin, y.amax))
    corners = (right, top), (left, top), (left, bottom), (right, bottom)
    polygons.copy_(torch.cat([x * along[best] + y * across[best] for x, y in corners], 1))


KERNELS = (
    nms_rotated,
    roi_align_rotated_forward,
    riroi_align_rotated_forward,
    rotated_feature_align_forward,
    active_rotated_filter_forward,
    min_area_polygons,
)
