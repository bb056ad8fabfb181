"""``mmort info``: versions, the machine, the operators; or what an ONNX file takes and needs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from mmort.cli.option_types import sets_of_sizes
from mmort.cli.terminal import UsageError

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
    inputs = parser.add_mutually_exclusive_group()
    inputs.add_argument(
        "--sizes",
        type=sets_of_sizes,
        metavar="SIZES",
        help="count the multiply-adds of a run with random inputs of these sizes, such as 1x3x800x1333; a file with "
        "two inputs takes 1x3x800x1333+1x2",
    )
    inputs.add_argument(
        "--image", metavar="IMAGE", help="count those of an image, preprocessed as the metadata of the file says"
    )
    parser.add_argument("--profile", action="store_true", help="time the operators in such a run, by ONNX Runtime")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> None:
    """Print the facts as a table or as JSON."""
    if arguments.model is None and (arguments.sizes or arguments.image or arguments.profile):
        raise UsageError("info: --sizes, --image and --profile are for a file")
    if arguments.sizes is not None and len(arguments.sizes) > 1:
        raise UsageError(f"info: --sizes must be those of one run, got {len(arguments.sizes)}")
    if arguments.model is not None:
        from mmort.onnx._extras import needed_by

        with needed_by("mmort info MODEL.onnx"):
            from mmort.onnx import describe
            from mmort.onnx.parameters import count_parameters
        facts, report = describe.describe(arguments.model), describe.report
        facts["parameters"] = count_parameters(arguments.model)
        if arguments.sizes or arguments.image or arguments.profile:
            open_sizes = any(tensor["dynamic"] and not tensor["optional"] for tensor in facts["inputs"])
            if open_sizes and not (arguments.sizes or arguments.image):
                raise UsageError("info: --profile of a file whose inputs have no fixed size needs --sizes or --image")
            facts |= _of_a_run(arguments)
    else:
        import mmort.info

        facts, report = mmort.info.collect(), mmort.info.report
    print(json.dumps(facts, indent=2) if arguments.json else report(facts))
    if arguments.profile and not arguments.json:
        from mmort.onnx.profiling import OperatorTime, time_table

        print(f"\n{time_table([OperatorTime(**operator) for operator in facts['run']['operators']])}")


def _of_a_run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the facts of a run of the file."""
    from mmort.onnx.input_files import read_inputs
    from mmort.onnx.profiling import count_multiply_adds, operator_times
    from mmort.onnx.verify.random_inputs import random_inputs

    if arguments.image:
        (values,) = read_inputs(arguments.model, [arguments.image])
    else:
        (values,) = random_inputs(arguments.model, arguments.sizes)
    facts: dict[str, Any] = {
        "run": {
            "sizes": [list(value.shape) for value in values],
            "multiply_adds": count_multiply_adds(arguments.model, values),
        }
    }
    if arguments.profile:
        facts["run"]["operators"] = [time._asdict() for time in operator_times(arguments.model, values)]
    return facts
