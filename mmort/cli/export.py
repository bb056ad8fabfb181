"""``mmort export``: a detector's config and checkpoint to an ONNX file."""

from __future__ import annotations

import argparse

HELP = "export an MMDetection detector to an ONNX file, and compare its detections with torch's before writing it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of MMDetection's pytorch2onnx.py, and further ones."""
    parser.add_argument("config", metavar="CONFIG", help="MMDetection config, 2.x or 3.x; it is read, not executed")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the .pth file that was trained with it")
    parser.add_argument("--output-file", default="tmp.onnx", help="the file to write (default: %(default)s)")
    parser.add_argument("--input-img", help="image to try the export with (default: one that comes with mmort)")
    parser.add_argument("--test-img", help="another image for --verify (default: that of --input-img)")
    parser.add_argument(
        "--shape",
        type=int,
        nargs="+",
        metavar=("H", "W"),
        help="height and width, or one number for both (default: the test pipeline's if it resizes to one size, "
        "otherwise 800 1216)",
    )
    parser.add_argument(
        "--opset-version",
        type=int,
        help="ONNX opset (default: that of torch's exporter; torch's older exporter is used below 18)",
    )
    parser.add_argument("--dynamic-export", action="store_true", help="let batch, height and width vary")
    parser.add_argument("--show", action="store_true", help="print the graph and the detections")
    parser.add_argument(
        "--verify",
        action=argparse.BooleanOptionalAction,
        help="also compare on --test-img, and print the tables; --no-verify: compare nothing, and write a file whose "
        "metadata says that it is not verified",
    )
    parser.add_argument("--simplify", action="store_true", help="remove redundant nodes with onnxslim")
    parser.add_argument("--skip-postprocess", action="store_true", help="export the heads' raw outputs")
    parser.add_argument(
        "--paste-masks",
        action="store_true",
        help="output masks of 0 and 1 over the whole input, as MMDetection's export does",
    )
    parser.add_argument(
        "--portable", action="store_true", help="make a file that also runs without mmort's ONNX Runtime library"
    )
    parser.add_argument(
        "--cfg-options", nargs="+", action="extend", metavar="KEY=VALUE", help="override the config, by dotted key"
    )
    for name in ("--dataset", "--mean", "--std"):  # accepted and ignored, as in MMDetection
        parser.add_argument(name, nargs="+", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> None:
    """Export a detector."""
    shape = arguments.shape
    if shape is not None and len(shape) > 2:
        raise ValueError(f"--shape must be one or two numbers, got {len(shape)}")
    try:
        from mmort.detect.export import export
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "onnxscript", "torch"):
            raise
        raise ImportError(f"mmort export needs {error.name}: pip install 'mmort[detect]'") from None
    export(
        arguments.config,
        arguments.checkpoint,
        arguments.output_file,
        options=arguments.cfg_options,
        input_img=arguments.input_img,
        test_img=arguments.test_img,
        shape=shape and (shape[0], shape[-1]),
        opset_version=arguments.opset_version,
        dynamic_export=arguments.dynamic_export,
        skip_postprocess=arguments.skip_postprocess,
        paste_masks=arguments.paste_masks,
        simplify=arguments.simplify,
        portable=arguments.portable,
        verify=arguments.verify,
        show=arguments.show,
    )
