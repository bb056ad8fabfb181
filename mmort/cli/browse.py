"""``mmort browse``: the annotations of a data set, drawn on its images."""

from __future__ import annotations

import argparse

from mmort.cli import configs, datasets
from mmort.cli.outputs import add_output, check_new_folder, print_written
from mmort.cli.terminal import UsageError

HELP = "draw the annotations of a data set on copies of its images"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        help="MMDetection config, 2.x or 3.x, whose test data set is drawn; --ann and --img-dir need none",
    )
    add_output(parser, force=True, required=True, metavar="DIR", help="the folder to write the images to")
    datasets.add_arguments(parser)
    parser.add_argument("--classes", nargs="+", metavar="NAME", help="draw these classes only")
    parser.add_argument(
        "--cfg-options", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="override the config"
    )


def run(arguments: argparse.Namespace) -> str | None:
    """Draw the images; return which could not be drawn."""
    is_yolo = (arguments.ann or "").endswith((".yaml", ".yml"))
    if arguments.config is None and not (arguments.ann and (arguments.img_dir or is_yolo)):
        raise UsageError("browse needs a CONFIG, --ann and --img-dir, or --ann data.yaml")
    if arguments.config is None and arguments.cfg_options:
        raise UsageError("--cfg-options change a CONFIG; give one")
    import mmort.evaluate
    from mmort.predict.image_files import IMAGE_SUFFIXES
    from mmort.predict.output import count_text

    check_new_folder("--output", arguments.output, IMAGE_SUFFIXES)
    config = configs.read(arguments.config, arguments.cfg_options) if arguments.config else None
    dataset = datasets.dataset(
        arguments, config, arguments.classes, labels_by_name=arguments.classes is not None, images=False
    )
    problems = mmort.evaluate.browse(dataset, arguments.output, force=arguments.force)
    print_written(arguments.output, count_text(len(dataset) - len(problems), "annotated image"))
    return f"{len(problems)} images could not be drawn, the first: {problems[0]}" if problems else None
