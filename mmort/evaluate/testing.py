"""The test of a detector on a data set, the function behind ``mmort test``: figures, results files, drawn images."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

from mmort import __version__
from mmort._files.outputs import require_new, require_output, write_output
from mmort.contract import DETECTION
from mmort.detections.detections import Detections
from mmort.detections.drawing import draw_beside
from mmort.evaluate.analysis import analyze, write_report
from mmort.evaluate.augmented_views import AugmentedViews
from mmort.evaluate.class_selection import select_classes
from mmort.evaluate.configured import batch_size_of, metric_options
from mmort.evaluate.dataset import Dataset, Metrics, SubmissionDataset
from mmort.evaluate.evaluation import Evaluation, Predict, collect
from mmort.evaluate.image_objects import ImageObjects
from mmort.evaluate.poses import PoseDataset
from mmort.evaluate.results import ImageResult, write_results
from mmort.evaluate.saved_results import read_results
from mmort.images import Image, image_size, opencv
from mmort.predict import (
    AnnotatedImages,
    Network,
    OnnxRuntime,
    PosePredictor,
    Predictor,
    Preprocessing,
    Ray,
    read_image,
)
from mmort.predict.engines.network import ADVICE_WITH_CONFIG, task_of
from mmort.predict.output import count_text

SUBMISSION_OPTIONS = {"jsonfile_prefix": "COCO", "submission_dir": "DOTA"}
"""The options of metrics that say where results are written in a benchmark's format, and the benchmarks."""


class PipelineWarning(UserWarning):
    """The test pipeline of a config is another than the one that a file was exported with."""


class TrainedNetwork(Network, Protocol):
    """A network that knows its classes and its preprocessing: `mmort.predict.DetectorFile`, or one in torch."""

    engine: str
    """The package that runs it."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names by label."""
        ...

    @property
    def has_masks(self) -> bool:
        """Whether it has masks."""
        ...

    @property
    def preprocessing(self) -> Preprocessing | None:
        """How an image becomes its input."""
        ...


@dataclass(frozen=True, kw_only=True)
class TestOptions:
    """The options of `test`; ``mmort test`` has an argument for each.

    Parameters
    ----------
    metrics : sequence of str, optional
        Of the data set's `metric_names`, such as bbox and segm.
    metric_options : mapping, optional
        Options of the metrics instead of the config's, by MMDetection's names, see `evaluate`.  Two name files:
        ``jsonfile_prefix`` those of the results in COCO's format, ``submission_dir`` the folder of DOTA's.
    output : path, optional
        A ``.pkl`` file for the results in MMDetection's layout.
    show : bool, default False
        Show each image in a window; a key shows the next.
    show_dir : path, optional
        Write images with the detections to this folder, beside the ground truth if the data set has objects.
    report : path, optional
        An HTML file that shows what is wrong: see `mmort.evaluate.analyze`.
    force : bool, default False
        Replace files that exist.
    show_score_thr : float, default 0.3
        The lowest score in these images and in the report.
    classes : sequence of str, optional
        Evaluate these classes only, which the data set must have been opened for.
    metrics_json : path, optional
        Write the figures to this file.
    batch_size : int, optional
        Images that run together.  Default: the config's, or 1.
    tta : bool, default False
        Merge the detections in several views of each image, as ``test.py --tta`` of MMDetection 3 does.
    """

    metrics: Sequence[str] = ()
    metric_options: Mapping[str, Any] | None = None
    output: str | os.PathLike[str] | None = None
    show: bool = False
    show_dir: str | os.PathLike[str] | None = None
    report: str | os.PathLike[str] | None = None
    force: bool = False
    show_score_thr: float = 0.3
    classes: Sequence[str] | None = None
    metrics_json: str | os.PathLike[str] | None = None
    batch_size: int | None = None
    tta: bool = False

    def __post_init__(self) -> None:
        if self.output is not None and not os.fspath(self.output).endswith((".pkl", ".pickle")):
            raise ValueError(f"test: output must end in .pkl, got {os.fspath(self.output)}")
        if self.metrics_json is not None and not self.metrics:
            raise ValueError("test: metrics_json needs metrics")
        for file in (self.output, self.metrics_json, self.report):
            if file is not None:
                require_output(file)
                if not self.force:
                    require_new(file)


