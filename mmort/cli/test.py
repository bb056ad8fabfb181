"""``mmort test``: AP and recall of a detector on the test data set of its config, and results files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmort._files.outputs import write_output
from mmort.cli import configs, datasets, engines
from mmort.cli.outputs import add_output, check_new_outputs, check_outputs, image_count, print_written
from mmort.cli.thresholds import share

if TYPE_CHECKING:
    from mmort.detect.network import TorchNetwork
    from mmort.evaluate import Dataset, Evaluation, Metrics, Predict
    from mmort.predict import Detections, Preprocessing
    from mmort.predict.engines.onnxruntime import DetectorFile
    from mmort.predict.images import Image

HELP = "run a detector over a data set, and compute AP or recall, or write its results"
PROVIDERS = {"onnxruntime": None, "tensorrt": ["TensorrtExecutionProvider", "CPUExecutionProvider"]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of MMDetection's test.py, and further ones."""
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        help="MMDetection config, 2.x or 3.x; it is read, not executed.  A file of mmort export needs none with --ann "
        "and --img-dir",
    )
    parser.add_argument("model", metavar="MODEL", help="ONNX file, or checkpoint if --backend torch")
    add_output(parser, "--out", force=True, metavar="FILE.pkl", help="write the results in MMDetection's layout")
    parser.add_argument(
        "--format-only",
        action="store_true",
        help="write the results in COCO's format, to the files that --eval-options jsonfile_prefix=PREFIX names, or "
        "DOTA's submission files, to --eval-options submission_dir=DIR",
    )
    parser.add_argument(
        "--eval",
        nargs="+",
        action="extend",
        metavar="METRIC",
        help="bbox, segm and proposal for data sets in COCO's format; PQ for COCO's panoptic ones; mAP and recall for "
        "PASCAL VOC's; mAP for DOTA's",
    )
    parser.add_argument("--show", action="store_true", help="show each picture in a window; a key shows the next")
    parser.add_argument("--show-dir", metavar="DIR", help="write pictures with the detections")
    parser.add_argument(
        "--show-score-thr", type=share, default=0.3, help="minimum score in pictures (default: %(default)s)"
    )
    parser.add_argument(
        "--backend",
        choices=("onnxruntime", "torch", "tensorrt"),
        default="onnxruntime",
        help="what runs the detector (default: %(default)s)",
    )
    for name, what in (("cfg", "override the config, by dotted key"), ("eval", "options of the metrics")):
        parser.add_argument(f"--{name}-options", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=what)
    configs.add_import(parser)
    datasets.add_arguments(parser)
    parser.add_argument(
        "--classes",
        nargs="+",
        metavar="NAME",
        help="evaluate these classes only, for a detector that has more than the data set; both are matched by name",
    )
    parser.add_argument("--metrics-json", metavar="FILE", help="write the figures of --eval as JSON")
    parser.add_argument("--batch-size", type=int, help="pictures that run together (default: the config's, or 1)")
    engines.add_arguments(parser)


