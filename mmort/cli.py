"""The command line: maps commands onto plain functions, and their errors onto one line and an exit code."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mmort import info
from mmort.tables import lay_out


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code: 1 for an error, or for what the command itself calls a failure."""
    arguments = _parser().parse_args(argv)
    try:
        failure = arguments.command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # of a reader who has seen enough, such as head; what is left must not be flushed at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ImportError, OSError, ValueError) as error:
        print(f"mmort: error: {error}", file=sys.stderr)
        return 1
    if failure:
        print(f"mmort: error: {failure}", file=sys.stderr)
    return 1 if failure else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("mmort", description="Detection operators for numpy and ONNX Runtime.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    text = "print versions, operators, SIMD level, threads and where the ONNX Runtime library is"
    command = commands.add_parser("info", help=text, description=text)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_info)

    text = "run a Mask R-CNN exported by MMDetection on images of handwritten digits, and draw what it finds"
    command = commands.add_parser("demo", help=text, description=text)
    command.add_argument(
        "images", nargs="*", metavar="IMAGE", help="image files (default: images that come with mmort)"
    )
    command.add_argument("--output", default="demo.png", type=_png, help="the picture to write (default: %(default)s)")
    command.add_argument(
        "--score-threshold", default=0.3, type=_score, help="draw detections that score higher (default: %(default)s)"
    )
    command.set_defaults(command=_demo)

    _add_export(commands)

    text = "run an ONNX file and what it is to equal on the same inputs; exit code 1 if an output differs"
    command = commands.add_parser("verify", help=text, description=text)
    command.add_argument("model", metavar="MODEL.onnx", help="the file")
    command.add_argument(
        "--against",
        required=True,
        metavar="OTHER",
        help="another ONNX file, or script.py:function; the function returns a torch model, or a model and its inputs",
    )
    command.add_argument(
        "--sizes",
        type=_sizes,
        metavar="SIZES",
        help="sets of random inputs, 2x3x64x96,1x3x50x40; of several inputs 1x3x64x96+1x2,2x3x64x96+2x2",
    )
    command.add_argument("--rtol", type=float, default=1e-3, help="relative tolerance (default: %(default)s)")
    command.add_argument("--atol", type=float, default=1e-4, help="absolute tolerance (default: %(default)s)")
    command.add_argument(
        "--library", action="append", default=[], help="a further library of custom operators; may be repeated"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_verify)

    text = "bring an old model up to date: opset, attributes, domains and weights as they are written today"
    _add_rewriter(commands, "upgrade", text, _upgrade)

    text = "add definitions in standard operators to a model, so that it runs without mmort's library, too"
    _add_rewriter(commands, "portable", text, _portable)
    return parser


def _add_export(commands: Any) -> None:
    """Add the command with the arguments of MMDetection's pytorch2onnx.py, and what that had not."""
    text = "export a detector of MMDetection to an ONNX file, after proving that it detects the same"
    command = commands.add_parser("export", help=text, description=text)
    command.add_argument("config", metavar="CONFIG", help="MMDetection's config, 2.x or 3.x; it is read, not executed")
    command.add_argument("checkpoint", metavar="CHECKPOINT", help="the .pth file that was trained with it")
    command.add_argument("--output-file", default="tmp.onnx", help="the file to write (default: %(default)s)")
    command.add_argument("--input-img", help="a picture to try the export with (default: one that comes with mmort)")
    command.add_argument("--test-img", help="another picture for --verify (default: that of --input-img)")
    command.add_argument(
        "--shape",
        type=int,
        nargs="+",
        metavar=("H", "W"),
        help="height and width, or one number for both (default: 800 1216; the test pipeline's if it has but one)",
    )
    command.add_argument(
        "--opset-version", type=int, help="ONNX opset (default: the exporter's own; below 18 by torch's older exporter)"
    )
    command.add_argument("--dynamic-export", action="store_true", help="let batch, height and width vary")
    command.add_argument("--show", action="store_true", help="print the graph and what is detected")
    command.add_argument("--verify", action="store_true", help="compare on --test-img too, and print the tables")
    command.add_argument("--simplify", action="store_true", help="let onnxslim remove nodes")
    command.add_argument("--skip-postprocess", action="store_true", help="give the heads' outputs as they are")
    command.add_argument(
        "--paste-masks", action="store_true", help="give masks of 0 and 1 over the whole input, as MMDetection's export"
    )
    command.add_argument("--portable", action="store_true", help="let the file run without mmort's library, too")
    command.add_argument(
        "--cfg-options", nargs="+", action="extend", metavar="KEY=VALUE", help="values over the config's, by dotted key"
    )
    for name in ("--dataset", "--mean", "--std"):  # MMDetection ignored them, too
        command.add_argument(name, nargs="+", help=argparse.SUPPRESS)
    command.set_defaults(command=_export)


