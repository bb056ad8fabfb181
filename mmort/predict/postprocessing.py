"""From a detector's outputs to the `Detections` in each image."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.contract.mask_format import MaskFormat, covered_area
from mmort.contract.preprocessing import Prepared
from mmort.detections.detections import Detections
from mmort.detections.masks import ImageMasks, Masks
from mmort.detections.panoptic import INSTANCE_OFFSET, PanopticFormat, PanopticMap, SegmentIds


@dataclass(frozen=True)
class Postprocessing:
    """Postprocessing of an image's rows of a detector's outputs; call it with them.

    Parameters
    ----------
    classes : tuple of str
        The classes' names by label; empty if they have none.
    score_threshold : float
        Leave out detections with a lower score.
    """

    classes: tuple[str, ...]
    score_threshold: float

    def __post_init__(self) -> None:
        if not isinstance(self.score_threshold, Real) or not 0 <= self.score_threshold <= 1:
            raise ValueError(f"score_threshold must be a number from 0 to 1, got {self.score_threshold!r}")

    def __call__(
        self, image: Prepared, canvas: tuple[int, int], rows: Sequence[NDArray[Any]], mask_format: MaskFormat | None
    ) -> Detections:
        """Return the detections in an image.

        Parameters
        ----------
        image : Prepared
        canvas : (int, int)
            Height and width of the batch.
        rows : sequence of ndarray
            The image's rows of the outputs: (K, 5 or 6), (K,) and perhaps (K, h, w) and (S, h, w), or (K, 3 P), see
            `Network`.
        mask_format : MaskFormat or None
            What the masks are.

        Raises
        ------
        ValueError
            If a label has no name, or an output is missing of which segments are made.
        """
        if mask_format is not None and mask_format.panoptic is not None:
            return self._segments(image, segments_of(image, canvas, rows, mask_format), mask_format.panoptic)
        dets, labels, *masks = rows
        points = masks.pop() if masks and masks[0].ndim == 2 else None
        indices = _usable(dets, labels, self.score_threshold)
        indices = indices[np.argsort(-dets[indices, -1], kind="stable")]
        scores = dets[indices, -1]
        if dets.shape[1] == 6:
            rotated, labels = image.rotated_boxes_in_image(dets[indices, :5]), labels[indices].astype(np.int64)
            return Detections.of_rotated(rotated, scores, labels, self._names(labels), image.ori_shape)
        boxes = image.boxes_in_image(dets[indices, :4])
        stored: Masks | None = None
        factors = np.ones(1, np.float32)
        if masks:
            mask_format = mask_format or MaskFormat(covered_area(masks[0].shape[1:], canvas))
            stored, factors = mask_format.store(masks[0][indices], boxes, image, canvas, dets[indices, :4])
            if mask_format.boxes == "masks" and isinstance(stored, ImageMasks):
                boxes = stored.boxes
        labels = labels[indices].astype(np.int64)
        keypoints = None if points is None else image.keypoints_in_image(points[indices].reshape(len(indices), -1, 3))
        detections = Detections(
            boxes, scores * factors, labels, self._names(labels), image.ori_shape, stored, keypoints=keypoints
        )
        if (factors == 1).all():
            return detections
        detections = detections[np.argsort(-detections.scores, kind="stable")].above(self.score_threshold)
        return detections[detections.scores > 0]  # a mask of the network may cover no pixel of the image

    def _segments(self, image: Prepared, segmentation: PanopticMap, panoptic: PanopticFormat) -> Detections:
        """Return the segments of a panoptic segmentation as detections."""
        ids = np.array(sorted(segmentation.scores, key=lambda segment: -segmentation.scores[segment]), np.int64)
        stored = ImageMasks.from_arrays(segmentation.ids == segment for segment in ids)
        labels = ids % INSTANCE_OFFSET
        return Detections(
            stored.boxes,
            np.array([segmentation.scores[segment] for segment in ids.tolist()], np.float32),
            labels,
            self._names(labels),
            image.ori_shape,
            stored,
            SegmentIds(ids, panoptic.things, panoptic.classes),
        ).above(self.score_threshold)

    def _names(self, labels: NDArray[np.int64]) -> tuple[str, ...]:
        """Return the name of each label."""
        if not self.classes:
            return tuple(map(str, labels.tolist()))
        if labels.max(initial=-1) >= len(self.classes):
            raise ValueError(
                f"the model found label {labels.max()}, but there are names for {len(self.classes)} classes only; "
                "pass classes with a name for each label"
            )
        return tuple(self.classes[label] for label in labels)


def segments_of(
    image: Prepared, canvas: tuple[int, int], rows: Sequence[NDArray[Any]], mask_format: MaskFormat
) -> PanopticMap:
    """Return the panoptic segmentation of an image; `Postprocessing` describes the arguments."""
    assert mask_format.panoptic is not None
    if len(rows) < (3 if mask_format.panoptic.source == "queries" else 4):
        needed = "masks" if mask_format.panoptic.source == "queries" else "masks and semantic"
        raise ValueError(f"the model's outputs must have {needed}, of which segments are made, got {len(rows)} outputs")
    dets, labels, masks = rows[:3]
    indices = _usable(dets, labels, 0.0)
    if mask_format.panoptic.source == "queries":
        logits = (mask_format.rescaled(masks[index], image, canvas)[1] for index in indices)
        return mask_format.panoptic.of_queries(logits, labels[indices], dets[indices, 4], image.ori_shape)
    indices = indices[np.argsort(-dets[indices, 4], kind="stable")]
    boxes = image.boxes_in_image(dets[indices, :4])
    stored = mask_format.store(masks[indices], boxes, image, canvas).masks
    covering = MaskFormat("image", rescaling="fit")
    semantic = (covering.rescaled(logits, image, canvas)[1] for logits in rows[3])
    return mask_format.panoptic.of_instances(stored, labels[indices], dets[indices, 4], semantic, image.ori_shape)


def _usable(dets: NDArray[np.float32], labels: NDArray[np.int64], score_threshold: float) -> NDArray[np.intp]:
    """Return the indices of the used rows with at least a score, in their order; warn of those with strange boxes."""
    # Files of MMDetection's own export fill unused rows with zeros instead of labels of -1.
    scores = dets[:, -1]
    used = (labels >= 0) & (scores > 0) & (scores >= score_threshold)
    finite = np.logical_and.reduce(np.isfinite(dets), axis=1)
    if not finite[used].all():
        warnings.warn(
            f"{np.sum(used & ~finite)} of {used.sum()} detections are left out, because their boxes are NaN or "
            "infinite",
            RuntimeWarning,
            stacklevel=3,
        )
    return np.flatnonzero(used & finite)
