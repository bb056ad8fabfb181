"""``mmort test``: AP and recall of a detector on the test data set of its config, and results files."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from mmort.cli import configs, datasets, engines, texts
from mmort.cli.option_types import at_least, share
from mmort.cli.outputs import add_output, check_new_folder, print_written
from mmort.cli.terminal import UsageError

if TYPE_CHECKING:
    from mmort.detect.network import TorchNetwork
    from mmort.evaluate import Dataset, TestResult
    from mmort.predict import DetectorFile

HELP = "run a detector, or a model of another task, over a data set, and compute AP or its like, or write its results"
PROVIDERS = {"onnxruntime": None, "tensorrt": ["TensorrtExecutionProvider", "CPUExecutionProvider"]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of MMDetection's test.py, and further ones."""
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        help="config of MMDetection 2 or 3, or of the package that the model is from; it is read, not executed.  A "
        "detector's file of mmort export needs none with --ann and --img-dir",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="ONNX file, or checkpoint if --backend torch; or saved results, which are scored again: .pkl, .json in "
        "COCO's format, or detections.jsonl",
    )
    add_output(parser, "--out", force=True, metavar="FILE.pkl", help="write the results in MMDetection's layout")
    parser.add_argument(
        "--format-only",
        action="store_true",
        help="write the results in COCO's format, to the files that --eval-options jsonfile_prefix=PREFIX names, or "
        "DOTA's submission files, to --eval-options submission_dir=DIR",
    )
    datasets.add_eval(
        parser,
        "bbox, segm and proposal for data sets in COCO's format; PQ for COCO's panoptic ones; mAP and recall for "
        "PASCAL VOC's; mAP for DOTA's; accuracy for classifiers; mIoU, mDice and mFscore for segmentations; "
        "keypoints and pck for poses; hmean and word_acc for texts",
    )
    parser.add_argument("--show", action="store_true", help="show each image in a window; a key shows the next")
    parser.add_argument(
        "--show-dir", metavar="DIR", help="write images with the results, right of the ground truth if that has boxes"
    )
    parser.add_argument(
        "--report",
        metavar="FILE.html",
        help="write a page of what is wrong: confusion matrix, curves, kinds of false positives, and the worst images",
    )
    parser.add_argument(
        "--show-score-thr",
        type=share,
        default=0.3,
        help="minimum score in images and in the report (default: %(default)s)",
    )
    parser.add_argument(
        "--backend",
        choices=("onnxruntime", "torch", "tensorrt"),
        default="onnxruntime",
        help="what runs the detector (default: %(default)s)",
    )
    parser.add_argument(
        "--eval-options", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="options of the metrics"
    )
    configs.add_arguments(parser)
    texts.add_arguments(parser)
    datasets.add_arguments(parser)
    parser.add_argument(
        "--classes",
        nargs="+",
        metavar="NAME",
        help="evaluate these classes only, for a detector that has more than the data set; both are matched by name",
    )
    parser.add_argument("--metrics-json", metavar="FILE", help="write the figures of --eval as JSON")
    parser.add_argument("--batch-size", type=at_least(1), help="images that run together (default: the config's, or 1)")
    parser.add_argument(
        "--tta",
        action="store_true",
        help="merge the detections in several views of each image: tta_pipeline and tta_model of a config of "
        "MMDetection 3, or the image and its mirror image",
    )
    engines.add_arguments(parser, "threads", "parallel", with_ray=True)


def run(arguments: argparse.Namespace) -> str | None:
    """Run the detector, and print what came of it."""
    _check(arguments)
    import mmort.evaluate
    from mmort.configs import parse_options
    from mmort.evaluate.testing import SUBMISSION_OPTIONS
    from mmort.predict import DetectorFile
    from mmort.predict.image_files import IMAGE_SUFFIXES

    of_metrics = parse_options(arguments.eval_options)
    check_new_folder("--show-dir", arguments.show_dir, IMAGE_SUFFIXES)
    options = mmort.evaluate.TestOptions(
        metrics=arguments.eval or (),
        metric_options=of_metrics,
        output=arguments.output,
        show=arguments.show,
        show_dir=arguments.show_dir,
        report=arguments.report,
        force=arguments.force,
        show_score_thr=arguments.show_score_thr,
        classes=arguments.classes,
        metrics_json=arguments.metrics_json,
        batch_size=arguments.batch_size,
        tta=arguments.tta,
    )
    if arguments.format_only and not SUBMISSION_OPTIONS.keys() & of_metrics.keys():
        raise UsageError(
            "--format-only needs --eval-options jsonfile_prefix=PREFIX, for PREFIX.bbox.json, or submission_dir=DIR, "
            "for DOTA's files"
        )
    config = configs.read(arguments.config, arguments.cfg_options) if arguments.config else None
    if _is_saved(arguments.model):
        if config is None and not arguments.img_dir and not arguments.ann.endswith((".yaml", ".yml")):
            arguments.img_dir = "."  # images are not read
        dataset = datasets.dataset(
            arguments,
            config,
            arguments.classes,
            labels_by_name=arguments.classes is not None,
            images=_reads_images(arguments),
        )
        return _report(mmort.evaluate.score_results(arguments.model, dataset, config, options))
    network = _network(arguments, config)
    if arguments.backend != "torch" and (ignored := configs.without_effect(arguments.cfg_options)):
        print(f"note: {', '.join(ignored)} does nothing: the file is what was exported", file=sys.stderr)
    classes = arguments.classes or network.classes
    has_texts = arguments.texts is not None or (isinstance(network, DetectorFile) and network.takes_texts)
    is_adopted = config is None and isinstance(network, DetectorFile) and network.contract.is_adopted
    by_name = arguments.classes is not None or has_texts or is_adopted
    dataset = datasets.dataset(arguments, config, classes, labels_by_name=by_name)
    result = mmort.evaluate.test(engines.spread(arguments, network), dataset, config, options)
    problem = _report(result)
    _print_published(arguments, dataset, result)
    return problem


