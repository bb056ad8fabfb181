"""Masks of detections in the pixels of an image.

`paste_masks` defines how masks are pasted.  An exported graph cannot call it, so `mmort.detect.export.graph_masks` has
the same formula in torch operators, without loops over boxes; a test asserts that both agree.

A hundred masks of an image of 8 megapixels take 800 MB as arrays of bool.  `BoxMasks` and `ImageMasks` store the two
kinds of masks that detectors have in little memory, and make the mask of one detection at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray


class Region(NamedTuple):
    """The part of an image that a mask covers; the mask has no pixels elsewhere."""

    top: int
    left: int
    mask: NDArray[np.bool_]
    """(h, w), whose first pixel is (`top`, `left`) of the image."""


class Masks(Protocol):
    """A mask for each of N detections in an image."""

    def __len__(self) -> int: ...

    def select(self, indices: NDArray[np.intp]) -> Masks:
        """Return the masks of some detections, in the order of `indices`."""
        ...

    def region(self, index: int, height: int, width: int) -> Region:
        """Return a mask and its position in the image, whose height and width are given."""
        ...


@dataclass(frozen=True, eq=False)
class BoxMasks:
    """Masks as probabilities over the area of each box, pasted when asked for.

    Attributes
    ----------
    probabilities : ndarray of float32, (N, h, w)
    boxes : ndarray of float32, (N, 4)
        x1, y1, x2, y2 in pixels of the image.
    threshold : float, default 0.5
        Minimum probability of a pixel that belongs to the mask.
    """

    probabilities: NDArray[np.float32]
    boxes: NDArray[np.float32]
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if self.probabilities.ndim != 3 or self.boxes.shape != (len(self.probabilities), 4):
            raise ValueError(
                f"BoxMasks: probabilities and boxes must be (N, h, w) and (N, 4), got {self.probabilities.shape} and "
                f"{self.boxes.shape}"
            )

    def __len__(self) -> int:
        return len(self.probabilities)

    def select(self, indices: NDArray[np.intp]) -> BoxMasks:
        """Return the masks of some detections."""
        return BoxMasks(self.probabilities[indices], self.boxes[indices], self.threshold)

    def region(self, index: int, height: int, width: int) -> Region:
        """Paste a mask into the part of the image that its box covers."""
        mask, box = self.probabilities[index], self.boxes[index]
        if not np.isfinite(box).all():
            return Region(0, 0, np.zeros((0, 0), bool))
        x1, y1, x2, y2 = box
        top, bottom = _pixel_range(y1, y2, height)
        left, right = _pixel_range(x1, x2, width)
        rows = _Neighbours.of(np.arange(top, bottom), y1, y2, mask.shape[0])
        columns = _Neighbours.of(np.arange(left, right), x1, x2, mask.shape[1])
        between = mask[rows.first] * rows.first_weight[:, None] + mask[rows.second] * rows.second_weight[:, None]
        pixels = between[:, columns.first] * columns.first_weight + between[:, columns.second] * columns.second_weight
        return Region(top, left, pixels >= self.threshold)


@dataclass(frozen=True, eq=False)
class ImageMasks:
    """Masks of the whole image, each stored as bits over the smallest rectangle that holds its pixels.

    Attributes
    ----------
    rectangles : sequence of (int, int, int, int)
        Top, left, height and width of each.
    bits : sequence of ndarray of uint8
        The pixels of each rectangle, row by row, eight to a byte.
    """

    rectangles: Sequence[tuple[int, int, int, int]]
    bits: Sequence[NDArray[np.uint8]]

    @classmethod
    def from_arrays(cls, masks: Iterable[NDArray[np.bool_]]) -> ImageMasks:
        """Pack masks (H, W); an iterator that makes them one at a time saves memory."""
        rectangles, bits = [], []
        for mask in masks:
            top, bottom = _extent(mask, 1)
            left, right = _extent(mask, 0)
            rectangles.append((top, left, bottom - top, right - left))
            bits.append(np.packbits(mask[top:bottom, left:right]))
        return cls(rectangles, bits)

    def __len__(self) -> int:
        return len(self.rectangles)

    @property
    def boxes(self) -> NDArray[np.float32]:
        """The rectangles as boxes (N, 4), x1, y1, x2, y2; 0 for empty masks."""
        corners = [(left, top, left + width, top + height) for top, left, height, width in self.rectangles]
        return np.array(corners, np.float32).reshape(-1, 4)

    def select(self, indices: NDArray[np.intp]) -> ImageMasks:
        """Return the masks of some detections."""
        return ImageMasks([self.rectangles[index] for index in indices], [self.bits[index] for index in indices])

    def region(self, index: int, height: int, width: int) -> Region:
        """Unpack a mask; the size of the image is that of the arrays."""
        top, left, rows, columns = self.rectangles[index]
        pixels = np.unpackbits(self.bits[index], count=rows * columns).astype(bool)
        return Region(top, left, pixels.reshape(rows, columns))


def join(parts: Sequence[Masks], height: int, width: int) -> Masks:
    """Return the masks of several detectors in an image as those of one, in the same order."""
    if all(isinstance(part, BoxMasks) for part in parts):
        boxes = cast("Sequence[BoxMasks]", parts)
        if len({(part.probabilities.shape[1:], part.threshold) for part in boxes}) == 1:
            probabilities = np.concatenate([part.probabilities for part in boxes])
            return BoxMasks(probabilities, np.concatenate([part.boxes for part in boxes]), boxes[0].threshold)
    regions = [part.region(index, height, width) for part in parts for index in range(len(part))]
    return ImageMasks(
        [(region.top, region.left, *region.mask.shape) for region in regions],
        [np.packbits(region.mask) for region in regions],
    )


def paste_masks(
    masks: NDArray[np.float32], boxes: NDArray[np.float32], height: int, width: int, threshold: float = 0.5
) -> NDArray[np.bool_]:
    """Paste masks that cover their boxes into masks that cover the image.

    Parameters
    ----------
    masks : ndarray, (K, h, w)
        Probabilities over the area of each box.
    boxes : ndarray, (K, 4)
        x1, y1, x2, y2 in pixels of the image.
    height, width : int
        Size of the image.
    threshold : float, default 0.5
        Minimum probability of a pixel that belongs to the mask (``mask_thr_binary`` in the config).

    Returns
    -------
    ndarray of bool, (K, height, width)

    Notes
    -----
    As in MMDetection, probabilities are interpolated bilinearly and are 0 outside the box, and only pixels within one
    pixel of the box are set.  A box of zero width or height takes the values from the middle of its mask.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.predict import paste_masks
    >>> paste_masks(np.ones((1, 2, 2)), np.array([[1.0, 0.0, 3.0, 1.0]]), 2, 4).astype(int)
    array([[[0, 1, 1, 0],
            [0, 0, 0, 0]]])
    """
    pasted = np.zeros((len(masks), height, width), bool)
    compact = BoxMasks(masks, boxes, threshold)
    for index, canvas in enumerate(pasted):
        put(canvas, compact.region(index, height, width))
    return pasted


def put(canvas: NDArray[np.bool_], region: Region) -> None:
    """Write a region into a mask (H, W) of the whole image."""
    height, width = region.mask.shape
    canvas[region.top : region.top + height, region.left : region.left + width] = region.mask


def _pixel_range(low: float, high: float, size: int) -> tuple[int, int]:
    """Return the half-open range of pixels within one pixel of an interval, clipped to the image."""
    first = max(int(np.floor(low)) - 1, 0)
    return first, max(min(int(np.ceil(high)) + 1, size), first)


def _extent(mask: NDArray[np.bool_], axis: int) -> tuple[int, int]:
    """Return the half-open range of the rows (axis 1) or columns (axis 0) that hold pixels, (0, 0) if none does."""
    indices = np.flatnonzero(mask.any(axis))
    return (int(indices[0]), int(indices[-1]) + 1) if len(indices) else (0, 0)


class _Neighbours(NamedTuple):
    """The two cells of a mask that each pixel is interpolated from, and their weights.

    A product with a matrix of weights would start threads, which wait for those of ONNX Runtime.
    """

    first: NDArray[np.intp]
    first_weight: NDArray[np.float32]
    second: NDArray[np.intp]
    second_weight: NDArray[np.float32]

    @classmethod
    def of(cls, pixels: NDArray[Any], low: float, high: float, cells: int) -> _Neighbours:
        """Return the neighbours of the pixels' centres among cells between `low` and `high`; weights are 0 outside."""
        share = (pixels + np.float32(0.5) - low) / (high - low) if high > low else np.full(len(pixels), 0.5)
        position = share.astype(np.float32) * cells - np.float32(0.5)
        arrays: list[NDArray[Any]] = []
        for cell in (np.floor(position), np.floor(position) + 1):
            weight = np.where((cell >= 0) & (cell < cells), 1 - np.abs(position - cell), 0).astype(np.float32)
            arrays += [cell.clip(0, cells - 1).astype(np.intp), weight]
        return cls(*arrays)
