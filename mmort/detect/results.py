"""From a network's detections to those of the original image: plain arrays, whichever program ran the network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def paste_masks(
    masks: NDArray[np.float32], boxes: NDArray[np.float32], height: int, width: int, threshold: float = 0.5
) -> NDArray[np.bool_]:
    """Bring masks from the areas of their boxes to the pixels of an image.

    Parameters
    ----------
    masks : ndarray, [K, h, w]
        Probabilities over the area of each box.
    boxes : ndarray, [K, 4]
        x1, y1, x2, y2 in pixels of the image.
    height, width : int
        The image's.
    threshold : float, default 0.5
        A pixel belongs to a mask from this probability on (the config's ``mask_thr_binary``).

    Returns
    -------
    ndarray of bool, [K, height, width]

    Notes
    -----
    Probabilities are interpolated linearly, and 0 outside; only pixels at most one away from the box are looked at.
    A box without width or height takes what is in the middle of its mask.  As MMDetection does.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.detect.results import paste_masks
    >>> paste_masks(np.ones((1, 2, 2)), np.array([[1.0, 0.0, 3.0, 1.0]]), 2, 4).astype(int)
    array([[[0, 1, 1, 0],
            [0, 0, 0, 0]]])
    """
    pasted = np.zeros((len(masks), height, width), bool)
    for mask, (x1, y1, x2, y2), image in zip(masks, boxes, pasted, strict=True):
        top, bottom = _range(y1, y2, height)
        left, right = _range(x1, x2, width)
        rows = _weights(np.arange(top, bottom), y1, y2, mask.shape[0])
        columns = _weights(np.arange(left, right), x1, x2, mask.shape[1])
        image[top:bottom, left:right] = rows @ mask @ columns.T >= threshold
    return pasted


def _range(low: float, high: float, size: int) -> tuple[int, int]:
    """Return the first pixel that an interval grown by 1 touches, and the one behind its last."""
    first = max(int(np.floor(low)) - 1, 0)
    return first, max(min(int(np.ceil(high)) + 1, size), first)


def _weights(pixels: NDArray[Any], low: float, high: float, cells: int) -> NDArray[np.float32]:
    """Return how much of each of so many cells between low and high the centre of each pixel takes, [pixels, cells]."""
    share = (pixels + np.float32(0.5) - low) / (high - low) if high > low else np.full(len(pixels), 0.5)
    position = share.astype(np.float32) * cells - np.float32(0.5)
    weights: NDArray[np.float32] = np.maximum(1 - np.abs(position[:, None] - np.arange(cells, dtype=np.float32)), 0)
    return weights
