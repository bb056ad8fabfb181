"""``--engine``: what runs a command's detector, with the options of the engines' classes, which state them."""

from __future__ import annotations

import argparse
import inspect
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mmort.cli.option_types import at_least
from mmort.cli.options import add_options, help_texts
from mmort.cli.terminal import UsageError

if TYPE_CHECKING:
    from mmort.detect.network import TorchNetwork
    from mmort.predict import DetectorFile, Ray

RAY = "ray"
DEFAULT, OPENVINO = "onnxruntime", "openvino"


def add_arguments(parser: argparse.ArgumentParser, *options: str, with_ray: bool = False) -> None:
    """Add ``--engine``, ``--precision`` and those of ``--provider``, ``--threads`` and ``--parallel`` in `options`."""
    from mmort.predict import OnnxRuntime, OpenVino
    from mmort.predict.engines.openvino import PRECISIONS

    help = "what runs the detector: ONNX Runtime, or OpenVINO, which takes files of --portable=inlined"
    if with_ray:
        help += "; or ONNX Runtime in the workers of a Ray cluster, that of RAY_ADDRESS or one of this machine's cores"
    engines = (DEFAULT, OPENVINO, RAY) if with_ray else (DEFAULT, OPENVINO)
    parser.add_argument("--engine", choices=engines, default=DEFAULT, help=f"{help} (default: %(default)s)")
    add_options(parser, OpenVino, precision={"choices": PRECISIONS})
    texts = help_texts(OnnxRuntime)
    if "provider" in options:
        text = texts["providers"].replace(" (default", "; may be repeated (default")
        parser.add_argument("--provider", dest="providers", action="append", metavar="NAME", help=text)
    if "threads" in options:
        text = texts["threads"].replace("core)", "core; with --engine ray, 1)") if with_ray else texts["threads"]
        parser.add_argument("--threads", type=at_least(1), help=text)
    if "parallel" in options:
        default = "2 with two threads or more on the CPU, otherwise 1"  # a command has many images
        parser.add_argument("--parallel", type=at_least(1), help=f"{texts['parallel']} (default: {default})")


def threads(arguments: argparse.Namespace) -> int | None:
    """Return the threads of each detector; None is one for each core."""
    return 1 if arguments.threads is None and arguments.engine == RAY else arguments.threads


def load(arguments: argparse.Namespace, providers: Sequence[str] | None = None) -> DetectorFile:
    """Load the command's model for its engine, to run several batches at a time."""
    from mmort import get_num_threads

    count, parallel = threads(arguments), arguments.parallel
    if parallel is None:
        parallel = 2 if providers is None and (count or get_num_threads()) > 1 else 1
    return open_file(arguments, arguments.model, providers=providers, threads=count, parallel=parallel)


def open_file(arguments: argparse.Namespace, path: str | os.PathLike[str], **options: Any) -> DetectorFile:
    """Open a file in the engine of the arguments; refuse options of other engines."""
    from mmort.predict import OnnxRuntime, OpenVino

    engines: dict[str, Callable[..., DetectorFile]] = {DEFAULT: OnnxRuntime, OPENVINO: OpenVino}
    parameters = {name: inspect.signature(engine).parameters for name, engine in engines.items()}
    chosen = DEFAULT if arguments.engine == RAY else arguments.engine
    for option, value in {"precision": arguments.precision, **options}.items():
        if option in parameters[chosen]:
            options[option] = value
            continue
        (owner,) = (name for name in engines if option in parameters[name])
        if value != parameters[owner][option].default:
            flag, given = ("--provider", " and ".join(value)) if option == "providers" else (f"--{option}", value)
            raise UsageError(f"{flag} is for --engine {owner}, got {given} for --engine {arguments.engine}")
        options.pop(option, None)
    return engines[chosen](path, **options)


def spread(arguments: argparse.Namespace, network: DetectorFile | TorchNetwork) -> DetectorFile | TorchNetwork | Ray:
    """Return the network on Ray, if that is the engine."""
    from mmort.predict import Ray

    return Ray(network) if arguments.engine == RAY else network
