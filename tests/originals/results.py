"""What a detector made of some images, on either side: inputs of the network, detections, masks, segments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ImageResult:
    """What was detected in an image, in its own pixels.

    Attributes
    ----------
    boxes : ndarray (N, 4) or (N, 5)
        x1, y1, x2, y2; of rotated boxes: centre x, y, width, height, angle in radians.
    scores, labels : ndarray (N,)
    masks : ndarray of bool (N, H, W), or None
    panoptic : ndarray of int (H, W), or None
        The id of each pixel's segment; a detector that makes segments has no boxes here.
    """

    boxes: NDArray[np.floating]
    scores: NDArray[np.floating]
    labels: NDArray[np.int64]
    masks: NDArray[np.bool_] | None = None
    panoptic: NDArray[np.int64] | None = None

    @property
    def detected(self) -> ImageResult:
        """The rows whose scores are not 0; with others MMDetection's CenterNet fills up what it returns."""
        rows = self.scores != 0
        masks = None if self.masks is None else self.masks[rows]
        return ImageResult(self.boxes[rows], self.scores[rows], self.labels[rows], masks)


@dataclass(frozen=True, eq=False)
class BatchResult:
    """A batch: the network's input (N, 3, H, W), and the result of each image."""

    input: NDArray[np.floating]
    images: list[ImageResult]
