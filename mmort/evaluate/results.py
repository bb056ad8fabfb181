"""Detections as an evaluation keeps them, and MMDetection's results file, ``results.pkl``."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mmort._files.outputs import write_output
from mmort.detections.detections import Detections, RunLengths
from mmort.detections.masks import ImageMasks

if TYPE_CHECKING:
    from mmort.detections.panoptic import SegmentIds


@dataclass(frozen=True, eq=False)
class ImageResult:
    """The detections in one image; masks are run-length encoded, as pasted ones would fill the memory.

    Attributes
    ----------
    boxes : ndarray of float32, (N, 4)
        x1, y1, x2, y2 in pixels of the image.
    scores : ndarray of float32, (N,)
        In any order, though detectors sort them.
    labels : ndarray of int64, (N,)
    masks : list of dict, optional
        COCO's compressed RLE of each mask.
    rotated_boxes : ndarray of float32, (N, 5), optional
        Those of `Detections`.
    segments : SegmentIds, optional
        Those of `Detections`, whose masks are then the segments'.
    image_size : (int, int), optional
        Height and width of the image; of segments only.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    labels: NDArray[np.int64]
    masks: list[RunLengths] | None = None
    rotated_boxes: NDArray[np.float32] | None = None
    segments: SegmentIds | None = None
    image_size: tuple[int, int] | None = None

    @classmethod
    def of(cls, detections: Detections, *, masks: bool) -> ImageResult:
        """Keep what an evaluation needs; without `masks`, none are encoded."""
        encoded = detections.rle() if masks and detections.has_masks else None
        arrays = detections.boxes, detections.scores, detections.labels, encoded, detections.rotated_boxes
        return cls(*arrays, detections.segments, None if detections.segments is None else detections.image_size)

    def as_detections(self, classes: Sequence[str], image_size: tuple[int, int]) -> Detections:
        """Return the detections, to be drawn."""
        return Detections(
            self.boxes,
            self.scores,
            self.labels,
            tuple(classes[label] for label in self.labels),
            image_size,
            None if self.masks is None else ImageMasks.from_arrays(map(_decoded, self.masks)),
            rotated_boxes=self.rotated_boxes,
        )

    def segment_map(self) -> NDArray[np.int64] | None:
        """Return for each pixel the index of its segment, plus one, and 0 for none; None without any segment."""
        if not self.masks:
            return None
        map = np.zeros(self.masks[0]["size"], np.int64)
        for index, lengths in enumerate(self.masks, 1):
            map[_decoded(lengths)] = index
        return map

    def as_mmdetection(self, class_count: int) -> Any:
        """Return MMDetection 2's layout: a dict with the map of segments, or boxes and masks by class."""
        if self.segments is None:
            return self._by_class(class_count)
        if self.masks is None:
            raise ValueError("write_results: segments need their masks: Evaluation(dataset, masks=True)")
        map = self.segment_map()
        ids = np.array([self.segments.classes, *self.segments.values], np.int32)
        return {"pan_results": ids[np.zeros(self.image_size or (), np.int64) if map is None else map]}

    def _by_class(self, count: int) -> Any:
        """Return for each class an array (n, 5), and, if there are masks, a list of RLE.

        Rotated boxes are arrays (n, 6), as MMRotate has them.
        """
        boxes = self.boxes if self.rotated_boxes is None else self.rotated_boxes
        rows = np.concatenate([boxes, self.scores[:, None]], axis=1).astype(np.float32)
        positions = [np.flatnonzero(self.labels == label) for label in range(count)]
        of_classes = [rows[of_class] for of_class in positions]
        if self.masks is None:
            return of_classes
        encoded = [{**mask, "counts": mask["counts"].encode()} for mask in self.masks]
        return of_classes, [[encoded[position] for position in of_class] for of_class in positions]


def _decoded(lengths: RunLengths) -> NDArray[np.bool_]:
    """Return the mask of run lengths, (H, W)."""
    from faster_coco_eval.core import mask as coco

    mask: NDArray[np.bool_] = coco.decode(lengths).astype(bool)
    return mask


def write_results(path: str | os.PathLike[str], results: Sequence[ImageResult], class_count: int) -> None:
    """Write ``results.pkl`` in MMDetection 2's layout.

    It is a list with an entry for each image: a list with an array (n, 5) for each class (x1, y1, x2, y2, score), or
    (n, 6) of rotated boxes, or a tuple of that list and a list with the RLE masks of each class.  Of a panoptic
    segmentation it is a dict, whose "pan_results" is the map of ids (H, W): `Detections.panoptic_map`.

    Parameters
    ----------
    path : path
        The file to write.
    results : sequence of ImageResult
        In the order of the data set's images.
    class_count : int
        The number of classes.

    Raises
    ------
    ValueError
        If a panoptic segmentation was evaluated without masks.
    """
    write_output(path, pickle.dumps([result.as_mmdetection(class_count) for result in results]))
