"""``mmort adopt``: another exporter's detector, as a file that all of mmort runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmort.cli.outputs import check_new_models, print_written
from mmort.cli.rewriting import add_new_file
from mmort.cli.terminal import UsageError
from mmort.limits import MAX_LAYOUT_BYTES

HELP = (
    "let mmort run a detector's ONNX file of another exporter, such as ultralytics, transformers, torchvision, "
    "RF-DETR, YOLOX, PaddleDetection or detectron2: append what makes mmort's detections of its outputs; or one of "
    "MMDetection 2 or MMDeploy: write what its config says into it"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_new_file(parser)
    parser.add_argument("--presets", action=_ListPresets, help="list the exporters that --preset takes, and exit")
    parser.add_argument(
        "--preset", metavar="NAME", help="the exporter of a file that does not say it; --presets lists the names"
    )
    parser.add_argument(
        "--try",
        dest="try_image",
        metavar="IMAGE",
        type=Path,
        help="an image with objects to find, on which guesses are tried, beside images of digits",
    )
    parser.add_argument(
        "--show", metavar="IMAGE", type=Path, help="draw what the guesses find in the image of --try, side by side"
    )
    parser.add_argument(
        "--config",
        metavar="PATH",
        help="of a model of transformers, the folder with config.json and preprocessor_config.json; of a file of "
        "PaddleDetection, infer_cfg.yml or its folder; of a file of MMDetection or MMDeploy, the detector's config, "
        "which is read, not executed",
    )
    parser.add_argument(
        "--layout", metavar="FILE.json", help="what the outputs mean, as far as the file itself does not say"
    )
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="entries of the layout, such as box_format=cxcywh or preprocessing.size=640,640",
    )


class _ListPresets(argparse.Action):
    """Print the presets, and end."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from mmort.onnx.adopt.presets import listing

        print(listing())
        parser.exit()


def run(arguments: argparse.Namespace) -> None:
    """Adopt a file, and print what was understood of it."""
    import mmort.onnx
    from mmort._files.inputs import read_bytes
    from mmort.configs.overrides import nested, parse_options
    from mmort.onnx.adopt import Question

    check_new_models(arguments.output, force=arguments.force)
    layout = {}
    if arguments.layout is not None:
        try:
            layout = json.loads(read_bytes("layout", arguments.layout, MAX_LAYOUT_BYTES))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"adopt: {arguments.layout} is not JSON: {error}") from None
        if not isinstance(layout, dict):
            raise ValueError(f"adopt: {arguments.layout} must be an object, got {type(layout).__name__}")
    entries = {name: None if value == "null" else value for name, value in parse_options(arguments.set).items()}
    for name, value in nested(entries).items():
        is_inner = isinstance(value, dict) and isinstance(layout.get(name), dict)
        layout[name] = layout[name] | value if is_inner else value
    options = {name: getattr(arguments, name) for name in ("config", "preset", "try_image", "show", "force")}
    try:
        adoption = mmort.onnx.adopt(arguments.model, arguments.output, layout, **options)
    except Question as question:
        raise UsageError(str(question)) from None
    print(adoption)
    print_written(arguments.output)
    print(f"look whether it is right: mmort predict {arguments.output} IMAGE --show-dir DIR")
