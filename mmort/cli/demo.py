"""``mmort demo``: a detector's way from an MMDetection checkpoint to pictures with detections."""

from __future__ import annotations

import argparse

HELP = "export a small detector of handwritten digits, verify the file, detect with it, and draw what it finds"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--output", default="mmort_demo", metavar="DIR", help="directory to write to (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Run the demo."""
    from mmort.demo import story

    story.run(arguments.output)
