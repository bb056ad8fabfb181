"""Growing text instances from their kernels, as PSENet and PAN do."""

from __future__ import annotations

from collections import deque

import numpy as np
from torch import Tensor

__all__ = ["contour_expand", "pixel_group"]

NEIGHBORS = ((-1, 0), (1, 0), (0, -1), (0, 1))  # MMCV's order, which decides who takes a pixel


def contour_expand(
    kernel_mask: Tensor, internal_kernel_label: Tensor, min_kernel_area: int, kernel_num: int
) -> list[list[int]]:
    """Return the label of each pixel after labels have spread over the first mask of `kernel_mask` (K, H, W).

    As in MMCV every round reads that first, largest mask, so that all but one change nothing.  Labels of a smaller
    area than `min_kernel_area` do not spread.
    """
    seeds = internal_kernel_label.numpy()
    areas = np.bincount(seeds.ravel(), minlength=kernel_num + 1)
    labels = np.where(areas[seeds] >= min_kernel_area, seeds, 0)
    if len(kernel_mask) > 1:
        mask = kernel_mask[0].numpy() != 0
        queue = deque((int(row), int(column)) for row, column in zip(*labels.nonzero(), strict=True))
        while queue:
            row, column = queue.popleft()
            for pixel in _neighbors(row, column, mask.shape):
                if mask[pixel] and not labels[pixel]:
                    labels[pixel] = labels[row, column]
                    queue.append(pixel)
    result: list[list[int]] = labels.tolist()
    return result


def pixel_group(
    score: Tensor,
    mask: Tensor,
    embedding: Tensor,
    kernel_label: Tensor,
    kernel_contour: Tensor,
    kernel_region_num: int,
    distance_threshold: float,
) -> list[list[float]]:
    """Return for each kernel the mean score and the number of its pixels, then x and y of each.

    Kernels grow from their contours over pixels of the mask whose embedding is near the mean of the kernel's.
    """
    labels, inside, vectors = kernel_label.numpy().copy(), mask.numpy(), embedding.numpy()
    counts = np.bincount(labels.ravel(), minlength=kernel_region_num)[:kernel_region_num]
    sums = np.zeros((kernel_region_num, vectors.shape[2]), np.float32)
    np.add.at(sums, labels.ravel(), vectors.reshape(-1, vectors.shape[2]))
    means = sums / np.maximum(counts, 1)[:, None]
    starts = (labels > 0) & (kernel_contour.numpy() != 0)
    queue = deque((int(row), int(column)) for row, column in zip(*starts.nonzero(), strict=True))
    while queue:
        row, column = queue.popleft()
        label = labels[row, column]
        for pixel in _neighbors(row, column, labels.shape):
            if inside[pixel] and labels[pixel] <= 0:
                distance = np.square(means[label] - vectors[pixel]).sum()
                if distance < distance_threshold**2:
                    labels[pixel] = label
                    queue.append(pixel)
    groups = [[0.0, 0.0]]
    for label in range(1, kernel_region_num):
        rows, columns = (labels == label).nonzero()
        mean = float(score.numpy()[rows, columns].mean()) if len(rows) else 0.0
        groups.append([mean, float(len(rows)), *np.stack([columns, rows], 1).ravel().astype(float).tolist()])
    return groups


def _neighbors(row: int, column: int, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the pixels above, below, left and right that lie in the image."""
    pixels = ((row + down, column + right) for down, right in NEIGHBORS)
    return [(y, x) for y, x in pixels if 0 <= y < shape[0] and 0 <= x < shape[1]]
