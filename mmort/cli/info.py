"""``mmort info``: versions, the machine, the operators."""

from __future__ import annotations

import argparse
import json

import mmort.info

HELP = "print versions, SIMD level, threads, the path of the ONNX Runtime library, and all operators"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> None:
    """Print the facts as a table or as JSON."""
    facts = mmort.info.collect()
    print(json.dumps(facts, indent=2) if arguments.json else mmort.info.report(facts))
