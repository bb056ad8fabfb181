"""The arguments of commands that read a model and write another."""

from __future__ import annotations

import argparse


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the model to read and the file to write; `output` is None with ``--in-place``."""
    parser.add_argument("model", metavar="MODEL.onnx", help="the model to read")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--output", metavar="FILE", help="the model to write; it must not exist")
    target.add_argument("--in-place", action="store_true", help="replace the file itself")
    parser.add_argument("--json", action="store_true", help="print JSON")
