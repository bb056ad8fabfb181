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
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for line in table:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
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
