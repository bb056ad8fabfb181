"""``mmort triton-repository``: a model repository for the Triton Inference Server."""

from __future__ import annotations

import argparse

from mmort.cli.outputs import add_output, print_written
from mmort.cli.terminal import UsageError

HELP = "write the folder from which NVIDIA's Triton Inference Server serves a model: the model, its config, the library"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("model", metavar="MODEL.onnx", help="the model to serve, under its name without .onnx")
    add_output(parser, force=True, metavar="DIR", help="the model repository, a directory")
    parser.add_argument("directory", metavar="DIR", nargs="?", help="the same as --output DIR")
    parser.add_argument(
        "--server-path", metavar="PATH", help="path of DIR on the server, such as /models in a container (default: DIR)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Write the model's folder."""
    if (arguments.output is None) == (arguments.directory is None):
        raise UsageError("triton-repository: give the model repository, --output DIR, once")
    from mmort.onnx._extras import needed_by

    with needed_by("mmort triton-repository"):
        from mmort.onnx.triton import write_triton_repository
    directory = arguments.output or arguments.directory
    print_written(write_triton_repository(arguments.model, directory, arguments.server_path, force=arguments.force))