def _add_rewriter(commands: Any, name: str, text: str, function: Callable[[argparse.Namespace], str | None]) -> None:
    """Add a command that reads a model and writes another."""
    command = commands.add_parser(name, help=text, description=text)
    command.add_argument("model", metavar="MODEL.onnx", help="the model to read")
    target = command.add_mutually_exclusive_group(required=True)
    target.add_argument("--output", metavar="FILE", help="the model to write")
    target.add_argument("--in-place", action="store_true", help="replace the model's own file")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=function)


def _info(arguments: argparse.Namespace) -> None:
    facts = info.collect()
    print(json.dumps(facts, indent=2) if arguments.json else info.report(facts))


def _demo(arguments: argparse.Namespace) -> None:
    try:
        from mmort import demo  # not above: Pillow and onnxruntime are extras
    except ModuleNotFoundError as error:
        if error.name not in ("PIL", "onnxruntime"):
            raise
        raise ImportError(f"mmort demo needs {error.name}, which is not installed: pip install 'mmort[demo]'") from None
    output = Path(arguments.output)
    if output.exists() and any(output.samefile(image) for image in arguments.images if Path(image).exists()):
        raise FileExistsError(f"--output {output} is one of the images")
    demo.demo(arguments.images or demo.IMAGES, output, arguments.score_threshold)


def _export(arguments: argparse.Namespace) -> None:
    shape = arguments.shape
    if shape is not None and len(shape) > 2:
        raise ValueError(f"--shape is one number or two, got {len(shape)}")
    try:
        from mmort.detect import export  # not above: torch and OpenCV are extras
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "onnxscript", "torch"):
            raise
        raise ImportError(f"mmort export needs {error.name}: pip install 'mmort[detect]'") from None
    export.export(
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


def _verify(arguments: argparse.Namespace) -> str | None:
    from mmort.onnx import against  # not above: onnxruntime and torch are extras

    report = against.verify_against(
        arguments.model,
        arguments.against,
        arguments.sizes,
        rtol=arguments.rtol,
        atol=arguments.atol,
        libraries=arguments.library,
    )
    print(report.to_json() if arguments.json else report)
    return None if report.ok else f"{arguments.model} does not compute what {arguments.against} does"


def _sizes(value: str) -> list[list[list[int]]]:
    try:
        return [
            [[int(size) for size in shape.split("x") if size] for shape in one.split("+")] for one in value.split(",")
        ]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be shapes such as 2x3x64x96,1x3x50x40, got {value!r}") from None


def _upgrade(arguments: argparse.Namespace) -> str | None:
    from mmort import onnx  # not above: onnx is an extra

    changes = onnx.upgrade(arguments.model, arguments.output)
    if arguments.json:
        print(json.dumps({"changes": changes}, indent=2))
    else:
        print("\n".join(changes or ["nothing to do"]))
    return None


def _portable(arguments: argparse.Namespace) -> str | None:
    from mmort import onnx  # not above: onnx is an extra

    rows = onnx.make_portable(arguments.model, arguments.output)
    missing = sum(len(row.nodes) for row in rows if row.missing)
    if arguments.json:
        print(json.dumps({"operators": [asdict(row) for row in rows]}, indent=2))
    elif not rows:
        print("nothing to do: the model has none of mmort's operators")
    else:
        table = [
            (row.operator, str(len(row.nodes)), f"needs the library: {row.missing}" if row.missing else "defined")
            for row in rows
        ]
        print(lay_out(table))
    return f"{missing} node{'s' * (missing > 1)} still need{'s' * (missing == 1)} the library" if missing else None


def _png(value: str) -> str:
    if Path(value).suffix.lower() != ".png":
        raise argparse.ArgumentTypeError(f"the picture is a PNG, so its name must end in .png, got {value!r}")
    return value


def _score(value: str) -> float:
    try:
        score = float(value)
    except ValueError:
        score = -1.0
    if not 0 <= score <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, got {value!r}")
    return score
