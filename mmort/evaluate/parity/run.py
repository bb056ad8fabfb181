"""Models compared on a data set, the function behind ``mmort parity``.

They run in step, so that no more than a batch's masks of each are in memory.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import version
from itertools import zip_longest
from typing import Any

from mmort._files.outputs import require_output
from mmort.contract import POSE
from mmort.evaluate.configured import batch_size_of, metric_options
from mmort.evaluate.dataset import Dataset
from mmort.evaluate.evaluation import Evaluation, Predict, warn_of_threshold
from mmort.evaluate.parity.html_report import write_report
from mmort.evaluate.parity.result import Column, Parity
from mmort.evaluate.parity.task_comparison import comparison_of
from mmort.evaluate.poses import PoseDataset
from mmort.evaluate.testing import TrainedNetwork
from mmort.evaluate.unlabelled import UnlabelledDataset
from mmort.predict import PosePredictor, Predictor
from mmort.predict.engines.network import task_of


@dataclass(frozen=True, kw_only=True)
class ParityOptions:
    """The options of `parity`; ``mmort parity`` has an argument for each.

    Parameters
    ----------
    metrics : sequence of str, optional
        Of the data set's `metric_names`.  Default: bbox, and segm of a detector with masks; the first one of data sets
        without bbox.
    batch_size : int, optional
        Images that run together.  Default: the config's, or 1.
    report : path, optional
        Write an HTML report to this file.
    subject : str, default ""
        What the report says was compared; if empty, the name of the reference.
    facts : mapping of str to str, optional
        What else the report says, by label, such as the files.
    """

    metrics: Sequence[str] = ()
    batch_size: int | None = None
    report: str | os.PathLike[str] | None = None
    subject: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.report is not None:
            require_output(self.report)


def parity(
    networks: Mapping[str, TrainedNetwork] | Iterable[tuple[str, TrainedNetwork]],
    dataset: Dataset,
    config: Mapping[str, Any] | None = None,
    options: ParityOptions | None = None,
) -> Parity:
    """Run models of one task over a data set, compare them with the first one, and write a report.

    Parameters
    ----------
    networks : mapping of str to network, or iterable of pairs
        A `mmort.predict.DetectorFile` or `mmort.detect.network.TorchNetwork` by each name to show.  The first is the
        reference.  Of an iterator the others are taken when the arguments have been checked, such as a file that is
        exported first.
    dataset : Dataset
        As `dataset_of` opens it; or an `UnlabelledDataset`, in whose images only results are compared.
    config : dict, optional
        A config, whose batch size and options of metrics are used; all models then have the classes
        and the preprocessing of the reference.  By default each has those of its file.
    options : ParityOptions, optional
        By default no report is written.

    Returns
    -------
    Parity

    Raises
    ------
    ValueError
        If there is no second model or no image, a model is not of the data set's task or has no preprocessing, or the
        data set does not have a metric or an option.
    OSError
        If a file cannot be read or written.
    ImportError
        If there is a report to write, and Jinja2 is not installed.

    Examples
    --------
    >>> from mmort.demo import ANNOTATIONS, IMAGES, MODEL
    >>> from mmort.evaluate import CocoDataset
    >>> from mmort.evaluate.parity import parity
    >>> from mmort.predict import OnnxRuntime
    >>> digits = CocoDataset(ANNOTATIONS, IMAGES[0].parent)
    >>> parity({"file": OnnxRuntime(MODEL), "two threads": OnnxRuntime(MODEL, threads=2)}, digits).ok
    True
    """
    options = ParityOptions() if options is None else options
    pairs = iter(networks.items() if isinstance(networks, Mapping) else networks)
    name, reference = next(pairs)
    metrics = options.metrics or _metrics(dataset, reference)
    of_config = metric_options(config, dataset) if config is not None and metrics else {}
    dataset.check(metrics, of_config)
    batch_size = batch_size_of(config or {}) if options.batch_size is None else options.batch_size
    shared: dict[str, Any] = {}
    if config is not None:
        shared = {"classes": reference.classes or dataset.classes, "preprocessing": reference.preprocessing}
    compared = {name: reference, **dict(pairs)}
    for file, network in compared.items():
        if task_of(network) is not dataset.task:
            raise ValueError(
                f"parity: {file} must be for {dataset.task.name}, as the data set is, got one for "
                f"{task_of(network).name}"
            )
    predictors = {name: _predictor(network, shared) for name, network in compared.items()}
    _warn_of_other_classes(predictors)
    models = {name: _predict(dataset, predictor, batch_size) for name, predictor in predictors.items()}
    result = compare_models(dataset, models, metrics, **of_config)
    if options.report is not None:
        facts = dict(options.facts) | _facts(dataset, compared.values(), batch_size)
        subject = f"{options.subject or name}, on {len(dataset):,} images"
        write_report(result, options.report, subject=subject, facts=facts)
    return result


def _predictor(network: TrainedNetwork, shared: Mapping[str, Any]) -> Predictor:
    """Return a predictor of a network, with the classes and the preprocessing that all share, if they do."""
    if task_of(network) is POSE:
        return PosePredictor(network, preprocessing=shared.get("preprocessing"))
    return Predictor(network, score_threshold=0, **shared)


def _predict(dataset: Dataset, predictor: Predictor, batch_size: int) -> Predict:
    """Return the function that `compare_models` calls; poses are those in the boxes of a data set that has some."""
    if isinstance(dataset, PoseDataset) and isinstance(predictor, PosePredictor):
        return partial(dataset.predict, predictor)
    return partial(predictor.predict, batch_size=batch_size)


def _warn_of_other_classes(predictors: Mapping[str, Predictor]) -> None:
    """Warn of models whose class names differ from those of the first one; a file may have no names."""
    (reference, first), *candidates = predictors.items()
    for name, predictor in candidates:
        if first.classes and predictor.classes and predictor.classes != first.classes:
            pairs = enumerate(zip_longest(first.classes, predictor.classes))
            label, expected, actual = next((label, *pair) for label, pair in pairs if pair[0] != pair[1])
            warnings.warn(
                f"parity: {name} has other classes than {reference}, and results are compared by label: label "
                f"{label} is {actual!r} rather than {expected!r}",
                stacklevel=3,
            )


def _metrics(dataset: Dataset, reference: TrainedNetwork) -> list[str]:
    """Return the metrics of the model's results."""
    if "bbox" not in dataset.metric_names:
        return list(dataset.metric_names[:1])
    return ["bbox", "segm"] if reference.has_masks and "segm" in dataset.metric_names else ["bbox"]


