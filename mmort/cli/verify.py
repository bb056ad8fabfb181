"""``mmort verify``: compare the outputs of an ONNX file with those of another file or a model."""

from __future__ import annotations

import argparse

from mmort.cli.option_types import sets_of_sizes, share
from mmort.tolerances import Tolerances

HELP = (
    "run an ONNX file and its reference on the same inputs, and compare the outputs; exit code 1 if one differs, 2 if "
    "they cannot be compared"
)
ERROR_CODE = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("model", metavar="MODEL.onnx", help="the file to verify")
    parser.add_argument(
        "--against",
        required=True,
        metavar="REFERENCE",
        help="another ONNX file, or script.py:function; the function returns a torch model, or a model and its inputs",
    )
    inputs = parser.add_mutually_exclusive_group()
    inputs.add_argument(
        "--inputs", action="append", metavar="FILE.npz", help="arrays by the names of the inputs; may be repeated"
    )
    inputs.add_argument(
        "--image",
        action="append",
        metavar="IMAGE",
        help="an image, preprocessed as the metadata of MODEL.onnx says; may be repeated "
        "(default for two files whose inputs have no fixed size: one that comes with mmort)",
    )
    inputs.add_argument(
        "--sizes",
        type=sets_of_sizes,
        metavar="SIZES",
        help="shapes of random inputs, such as 2x3x64x96,1x3x50x40 for two runs; a model with two inputs takes "
        "1x3x64x96+1x2,2x3x64x96+2x2",
    )
    parser.add_argument("--rtol", type=float, help=f"relative tolerance (default: {Tolerances.rtol:g})")
    parser.add_argument("--atol", type=float, help=f"absolute tolerance (default: {Tolerances.atol:g})")
    parser.add_argument(
        "--min-mask-overlap",
        type=share,
        default=Tolerances.min_mask_overlap,
        help="smallest overlap of the masks of matching detections (default: %(default)s)",
    )
    parser.add_argument(
        "--library", action="append", default=[], help="another library of custom operators; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> str | None:
    """Compare the outputs, and print the report."""
    from mmort.demo import IMAGES
    from mmort.onnx.verify.command import verify_against

    report = verify_against(
        arguments.model,
        arguments.against,
        arguments.sizes,
        inputs=arguments.inputs or arguments.image,
        rtol=arguments.rtol,
        atol=arguments.atol,
        min_mask_overlap=arguments.min_mask_overlap,
        libraries=arguments.library,
        example_image=IMAGES[0],
    )
    print(report.to_json() if arguments.json else report)
    if report.proves_nothing:
        raise ValueError("verify: no detections but ties, which proves nothing; pass images of objects to --image")
    return None if report.ok else f"the outputs of {arguments.model} differ from those of {arguments.against}"
