"""``--engine``: what runs a command's detector: ONNX Runtime, in this process or on a Ray cluster, or OpenVINO."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from mmort.cli.option_types import at_least
from mmort.cli.terminal import UsageError

if TYPE_CHECKING:
    from mmort.predict import DetectorFile

OPENVINO: dict[str, Literal["float32", "bfloat16"]] = {"openvino": "float32", "openvino-bfloat16": "bfloat16"}
"""The engines that are OpenVINO, and what each computes in."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--engine``, and the threads and parallel batches of each detector."""
    parser.add_argument(
        "--engine",
        choices=("local", *OPENVINO, "ray"),
        default="local",
        help="what runs the detector: ONNX Runtime in this process; OpenVINO, in float32 or bfloat16, which takes "
        "files of --portable=inlined; or ONNX Runtime in the workers of a Ray cluster, that of RAY_ADDRESS or one of "
        "this machine's cores (default: %(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=at_least(1),
        help="threads for the detector (default: one for each core; with --engine ray, 1)",
    )
    parser.add_argument(
        "--parallel",
        type=at_least(1),
        help="batches that run at the same time and share the threads, each with memory of its own (default: 2 with "
        "two threads or more on the CPU, otherwise 1)",
    )


def threads(arguments: argparse.Namespace) -> int | None:
    """Return the threads of each detector; None is one for each core."""
    return 1 if arguments.threads is None and arguments.engine == "ray" else arguments.threads


def load(arguments: argparse.Namespace, providers: Sequence[str] | None) -> DetectorFile:
    """Load the model for the engine."""
    from mmort import get_num_threads
    from mmort.predict import OnnxNetwork, OpenVinoNetwork

    if arguments.engine in OPENVINO and providers is not None:
        raise UsageError(f"--engine {arguments.engine} runs on the CPU; {providers[0]} is ONNX Runtime's")
    count, parallel = threads(arguments), arguments.parallel
    if parallel is None:
        parallel = 2 if providers is None and (count or get_num_threads()) > 1 else 1
    if arguments.engine in OPENVINO:
        return OpenVinoNetwork(arguments.model, count, parallel, OPENVINO[arguments.engine])
    return OnnxNetwork(arguments.model, providers, count, parallel=parallel)


def open_file(
    path: str | os.PathLike[str],
    engine: str = "local",
    providers: Sequence[str] | None = None,
    threads: int | None = None,
) -> DetectorFile:
    """Open a file to run in this process, by ONNX Runtime or OpenVINO."""
    from mmort.predict import OnnxNetwork, OpenVinoNetwork

    if engine not in OPENVINO:
        return OnnxNetwork(path, providers, threads)
    if providers is not None:
        raise UsageError(f"--engine {engine} runs on the CPU; {providers[0]} is ONNX Runtime's")
    return OpenVinoNetwork(path, threads, precision=OPENVINO[engine])


def predict_function(arguments: argparse.Namespace) -> Callable[..., Iterable[Any]] | None:
    """Return the function that detects instead of `Predictor.predict`, or None for an engine that needs no other."""
    if arguments.engine != "ray":
        return None
    from mmort.predict.engines.ray import predict_on_ray

    return partial(predict_on_ray, threads=threads(arguments))
