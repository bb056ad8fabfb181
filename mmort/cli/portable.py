"""``mmort portable``: a model that also runs without mmort's ONNX Runtime library."""

from __future__ import annotations

import argparse
import dataclasses
import json

from mmort.cli.rewriting import add_files
from mmort.tables import lay_out

HELP = "add definitions in standard operators to a model, so that it also runs without mmort's ONNX Runtime library"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_files(parser)


def run(arguments: argparse.Namespace) -> str | None:
    """Add the definitions, and print which operators have one."""
    import mmort.onnx

    coverages = mmort.onnx.make_portable(arguments.model, arguments.output)
    if arguments.json:
        print(json.dumps({"operators": [dataclasses.asdict(coverage) for coverage in coverages]}, indent=2))
    elif coverages:
        rows = [
            (
                coverage.operator,
                str(len(coverage.nodes)),
                f"needs the library: {coverage.missing}" if coverage.missing else "defined",
            )
            for coverage in coverages
        ]
        print(lay_out(rows))
    else:
        print("nothing to do: the model has none of mmort's operators")
    missing = sum(len(coverage.nodes) for coverage in coverages if coverage.missing)
    if not missing:
        return None
    return "1 node still needs the library" if missing == 1 else f"{missing} nodes still need the library"
