"""Compare what files of other tasks than detection return, image by image: a row for each task, added up alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmort.contract import CLASSIFICATION, DETECTION, POSE, SEGMENTATION, TEXT_DETECTION, TEXT_RECOGNITION, Task
from mmort.detections.classes import Classes
from mmort.detections.detections import Detections
from mmort.detections.drawable import Drawable
from mmort.detections.recognized_text import RecognizedText
from mmort.detections.segmentation_map import SegmentationMap
from mmort.detections.text_regions import TextRegions
from mmort.evaluate.dataset import DatasetImage
from mmort.evaluate.parity.agreement import Agreement, quantile_text, quantiles
from mmort.evaluate.parity.comparison import MIN_IOU, MIN_MASK_IOU, TOLERANCES, Comparison
from mmort.evaluate.text_regions import overlaps_of

_NONE = np.zeros(0)


class Difference(NamedTuple):
    """The results of two models for an image, compared.

    Attributes
    ----------
    expected, found, equal : int
        How many results, such as pixels, the reference has, the model has, and are equal.
    distances : ndarray of float64, (D,)
        How far the results that both have are apart.
    """

    expected: int
    found: int
    equal: int
    distances: NDArray[np.float64] = _NONE


@dataclass(frozen=True)
class Measure:
    """How the results of a task are compared.

    Parameters
    ----------
    unit : str
        What is counted.
    compare : callable
        Takes the reference's result for an image and the model's, and returns the `Difference`.
    rule : str
        Which ones are equal, for the report.
    distance : str, default ""
        What `Difference.distances` are.
    counts : str, default "{missing:,} differ"
        How those without an equal one are counted.
    """

    unit: str
    compare: Callable[[Any, Any], Difference]
    rule: str
    distance: str = ""
    counts: str = "{missing:,} differ"


def _compare_classes(reference: Classes, found: Classes) -> Difference:
    """Compare the probability of each class."""
    if len(reference) != len(found):
        raise ValueError(f"parity: the models must have the same classes, got {len(reference)} and {len(found)}")
    expected, actual = (classes.scores[np.argsort(classes.labels)].astype(float) for classes in (reference, found))
    distances = np.abs(expected - actual)
    equal = reference.labels[0] == found.labels[0] and (distances <= TOLERANCES.of(expected)).all()
    return Difference(1, 1, int(equal), distances.max(keepdims=True))


def _compare_maps(reference: SegmentationMap, found: SegmentationMap) -> Difference:
    """Compare the class of each pixel."""
    count = reference.map.size
    return Difference(count, count, int((reference.map == found.map).sum()))


def _compare_poses(reference: Detections, found: Detections) -> Difference:
    """Compare the keypoints in the same boxes."""
    expected, actual = reference.keypoints, found.keypoints
    assert expected is not None
    assert actual is not None
    if expected.shape != actual.shape:
        raise ValueError(
            f"parity: the models must have as many keypoints, got {expected.shape[:2]} and {actual.shape[:2]}"
        )
    distances = np.abs(expected.astype(float) - actual)
    limits = TOLERANCES.of(expected)
    limits[..., :2] = limits[..., :2].max(axis=(1, 2), keepdims=True)  # one for all positions of a pose
    equal = (distances <= limits).all(axis=-1)
    return Difference(equal.size, equal.size, int(equal.sum()), np.hypot(distances[..., 0], distances[..., 1]).ravel())


def _compare_words(reference: RecognizedText, found: RecognizedText) -> Difference:
    """Compare what was read, and how probable it is."""
    if reference.text != found.text:
        return Difference(1, 1, 0)
    distance = abs(reference.score - found.score)
    return Difference(1, 1, int(distance <= TOLERANCES.of(np.array(reference.score))), np.array([distance]))


def _compare_regions(reference: TextRegions, found: TextRegions) -> Difference:
    """Match the outlines of texts: those of the reference by descending score, each with the one that overlaps most."""
    overlaps = overlaps_of(reference.polygons, found.polygons)
    equal, distances = 0, list[float]()
    for row in np.argsort(-reference.scores, kind="stable"):
        column = int(overlaps[row].argmax()) if len(found) else -1
        if column < 0 or overlaps[row, column] < MIN_IOU:
            continue
        score = float(reference.scores[row])
        distances.append(abs(score - float(found.scores[column])))
        equal += int(overlaps[row, column] >= MIN_MASK_IOU and distances[-1] <= TOLERANCES.of(np.array(score)))
        overlaps[:, column] = 0
    return Difference(len(reference), len(found), equal, np.array(distances))


MEASURES = {
    CLASSIFICATION.name: Measure(
        "images",
        _compare_classes,
        "Two classifications are equal if the most probable class is the same, and each probability within {limits}.",
        "The probabilities of a class differ by",
    ),
    SEGMENTATION.name: Measure("pixels", _compare_maps, "Two pixels are equal if they have the same class."),
    POSE.name: Measure(
        "keypoints",
        _compare_poses,
        "Keypoints are equal if they are within {limits} of the pose's largest coordinate, and their scores, too.",
        "Keypoints are apart, in pixels, by",
    ),
    TEXT_RECOGNITION.name: Measure(
        "texts",
        _compare_words,
        "Two texts are equal if their characters are, and their scores are within {limits}.",
        "The scores of the same texts differ by",
    ),
    TEXT_DETECTION.name: Measure(
        "texts",
        _compare_regions,
        f"Two texts are equal if their outlines overlap by an IoU of {MIN_MASK_IOU}, and their scores are within "
        "{limits}.",
        f"The scores of texts with an IoU of {MIN_IOU} or more differ by",
        "{missing:,} missing, {extra:,} extra",
    ),
}
"""How results are compared, by the name of their task."""


@dataclass(frozen=True)
class ResultExample:
    """An image for which a model's result differs from the reference's."""

    image: DatasetImage
    reference: Drawable
    found: Drawable
    difference: Difference

    @property
    def severity(self) -> float:
        """How many results have no equal one."""
        return self.difference.expected + self.difference.found - 2 * self.difference.equal


@dataclass
class ResultComparison(Agreement[ResultExample]):
    """The results of a model of another task than detection, compared with the reference's over a data set.

    Attributes
    ----------
    measure : Measure
    """

    measure: Measure = field(kw_only=True)
    _distances: list[NDArray[np.float64]] = field(default_factory=list, repr=False)

    @property
    def unit(self) -> str:
        """The word for the results that are counted."""
        return self.measure.unit

    def add(self, image: DatasetImage, reference: Any, found: Any) -> Difference:
        """Add an image."""
        result = self.measure.compare(reference, found)
        self.images += 1
        self.expected += result.expected
        self.found += result.found
        self.missing += result.expected - result.equal
        self.extra += result.found - result.equal
        self._distances.append(result.distances)
        example = ResultExample(image, reference, found, result)
        if example.severity:
            self._keep(example)
        return result

    @property
    def counts(self) -> str:
        """How many results have no equal one, in words."""
        return self.measure.counts.format(missing=self.missing, extra=self.extra)

    @property
    def distances(self) -> tuple[float, ...]:
        """The median, 95 % and the largest of the distances of results that both models have."""
        return quantiles(self._distances)

    @property
    def drift(self) -> str:
        """How far results of both models are apart, in a sentence; empty if all are equal."""
        if self.agreement == 1 or not self.measure.distance:
            return ""
        return f"{self.measure.distance} {quantile_text(self.distances)} (median, 95%, largest)."


def comparison_of(task: Task, name: str) -> Comparison | ResultComparison:
    """Return an empty comparison for a model of a task."""
    return Comparison(name) if task is DETECTION else ResultComparison(name, measure=MEASURES[task.name])