def _facts(dataset: Dataset, networks: Iterable[TrainedNetwork], batch_size: int) -> dict[str, str]:
    """Return how a comparison was made, for the report."""
    packages = dict.fromkeys(["mmort", *(network.engine for network in networks)])
    classes = f" with {len(dataset.classes)} classes" if dataset.classes else ""
    return {
        "Images": f"{len(dataset):,}{classes}, in {dataset.images[0].path.parent}",
        "Batch size": str(batch_size),
        "Versions": ", ".join(f"{package} {version(package)}" for package in packages),
        "Date": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
    }


def compare_models(
    dataset: Dataset, models: Mapping[str, Predict], metrics: Sequence[str], *, progress: bool = True, **options: Any
) -> Parity:
    """Evaluate models on a data set, and compare their metrics and their results with the first one's.

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
    comparisons = [comparison_of(dataset.task, name) for name in names]
    paths = [image.path for image in dataset.images]
    streams = [predict(paths) for predict in models.values()]
    shown = tqdm(dataset.images, unit="image", disable=None if progress else True)
    for image, expected, *compared in zip(shown, *streams, strict=True):
        for evaluation, found in zip(evaluations, (expected, *compared), strict=True):
            evaluation.add(image, found)
        for comparison, found in zip(comparisons, compared, strict=True):
            comparison.add(image, expected, found)
    figures, *other_figures = (evaluation.metrics().figures for evaluation in evaluations)
    columns = [
        Column(values, {name: values[name] - figures[name] for name in figures}, comparison, dataset.max_figure)
        for values, comparison in zip(other_figures, comparisons, strict=True)
    ]
    return Parity(reference, figures, tuple(columns))
