"""The arguments of commands that read a model and write another."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from mmort.cli.outputs import add_force, add_output

_MODEL = "the model to read"
_OUTPUT = "the model to write"


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the model to read and the file to write; `output` is None with ``--in-place``."""
    parser.add_argument("model", metavar="MODEL.onnx", help=_MODEL)
    target = parser.add_mutually_exclusive_group(required=True)
    add_output(target, metavar="FILE.onnx", help=_OUTPUT)
    target.add_argument("--in-place", action="store_true", help="replace the file itself")
    add_force(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_new_file(parser: argparse.ArgumentParser) -> None:
    """Add the model to read, and the file to write, of a command that measures both."""
    parser.add_argument("model", metavar="MODEL.onnx", help=_MODEL)
    add_output(parser, force=True, required=True, metavar="FILE.onnx", help=_OUTPUT)


def list_inputs(option: str, sources: Iterable[str]) -> list[Path]:
    """Return the files of the inputs of a model: files, images that match a pattern, a folder's images or .npz files.

    Raises
    ------
    ValueError
        If a folder has both, or neither, or no image matches a pattern.
    OSError
        If a file does not exist.
    """
    from mmort.predict import list_images
    from mmort.predict.image_files import IMAGE_SUFFIXES

    files: list[Path] = []
    for source in sources:
        folder = Path(source)
        arrays = sorted(folder.glob("*.npz")) if source and folder.is_dir() else []
        if arrays and any(file.suffix.lower() in IMAGE_SUFFIXES for file in folder.iterdir()):
            raise ValueError(f"{option} must have either images or .npz files, got both: {folder}")
        files += arrays or list_images(source)
    for file in files:
        file.stat()  # rather than an error after some minutes
    return files
