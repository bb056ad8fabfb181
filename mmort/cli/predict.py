"""``mmort predict``: an exported detector, run on pictures."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from mmort.cli import engines, texts, videos
from mmort.cli.outputs import add_output, image_count, print_written
from mmort.cli.terminal import message_of, one_line
from mmort.cli.thresholds import share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from mmort.predict import AnnotatedImages, Detections, Predictor, Record, Windows

HELP = "detect objects in pictures with an exported detector; exit code 1 if a picture cannot be processed"


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
        help="write the detections to DIR/detections.jsonl, a line of JSON for each picture, instead of printing them; "
        "the same command continues a run that was interrupted",
    )
    parser.add_argument("--show-dir", metavar="DIR", help="write annotated pictures, or an annotated video, to DIR")
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    parser.add_argument(
        "--score-thr", type=share, default=0.3, help="leave out detections with a lower score (default: %(default)s)"
    )
    texts.add_texts(parser)
    parser.add_argument("--batch-size", type=int, default=1, help="pictures that run together (default: %(default)s)")
    parser.add_argument(
        "--window",
        type=int,
        metavar="SIZE",
        help="cut pictures into windows of SIZE x SIZE pixels and merge what is found; TIFF and JPEG 2000 files are "
        "read window by window (default: the whole picture at once)",
    )
    parser.add_argument(
        "--overlap", type=int, metavar="PIXELS", help="pixels that neighbouring windows share (default: 200)"
    )
    parser.add_argument(
        "--config", help="MMDetection config, for a file without metadata: its preprocessing and class names"
    )
    parser.add_argument(
        "--provider",
        action="append",
        metavar="NAME",
        help="execution provider of ONNX Runtime, such as CUDAExecutionProvider; may be repeated (default: the CPU)",
    )
    engines.add_arguments(parser)


def run(arguments: argparse.Namespace) -> str | None:
    """Detect objects in the pictures, and write or print them."""
    try:
        import tqdm  # noqa: F401 (before the model is loaded)
    except ModuleNotFoundError:
        raise ImportError("mmort predict needs tqdm: pip install 'mmort[predict]'") from None
    from mmort.predict import AnnotatedImages, Record, list_images

    windows, source = _windows(arguments), videos.single_source(arguments.images)
    if source is not None:
        if windows is not None or arguments.engine == "ray":
            raise ValueError("predict: --window and --engine ray are for image files")
        if isinstance(source, int) and arguments.output is not None:
            raise ValueError("predict: what a camera saw is gone, so that --output cannot resume; use --json")
        images: list[Path] = []
        predictor = _predictor(arguments)
        if source == videos.STANDARD_INPUT:
            videos.predict_standard_input(arguments, predictor)
            return None
    else:
        images = list_images(*arguments.images, recursive=arguments.recursive)
        predictor = _predictor(arguments)
    annotated = AnnotatedImages(arguments.show_dir, images) if arguments.show_dir is not None and images else None
    with ExitStack() as files:
        record = None
        if arguments.output is not None:
            record = files.enter_context(closing(Record(arguments.output, _settings(arguments, predictor, windows))))
        if source is not None:
            videos.predict_video(arguments, predictor, source, record)
            return None
        return _predict_all(arguments, predictor, windows, images, annotated, record)


def _predict_all(
    arguments: argparse.Namespace,
    predictor: Predictor,
    windows: Windows | None,
    images: Sequence[Path],
    annotated: AnnotatedImages | None,
    record: Record | None,
) -> str | None:
    """Detect objects in the pictures that are not recorded, or not drawn; return how many could not be processed."""
    from tqdm import tqdm

    def is_done(path: Path) -> bool:
        return record is not None and path in record and (annotated is None or path in annotated)

    todo = [path for path in images if not is_done(path)]
    failures = 0
    # Lines on the terminal go above the bar.
    with tqdm(
        total=len(images), initial=len(images) - len(todo), unit="picture", disable=arguments.quiet or None
    ) as bar:
        if windows is None:
            predict = engines.predict_function(arguments)
            outcomes = predict(predictor, todo, arguments.batch_size, return_exceptions=True)
        else:
            outcomes = _outcomes_of_windows(predictor, todo, windows, arguments.batch_size, quiet=arguments.quiet)
        for path, outcome in zip(todo, outcomes, strict=True):
            problem = outcome if isinstance(outcome, Exception) else None
            if not isinstance(outcome, Exception):
                if record is not None:
                    record.add(path, outcome)
                if annotated is not None:
                    problem = annotated.try_to_write(path, outcome)
                if arguments.json or (record is None and annotated is None):
                    bar.write(videos.line(path, outcome, as_json=arguments.json))
            if problem is not None:
                failures += 1
                message = message_of(problem)
                named = message if str(path) in message else f"{path}: {message}"
                bar.write(f"mmort: {one_line(named)}", file=sys.stderr)
            bar.update()
    if record is not None and not arguments.json:
        print_written(record.path, image_count(len(record)))
    if annotated is not None and not arguments.json:
        print_written(arguments.show_dir, f"{image_count(len(annotated))}, annotated")
    return f"{failures} of {len(images)} pictures could not be processed" if failures else None


def _predictor(arguments: argparse.Namespace) -> Predictor:
    """Load the model, with the preprocessing and classes of ``--config``, if given."""
    from mmort.predict import Predictor, Preprocessing
    from mmort.predict.engines.onnxruntime import ADVICE

    network = texts.with_texts(arguments, engines.load(arguments, arguments.provider))
    settings: dict[str, Any] = {}
    if arguments.config is not None:
        from mmort.configs import read_config
        from mmort.evaluate.configured import classes_of

        config = read_config(arguments.config)
        settings = {
            "preprocessing": Preprocessing.from_config(config),
            "classes": network.classes if network.takes_texts else classes_of(config, network.classes or ()),
        }
    elif network.preprocessing is None:
        raise ValueError(
            f"{arguments.model} has no preprocessing in its metadata; pass --config CONFIG, which has it; {ADVICE}"
        )
    return Predictor(network, score_threshold=arguments.score_thr, **settings)


def _windows(arguments: argparse.Namespace) -> Windows | None:
    """Return the windows of ``--window`` and ``--overlap``, None if pictures stay whole."""
    from mmort.predict import Windows

    if arguments.window is None:
        if arguments.overlap is not None:
            raise ValueError("predict: --overlap needs --window, the size of the windows")
        return None
    if arguments.engine == "ray":
        raise ValueError("predict: --window runs in this process only; leave out --engine ray")
    return Windows(arguments.window) if arguments.overlap is None else Windows(arguments.window, arguments.overlap)


def _outcomes_of_windows(
    predictor: Predictor, images: Iterable[Path], windows: Windows, batch_size: int, *, quiet: bool
) -> Iterator[Detections | Exception]:
    """Yield the detections in each picture, or its exception, with a bar for the windows of each."""
    from tqdm import tqdm

    from mmort.predict import predict_windows

    for path in images:
        with tqdm(unit="window", leave=False, disable=quiet or None, desc=path.name) as bar:

            def progress(done: int, total: int, bar: Any = bar) -> None:
                bar.total = total
                bar.update(done - bar.n)

            try:
                outcome: Detections | Exception = predict_windows(predictor, path, windows, batch_size, progress)
            except ImportError:  # not the picture's fault
                raise
            except Exception as error:
                outcome = error
        yield outcome


def _settings(arguments: argparse.Namespace, predictor: Predictor, windows: Windows | None) -> dict[str, Any]:
    """Return what the detections depend on."""
    import hashlib

    from mmort._files.inputs import open_regular

    digest = hashlib.sha256()
    with open_regular("model", arguments.model) as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    words = {} if arguments.texts is None else {"texts": texts.read(arguments)}
    return words | {
        "model": digest.hexdigest(),
        "score threshold": predictor.score_threshold,
        "preprocessing": predictor.preprocessing.to_dict(),
        "classes": predictor.classes,
        "windows": None if windows is None else [windows.size, windows.overlap],
    }
