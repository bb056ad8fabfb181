"""``mmort demo``: a detector's way from an MMDetection checkpoint to images with detections, or to a browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from mmort.cli import texts
from mmort.cli.outputs import add_output, check_new_outputs

HELP = "export a small detector of handwritten digits, verify the file, detect with it, and draw what it finds"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_output(
        parser, force=True, default="mmort_demo", metavar="DIR", help="directory to write to (default: %(default)s)"
    )
    parser.add_argument(
        "--texts",
        metavar="TEXT",
        help="look for the digits that words name, with a small Grounding DINO: 'zero . four . six', or a file, as for "
        "mmort predict",
    )
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
    words = texts.read(arguments)
    if arguments.web:
        from mmort.demo import page

        page.run(arguments.output, words, force=arguments.force)
        return
    from mmort.demo import walkthrough

    if directory.is_dir():
        files = walkthrough.FILES if words is None else walkthrough.FILES_WITH_TEXTS
        check_new_outputs(*(str(directory / name) for name in files), force=arguments.force)
    if words is None:
        walkthrough.run(arguments.output)
    else:
        walkthrough.run_with_texts(arguments.output, words)
