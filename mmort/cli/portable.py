"""``mmort portable``: a model that also runs without mmort's ONNX Runtime library; and ``--portable``."""

from __future__ import annotations

import argparse
import dataclasses
import json

from mmort.cli.outputs import check_new_models, print_written
from mmort.cli.rewriting import add_files
from mmort.tables import lay_out

HELP = "add definitions in standard operators to a model, so that it also runs without mmort's ONNX Runtime library"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_files(parser)
    add_form(parser)
    parser.set_defaults(portable="functions")


def add_form(parser: argparse.ArgumentParser) -> None:
    """Add ``--portable``, whose value must be joined to it: otherwise the name of a file could be taken for it."""
    for names, form, meaning in (
        (
            ("--portable", "--portable=functions"),
            "functions",
            "make a file that also runs without mmort's ONNX Runtime library: definitions of its operators are "
            "functions in the file, which ONNX Runtime uses where the library is not loaded",
        ),
        (
            ("--portable=inlined",),
            "inlined",
            "replace the operators by their definitions, so that the file has standard operators only, as OpenVINO "
            "requires; the library then makes no difference",
        ),
    ):
        parser.add_argument(*names, dest="portable", action="store_const", const=form, default=False, help=meaning)


def run(arguments: argparse.Namespace) -> str | None:
    """Add the definitions, and print which operators have one."""
    import mmort.onnx

    check_new_models(arguments.output, force=arguments.force)
    coverages = mmort.onnx.make_portable(arguments.model, arguments.output, arguments.portable, force=arguments.force)
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
    if not arguments.json:
        print_written(arguments.output or arguments.model)
    missing = sum(len(coverage.nodes) for coverage in coverages if coverage.missing)
    if not missing:
        return None
    return "1 node still needs the library" if missing == 1 else f"{missing} nodes still need the library"
