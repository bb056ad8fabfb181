"""``mmort demo``: a detector of handwritten digits, run on images and drawn."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "detect handwritten digits in images with a Mask R-CNN exported by MMDetection, and draw the detections"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("images", nargs="*", metavar="IMAGE", help="image files (default: images that come with mmort)")
    parser.add_argument("--output", default="demo.png", type=_png, help="the PNG file to write (default: %(default)s)")
    parser.add_argument(
        "--score-threshold",
        default=0.3,
        type=_score,
        help="draw detections with a score above this (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Run the demo."""
    try:
        from mmort import demo
    except ModuleNotFoundError as error:
        if error.name not in ("PIL", "onnxruntime"):
            raise
        raise ImportError(f"mmort demo needs {error.name}, which is not installed: pip install 'mmort[demo]'") from None
    output = Path(arguments.output)
    if output.exists() and any(output.samefile(image) for image in arguments.images if Path(image).exists()):
        raise FileExistsError(f"--output {output} is one of the images")
    demo.demo(arguments.images or demo.IMAGES, output, arguments.score_threshold)


def _png(value: str) -> str:
    """Check the name of a PNG file."""
    if Path(value).suffix.lower() != ".png":
        raise argparse.ArgumentTypeError(f"must end in .png, got {value!r}")
    return value


def _score(value: str) -> float:
    """Parse a score."""
    try:
        score = float(value)
    except ValueError:
        score = -1.0
    if not 0 <= score <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, got {value!r}")
    return score
