"""The annotated objects of an image, whatever the format of the data set: to be drawn, and compared with detections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mmort
from mmort.detections.boxes import bounding_boxes
from mmort.detections.detections import Detections
from mmort.detections.masks import ImageMasks


@dataclass(frozen=True, eq=False)
class ImageObjects:
    """The objects in one image.

    Attributes
    ----------
    boxes : ndarray of float64, (N, 4)
        x1, y1, x2, y2 in pixels of the image.
    labels : ndarray of int64, (N,)
    ignored : ndarray of bool, (N,)
        Crowds and difficult objects: finding one is neither right nor wrong.
    crowds : ndarray of bool, (N,)
        Those of `ignored` that are regions of many objects.
    rotated_boxes : ndarray of float32, (N, 5), optional
        Of data sets of rotated boxes, which `boxes` then lie around.
    judged : frozenset of int, optional
        The labels whose objects are all annotated in this image.  A detection of another that finds no object is
        neither right nor wrong, as in LVIS.  By default all labels.
    decode_masks : callable, optional
        From height and width to the masks, each (H, W) of bool.
    """

    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]
    ignored: NDArray[np.bool_]
    crowds: NDArray[np.bool_]
    rotated_boxes: NDArray[np.float32] | None = None
    judged: frozenset[int] | None = None
    decode_masks: Callable[[int, int], list[NDArray[np.bool_]]] | None = None

    @classmethod
    def of_rotated(cls, rotated_boxes: NDArray[np.float32], labels: NDArray[np.int64]) -> ImageObjects:
        """Return objects with rotated boxes, of which none is ignored."""
        none = np.zeros(len(labels), bool)
        return cls(bounding_boxes(rotated_boxes).astype(np.float64), labels, none, none, rotated_boxes)

    def overlaps(self, boxes: NDArray[Any], rotated_boxes: NDArray[Any] | None) -> NDArray[np.float64]:
        """Return the IoU of detections with each object, (M, N): with a crowd, the share of a box that is inside."""
        if self.rotated_boxes is not None:
            if rotated_boxes is None:
                raise ValueError("evaluate: objects have rotated boxes, but those of the detections are upright")
            overlaps = mmort.box_iou_rotated(rotated_boxes.astype(np.float64), self.rotated_boxes)
        else:
            boxes = boxes.astype(np.float64)
            overlaps = mmort.box_iou(boxes, self.boxes)
            overlaps[:, self.crowds] = mmort.box_iou(boxes, self.boxes[self.crowds], mode="iof")
        known: NDArray[np.float64] = np.nan_to_num(overlaps)
        return known

    def as_detections(self, classes: Sequence[str], image_size: tuple[int, int]) -> Detections:
        """Return the objects as detections without a score (NaN), as which they are drawn."""
        return Detections(
            self.boxes.astype(np.float32),
            np.full(len(self.labels), np.nan, np.float32),
            self.labels,
            tuple(
                classes[label] + (" (ignored)" if ignored else "")
                for label, ignored in zip(self.labels, self.ignored, strict=True)
            ),
            image_size,
            None if self.decode_masks is None else ImageMasks.from_arrays(self.decode_masks(*image_size)),
            rotated_boxes=self.rotated_boxes,
        )
