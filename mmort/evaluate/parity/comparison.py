"""Compare the detections of a model with a reference's, image by image, and add up over a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import mmort
from mmort.detections.boxes import distances, reach
from mmort.detections.matching import match_detections
from mmort.evaluate.parity.agreement import Agreement, quantile_text, quantiles
from mmort.predict import ImageMasks
from mmort.tolerances import Tolerances

if TYPE_CHECKING:
    from mmort.evaluate.dataset import DatasetImage
    from mmort.predict import Detections

TOLERANCES = Tolerances()
"""Of scores, and of the corners of boxes in pixels: `mmort.onnx.verify`'s."""

MIN_MASK_IOU = 0.99
"""The smallest IoU of equal masks, unless they differ in a single pixel: rounding moves one across the threshold."""

MIN_IOU = 0.5
"""The smallest IoU of boxes that show the same object."""

SCORE_BINS = 20


@dataclass(frozen=True)
class ImageComparison:
    """The detections of a model in one image, compared with the reference's.

    Attributes
    ----------
    matches : ndarray of int64, (R,)
        For each detection of the reference the index of the model's equal detection, or -1.
    other_masks : ndarray of int64
        Indices of the reference's detections whose match has another mask.
    extra : ndarray of int64
        Indices of the model's detections without a match.
    max_box_diff, max_score_diff : float
        Over all matches, in pixels of the image, and in score.
    same_object : ndarray of int64, (R,)
        For each detection of the reference the index of the model's detection of the same object, equal or not, or -1:
        its box has the same label and overlaps by an IoU of `MIN_IOU`.
    """

    matches: NDArray[np.int64]
    other_masks: NDArray[np.int64]
    extra: NDArray[np.int64]
    max_box_diff: float
    max_score_diff: float
    same_object: NDArray[np.int64]

    @property
    def missing(self) -> NDArray[np.int64]:
        """Indices of the reference's detections without a match."""
        return np.flatnonzero(self.matches < 0)

    @property
    def equal(self) -> bool:
        """Whether both found the same."""
        return not (len(self.missing) or len(self.other_masks) or len(self.extra))


def compare_image(reference: Detections, detections: Detections) -> ImageComparison:
    """Compare the detections of a model in one image with the reference's, in any order.

    Parameters
    ----------
    reference, detections : Detections
        Two detections are equal if they have the same label, and their scores, the corners of their boxes in pixels,
        rotated as they are, their keypoints and their masks are within the tolerances.  Masks, keypoints and rotated
        boxes are compared if both have them.  Of several detections within
        the tolerances, the one with the most similar mask is paired.  Boxes that are those of the masks say no more
        than these, and are not compared: a single pixel moves them by one.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort import Detections
    >>> from mmort.evaluate.parity import compare_image
    >>> boxes = np.array([[10, 10, 30, 40], [50, 5, 70, 45]])
    >>> reference = Detections(boxes, np.array([0.9, 0.6]), np.array([0, 1]), ("cat", "dog"), (100, 120))
    >>> result = compare_image(reference, reference[:1])
    >>> result.equal, result.missing.tolist(), result.extra.tolist()
    (False, [1], [])
    """
    with_masks = reference.has_masks and detections.has_masks
    boxes_of_masks = with_masks and _boxes_are_of_masks(reference) and _boxes_are_of_masks(detections)
    with_keypoints = reference.keypoints is not None and detections.keypoints is not None
    found, expected = _rows(detections, reference), _rows(reference, detections)
    matches = match_detections(
        found,
        detections.labels,
        expected,
        reference.labels,
        box_tolerance=np.inf if boxes_of_masks else TOLERANCES.of(reach(expected)),
        score_tolerance=TOLERANCES.of(reference.scores),
        overlaps=partial(_overlaps, reference, detections) if with_masks else None,
        is_equal=partial(_have_keypoints_of, reference, detections) if with_keypoints else None,
    )
    matched = np.flatnonzero(matches >= 0)
    partners = matches[matched]
    return ImageComparison(
        matches=matches,
        other_masks=_other_masks(reference, detections, matches),
        extra=np.setdiff1d(np.arange(len(detections)), partners),
        max_box_diff=float(distances(found[partners], expected[matched]).max(initial=0)),
        max_score_diff=float(np.abs(detections.scores[partners] - reference.scores[matched]).max(initial=0)),
        same_object=_same_object(reference, detections, matches),
    )


