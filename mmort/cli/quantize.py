"""``mmort quantize``: a detector's file whose layers compute with 8-bit integers."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from mmort.cli.outputs import check_new_outputs, print_written
from mmort.cli.rewriting import add_new_file

HELP = (
    "let the layers of a detector's ONNX file compute with 8-bit integers, which are faster on a CPU; measure both "
    "files with mmort test"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_new_file(parser)
    parser.add_argument(
        "--calibrate",
        required=True,
        metavar="DIR",
        help="a folder of some tens of typical pictures, preprocessed as the metadata of MODEL.onnx says, or of .npz "
        "files of arrays by the names of the inputs",
    )


def run(arguments: argparse.Namespace) -> None:
    """Quantize a model, and print how much of it."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        raise ImportError("mmort quantize needs tqdm: pip install 'mmort[predict]'") from None
    import mmort.onnx
    from mmort.predict import list_images
    from mmort.predict.image_files import SUFFIXES

    check_new_outputs(arguments.output, force=arguments.force)
    folder = Path(arguments.calibrate)
    if not os.path.isdir(arguments.calibrate):
        raise NotADirectoryError(f"no folder to calibrate with: {arguments.calibrate}")
    files = sorted(folder.glob("*.npz"))
    if files and any(file.suffix.lower() in SUFFIXES for file in folder.iterdir()):
        raise ValueError(f"--calibrate must have either pictures or .npz files, got both: {folder}")
    files = files or list_images(folder)
    inputs = mmort.onnx.read_inputs(arguments.model, files)
    sets = tqdm(inputs, total=len(files), unit="file", disable=arguments.quiet or None)
    print(mmort.onnx.quantize(arguments.model, arguments.output, sets, force=arguments.force))
    print_written(arguments.output)