def _report(result: TestResult) -> str | None:
    """Print what came of a test; return why it failed."""
    for path, note in result.written.items():
        print_written(path, note)
    if result.metrics is not None:
        print(result)
    not_drawn = result.not_drawn
    return f"{len(not_drawn)} images could not be drawn, the first: {not_drawn[0]}" if not_drawn else None


def _print_published(arguments: argparse.Namespace, dataset: Dataset, result: TestResult) -> None:
    """Print the figures that MMDetection publishes for a config of this name, if the data set is theirs."""
    from mmort.evaluate import CocoDataset, published

    is_changed = arguments.cfg_options or arguments.classes or arguments.tta
    is_theirs = isinstance(dataset, CocoDataset) and len(dataset) == published.VAL2017
    if arguments.config is None or result.metrics is None or is_changed or not is_theirs:
        return
    figures = published.published_figures(arguments.config).items()
    if texts := [f"{name} {figure:.3f}" for name, figure in figures if name in result.metrics.figures]:
        print(f"\nMMDetection publishes for a config of this name, on COCO's val2017: {', '.join(texts)}")


def _check(arguments: argparse.Namespace) -> None:
    """Refuse arguments that exclude each other or lead nowhere, before anything is loaded."""
    wanted = arguments.eval, arguments.format_only, arguments.show, arguments.output, arguments.show_dir
    if not any(wanted) and arguments.report is None:
        raise UsageError(
            "nothing to do: give at least one of --output, --eval, --format-only, --report, --show and --show-dir"
        )
    if arguments.eval and arguments.format_only:
        raise UsageError("--eval and --format-only exclude each other")
    if arguments.tta and (arguments.config is None or _is_saved(arguments.model) or arguments.engine == engines.RAY):
        raise UsageError("--tta is for a CONFIG and a detector that runs on this machine")
    if _is_saved(arguments.model) and (arguments.backend != "onnxruntime" or arguments.texts):
        raise UsageError("--backend and --texts are for a detector; MODEL is a file of its results")
    is_yolo = (arguments.ann or "").endswith((".yaml", ".yml"))
    needs_images = not is_yolo and _reads_images(arguments)
    if arguments.config is None and (
        arguments.backend == "torch" or not arguments.ann or (needs_images and not arguments.img_dir)
    ):
        if arguments.model.endswith(".py"):
            raise UsageError(f"MODEL is required after the CONFIG {arguments.model}")
        if arguments.backend == "torch":
            raise UsageError("--backend torch needs a CONFIG before the checkpoint")
        if _is_saved(arguments.model):
            raise UsageError(
                "saved results without a CONFIG need --ann, and --img-dir for --report, --show and --show-dir"
            )
        raise UsageError(f"{arguments.model} without a CONFIG needs --ann and --img-dir, or --ann data.yaml")
    if arguments.backend == "torch" and arguments.model.endswith(".onnx"):
        raise UsageError(f"--backend torch runs a checkpoint, got {arguments.model}; leave it out for an ONNX file")
    if arguments.backend == "torch" and arguments.parallel is not None:
        raise UsageError("--parallel is for ONNX files; torch runs one batch after another")
    if arguments.backend == "torch" and arguments.engine == engines.OPENVINO:
        raise UsageError(f"--engine {arguments.engine} is for ONNX files; --backend torch runs a checkpoint")
    if arguments.extensions and arguments.backend != "torch":
        raise UsageError("--import is for checkpoints: give --backend torch; a file has its detector already")
    if arguments.backend != "torch" and arguments.vocabulary is not None:
        raise UsageError("--vocabulary is for checkpoints: give --backend torch; a file has its vocabulary already")
    if arguments.config is None and (arguments.cfg_options or (arguments.data_root and not is_yolo)):
        raise UsageError("--cfg-options and --data-root change a CONFIG; give one")


def _is_saved(model: str) -> bool:
    """Return whether a file has results of a detector, by its suffix."""
    return model.endswith((".pkl", ".pickle", ".json", ".jsonl"))


def _reads_images(arguments: argparse.Namespace) -> bool:
    """Return whether images are read: by a detector, or to show them with saved results."""
    return not _is_saved(arguments.model) or arguments.show or (arguments.show_dir, arguments.report) != (None, None)


def _network(arguments: argparse.Namespace, config: dict[str, Any] | None) -> DetectorFile | TorchNetwork:
    """Load the detector."""
    if arguments.backend != "torch" or config is None:
        return texts.with_texts(arguments, engines.load(arguments, PROVIDERS[arguments.backend]), config)
    try:
        from mmort.detect.network import load_network
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError("mmort test --backend torch needs torch: pip install 'mmort[detect]'") from None
    configs.run_extensions(arguments)
    return load_network(
        config,
        arguments.model,
        engines.threads(arguments),
        texts=texts.read(arguments),
        vocabulary=arguments.vocabulary,
    )