@dataclass(frozen=True)
class TestResult:
    """The figures of `test`, and the files that it wrote; as text, tables and figures.

    Attributes
    ----------
    metrics : Metrics or None
        The figures, if there were metrics to compute.
    written : dict of Path to str
        The files and folders that were written, with what is in them if their names do not say it.
    not_drawn : tuple of str
        The images that could not be drawn in `show_dir` or the report, with the reason; their results count.
    """

    metrics: Metrics | None
    written: dict[Path, str]
    not_drawn: tuple[str, ...]

    def __str__(self) -> str:
        if self.metrics is None:
            return ""
        figures = "\n".join(f"{name}: {value:.4f}" for name, value in self.metrics.figures.items())
        return "".join(f"\n{table}\n" for table in self.metrics.tables) + f"\n{figures}"


def test(
    model: str | os.PathLike[str] | TrainedNetwork | Ray,
    dataset: Dataset,
    config: dict[str, Any] | None = None,
    options: TestOptions | None = None,
) -> TestResult:
    """Run a detector over a data set; compute metrics, and write results and images.

    Parameters
    ----------
    model : path or network
        An ONNX file, a `mmort.predict.OnnxRuntime` or `mmort.predict.OpenVino`, a `mmort.detect.network.TorchNetwork`,
        or a `mmort.predict.Ray` of one of these.
    dataset : Dataset
        As `dataset_of` opens it.
    config : dict, optional
        An MMDetection config, whose test pipeline, batch size and options of metrics are used.  Default: the
        preprocessing in the file's metadata.
    options : TestOptions, optional
        By default the detector runs, and nothing is measured or written.

    Returns
    -------
    TestResult

    Warns
    -----
    PipelineWarning
        If the config's test pipeline is another than that of the file, which was exported with it.

    Raises
    ------
    ValueError
        If there is no preprocessing, classes differ, or the data set does not have a metric, an option or a format.
    OSError
        If a file cannot be read or written, or exists and `force` is false.

    Examples
    --------
    >>> import mmort.evaluate
    >>> from mmort.demo import ANNOTATIONS, IMAGES, MODEL
    >>> digits = mmort.evaluate.CocoDataset(ANNOTATIONS, IMAGES[0].parent)
    >>> result = mmort.evaluate.test(MODEL, digits, options=mmort.evaluate.TestOptions(metrics=["bbox"]))
    >>> print(f"{result.metrics.figures['bbox_mAP_50']:.2f}")
    1.00
    """
    options = TestOptions() if options is None else options
    network: TrainedNetwork
    if isinstance(model, Ray):
        network = cast("TrainedNetwork", model.network)
    else:
        network = OnnxRuntime(model) if isinstance(model, (str, os.PathLike)) else model
    of_metrics, submission = _metric_options(dataset, config, options)
    if options.report is not None:
        _require_objects(dataset)
    for name in ("classes", "tta"):
        if getattr(options, name) and dataset.task is not DETECTION:
            raise ValueError(f"test: {name} is for detections, got a data set for {dataset.task.name}")
    if options.tta and (config is None or isinstance(model, Ray)):
        raise ValueError("test: tta needs a config, which has the views, and runs on this machine")
    views = None
    if options.tta and config is not None:
        views = AugmentedViews.from_config(config, **_box_settings(network))
    masks = True if options.output or submission or (options.report and network.has_masks) else None
    evaluation = Evaluation(dataset, options.metrics, masks=masks, **of_metrics)
    task = task_of(network)
    if task is not dataset.task:
        raise ValueError(
            f"test: the model must be for {dataset.task.name}, as the data set is, got one for {task.name}"
        )
    if options.output is not None and dataset.task is not DETECTION:
        raise ValueError("test: output is for detections; mmort predict --output writes the results of other tasks")
    batch_size = batch_size_of(config or {}) if options.batch_size is None else options.batch_size
    run: Predict
    if isinstance(dataset, PoseDataset):
        if isinstance(model, Ray):
            raise ValueError("test: poses are found on this machine, got a network on Ray")
        run = partial(dataset.predict, PosePredictor(network, preprocessing=_preprocessing(network, config)))
    else:
        predictor = Predictor(
            model if isinstance(model, Ray) else network,
            classes=network.classes or dataset.classes,
            preprocessing=_preprocessing(network, config),
            score_threshold=0,
        )
        run = partial(Predictor.predict if views is None else views.predict, predictor, batch_size=batch_size)
    if options.classes is not None:
        run = select_classes(run, network.classes or (), options.classes)
    not_drawn: list[str] = []
    if options.show or options.show_dir is not None:
        run = partial(_shown, options, dataset, run, not_drawn)
    collect(evaluation, run)
    result = _scored(dataset, evaluation.results, options, of_metrics, submission, _subject(network))
    return _with_images(result, dataset, options, not_drawn)


