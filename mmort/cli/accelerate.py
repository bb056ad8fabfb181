"""``mmort accelerate``: slow operators in anybody's ONNX file replaced by mmort's."""

from __future__ import annotations

import argparse

from mmort.cli.option_types import at_least
from mmort.cli.outputs import check_new_models, print_written
from mmort.cli.rewriting import add_new_file, list_inputs

HELP = (
    "replace slow operators in the ONNX file of a detector, of any exporter, by mmort's; compare the outputs, and "
    "measure the gain"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_new_file(parser)
    parser.add_argument(
        "--input",
        nargs="+",
        metavar="FILE",
        help="what to run the model on: .npz files of arrays by the names of the inputs, images, preprocessed as the "
        "metadata of MODEL.onnx says, or folders of either (default: random numbers)",
    )
    parser.add_argument("--threads", type=at_least(1), help="threads for the measurement (default: one for each core)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> None:
    """Accelerate a model, and print what was replaced."""
    import mmort.onnx

    if arguments.threads is not None:
        mmort.set_num_threads(arguments.threads)
    check_new_models(arguments.output, force=arguments.force)
    inputs = None
    if arguments.input is not None:
        inputs = list(mmort.onnx.read_inputs(arguments.model, list_inputs("--input", arguments.input)))
    result = mmort.onnx.accelerate(arguments.model, arguments.output, inputs, force=arguments.force)
    print(result.to_json() if arguments.json else result)
    if arguments.json:
        return
    if result.replaced:
        print_written(arguments.output)
    else:
        print(f"nothing to do: {arguments.model} stays as it is, and {arguments.output} was not written")
