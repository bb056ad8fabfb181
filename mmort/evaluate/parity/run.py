"""Run several models over a data set in step, so that no more than a batch's masks of each are in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmort.evaluate.dataset import Dataset
from mmort.evaluate.evaluation import Evaluation, Predict, warn_of_threshold
from mmort.evaluate.parity.comparison import Comparison
from mmort.evaluate.parity.result import Column, Parity
from mmort.evaluate.unlabelled import UnlabelledDataset


def compare_models(
    dataset: Dataset, models: Mapping[str, Predict], metrics: Sequence[str], *, progress: bool = True, **options: Any
) -> Parity:
    """Evaluate models on a data set, and compare their metrics and their detections with the first one's.

    Parameters
    ----------
    dataset : Dataset
    models : mapping of str to callable
        What `evaluate` takes as `predict`, by the name to show.  The first is the reference.
    metrics : sequence of str
        As for `evaluate`; empty for an `UnlabelledDataset`.
    progress : bool, default True
        Show a progress bar, if stderr is a terminal.
    **options
        Of the metrics, as for `evaluate`.

    Raises
    ------
    ValueError
        If there is no second model, no image or no metric, the data set does not have a metric, or a model returns
        fewer or more results than there are images.
    Exception
        Any exception of a model.

    Warns
    -----
    UserWarning
        If metrics are compared, and a model is a `mmort.Predictor` that leaves out detections with low scores.
    """
    from tqdm import tqdm

    if len(models) < 2:
        raise ValueError(f"compare_models: models must be two or more, got {len(models)}")
    if not dataset.images:
        raise ValueError("compare_models: the data set has no images")
    if not metrics and not isinstance(dataset, UnlabelledDataset):
        raise ValueError("compare_models: metrics must not be empty")
    if metrics:
        for predict in models.values():
            warn_of_threshold(predict)
    reference, *names = models
    evaluations = [Evaluation(dataset, metrics, **options) for _ in models]
    comparisons = [Comparison(name) for name in names]
    paths = [image.path for image in dataset.images]
    streams = [predict(paths) for predict in models.values()]
    shown = tqdm(dataset.images, unit="image", disable=None if progress else True)
    for image, expected, *compared in zip(shown, *streams, strict=True):
        for evaluation, detections in zip(evaluations, (expected, *compared), strict=True):
            evaluation.add(image, detections)
        for comparison, detections in zip(comparisons, compared, strict=True):
            comparison.add(image, expected, detections)
    figures, *other_figures = (evaluation.metrics().figures for evaluation in evaluations)
    columns = [
        Column(values, {name: values[name] - figures[name] for name in figures}, comparison)
        for values, comparison in zip(other_figures, comparisons, strict=True)
    ]
    return Parity(reference, figures, tuple(columns))
