"""Growing text instances from their kernels, as PSENet and PAN do."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from mmort.detections.text_growth import expanded, grouped

__all__ = ["contour_expand", "pixel_group"]


def contour_expand(
    kernel_mask: Tensor, internal_kernel_label: Tensor, min_kernel_area: int, kernel_num: int
) -> list[list[int]]:
    """Return the label of each pixel after labels have spread over the first mask of `kernel_mask` (K, H, W).

    As in MMCV every round reads that first, largest mask, so that all but one change nothing.  Labels of a smaller
    area than `min_kernel_area` do not spread.
    """
    mask = kernel_mask[0].numpy() != 0 if len(kernel_mask) > 1 else np.zeros(kernel_mask.shape[1:], bool)
    result: list[list[int]] = expanded(mask, internal_kernel_label.numpy(), min_kernel_area).tolist()
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
    labels = grouped(
        mask.numpy(),
        embedding.numpy(),
        kernel_label.numpy(),
        kernel_contour.numpy() != 0,
        kernel_region_num,
        distance_threshold,
    )
    groups = [[0.0, 0.0]]
    for label in range(1, kernel_region_num):
        rows, columns = (labels == label).nonzero()
        mean = float(score.numpy()[rows, columns].mean()) if len(rows) else 0.0
        groups.append([mean, float(len(rows)), *np.stack([columns, rows], 1).ravel().astype(float).tolist()])
    return groups