def score_results(
    results: str | os.PathLike[str],
    dataset: Dataset,
    config: dict[str, Any] | None = None,
    options: TestOptions | None = None,
) -> TestResult:
    """Compute metrics of saved results, without a detector.

    Parameters
    ----------
    results : path
        As for `read_results`: a ``.pkl`` file of MMDetection's, results in COCO's format, or ``detections.jsonl``.
    dataset : Dataset
        As `dataset_of` opens it.
    config : dict, optional
        An MMDetection config, whose options of metrics are used.
    options : TestOptions, optional
        As for `test`; images are read for `show`, `show_dir` and `report` only.

    Returns
    -------
    TestResult

    Raises
    ------
    ValueError
        If the results are not those of the data set's images and classes, or not in their format; or the data set does
        not have a metric, an option or a format.
    OSError
        If a file cannot be read or written, or exists and `force` is false.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from mmort.demo import ANNOTATIONS, IMAGES, MODEL
    >>> from mmort.evaluate import CocoDataset, TestOptions, score_results, test
    >>> digits, file = CocoDataset(ANNOTATIONS, IMAGES[0].parent), pathlib.Path(tempfile.mkdtemp(), "results.pkl")
    >>> _ = test(MODEL, digits, options=TestOptions(output=file))
    >>> result = score_results(file, digits, options=TestOptions(metrics=["bbox"]))
    >>> print(f"{result.metrics.figures['bbox_mAP_50']:.2f}")
    1.00
    """
    options = TestOptions() if options is None else options
    if options.tta:
        raise ValueError("test: tta needs a detector")
    if dataset.task is not DETECTION:
        raise ValueError(f"test: saved results are those of detections, got a data set for {dataset.task.name}")
    if "PQ" in options.metrics:
        raise ValueError("test: PQ needs a detector: segments are not read from saved results")
    of_metrics, submission = _metric_options(dataset, config, options)
    dataset.check(options.metrics, of_metrics)
    if options.report is not None:
        _require_objects(dataset)
    of_images = read_results(results, dataset)
    not_drawn: list[str] = []
    if options.show or options.show_dir is not None:

        def predict(paths: Sequence[Path]) -> Iterator[Detections]:
            for result, path in zip(of_images, paths, strict=True):
                yield result.as_detections(dataset.classes, image_size(path))

        for _ in _shown(options, dataset, predict, not_drawn, [image.path for image in dataset.images]):
            pass
    result = _scored(dataset, of_images, options, of_metrics, submission, Path(results).name)
    return _with_images(result, dataset, options, not_drawn)


def _metric_options(
    dataset: Dataset, config: dict[str, Any] | None, options: TestOptions
) -> tuple[dict[str, Any], tuple[SubmissionDataset, str] | None]:
    """Return the options of the metrics, the config's and those given, and where to write a submission."""
    of_metrics = dict(options.metric_options or {})
    submission = _submission(dataset, of_metrics, force=options.force)
    of_config = metric_options(config, dataset) if config is not None and options.metrics else {}
    return of_config | of_metrics, submission


def _scored(
    dataset: Dataset,
    results: Sequence[ImageResult],
    options: TestOptions,
    of_metrics: Mapping[str, Any],
    submission: tuple[SubmissionDataset, str] | None,
    subject: str,
) -> TestResult:
    """Compute the metrics of results, and write what the options ask for; the subject is the report's headline."""
    written: dict[Path, str] = {}
    if options.output is not None:
        write_results(options.output, results, len(dataset.classes))
        written[Path(options.output)] = ""
    if submission is not None:
        of_benchmark, target = submission
        written |= of_benchmark.write_submission(results, target)
    metrics = dataset.score(results, options.metrics, of_metrics) if options.metrics else None
    if metrics is not None and options.metrics_json is not None:
        figures = metrics.figures | ({"classwise": metrics.classwise} if metrics.classwise else {})
        write_output(options.metrics_json, json.dumps(_rounded(figures), indent=2, allow_nan=False) + "\n")
        written[Path(options.metrics_json)] = ""
    not_drawn: tuple[str, ...] = ()
    if options.report is not None:
        analysis = analyze(dataset, results, score_threshold=options.show_score_thr)
        facts = {"Data set": f"{type(dataset).__name__}, {count_text(len(dataset), 'image')}", "mmort": __version__}
        not_drawn = write_report(analysis, dataset, options.report, subject=subject, facts=facts, metrics=metrics)
        written[Path(options.report)] = ""
    return TestResult(metrics, written, not_drawn)


