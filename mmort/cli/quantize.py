"""``mmort quantize``: a file whose layers compute with 8-bit integers."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from mmort.cli import datasets
from mmort.cli.option_types import share
from mmort.cli.outputs import check_new_models, print_written
from mmort.cli.rewriting import add_new_file, list_inputs
from mmort.cli.terminal import UsageError
from mmort.tables import lay_out

if TYPE_CHECKING:
    from mmort.evaluate import Dataset

HELP = "let the layers of an ONNX file compute with 8-bit integers, which are faster on a CPU"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_new_file(parser)
    parser.add_argument(
        "--calibrate",
        required=True,
        nargs="+",
        metavar="IMAGE|FOLDER|GLOB",
        help="some tens of typical images, folders of them or patterns in quotes, preprocessed as the metadata of "
        "MODEL.onnx says; or .npz files of arrays by the names of the inputs",
    )
    parser.add_argument(
        "--max-loss",
        type=share,
        default=0.1,
        metavar="SHARE",
        help="how far results may move, from 0 to 1: layers whose integers cost most stay in floating point until "
        "the calibration's do not move more (default: %(default)s)",
    )
    datasets.add_arguments(parser.add_argument_group("a data set, for the AP before and after"))


def run(arguments: argparse.Namespace) -> None:
    """Quantize a model, and print how much of it."""
    import mmort.onnx
    from mmort.detect.export.progress import Steps
    from mmort.predict.output import count_text

    check_new_models(arguments.output, force=arguments.force)
    dataset = _dataset(arguments)
    files = list_inputs("--calibrate", arguments.calibrate)
    inputs = mmort.onnx.read_inputs(arguments.model, files)
    with Steps(partial(print, flush=True)) as steps:
        steps.begin(f"calibrating with {count_text(len(files), 'file')}")
        result = mmort.onnx.quantize(
            arguments.model, arguments.output, inputs, max_loss=arguments.max_loss, force=arguments.force
        )
    print(result)
    print_written(arguments.output)
    if dataset is not None:
        _compare(arguments, dataset)


def _dataset(arguments: argparse.Namespace) -> Dataset | None:
    """Open the data set that both files are measured on, before hours of work."""
    if arguments.ann is None:
        if arguments.img_dir is not None or arguments.data_root is not None:
            raise UsageError("--img-dir and --data-root are for a data set, which --ann names")
        return None
    try:
        from mmort.contract import DETECTION
        from mmort.predict import OnnxRuntime
        from mmort.predict.engines.network import task_of
    except ModuleNotFoundError as error:
        raise ImportError(f"mmort quantize --ann needs {error.name}: pip install 'mmort[evaluate]'") from None
    network = OnnxRuntime(arguments.model)
    if task_of(network) is not DETECTION:
        raise UsageError(
            f"--ann is for detectors, got a file of {task_of(network).name}: mmort parity {arguments.model} "
            f"{arguments.output} CONFIG.py measures both files on the config's data set"
        )
    return datasets.dataset(arguments, None, network.classes)


def _compare(arguments: argparse.Namespace, dataset: Dataset) -> None:
    """Print the figures of both files."""
    from mmort.evaluate.parity import compare_models
    from mmort.predict import Predictor

    files = {"before": arguments.model, "after": arguments.output}
    models = {name: Predictor(file, score_threshold=0).predict for name, file in files.items()}
    parity = compare_models(dataset, models, [dataset.metric_names[0]], progress=not arguments.quiet)
    print(lay_out([("", *files, "difference"), *parity.rows()]))
