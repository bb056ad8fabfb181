"""From an image to the logits of its pixels, window by window, and from these to a `SegmentationMap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.contract import SegmentationFormat
from mmort.contract.mask_format import MaskFormat
from mmort.contract.preprocessing import Prepared
from mmort.detections.segmentation_map import SegmentationMap
from mmort.images import resize_mask
from mmort.predict.classification import names_of


@dataclass(frozen=True)
class SegmentationPostprocessing:
    """Postprocessing of an image's row of a segmentation's logits.

    Parameters
    ----------
    classes : tuple of str
        The classes' names by label; empty if they have none.
    score_threshold : float
        Has no effect: each pixel has its most probable class.
    format : SegmentationFormat
    palette : tuple, optional
        The colours of classes.
    """

    classes: tuple[str, ...]
    score_threshold: float
    format: SegmentationFormat
    palette: tuple[tuple[int, int, int], ...] | None = None

    def __call__(
        self, image: Prepared, canvas: tuple[int, int], rows: Sequence[NDArray[Any]], mask_format: MaskFormat | None
    ) -> SegmentationMap:
        """Return the class of each pixel of an image; ValueError if there are more classes than names.

        The padding is cut off, and the logits are resized to the image, of which the largest decides.
        """
        (logits,) = rows
        height, width = image.img_shape
        planes = (plane[:height, :width] for plane in logits)
        resized = (_resized(plane, image.ori_shape, self.format.align_corners) for plane in planes)
        if self.format.threshold is not None:
            labels: NDArray[Any] = _above(next(resized), self.format.threshold)
            count = 2
        else:
            labels, count = _largest(resized, len(logits), image.ori_shape), len(logits)
        palette = self.palette if self.palette is not None and len(self.palette) == count else None
        return SegmentationMap(labels, names_of(self.classes, count), palette)


def logits_of(
    run: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    input: NDArray[np.float32],
    format: SegmentationFormat,
) -> NDArray[np.float32]:
    """Return the logits of a batch (N, C, H, W): the mean of those of all windows that cover a pixel.

    Parameters
    ----------
    run : callable
        Returns the logits of a window of the batch.
    input : ndarray of float32, (N, C, H, W)
    format : SegmentationFormat
    """
    height, width = input.shape[2:]
    windows = format.windows(width, height)
    if len(windows) == 1:
        return run(input)
    sums: NDArray[np.float32] | None = None
    counts = np.zeros((height, width), np.float32)
    for left, top, right, bottom in windows:
        logits = run(np.ascontiguousarray(input[:, :, top:bottom, left:right]))
        if sums is None:
            sums = np.zeros((*logits.shape[:2], height, width), np.float32)
        sums[:, :, top:bottom, left:right] += logits
        counts[top:bottom, left:right] += 1
    assert sums is not None
    sums /= counts
    return sums


def _resized(plane: NDArray[np.float32], size: tuple[int, int], align_corners: bool) -> NDArray[np.float32]:
    """Resize a plane of logits bilinearly to a height and width."""
    if plane.shape == size:
        return plane
    if not align_corners:
        return resize_mask(np.ascontiguousarray(plane), size[1], size[0])
    for axis, length in enumerate(size):
        first, weights = _corners(plane.shape[axis], length)
        last = np.minimum(first + 1, plane.shape[axis] - 1)
        weights = weights[:, None] if axis == 0 else weights
        plane = plane.take(first, axis) * (1 - weights) + plane.take(last, axis) * weights
    return plane


def _corners(old: int, new: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return which element comes before each new one where corners stay, and the weight of the element after it."""
    scale = np.float32((old - 1) / (new - 1) if new > 1 else 0)
    positions = np.arange(new, dtype=np.float32) * scale
    first = np.minimum(positions.astype(np.int64), old - 1)
    return first, (positions - first).astype(np.float32)


def _largest(planes: Any, count: int, size: tuple[int, int]) -> NDArray[np.uint8 | np.uint16]:
    """Return the plane with the largest logit of each pixel, the first of equal ones."""
    labels: NDArray[Any] = np.zeros(size, np.uint8 if count <= 256 else np.uint16)
    best: NDArray[np.float32] | None = None
    for label, plane in enumerate(planes):
        if best is None:
            best = np.array(plane)
            continue
        better = plane > best
        labels[better] = label
        np.maximum(best, plane, out=best)
    return labels


def _above(plane: NDArray[np.float32], threshold: float) -> NDArray[np.uint8]:
    """Return 1 where the probability of a logit is above a threshold."""
    with np.errstate(over="ignore"):
        labels: NDArray[np.uint8] = (1 / (1 + np.exp(-plane)) > threshold).astype(np.uint8)
    return labels