def _with_images(result: TestResult, dataset: Dataset, options: TestOptions, not_drawn: Sequence[str]) -> TestResult:
    """Return a result to which the images in `show_dir` are added."""
    if options.show_dir is None:
        return result
    drawn = count_text(len(dataset) - len(not_drawn), "annotated image")
    return replace(
        result,
        written=result.written | {Path(options.show_dir): drawn},
        not_drawn=(*not_drawn, *result.not_drawn),
    )


def _subject(network: TrainedNetwork) -> str:
    """Return the name of a detector in a report: its file, or its family if it runs in torch."""
    path, detector = getattr(network, "path", None), getattr(network, "detector", None)
    return str(getattr(detector, "family", type(network).__name__)) if path is None else Path(path).name


def _require_objects(dataset: Dataset) -> None:
    """Refuse a report on a data set without objects; before the detector runs."""
    if dataset.objects() is None:
        raise ValueError(f"test: report needs objects with boxes, which this {type(dataset).__name__} does not have")


def _submission(dataset: Dataset, options: dict[str, Any], *, force: bool) -> tuple[SubmissionDataset, str] | None:
    """Take the option that says where to write a submission, None if there is none.

    Files that the data set has no format for, and existing ones without `force`, are refused before the detector runs.
    """
    submission = None
    for option in SUBMISSION_OPTIONS.keys() & options.keys():
        if not isinstance(dataset, SubmissionDataset) or dataset.submission_option != option:
            raise ValueError(f"{option} is for one data set in {SUBMISSION_OPTIONS[option]}'s format")
        submission = dataset, str(options.pop(option))
        for file in dataset.submission_files(submission[1]):
            if not force:
                require_new(file)
    return submission


def _box_settings(network: TrainedNetwork) -> dict[str, bool]:
    """Return the settings of boxes that a network has and no config states."""
    return {} if network.preprocessing is None else network.preprocessing.box_settings


def _preprocessing(network: TrainedNetwork, config: dict[str, Any] | None) -> Preprocessing:
    """Return the preprocessing of the config, as in test.py; of the file, if the config's is not supported."""
    if config is None:
        if network.preprocessing is None:
            path = getattr(network, "path", "the model")
            raise ValueError(
                f"{path} has no preprocessing in its metadata; give its CONFIG, which has it, or adopt the file: "
                f"{ADVICE_WITH_CONFIG}"
            )
        return network.preprocessing
    try:
        preprocessing = Preprocessing.from_config(config, **_box_settings(network))
    except ValueError as error:
        if network.preprocessing is None:
            raise
        message = f"the file's preprocessing is used, as the config's is not supported: {error}"
        warnings.warn(message, PipelineWarning, stacklevel=3)
        return network.preprocessing
    if network.preprocessing not in (None, preprocessing):
        message = "the config's test pipeline is used; the file was exported with another"
        warnings.warn(message, PipelineWarning, stacklevel=3)
    return preprocessing


def _shown(
    options: TestOptions, dataset: Dataset, predict: Predict, not_drawn: list[str], paths: Sequence[Path]
) -> Iterator[Detections]:
    """Yield the detections, after drawing them; note in `not_drawn` why an image could not be, as results count."""
    annotated = None if options.show_dir is None else AnnotatedImages(options.show_dir, paths)
    if annotated is not None and not options.force:
        annotated.refuse_to_replace(paths)
    objects: Sequence[ImageObjects | None] = dataset.objects() or [None] * len(paths)
    for image, truth, detections in zip(dataset.images, objects, predict(paths), strict=True):
        is_detection = isinstance(detections, Detections)
        visible = [detections.above(options.show_score_thr) if is_detection else detections]
        if truth is not None:
            visible.insert(0, truth.as_detections(dataset.classes, detections.image_size))
        problem = None if annotated is None else annotated.try_to_write(image.path, *visible)
        if problem is not None:
            not_drawn.append(f"{image.path}: {problem}")
        if options.show:
            _show(image.name, draw_beside(read_image(image.path), visible))
        yield detections


def _show(title: str, image: Image) -> None:
    """Show an image until a key is pressed."""
    cv2 = opencv()
    try:
        cv2.imshow(title, image)
        cv2.waitKey()
        cv2.destroyWindow(title)
    except cv2.error:
        raise ValueError(
            "--show needs a display, and opencv-python instead of opencv-python-headless, which has no windows; "
            "--show-dir DIR writes the images instead"
        ) from None


def _rounded(figures: Any) -> Any:
    """Return figures, also those in dicts, with four digits; None, which JSON has, for one that is not defined."""
    if isinstance(figures, dict):
        return {name: _rounded(value) for name, value in figures.items()}
    return None if math.isnan(figures) else round(figures, 4)
