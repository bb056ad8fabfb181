"""Masks of detections in the pixels of an image.

`paste_masks` defines how masks are pasted.  An exported graph cannot call it, so `mmort.detect.export.graph_masks` has
the same formula in torch operators, without loops over boxes; a test asserts that both agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


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
    for mask, (x1, y1, x2, y2), canvas in zip(masks, boxes, pasted, strict=True):
        top, bottom = _pixel_range(y1, y2, height)
        left, right = _pixel_range(x1, x2, width)
        rows = _weights(np.arange(top, bottom), y1, y2, mask.shape[0])
        columns = _weights(np.arange(left, right), x1, x2, mask.shape[1])
        canvas[top:bottom, left:right] = rows @ mask @ columns.T >= threshold
    return pasted


def resample_mask(
    mask: NDArray[np.float32], region: tuple[float, float, float, float], width: int, height: int
) -> NDArray[np.bool_]:
    """Resample part of a mask that covers the whole input, the kind that MMDetection's own export writes.

    Parameters
    ----------
    mask : ndarray, (H, W)
        Values from 0 to 1.
    region : (float, float, float, float)
        left, top, right, bottom of the part, in pixels of the mask.
    width, height : int
        Size to resample the part to.

    Returns
    -------
    ndarray of bool, (height, width)

    Raises
    ------
    ImportError
        If Pillow is not installed.
    """
    from PIL import Image

    plane = Image.fromarray((mask * 255).astype(np.uint8))
    return np.asarray(plane.resize((width, height), Image.Resampling.BILINEAR, box=region)) >= 128


def _pixel_range(low: float, high: float, size: int) -> tuple[int, int]:
    """Return the half-open range of pixels within one pixel of an interval, clipped to the image."""
    first = max(int(np.floor(low)) - 1, 0)
    return first, max(min(int(np.ceil(high)) + 1, size), first)


def _weights(pixels: NDArray[Any], low: float, high: float, cells: int) -> NDArray[np.float32]:
    """Return the bilinear weight of each mask cell between `low` and `high` at each pixel's centre, (pixels, cells)."""
    share = (pixels + np.float32(0.5) - low) / (high - low) if high > low else np.full(len(pixels), 0.5)
    position = share.astype(np.float32) * cells - np.float32(0.5)
    weights: NDArray[np.float32] = np.maximum(1 - np.abs(position[:, None] - np.arange(cells, dtype=np.float32)), 0)
    return weights
