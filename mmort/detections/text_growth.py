"""Texts that grow from their kernels over the pixels of a map, as PSENet and PAN have it; numpy only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]

_Accepts = Callable[[Labels, Labels], NDArray[np.bool_]]
"""Takes labels and the indices of pixels, and returns whether each label may have its pixel."""


def expanded(mask: NDArray[np.bool_], seeds: NDArray[Any], min_area: int) -> Labels:
    """Return the label of each pixel after labels have spread over a mask, (H, W).

    Parameters
    ----------
    mask : ndarray of bool, (H, W)
    seeds : ndarray of int, (H, W)
        The labels that spread, from 1 on.
    min_area : int
        Labels with fewer pixels are left out.
    """
    areas = np.bincount(seeds.ravel())
    labels = np.where(areas[seeds] >= min_area, seeds, 0).astype(np.int64)
    inside = mask.ravel()
    return _grown(labels, labels != 0, lambda _, pixels: inside[pixels])


def grouped(
    mask: NDArray[np.bool_],
    vectors: NDArray[np.float32],
    seeds: NDArray[Any],
    contours: NDArray[np.bool_],
    count: int,
    max_distance: float,
) -> Labels:
    """Return the label of each pixel after labels have spread over pixels that are like their kernel's, (H, W).

    Parameters
    ----------
    mask : ndarray of bool, (H, W)
        The pixels of texts.
    vectors : ndarray of float32, (H, W, D)
        The embedding of each pixel.
    seeds : ndarray of int, (H, W)
        The labels of kernels, from 1 on.
    contours : ndarray of bool, (H, W)
        The pixels from which kernels grow.
    count : int
        Labels are below this.
    max_distance : float
        Pixels must be nearer to the mean embedding of the kernel.
    """
    rows, inside = vectors.reshape(-1, vectors.shape[2]), mask.ravel()
    counts = np.bincount(seeds.ravel(), minlength=count)[:count]
    sums = np.zeros((count, vectors.shape[2]), np.float32)
    np.add.at(sums, seeds.ravel(), rows)
    means = sums / np.maximum(counts, 1)[:, None]

    def accepts(labels: Labels, pixels: Labels) -> NDArray[np.bool_]:
        near: NDArray[np.bool_] = np.square(means[labels] - rows[pixels]).sum(axis=1) < max_distance**2
        return near & inside[pixels]

    labels = seeds.astype(np.int64)
    return _grown(labels, (labels > 0) & contours, accepts)


def _grown(labels: Labels, starts: NDArray[np.bool_], accepts: _Accepts) -> Labels:
    """Let labels spread from some pixels, in steps of one pixel; the first of several that reach a pixel has it.

    Pixels come row by row, and the neighbours of each above, below, left and right, which is MMCV's order.
    """
    height, width = labels.shape
    flat, rows, columns = labels.ravel(), *(index.ravel() for index in np.indices(labels.shape))
    front = np.flatnonzero(starts)
    while len(front):
        on_map = np.stack(
            [rows[front] > 0, rows[front] < height - 1, columns[front] > 0, columns[front] < width - 1], 1
        )
        pixels = (front[:, None] + np.array([-width, width, -1, 1]))[on_map]
        owners = np.broadcast_to(flat[front][:, None], on_map.shape)[on_map]
        free = flat[pixels] <= 0
        pixels, owners = pixels[free], owners[free]
        accepted = accepts(owners, pixels)
        pixels, owners = pixels[accepted], owners[accepted]
        first = np.sort(np.unique(pixels, return_index=True)[1])
        front = pixels[first]
        flat[front] = owners[first]
    return flat.reshape(labels.shape)
