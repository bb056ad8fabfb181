"""``mmort benchmark``: how long a detector's file takes, by stage; or several files by turns."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mmort.cli import engines, texts
from mmort.cli.option_types import at_least
from mmort.cli.terminal import UsageError

HELP = "time a detector's file, by stage: reading, preprocessing, running, postprocessing; or several files by turns"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("model", metavar="FILE.onnx", help="file of mmort export or mmort adopt")
    parser.add_argument(
        "images",
        nargs="*",
        default=[],
        metavar="IMAGE|FOLDER|GLOB",
        help="images to run, in turn (default: an image of noise, which is not read from a file)",
    )
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="OTHER.onnx",
        help="another file, which runs by turns with the first one; may be repeated",
    )
    parser.add_argument(
        "--batch-size", type=at_least(1), default=1, help="images that run together (default: %(default)s)"
    )
    parser.add_argument(
        "--runs", type=at_least(1), default=20, help="timed batches of each file (default: %(default)s)"
    )
    engines.add_arguments(parser, "provider", "threads")
    texts.add_texts(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> None:
    """Time the files, and print the medians."""
    from mmort.predict import Predictor, benchmark

    paths = [arguments.model, *arguments.against]
    if len(set(paths)) != len(paths):
        raise UsageError("benchmark: the same file is given twice")
    names = [Path(path).name for path in paths]
    if len(set(names)) != len(names):
        names = paths
    predictors = {}
    for name, path in zip(names, paths, strict=True):
        network = engines.open_file(arguments, path, providers=arguments.providers, threads=arguments.threads)
        predictors[name] = Predictor(texts.with_texts(arguments, network))
    result = benchmark(
        predictors,
        arguments.images,
        batch_size=arguments.batch_size,
        runs=arguments.runs,
        threads=arguments.threads,
    )
    print(json.dumps(result.to_dict(), indent=2) if arguments.json else result)
