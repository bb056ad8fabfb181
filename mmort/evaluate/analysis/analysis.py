"""The errors of a detector over a data set: by class, by kind, by pair of classes, and by image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmort.evaluate.analysis.errors import ImageErrors, Kind, image_errors
from mmort.evaluate.dataset import Dataset
from mmort.evaluate.image_objects import ImageObjects
from mmort.evaluate.results import ImageResult

RECALLS = np.linspace(0, 1, 101)
"""Those at which COCO averages precision."""

ERRORS = tuple(kind for kind in Kind if kind not in (Kind.RIGHT, Kind.IGNORED))
"""The kinds of false positives."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Precision and recall of a class as the score threshold falls.

    Attributes
    ----------
    scores, precisions, recalls : ndarray of float64, (N,)
        At each detection that is right or wrong, by descending score.
    objects : int
        Those to find.
    """

    scores: NDArray[np.float64]
    precisions: NDArray[np.float64]
    recalls: NDArray[np.float64]
    objects: int

    @property
    def interpolated(self) -> NDArray[np.float64]:
        """The best precision at each of COCO's 101 recalls or a higher one, (101,)."""
        best = np.maximum.accumulate(self.precisions[::-1])[::-1]
        return np.append(best, 0.0)[np.searchsorted(self.recalls, RECALLS)]

    @property
    def average_precision(self) -> float:
        """AP at this IoU as COCO has it; -1 without objects."""
        return float(self.interpolated.mean()) if self.objects else -1.0

    def at(self, threshold: float) -> tuple[float, float]:
        """Return precision and recall of the detections with at least this score."""
        count = int((self.scores >= threshold).sum())
        return (float(self.precisions[count - 1]), float(self.recalls[count - 1])) if count else (0.0, 0.0)

    def best_f1(self) -> tuple[float, float]:
        """Return the largest harmonic mean of precision and recall, and the score threshold that has it."""
        if not self.recalls.any():
            return 0.0, 1.0
        f1 = 2 * self.precisions * self.recalls / np.maximum(self.precisions + self.recalls, np.finfo(float).tiny)
        best = len(f1) - 1 - int(f1[::-1].argmax())  # of equal scores the last one has all their detections
        return float(f1[best]), float(self.scores[best])


@dataclass(frozen=True, eq=False)
class ImageAnalysis:
    """An image: its objects, the detections in it, and how they compare.

    Attributes
    ----------
    result : ImageResult
    objects : ImageObjects
    errors : ImageErrors
    visible : ndarray of bool, (N,)
        The detections that reach the score threshold.
    """

    result: ImageResult
    objects: ImageObjects
    errors: ImageErrors
    visible: NDArray[np.bool_]

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """The visible detections that are errors, (N,)."""
        return self.visible & np.isin(self.errors.kinds, ERRORS)

    @property
    def missed(self) -> NDArray[np.bool_]:
        """The objects that no visible detection found, (M,)."""
        missed = ~self.objects.ignored
        missed[self.errors.matches[self.visible & (self.errors.matches >= 0)]] = False
        return missed


@dataclass(frozen=True, eq=False)
class Analysis:
    """The errors of a detector over a data set.

    Attributes
    ----------
    classes : tuple of str
    score_threshold, iou_threshold : float
        Detections from this score on count, except in the curves; one is right from this IoU on.
    curves : tuple of Curve
        Of each class.
    kinds : ndarray of int64, (C, 7)
        Detections of each class by `Kind`.
    missed : ndarray of int64, (C,)
        Objects of each class that were not found.
    confusion : ndarray of int64, (C + 1, C + 1)
        Pairs of an object and a detection whose IoU reaches the threshold, by their classes, as MMDetection's
        ``confusion_matrix.py`` counts them.  The last column has objects that no detection of their class found, the
        last row detections that overlap no object.
    images : tuple of ImageAnalysis
        In the data set's order.
    """

    classes: tuple[str, ...]
    score_threshold: float
    iou_threshold: float
    curves: tuple[Curve, ...]
    kinds: NDArray[np.int64]
    missed: NDArray[np.int64]
    confusion: NDArray[np.int64]
    images: tuple[ImageAnalysis, ...]

    def worst(self, count: int) -> list[int]:
        """Return the images with the most errors and missed objects, by descending number; none without any."""
        numbers = np.array([image.wrong.sum() + image.missed.sum() for image in self.images], np.int64)
        order = np.argsort(-numbers, kind="stable")[:count]
        return [int(index) for index in order if numbers[index]]


