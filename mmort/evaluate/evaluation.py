"""Run a detector over a data set, and measure what it finds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmort.contract import DETECTION
from mmort.evaluate.coco_format import listed
from mmort.evaluate.dataset import Dataset, DatasetImage, Metrics
from mmort.evaluate.results import ImageResult
from mmort.predict.predictor import Predictor

if TYPE_CHECKING:
    from mmort.predict import Detections

Predict = Callable[[Sequence[Path]], Iterable["Detections"]]
"""Takes the paths of images and returns the detections in them, in order: `Predictor.predict`, or anything like it."""


class Evaluation:
    """An evaluation that is fed image by image; it keeps boxes and run-length encoded masks.

    Parameters
    ----------
    dataset : Dataset
    metrics : sequence of str
        Of the data set's `metric_names`.  Empty: only collect the results.
    masks : bool, optional
        Whether to keep masks.  By default only for the metrics segm and PQ.
    **options
        As for the data set's metrics: `CocoOptions`, `PanopticOptions`, `VocOptions`.

    Raises
    ------
    ValueError
        If the data set does not have a metric or an option.
    TypeError
        If `metrics` is one name.
    """

    def __init__(
        self, dataset: Dataset, metrics: Sequence[str] = (), *, masks: bool | None = None, **options: Any
    ) -> None:
        if isinstance(metrics, str):
            raise TypeError(f"evaluate: metrics must be a sequence, such as [{metrics!r}], got {metrics!r}")
        dataset.check(metrics, options)
        self.dataset, self.metric_names, self.options = dataset, tuple(metrics), options
        self.masks = bool({"segm", "PQ"} & set(metrics)) if masks is None else masks
        self._results: dict[DatasetImage, Any] = {}

    def add(self, image: DatasetImage, detections: Detections) -> None:
        """Add the detections in one of the data set's images.

        Raises
        ------
        ValueError
            If a label is not one of the data set's classes, or the metrics need masks and there are none.
        """
        if self.dataset.task is not DETECTION:
            self._results[image] = self.dataset.result_of(image, detections)
            return
        if "segm" in self.metric_names and not detections.has_masks:
            raise ValueError("evaluate: segm needs masks, but the detector makes none")
        if "PQ" in self.metric_names and detections.segments is None:
            raise ValueError("evaluate: PQ needs the segments of a panoptic detector, but this one finds instances")
        classes = self.dataset.classes
        wrong = detections.labels[(detections.labels < 0) | (detections.labels >= len(classes))]
        if len(wrong):
            raise ValueError(
                f"evaluate: the detector found label {wrong[0]} in {image.path}, but the data set has "
                f"{len(classes)} classes: {listed(classes)}"
            )
        self._results[image] = ImageResult.of(detections, masks=self.masks)

    @property
    def results(self) -> list[ImageResult]:
        """The results in the order of the data set's images; ValueError if one is missing."""
        missing = [str(image.path) for image in self.dataset.images if image not in self._results]
        if missing:
            raise ValueError(f"evaluate: no detections were added for {len(missing)} images: {', '.join(missing[:3])}")
        return [self._results[image] for image in self.dataset.images]

    def metrics(self) -> Metrics:
        """Compute the metrics."""
        return self.dataset.score(self.results, self.metric_names, self.options)


def collect(evaluation: Evaluation, predict: Predict, *, progress: bool = True) -> None:
    """Add the detections in all images of an evaluation's data set.

    Raises
    ------
    ValueError
        If `predict` returns fewer or more results than it got images.

    Warns
    -----
    UserWarning
        If `predict` is the method of a `mmort.Predictor` that leaves out detections with low scores.
    """
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        raise ImportError("mmort.evaluate needs tqdm: pip install 'mmort[evaluate]'") from None
    warn_of_threshold(predict)
    images = evaluation.dataset.images
    outcomes = tqdm(
        predict([image.path for image in images]), total=len(images), unit="image", disable=None if progress else True
    )
    for image, detections in zip(images, outcomes, strict=True):
        evaluation.add(image, detections)


def warn_of_threshold(predict: Predict) -> None:
    """Warn if `predict` is the method of a `Predictor` that leaves out detections."""
    method: Any = predict
    while isinstance(method, partial):
        method = method.func
    threshold = getattr(getattr(method, "__self__", None), "score_threshold", 0)
    if threshold > 0:
        warnings.warn(
            f"evaluate: this Predictor leaves out detections with scores below {threshold:g}, which metrics count; "
            "make it with score_threshold=0",
            stacklevel=3,
        )


def evaluate(
    dataset: Dataset, predict: Predict | Predictor, metrics: Sequence[str], *, progress: bool = True, **options: Any
) -> Metrics:
    """Run a detector over a data set, and compute metrics.

    Parameters
    ----------
    dataset : Dataset
        As `dataset_of`, `CocoDataset` or `VocDataset` return it.
    predict : callable or Predictor
        Takes the paths of images and returns the detections in them, in order, such as the method `predict`
        of a ``mmort.Predictor(FILE, score_threshold=0)``, for which the predictor itself may stand.
    metrics : sequence of str
        bbox, segm and proposal for COCO's format; PQ for that of its panoptic segmentations; mAP and recall for VOC's;
        mAP for DOTA's.
    progress : bool, default True
        Show a progress bar, if stderr is a terminal.
    **options
        Of the metrics, by MMDetection's names: `CocoOptions`, `PanopticOptions`, `VocOptions`.

    Returns
    -------
    Metrics
        ``figures`` by MMDetection's names, and ``tables`` to print.

    Raises
    ------
    ValueError
        If the data set does not have a metric or an option, or a detection has a label that it does not have.
    ImportError
        If a library is missing; the message names the extra to install.

    Warns
    -----
    UserWarning
        If `predict` is the method of a `mmort.Predictor` that leaves out detections with low scores.
    """
    evaluation = Evaluation(dataset, metrics, **options)
    # A call of it would take the images as one batch, which is padded.
    collect(evaluation, predict.predict if isinstance(predict, Predictor) else predict, progress=progress)
    return evaluation.metrics()
