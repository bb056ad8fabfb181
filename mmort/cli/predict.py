"""``mmort predict``: an exported detector, run on images."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from mmort.cli import engines, texts
from mmort.cli.option_types import at_least, share
from mmort.cli.outputs import add_output, check_new_folder, print_written
from mmort.cli.terminal import UsageError, message_of, one_line
from mmort.limits import MAX_STANDARD_INPUT

if TYPE_CHECKING:
    from mmort.predict import DetectorFile, Outcome, Predictor, Windows

HELP = "run an exported detector, or one of another task, on images; exit code 1 if one cannot be processed"
STANDARD_INPUT = "-"
CLASSES_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "model", metavar="MODEL.onnx", help="a file of mmort export or mmort adopt, or of MMDetection's own export"
    )
    parser.add_argument(
        "images",
        nargs="+",
        metavar="IMAGE|FOLDER|GLOB|VIDEO",
        help="image files, folders of them, or patterns in quotes; or a video, the number of a camera, or - for an "
        "image on standard input",
    )
    parser.add_argument("-r", "--recursive", action="store_true", help="search the folders below a folder, too")
    add_output(
        parser,
        "--out-dir",
        metavar="DIR",
        help="write the detections to DIR/detections.jsonl, a line of JSON for each image, instead of printing them, "
        "and a segmentation's labels to DIR/maps/*.png; the same command continues a run that was interrupted",
    )
    parser.add_argument("--show-dir", metavar="DIR", help="write annotated images, or an annotated video, to DIR")
    parser.add_argument(
        "--force", action="store_true", help="replace annotated images, or the annotated video, that exist"
    )
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    parser.add_argument(
        "--score-thr", type=share, default=0.3, help="leave out detections with a lower score (default: %(default)s)"
    )
    parser.add_argument(
        "--detector",
        metavar="DETECTOR.onnx",
        help="for a file of poses: finds the boxes that get poses, by any file of a detector that mmort runs (default: "
        "the whole image is one box)",
    )
    parser.add_argument(
        "--pose-classes",
        nargs="+",
        metavar="NAME",
        help="the detector's classes that get poses (default: person, if the detector has that among others, and "
        "otherwise all)",
    )
    parser.add_argument(
        "--recognizer",
        metavar="RECOGNIZER.onnx",
        help="for a file of a text detection: reads the texts that it finds, by a file of a text recognition",
    )
    texts.add_texts(parser)
    parser.add_argument(
        "--batch-size", type=at_least(1), default=1, help="images that run together (default: %(default)s)"
    )
    parser.add_argument(
        "--window",
        type=at_least(1),
        metavar="SIZE",
        help="cut images into windows of SIZE x SIZE pixels and merge what is found; TIFF and JPEG 2000 files are "
        "read window by window (default: the whole image at once)",
    )
    parser.add_argument(
        "--overlap", type=at_least(0), metavar="PIXELS", help="pixels that neighbouring windows share (default: 200)"
    )
    parser.add_argument(
        "--config", help="MMDetection config, for a file without metadata: its preprocessing and class names"
    )
    engines.add_arguments(parser, "provider", "threads", "parallel", with_ray=True)


def run(arguments: argparse.Namespace) -> str | None:
    """Detect objects in the images, and write or print them."""
    try:
        from tqdm import tqdm  # before the model is loaded
    except ModuleNotFoundError:
        raise ImportError("mmort predict needs tqdm: pip install 'mmort[predict]'") from None
    from mmort.predict import PredictOptions, predict
    from mmort.predict.image_files import IMAGE_SUFFIXES

    if STANDARD_INPUT in arguments.images:
        _predict_standard_input(arguments)
        return None
    check_new_folder("--output", arguments.output, (".json", ".jsonl"), f"a file: --json > {arguments.output}")
    check_new_folder("--show-dir", arguments.show_dir, IMAGE_SUFFIXES)
    options = PredictOptions(
        output=arguments.output,
        show_dir=arguments.show_dir,
        windows=_windows(arguments),
        batch_size=arguments.batch_size,
        recursive=arguments.recursive,
        progress=not arguments.quiet,
        force=arguments.force,
    )
    is_printed = arguments.json or (arguments.output is None and arguments.show_dir is None)

    def show(outcome: Outcome) -> None:  # above the bar
        if is_printed and outcome.detections is not None:
            tqdm.write(_line(outcome, as_json=arguments.json))
        if outcome.problem is not None:
            message = message_of(outcome.problem)
            named = message if str(outcome.image) in message else f"{outcome.image}: {message}"
            tqdm.write(f"mmort: {one_line(named)}", file=sys.stderr)

    result = predict(_predictor(arguments), arguments.images, options, each=show)
    if not result.failures and result.total is not None and result.processed < result.total:
        name = arguments.images[0]
        note = f"{name} states {result.total} frames, of which {result.processed} could be read"
        print(f"note: {note}", file=sys.stderr)
    if not arguments.json:
        for path, written in result.written.items():
            print_written(path, written)
    return f"{result.failures} of {result.total} images could not be processed" if result.failures else None


def _predict_standard_input(arguments: argparse.Namespace) -> None:
    """Detect objects in the image on standard input, and print them."""
    from mmort.predict import Outcome

    if len(arguments.images) > 1:
        raise UsageError(f"predict: - must be the only source, got {len(arguments.images)}; run one after another")
    if arguments.window is not None or arguments.engine == engines.RAY:
        raise UsageError("predict: --window and --engine ray are for image files")
    if arguments.output is not None or arguments.show_dir is not None:
        raise UsageError("predict: an image on standard input has no name, for --output and --show-dir; save it first")
    if sys.stdin is None:  # closed by the shell
        raise UsageError("predict: - is the image on standard input, which is closed")
    predictor, content = _predictor(arguments), sys.stdin.buffer.read(MAX_STANDARD_INPUT + 1)
    if len(content) > MAX_STANDARD_INPUT:
        raise ValueError(f"standard input: an image must have at most {MAX_STANDARD_INPUT} bytes there; save it first")
    try:
        detections = predictor(content)
    except ValueError as error:  # which names no file
        raise ValueError(f"standard input: {error}") from None
    print(_line(Outcome(STANDARD_INPUT, detections), as_json=arguments.json))


def _line(outcome: Outcome, *, as_json: bool) -> str:
    """Return the line to print for an image, or for a frame of a video."""
    from mmort.predict import to_line

    detections = outcome.detections
    assert detections is not None
    if as_json:
        return to_line(outcome.image, detections, frame=outcome.frame, time=outcome.time)
    moment = "" if outcome.time is None else f" {outcome.time:.2f} s"
    return one_line(f"{outcome.image}{moment}: {_summary(detections) or 'nothing'}")


def _summary(result: Any) -> str:
    """Summarize the result for an image: objects, the most probable classes, the shares of pixels, or the text."""
    from mmort.predict import Classes, RecognizedText, SegmentationMap

    if isinstance(result, RecognizedText):
        return f"{result.text!r} {result.score:.2f}"
    if isinstance(result, SegmentationMap):
        return ", ".join(f"{name} {share:.1%}" for name, share in zip(result.names, result.shares, strict=True))
    shown = result.top(CLASSES_SHOWN) if isinstance(result, Classes) else result
    return ", ".join(f"{name} {score:.2f}" for name, score in zip(shown.names, shown.scores, strict=True))


def _predictor(arguments: argparse.Namespace) -> Predictor:
    """Load the model, with the preprocessing and classes of ``--config``, if given."""
    from mmort.contract import POSE
    from mmort.predict import Predictor, Preprocessing
    from mmort.predict.engines.network import ADVICE_WITH_CONFIG, task_of

    network = texts.with_texts(arguments, engines.load(arguments, arguments.providers))
    settings: dict[str, Any] = {}
    if arguments.config is not None:
        from mmort.configs import read_config
        from mmort.configs.layout import DetectorConfig

        config, classes = read_config(arguments.config), network.classes
        of_boxes = {} if network.preprocessing is None else network.preprocessing.box_settings
        settings = {
            "preprocessing": Preprocessing.from_config(config, **of_boxes),
            "classes": classes if network.takes_texts else DetectorConfig(config).classes(classes or ()),
        }
    elif network.preprocessing is None:
        raise ValueError(
            f"{arguments.model} has no preprocessing in its metadata; pass --config CONFIG, which has it, or adopt the "
            f"file: {ADVICE_WITH_CONFIG}"
        )
    if arguments.recognizer is not None:
        return _text_reader(arguments, network, settings)
    if task_of(network) is POSE:
        return _pose_predictor(arguments, network, settings)
    for option in ("detector", "pose_classes"):
        if getattr(arguments, option) is not None:
            raise UsageError(f"predict: --{option.replace('_', '-')} is for a file of poses, got {arguments.model}")
    return Predictor(engines.spread(arguments, network), score_threshold=arguments.score_thr, **settings)


def _text_reader(arguments: argparse.Namespace, network: DetectorFile, settings: dict[str, Any]) -> Predictor:
    """Load the recognition of a file of a text detection."""
    from mmort.predict import Predictor, TextReader

    if arguments.engine == engines.RAY or settings:
        raise UsageError("predict: --engine ray and --config are not for --recognizer")
    recognizer = Predictor(_open_like(arguments, arguments.recognizer, network))
    return TextReader(network, recognizer, score_threshold=arguments.score_thr)


def _open_like(arguments: argparse.Namespace, path: str, network: DetectorFile) -> DetectorFile:
    """Open a second file as the first one was opened."""
    return engines.open_file(
        arguments, path, providers=arguments.providers, threads=network.threads, parallel=network.parallel
    )


def _pose_predictor(arguments: argparse.Namespace, network: DetectorFile, settings: dict[str, Any]) -> Predictor:
    """Load the detector of a file of poses, and state whose poses are found."""
    from mmort.predict import PosePredictor, Predictor

    if arguments.engine == engines.RAY or settings:
        raise UsageError("predict: --engine ray and --config are not for a file of poses")
    threshold = arguments.score_thr
    detector = None
    if arguments.detector is not None:
        detector = Predictor(_open_like(arguments, arguments.detector, network), score_threshold=threshold)
    predictor = PosePredictor(network, detector, pose_classes=arguments.pose_classes, score_threshold=threshold)
    if detector is None:
        note = "each image is one box, as there is no --detector"
    elif predictor.pose_classes:
        note = f"poses of {', '.join(predictor.pose_classes)}, of the detector's {len(detector.classes)} classes"
        note += "; --pose-classes names others" * (arguments.pose_classes is None)
    else:
        note = "poses of all that the detector finds"
    print(f"note: {note}", file=sys.stderr)
    return predictor


def _windows(arguments: argparse.Namespace) -> Windows | None:
    """Return the windows of ``--window`` and ``--overlap``, None if images stay whole."""
    from mmort.predict import Windows

    if arguments.window is None:
        if arguments.overlap is not None:
            raise UsageError("predict: --overlap needs --window, the size of the windows")
        return None
    if arguments.engine == engines.RAY:
        raise UsageError("predict: --window runs in this process only; leave out --engine ray")
    if arguments.overlap is None and arguments.window <= Windows.overlap:
        raise UsageError(
            f"predict: --window {arguments.window} needs --overlap, how many pixels neighbours share: fewer than the "
            f"window's, and {Windows.overlap} by default"
        )
    if arguments.overlap is None:
        return Windows(arguments.window)
    if arguments.overlap >= arguments.window:
        raise UsageError(f"predict: --overlap must be less than --window, {arguments.window}, got {arguments.overlap}")
    return Windows(arguments.window, arguments.overlap)