def run(arguments: argparse.Namespace) -> str | None:
    """Run the detector, and do what was asked for."""
    _check(arguments)
    from mmort.configs import parse_options
    from mmort.evaluate import (
        CocoDataset,
        CocoPanopticDataset,
        DotaDataset,
        Evaluation,
        batch_size_of,
        collect,
        metric_options,
        select_classes,
    )
    from mmort.predict import Predictor

    options = parse_options(arguments.eval_options)
    prefix, submission = options.pop("jsonfile_prefix", None), options.pop("submission_dir", None)
    if arguments.format_only and prefix is None and submission is None:
        raise ValueError(
            "--format-only needs --eval-options jsonfile_prefix=PREFIX, for PREFIX.bbox.json, or submission_dir=DIR, "
            "for DOTA's files"
        )
    check_new_outputs(arguments.output, force=arguments.force)
    check_outputs(arguments.metrics_json, prefix and f"{prefix}.bbox.json")
    config = configs.read(arguments.config, arguments.cfg_options) if arguments.config else None
    network = _network(arguments, config)
    if arguments.backend != "torch" and (ignored := configs.without_effect(arguments.cfg_options)):
        print(f"note: {', '.join(ignored)} does nothing: the file is what was exported", file=sys.stderr)
    classes = arguments.classes or network.classes
    dataset = datasets.dataset(arguments, config, classes, labels_by_name=arguments.classes is not None)
    if prefix is not None and not isinstance(dataset, (CocoDataset, CocoPanopticDataset)):
        raise ValueError("jsonfile_prefix is for one data set in COCO's format")
    if submission is not None and not isinstance(dataset, DotaDataset):
        raise ValueError("submission_dir is for one data set in DOTA's format")
    if prefix is not None and isinstance(dataset, CocoPanopticDataset):
        dataset.segment_files(prefix)  # refuses names before anything is detected
    if submission is not None and isinstance(dataset, DotaDataset):
        dataset.submission_files(submission)
    if config is not None and arguments.eval:
        options = metric_options(config, dataset) | options
    masks = True if arguments.output or prefix else None
    evaluation = Evaluation(dataset, arguments.eval or (), masks=masks, **options)
    predictor = Predictor(
        network,
        classes=network.classes or dataset.classes,
        preprocessing=_preprocessing(arguments.model, config, network),
    )
    batch_size = batch_size_of(config or {}) if arguments.batch_size is None else arguments.batch_size
    predict: Predict = partial(engines.predict_function(arguments, predictor), batch_size=batch_size)
    if arguments.classes is not None:
        predict = select_classes(predict, network.classes or (), arguments.classes)
    not_drawn: list[str] = []
    if arguments.show or arguments.show_dir is not None:
        predict = partial(_shown, arguments, dataset, predict, not_drawn)
    collect(evaluation, predict)
    _write(evaluation, arguments.output, prefix)
    if submission is not None and isinstance(dataset, DotaDataset):
        print_written(submission, f"{len(dataset.write_submission(evaluation.results, submission))} files")
    if arguments.show_dir is not None:
        print_written(arguments.show_dir, f"{image_count(len(dataset.images) - len(not_drawn))}, annotated")
    if arguments.eval:
        _report(evaluation.metrics(), arguments.metrics_json)
    return f"{len(not_drawn)} pictures could not be drawn, the first: {not_drawn[0]}" if not_drawn else None


def _check(arguments: argparse.Namespace) -> None:
    """Refuse arguments that exclude each other or lead nowhere, before anything is loaded."""
    wanted = arguments.eval, arguments.format_only, arguments.show
    if not any(wanted) and arguments.output is None and arguments.show_dir is None:
        raise ValueError("nothing to do: give at least one of --output, --eval, --format-only, --show and --show-dir")
    if arguments.eval and arguments.format_only:
        raise ValueError("--eval and --format-only exclude each other")
    if arguments.output and not arguments.output.endswith((".pkl", ".pickle")):
        raise ValueError(f"--output must end in .pkl, got {arguments.output}")
    if arguments.metrics_json and not arguments.eval:
        raise ValueError("--metrics-json needs --eval")
    is_yolo = (arguments.ann or "").endswith((".yaml", ".yml"))
    if arguments.config is None and (
        arguments.backend == "torch" or not (arguments.ann and (arguments.img_dir or is_yolo))
    ):
        raise ValueError(
            "without a CONFIG, MODEL must be an ONNX file, and --ann and --img-dir must be given, or --ann data.yaml"
        )
    if arguments.backend == "torch" and arguments.parallel is not None:
        raise ValueError("--parallel is for ONNX files; torch runs one batch after another")
    if arguments.backend == "torch" and arguments.engine in engines.OPENVINO:
        raise ValueError(f"--engine {arguments.engine} is for ONNX files; --backend torch runs a checkpoint")
    if arguments.extensions and arguments.backend != "torch":
        raise ValueError("--import is for checkpoints: give --backend torch; a file has its detector already")
    if arguments.config is None and (arguments.cfg_options or (arguments.data_root and not is_yolo)):
        raise ValueError("--cfg-options and --data-root change a CONFIG; give one")


