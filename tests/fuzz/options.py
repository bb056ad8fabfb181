"""Random command lines: each gives a result, or one line.

python -m tests.fuzz.options --seconds 60 [--seed N] [--count N]
"""

import argparse
import random
import sys
from pathlib import Path

import mmort.cli
from tests.fuzz import commands
from tests.fuzz.children import Fuzzer, main

VALID = (
    ["predict", "model.onnx", "images"],
    ["predict", "model.onnx", "images/*.png", "--json", "--score-thr", "0.1"],
    ["predict", "model.onnx", "images", "--out-dir", "out", "--show-dir", "show"],
    ["predict", "model.onnx", "images", "--window", "16", "--overlap", "4"],
    ["test", "model.onnx", "--ann", "annotations.json", "--img-dir", "images", "--eval", "bbox"],
    ["test", "model.onnx", "--ann", "annotations.json", "--img-dir", "images", "--out", "out.pkl"],
    ["test", "config.py", "model.onnx", "--eval", "bbox"],
    ["test", "model.onnx", "--ann", "data.yaml", "--eval", "bbox"],
    ["test", "model.onnx", "--ann", "data.yaml", "--eval", "bbox", "--classes", "a"],
    ["info", "model.onnx"],
    ["info"],
    ["portable", "model.onnx", "--output", "out.onnx"],
    ["upgrade", "model.onnx", "--output", "out.onnx"],
    ["accelerate", "model.onnx", "-o", "out.onnx", "--input", "inputs.npz"],
    ["quantize", "model.onnx", "-o", "out.onnx", "--calibrate", "images"],
    ["verify", "model.onnx", "--against", "model.onnx"],
    ["verify", "model.onnx", "--against", "model.onnx", "--inputs", "inputs.npz"],
    ["triton-repository", "model.onnx", "repository"],
    ["export", "config.py", "--check"],
    ["export", "config.py", "checkpoint.pth", "--texts", "texts.json"],
    ["benchmark", "model.onnx", "images"],
    ["browse", "--ann", "annotations.json", "--img-dir", "images", "-o", "out"],
    ["parity", "config.py", "checkpoint.pth"],
    ["parity", "model.onnx", "other.onnx", "images"],
    ["parity", "model.onnx", "other.onnx", "--ann", "data.yaml"],
    ["adopt", "foreign.onnx", "-o", "out.onnx"],
    ["adopt", "foreign.onnx", "-o", "out.onnx", "--layout", "layout.json", "--set", "score_threshold=0.5"],
    ["completion", "bash"],
)
WORDS = (
    "",
    "0",
    "1",
    "-1",
    "2",
    "0.5",
    "1.5",
    "1025",
    "10000000",
    "2147483648",
    "9" * 400,
    "1e400",
    "nan",
    "inf",
    "x",
    "images",
    "model.onnx",
    "config.py",
    "annotations.json",
    "inputs.npz",
    "missing",
    "missing/below",
    "/",
    ".",
    "..",
    "*",
    "[",
    "~",
    "\x1b[2J",
    "\u202e",
    "\udcff",
    "a" * 300,
    "a=b",
    "=",
    "a.b.c=1",
    "model=[" + "[" * 200,
    "iou_thrs=nan",
    "proposal_nums=-1",
    "jsonfile_prefix=../out",
    "submission_dir=out",
    "classwise=True",
    "1x3x16x32",
    "[1,3,16,32]",
    "bbox",
    "segm",
    "mAP",
    "--",
    "-",
    "openvino",
    "CPUExecutionProvider",
)
LEFT_OUT = {"--web", "--show", "--version"}
"""Options that serve, or need a screen."""


def make(rng: random.Random, folder: Path) -> tuple[Path, list[str]]:
    """Return a command line."""
    commands.write_files(folder)
    arguments = list(rng.choice(VALID))
    parser = mmort.cli._parser()._subparsers._group_actions[0].choices[arguments[0]]  # type: ignore[union-attr,index]
    actions = [
        action for action in parser._actions if action.option_strings and not LEFT_OUT & {*action.option_strings}
    ]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        action = rng.choice(actions)
        arguments += [rng.choice(action.option_strings), *values(rng, action)]
    for _ in range(rng.choice((0, 0, 1, 2))):
        index = rng.randrange(1, len(arguments) + 1)
        if rng.random() < 0.3:
            del arguments[index : index + 1]
        else:
            arguments[index : index + 1] = [rng.choice(WORDS)]
    while "ray" in arguments:
        arguments.remove("ray")
    return folder, arguments


def values(rng: random.Random, action: argparse.Action) -> list[str]:
    """Return values of an option, as many as it takes or others."""
    if action.nargs == 0:
        return []
    words = [rng.choice(WORDS) for _ in range(rng.choice((1, 1, 1, 0, 2)))]
    return [str(rng.choice(list(action.choices)))] if action.choices and rng.random() < 0.7 else words


def run(case: tuple[Path, list[str]]) -> None:
    """Run a command."""
    commands.run(*case)


if __name__ == "__main__":
    commands.prepare()
    sys.exit(main(Fuzzer("command lines", make, run, (commands.RefusedError,), 20)))