def _same_object(reference: Detections, detections: Detections, matches: NDArray[np.int64]) -> NDArray[np.int64]:
    """Match the detections without an equal one: by descending score, each with the one that overlaps it most."""
    pairs = matches.copy()
    rest = np.flatnonzero(matches < 0)
    free = np.setdiff1d(np.arange(len(detections)), matches)
    if reference.rotated_boxes is not None and detections.rotated_boxes is not None:
        overlaps = mmort.box_iou_rotated(reference.rotated_boxes[rest], detections.rotated_boxes[free])
    else:
        overlaps = mmort.box_iou(reference.boxes[rest], detections.boxes[free])
    overlaps = np.where(reference.labels[rest, None] == detections.labels[free], np.nan_to_num(overlaps), 0)
    for row in np.argsort(-reference.scores[rest], kind="stable"):
        if len(free) and overlaps[row].max() >= MIN_IOU:
            column = overlaps[row].argmax()
            pairs[rest[row]] = free[column]
            overlaps[:, column] = 0
    return pairs


def _rows(detections: Detections, others: Detections) -> NDArray[np.float64]:
    """Return boxes with scores, (N, 5), or (N, 6) if those of both are rotated."""
    boxes = detections.rotated_boxes
    if boxes is None or others.rotated_boxes is None:
        boxes = detections.boxes
    return np.column_stack([boxes, detections.scores]).astype(np.float64)


def _have_keypoints_of(reference: Detections, detections: Detections, index: int) -> NDArray[np.bool_]:
    """Return which detections have a reference's keypoints, (N,): their positions, and their scores."""
    points, target = detections.keypoints, reference.keypoints
    assert points is not None
    assert target is not None
    if points.shape[1:] != target.shape[1:]:
        return np.zeros(len(points), bool)
    expected = target[index].astype(np.float64)
    limits = TOLERANCES.of(np.abs(expected))
    limits[:, :2] = limits[:, :2].max(initial=0)  # one for all positions, as of a box's corners
    return np.asarray((np.abs(points - expected) <= limits).all((1, 2)))