def _network(arguments: argparse.Namespace, config: dict[str, Any] | None) -> DetectorFile | TorchNetwork:
    """Load the detector."""
    if arguments.backend != "torch" or config is None:
        return engines.load(arguments, PROVIDERS[arguments.backend])
    try:
        from mmort.detect.network import load_network
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError("mmort test --backend torch needs torch: pip install 'mmort[detect]'") from None
    configs.run_extensions(arguments)
    return load_network(config, arguments.model, engines.threads(arguments))


def _preprocessing(
    model: str, config: dict[str, Any] | None, network: DetectorFile | TorchNetwork
) -> Preprocessing | None:
    """Return the preprocessing of the config, as in test.py; of the file, if the config's is not supported."""
    from mmort.predict import Preprocessing
    from mmort.predict.engines.onnxruntime import ADVICE

    if config is None:
        if network.preprocessing is None:
            raise ValueError(f"{model} has no preprocessing in its metadata; give its CONFIG, which has it; {ADVICE}")
        return network.preprocessing
    try:
        preprocessing = Preprocessing.from_config(config)
    except ValueError:
        if network.preprocessing is None:
            raise
        return network.preprocessing
    if network.preprocessing not in (None, preprocessing):
        print("note: the config's test pipeline is used; the file was exported with another", file=sys.stderr)
    return preprocessing


def _shown(
    arguments: argparse.Namespace, dataset: Dataset, predict: Predict, not_drawn: list[str], paths: Sequence[Path]
) -> Iterator[Detections]:
    """Yield the detections, after drawing them; note in `not_drawn` why a picture could not be, as results count."""
    from mmort.predict import AnnotatedImages, draw, read_image

    annotated = AnnotatedImages(arguments.show_dir, paths) if arguments.show_dir is not None else None
    for image, detections in zip(dataset.images, predict(paths), strict=True):
        visible = detections.above(arguments.show_score_thr)
        if annotated is not None:
            problem = annotated.try_to_write(image.path, visible)
            if problem is not None:
                not_drawn.append(f"{image.path}: {problem}")
        if arguments.show:
            _show(image.name, draw(read_image(image.path), visible))
        yield detections


def _show(title: str, picture: Image) -> None:
    """Show a picture until a key is pressed."""
    from mmort.predict.images import opencv

    cv2 = opencv()
    try:
        cv2.imshow(title, picture)
        cv2.waitKey()
        cv2.destroyWindow(title)
    except cv2.error:
        raise ValueError(
            "--show needs a display, and opencv-python instead of opencv-python-headless, which has no windows; "
            "--show-dir DIR writes the pictures instead"
        ) from None


def _write(evaluation: Evaluation, out: str | None, prefix: str | None) -> None:
    """Write the results files."""
    from mmort.evaluate import CocoDataset, CocoPanopticDataset, write_results

    if out:
        write_results(out, evaluation.results, len(evaluation.dataset.classes))
        print_written(out)
    if prefix is not None and isinstance(evaluation.dataset, (CocoDataset, CocoPanopticDataset)):
        for path in evaluation.dataset.write_rows(evaluation.results, prefix):
            print_written(path)


def _report(metrics: Metrics, file: str | None) -> None:
    """Print the figures, and write them if there is a file."""
    for table in metrics.tables:
        print(f"\n{table}")
    print()
    for name, value in metrics.figures.items():
        print(f"{name}: {value:.4f}")
    if file:
        figures = metrics.figures | ({"classwise": metrics.classwise} if metrics.classwise else {})
        write_output(file, json.dumps(_rounded(figures), indent=2) + "\n")
        print_written(file)


def _rounded(figures: Any) -> Any:
    """Return figures, also those in dicts, with four digits."""
    if isinstance(figures, dict):
        return {name: _rounded(value) for name, value in figures.items()}
    return round(figures, 4)
