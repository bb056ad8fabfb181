"""``mmort demo``: a detector's way from an MMDetection checkpoint to pictures with detections, or to a browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from mmort.cli.outputs import add_output

HELP = "export a small detector of handwritten digits, verify the file, detect with it, and draw what it finds"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_output(parser, default="mmort_demo", metavar="DIR", help="directory to write to (default: %(default)s)")
    parser.add_argument(
        "--web",
        action="store_true",
        help="detect in a browser instead: write a page and the detector to DIR/web, and serve them to this machine",
    )


def run(arguments: argparse.Namespace) -> None:
    """Run the demo."""
    directory = Path(arguments.output).absolute()
    if not directory.parent.is_dir():
        raise FileNotFoundError(f"output directory does not exist: {directory.parent}")
    if arguments.web:
        from mmort.demo import page

        page.run(arguments.output)
    else:
        from mmort.demo import story

        story.run(arguments.output)
