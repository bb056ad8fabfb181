"""``mmort info``: versions, the machine, the operators; or what an ONNX file takes and needs."""

from __future__ import annotations

import argparse
import json

HELP = (
    "print versions, SIMD level, threads, the path of the ONNX Runtime library, and all operators; or what a file "
    "takes and needs"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "model",
        metavar="MODEL.onnx",
        nargs="?",
        help="describe this file: inputs, outputs, operators, metadata, who can run it",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> None:
    """Print the facts as a table or as JSON."""
    if arguments.model is not None:
        from mmort.onnx._extras import needed_by

        with needed_by("mmort info MODEL.onnx"):
            from mmort.onnx import describe
            from mmort.onnx.parameters import count_parameters
        facts, report = describe.describe(arguments.model), describe.report
        facts["parameters"] = count_parameters(arguments.model)
    else:
        import mmort.info

        facts, report = mmort.info.collect(), mmort.info.report
    print(json.dumps(facts, indent=2) if arguments.json else report(facts))
