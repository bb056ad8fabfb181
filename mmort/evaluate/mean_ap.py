"""Average precision as PASCAL VOC defines it and MMDetection computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

import mmort
from mmort.evaluate.dataset import Metrics
from mmort.tables import lay_out

EVAL_MODES = "11points", "area"
"""The ways to average precision over recalls."""

Overlaps: TypeAlias = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
"""The IoU (N, M) of boxes (N, ...) and objects (M, ...)."""

RECALLS = np.arange(0, 1.001, 0.1)
"""The 11 points, as MMDetection computes them: 0.3, 0.6 and 0.7 are one bit too high for a recall of just that."""


class ImageOfClass(NamedTuple):
    """The detections and the objects of one class in one image."""

    boxes: NDArray[np.float32]
    """(N, 4), or (N, 5) of rotated ones"""
    scores: NDArray[np.float32]
    """(N,)"""
    objects: NDArray[np.float32]
    """(M, 4), or (M, 5) of rotated ones"""
    ignored: NDArray[np.bool_]
    """(M,); objects that are difficult: finding one is neither right nor wrong."""


class ClassResult(NamedTuple):
    """Figures of a class."""

    objects: int
    """Not counting ignored ones."""
    detections: int
    recall: float
    ap: float


def pixel_overlaps(boxes: NDArray[Any], objects: NDArray[Any]) -> NDArray[Any]:
    """Return the IoU of boxes (N, 4) and objects (M, 4) whose corners are pixels, both inside the box."""
    return mmort.box_iou(boxes, objects, offset=1)


def check_mode(mode: str) -> None:
    """Raise ValueError unless a word is one of `EVAL_MODES`."""
    if mode not in EVAL_MODES:
        raise ValueError(f"evaluate: eval_mode must be 11points or area, got {mode!r}")


def mean_average_precision(
    classes: Sequence[str],
    images_of: Callable[[int], Iterable[ImageOfClass]],
    iou_thresholds: Sequence[float],
    mode: str,
    overlaps: Overlaps = pixel_overlaps,
) -> Metrics:
    """Compute mAP at each threshold, and their mean; classes without objects do not count.

    Parameters
    ----------
    classes : sequence of str
        Names by label.
    images_of : callable
        From a label to the detections and objects of this class in each image.
    iou_thresholds : sequence of float
    mode, overlaps
        As in `class_result`.

    Returns
    -------
    Metrics
        ``mAP``, ``AP50`` and the like, and a table for each threshold.
    """
    averages: dict[str, float] = {}
    tables = []
    for threshold in iou_thresholds:
        results = [class_result(images_of(label), threshold, mode, overlaps) for label in range(len(classes))]
        measured = [of_class.ap for of_class in results if of_class.objects]
        mean = sum(measured) / len(measured) if measured else 0.0
        averages[f"AP{round(threshold * 100):02d}"] = mean
        rows = [["class", "gts", "dets", "recall", "ap"]]
        for name, (objects, detections, recall, ap) in zip(classes, results, strict=True):
            rows.append([name, str(objects), str(detections), f"{recall:.3f}", f"{ap:.3f}"])
        tables.append(f"iou_thr: {threshold}\n{lay_out([*rows, ['mAP', '', '', '', f'{mean:.3f}']])}")
    return Metrics({"mAP": sum(averages.values()) / len(averages), **averages}, tuple(tables))


def class_result(
    images: Iterable[ImageOfClass], iou_threshold: float, mode: str, overlaps: Overlaps = pixel_overlaps
) -> ClassResult:
    """Compute recall and average precision of a class.

    A detection is right if the IoU with the object that it overlaps most reaches the threshold, and no detection of a
    higher score has found that object.

    Parameters
    ----------
    images : iterable of ImageOfClass
    iou_threshold : float
    mode : {"11points", "area"}
        Average the best precision at 11 recalls, or integrate it over all recalls.
    overlaps : callable
        The IoU of boxes and objects, (N, M); `mmort.box_iou_rotated` for rotated ones.

    Returns
    -------
    ClassResult

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.evaluate.mean_ap import ImageOfClass, class_result
    >>> boxes = np.array([[0, 0, 9, 9], [20, 0, 29, 9]], np.float32)
    >>> image = ImageOfClass(boxes, np.array([0.9, 0.8]), boxes[1:], np.zeros(1, bool))
    >>> class_result([image], 0.5, "area")
    ClassResult(objects=1, detections=2, recall=1.0, ap=0.5)
    """
    scores, right, wrong, objects = [], [], [], 0
    for image in images:
        matched, missed = _match(image, iou_threshold, overlaps)
        scores.append(image.scores)
        right.append(matched)
        wrong.append(missed)
        objects += int((~image.ignored).sum())
    order = np.argsort(-np.concatenate(scores), kind="stable")
    true_positives = np.concatenate(right)[order].cumsum()
    false_positives = np.concatenate(wrong)[order].cumsum()
    recall = true_positives / max(objects, 1)
    precision = true_positives / np.maximum(true_positives + false_positives, 1)
    average = _at_11_points if mode == "11points" else _area
    last = float(recall[-1]) if len(recall) else 0.0
    return ClassResult(objects, len(order), last, average(recall, precision))


def _match(image: ImageOfClass, threshold: float, overlaps_of: Overlaps) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which detections are right and which are wrong; those of ignored objects are neither."""
    right, wrong = np.zeros(len(image.boxes), bool), np.zeros(len(image.boxes), bool)
    if not len(image.objects):
        return right, ~wrong
    # Ties between objects go to those that count, as in MMDetection, which appends the ignored ones.
    order = np.argsort(image.ignored, kind="stable")
    overlaps = overlaps_of(image.boxes.astype(np.float64), image.objects[order])
    overlaps = np.nan_to_num(overlaps, nan=0.0)
    ignored, taken = image.ignored[order], np.zeros(len(order), bool)
    for detection in np.argsort(-image.scores, kind="stable"):
        nearest = overlaps[detection].argmax()
        if overlaps[detection, nearest] < threshold:
            wrong[detection] = True
        elif not ignored[nearest]:
            (wrong if taken[nearest] else right)[detection] = True
            taken[nearest] = True
    return right, wrong


def _at_11_points(recall: NDArray[np.float64], precision: NDArray[np.float64]) -> float:
    """Average the best precision among detections that reach each of 11 recalls."""
    return float(np.mean([precision[recall >= point].max(initial=0.0) for point in RECALLS]))


def _area(recall: NDArray[np.float64], precision: NDArray[np.float64]) -> float:
    """Integrate the best precision at this recall or a higher one over the recall."""
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * best))