def analyze(
    dataset: Dataset, results: Sequence[ImageResult], *, score_threshold: float = 0.3, iou_threshold: float = 0.5
) -> Analysis:
    """Compare boxes with the objects of a data set.

    Parameters
    ----------
    dataset : Dataset
    results : sequence of ImageResult
        One for each image: `Evaluation.results`, or those that `read_results` reads.
    score_threshold : float, default 0.3
        The lowest score that counts; curves have all detections.
    iou_threshold : float, default 0.5
        The lowest IoU of a detection with the object that it found.

    Returns
    -------
    Analysis

    Raises
    ------
    ValueError
        If the data set has no objects with boxes, or its boxes are rotated and those of the detector are not.

    Examples
    --------
    >>> from mmort.demo import ANNOTATIONS, IMAGES, MODEL
    >>> from mmort.evaluate import CocoDataset, Evaluation, analyze, collect
    >>> import mmort
    >>> evaluation = Evaluation(CocoDataset(ANNOTATIONS, IMAGES[0].parent))
    >>> collect(evaluation, mmort.Predictor(MODEL, score_threshold=0).predict)
    >>> analysis = analyze(evaluation.dataset, evaluation.results)
    >>> print(f"{analysis.curves[3].average_precision:.2f}, {analysis.missed.sum()} objects missed")
    1.00, 0 objects missed
    """
    all_objects = dataset.objects()
    if all_objects is None:
        raise ValueError(f"evaluate: errors need objects with boxes, which this {type(dataset).__name__} does not have")
    images = tuple(
        ImageAnalysis(result, objects, image_errors(result, objects, iou_threshold), result.scores >= score_threshold)
        for result, objects in zip(results, all_objects, strict=True)
    )
    count = len(dataset.classes)
    kinds, missed = np.zeros((count, len(Kind)), np.int64), np.zeros(count, np.int64)
    confusion = np.zeros((count + 1, count + 1), np.int64)
    for image in images:
        np.add.at(kinds, (image.result.labels[image.visible], image.errors.kinds[image.visible]), 1)
        np.add.at(missed, image.objects.labels[image.missed], 1)
        _count_pairs(confusion, image, iou_threshold)
    curves = tuple(_curves(images, count))
    return Analysis(tuple(dataset.classes), score_threshold, iou_threshold, curves, kinds, missed, confusion, images)


def _count_pairs(confusion: NDArray[np.int64], image: ImageAnalysis, iou_threshold: float) -> None:
    """Add the pairs of an image to a confusion matrix."""
    rows, counted = image.visible & (image.errors.kinds != Kind.IGNORED), ~image.objects.ignored
    overlapping = image.errors.overlaps[np.ix_(rows, counted)] >= iou_threshold
    labels, of_objects = image.result.labels[rows], image.objects.labels[counted]
    detections, objects = overlapping.nonzero()
    np.add.at(confusion, (of_objects[objects], labels[detections]), 1)
    np.add.at(confusion, (-1, labels[~overlapping.any(axis=1)]), 1)
    is_found = (overlapping & (labels[:, None] == of_objects)).any(axis=0)
    np.add.at(confusion, (of_objects[~is_found], -1), 1)


def _curves(images: Sequence[ImageAnalysis], classes: int) -> Iterator[Curve]:
    """Yield the curve of each class."""
    labels = np.concatenate([np.zeros(0, np.int64), *(image.result.labels for image in images)])
    scores = np.concatenate([np.zeros(0), *(image.result.scores for image in images)])
    kinds = np.concatenate([np.zeros(0, np.int64), *(image.errors.kinds for image in images)])
    wanted = np.concatenate(
        [np.zeros(0, np.int64), *(image.objects.labels[~image.objects.ignored] for image in images)]
    )
    objects = np.bincount(wanted, minlength=classes).tolist()
    order = np.lexsort((-scores, labels))  # stable
    order = order[kinds[order] != Kind.IGNORED]
    bounds = np.searchsorted(labels[order], np.arange(classes + 1)).tolist()
    for label in range(classes):
        rows = order[bounds[label] : bounds[label + 1]]
        right = (kinds[rows] == Kind.RIGHT).cumsum()
        precisions = right / np.arange(1, len(right) + 1)
        yield Curve(scores[rows], precisions, right / max(objects[label], 1), objects[label])
