"""Large images: detection in overlapping windows, whose detections are merged by suppression."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mmort import ops
from mmort.contract import DETECTION
from mmort.detections.detections import Detections
from mmort.detections.masks import Masks, Region
from mmort.images import Image
from mmort.predict.pixels import open_pixels

if TYPE_CHECKING:
    from mmort.predict.predictor import Predictor

MERGE_IOU, MERGE_IOU_ROTATED = 0.5, 0.1
"""Overlaps from which on the lower score of two boxes of one class is dropped: the thresholds usual for each kind."""


@dataclass(frozen=True)
class Windows:
    """Square windows of an image, from its upper left corner on; the last of a row or column end with the image.

    Parameters
    ----------
    size : int
        Their side in pixels.  An image that is smaller is one window.
    overlap : int, default 200
        Pixels that neighbours share, at least: as many as the largest objects are long.

    Raises
    ------
    ValueError
        If `size` is not positive, or `overlap` is negative or not below `size`.

    Examples
    --------
    >>> from mmort.predict import Windows
    >>> Windows(1024, 200).positions(height=1000, width=2000)
    [(0, 0), (0, 824), (0, 976)]
    """

    size: int
    overlap: int = 200

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"Windows: size must be positive, got {self.size}")
        if not 0 <= self.overlap < self.size:
            raise ValueError(f"Windows: overlap must be at least 0 and below the size, {self.size}, got {self.overlap}")

    def positions(self, height: int, width: int) -> list[tuple[int, int]]:
        """Return the row and column of the upper left corner of each window, row by row."""
        return list(itertools.product(self._starts(height), self._starts(width)))

    def _starts(self, side: int) -> list[int]:
        """Return where windows begin along a side."""
        last = max(0, side - self.size)
        return [*range(0, last, self.size - self.overlap), last]


@dataclass(frozen=True, eq=False)
class _WindowMasks:
    """The masks of detections in windows, in pixels of the whole image."""

    entries: Sequence[tuple[Detections, int, int, int]]
    """Of each the detections in its window, its index there, and the window's row and column."""

    def __len__(self) -> int:
        return len(self.entries)

    def select(self, indices: NDArray[np.intp]) -> _WindowMasks:
        """Return the masks of some detections."""
        return _WindowMasks([self.entries[index] for index in indices])

    def region(self, index: int, height: int, width: int) -> Region:
        """Return a mask and its position in the image."""
        detections, mask_index, top, left = self.entries[index]
        region = detections.mask_region(mask_index)
        return Region(region.top + top, region.left + left, region.mask)


def predict_windows(
    predictor: Predictor,
    image: Image | str | os.PathLike[str],
    windows: Windows,
    batch_size: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Detections:
    """Detect objects in a large image.

    The detector sees each window as an image of its own.  Of boxes of one class that overlap, which neighbours have
    found twice, the one with the highest score is kept.  Beside the detections only a few windows are in memory, and
    the image itself unless it is a TIFF or JPEG 2000 file, or a memory map.

    Parameters
    ----------
    predictor : Predictor
        Of upright or rotated boxes, perhaps with masks.
    image : ndarray of uint8, (H, W, 3), or path
        Blue, green, red; a memory map for instance.  Of other channels and dtypes if the detector's are.
    windows : Windows
    batch_size : int, default 1
        Windows that run together.
    progress : callable, optional
        Is called after each window with the number of windows that are done, and of all.

    Returns
    -------
    Detections
        In pixels of the whole image, by descending score.

    Raises
    ------
    ValueError
        If the image cannot be read, or the detector makes panoptic segmentations.
    OSError
        If the file cannot be opened.
    ImportError
        If a TIFF or JPEG 2000 file is to be read and rasterio is not installed.

    Examples
    --------
    >>> from mmort import Predictor
    >>> from mmort.demo import IMAGES, MODEL
    >>> from mmort.predict import Windows, predict_windows
    >>> len(predict_windows(Predictor(MODEL), IMAGES[0], Windows(140, 60)).above(0.9))
    6
    """
    if predictor.task is not DETECTION:
        raise ValueError(
            f"predict_windows: what a {predictor.task.name} finds in windows is not merged; a file of a segmentation "
            "has the windows that its config slides over an image"
        )
    with open_pixels(image, predictor.preprocessing.color_type) as pixels:
        positions = windows.positions(pixels.height, pixels.width)

        def crops() -> Iterator[Image]:
            for top, left in positions:
                height, width = min(windows.size, pixels.height - top), min(windows.size, pixels.width - left)
                yield pixels.read(top, left, height, width)

        parts = []
        for done, ((top, left), detections) in enumerate(
            zip(positions, predictor.predict(crops(), min(batch_size, len(positions))), strict=True), 1
        ):
            if detections.segments is not None:
                raise ValueError("predict_windows: the segments of a panoptic segmentation cannot be merged")
            parts.append(_moved(detections, top, left, (pixels.height, pixels.width)))
            if progress is not None:
                progress(done, len(positions))
    return parts[0] if len(parts) == 1 else merged(parts)


def merged(parts: Sequence[Detections]) -> Detections:
    """Return the detections of several windows without those that a higher score of the same class suppresses.

    Parameters
    ----------
    parts : sequence of Detections
        At least one, all in pixels of the same image, and all of upright or all of rotated boxes.

    Returns
    -------
    Detections
        By descending score.
    """
    boxes, scores, labels = (
        np.concatenate([getattr(detections, name) for detections in parts]) for name in ("boxes", "scores", "labels")
    )
    names = tuple(name for detections in parts for name in detections.names)
    if parts[0].rotated_boxes is None:
        masks: Masks | None = None
        if all(isinstance(detections.stored_masks, _WindowMasks) for detections in parts):
            masks = _WindowMasks([entry for each in parts for entry in each.stored_masks.entries])  # type: ignore[union-attr]
        points = [detections.keypoints for detections in parts if detections.keypoints is not None]
        keypoints = np.concatenate(points) if points else None
        together = Detections(boxes, scores, labels, names, parts[0].image_size, masks, keypoints=keypoints)
        kept = ops.nms(boxes, scores, MERGE_IOU, idxs=labels).indices
    else:
        rotated: NDArray[np.float32] = np.concatenate([detections.rotated_boxes for detections in parts])
        together = Detections.of_rotated(rotated, scores, labels, names, parts[0].image_size)
        kept = ops.nms_rotated(rotated, scores, MERGE_IOU_ROTATED, labels).indices
    return together[kept]


def _moved(detections: Detections, top: int, left: int, image_size: tuple[int, int]) -> Detections:
    """Return the detections in a window as detections in the image."""
    scores, labels, names = detections.scores, detections.labels, detections.names
    if detections.rotated_boxes is not None:
        rotated = detections.rotated_boxes + np.array([left, top, 0, 0, 0], np.float32)
        return Detections.of_rotated(rotated, scores, labels, names, image_size)
    boxes = detections.boxes + np.array([left, top, left, top], np.float32)
    masks = None
    if detections.stored_masks is not None:
        masks = _WindowMasks([(detections, index, top, left) for index in range(len(detections))])
    keypoints = None
    if detections.keypoints is not None:
        keypoints = detections.keypoints + np.array([left, top, 0], np.float32)
    return Detections(boxes, scores, labels, names, image_size, masks, keypoints=keypoints)
