"""``mmort upgrade``: an old model, brought up to date."""

from __future__ import annotations

import argparse
import json

from mmort.cli.outputs import check_new_models, print_written
from mmort.cli.rewriting import add_files

HELP = "bring an old model up to date: opset, attributes, domains and weights as exporters write them today"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_files(parser)


def run(arguments: argparse.Namespace) -> None:
    """Upgrade a model, and print what changed."""
    import mmort.onnx

    check_new_models(arguments.output, force=arguments.force)
    changes = mmort.onnx.upgrade(arguments.model, arguments.output, force=arguments.force)
    if arguments.json:
        print(json.dumps({"changes": changes}, indent=2))
        return
    print("\n".join(changes or ["nothing to do: the model is up to date"]))
    if changes or arguments.output is not None:
        print_written(arguments.output or arguments.model, "" if changes else "a copy")