def _other_masks(reference: Detections, detections: Detections, matches: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of the reference's detections whose match has another mask."""
    if not (reference.has_masks and detections.has_masks):
        return np.empty(0, np.int64)
    differ = [
        index
        for index, match in enumerate(matches)
        if match >= 0 and not _same_mask(reference, index, detections, int(match))
    ]
    return np.array(differ, np.int64)


def _same_mask(reference: Detections, index: int, detections: Detections, match: int) -> bool:
    """Whether two masks differ in no more than rounding explains."""
    different, union = _difference(reference, index, detections, match)
    return different <= max(1, (1 - MIN_MASK_IOU) * union)


def _overlaps(
    reference: Detections, detections: Detections, indices: Sequence[int] | NDArray[np.int64], expected: int
) -> NDArray[np.float64]:
    """Return the IoU of some of the masks found with one of the reference's."""
    counts = (_difference(reference, expected, detections, int(index)) for index in indices)
    return np.array([1 - different / max(union, 1) for different, union in counts], np.float64)


def _difference(reference: Detections, index: int, detections: Detections, match: int) -> tuple[int, int]:
    """Return the number of pixels that are in one of two masks only, and of those that are in any."""
    region, other = reference.mask_region(index), detections.mask_region(match)
    masks = region.mask, other.mask
    if (region.top, region.left, region.mask.shape) != (other.top, other.left, other.mask.shape):
        masks = reference.mask(index), detections.mask(match)
    return int((masks[0] ^ masks[1]).sum()), int((masks[0] | masks[1]).sum())


def _boxes_are_of_masks(detections: Detections) -> bool:
    """Return whether the boxes are the smallest ones around the masks, as of detectors that predict masks only."""
    masks = detections.stored_masks
    return isinstance(masks, ImageMasks) and np.array_equal(masks.boxes, detections.boxes)


@dataclass(frozen=True)
class Example:
    """An image in which a model's detections differ from the reference's."""

    image: DatasetImage
    reference: Detections
    detections: Detections
    comparison: ImageComparison

    @property
    def severity(self) -> float:
        """The sum of the scores of all detections that differ: what moves AP most comes first."""
        differing = np.concatenate([self.comparison.missing, self.comparison.other_masks])
        return float(self.reference.scores[differing].sum() + self.detections.scores[self.comparison.extra].sum())


@dataclass
class Comparison(Agreement[Example]):
    """The detections of a model, compared with the reference's over the images of a data set.

    Attributes
    ----------
    other_masks : int
        Detections of the reference whose match has another mask.
    scores : dict of str to ndarray of int64, (SCORE_BINS,)
        Counts of detections by score, from 0 to 1: of the "reference", "found", "missing" and "extra" ones.
    same_object : int
        Detections of the reference whose object the model found, too, with the same box or another one.
    """

    other_masks: int = 0
    scores: dict[str, NDArray[np.int64]] = field(
        default_factory=lambda: {
            kind: np.zeros(SCORE_BINS, np.int64) for kind in ("reference", "found", "missing", "extra")
        }
    )
    same_object: int = 0
    _drifts: list[NDArray[np.float64]] = field(default_factory=list, repr=False)

    @property
    def unit(self) -> str:
        """The word for the results that are counted."""
        return "detections"

    def add(self, image: DatasetImage, reference: Detections, detections: Detections) -> ImageComparison:
        """Add an image."""
        result = compare_image(reference, detections)
        self.images += 1
        self.expected += len(reference)
        self.found += len(detections)
        self.missing += len(result.missing)
        self.other_masks += len(result.other_masks)
        self.extra += len(result.extra)
        self._add_drift(reference, detections, result.same_object)
        for kind, scores in (
            ("reference", reference.scores),
            ("found", detections.scores),
            ("missing", reference.scores[result.missing]),
            ("extra", detections.scores[result.extra]),
        ):
            self.scores[kind] += np.histogram(np.clip(scores, 0, 1), SCORE_BINS, (0, 1))[0]
        if not result.equal:
            self._keep(Example(image, reference, detections, result))
        return result

    @property
    def matched(self) -> int:
        """The number of equal detections."""
        return self.expected - self.missing - self.other_masks

    @property
    def counts(self) -> str:
        """How many detections have no equal one, in words."""
        return super().counts + (f", {self.other_masks:,} with another mask" if self.other_masks else "")

    @property
    def drift(self) -> str:
        """How far the detections of the same objects moved, in a sentence; empty if all detections are equal."""
        if self.agreement == 1 or not self.expected:
            return ""
        return (
            f"{self.same_object:,} of {self.expected:,} detections show the same object (same class, IoU of {MIN_IOU} "
            f"or more); their boxes moved by {quantile_text(self.box_drift)} px, their scores by "
            f"{quantile_text(self.score_drift)} (median, 95%, largest)."
        )

    @property
    def box_drift(self) -> tuple[float, ...]:
        """The `QUANTILES` of the largest difference of a corner, in pixels, over detections of the same object."""
        return quantiles([drift[0] for drift in self._drifts])

    @property
    def score_drift(self) -> tuple[float, ...]:
        """The `QUANTILES` of the difference of scores over detections of the same object."""
        return quantiles([drift[1] for drift in self._drifts])

    def _add_drift(self, reference: Detections, detections: Detections, same_object: NDArray[np.int64]) -> None:
        """Add the differences, (2, N), of the detections that show the same object."""
        matched = np.flatnonzero(same_object >= 0)
        partners = same_object[matched]
        of_boxes = distances(_rows(detections, reference)[partners], _rows(reference, detections)[matched])
        self.same_object += len(matched)
        self._drifts.append(
            np.array([of_boxes, np.abs(detections.scores[partners] - reference.scores[matched])], float)
        )
