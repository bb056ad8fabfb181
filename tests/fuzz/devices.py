"""Pipes, devices, directories, loops and broken files in the place of each file of a command: one line, and no hang.

python -m tests.fuzz.devices --seconds 60 [--seed N] [--count N]
"""

import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import commands
from tests.fuzz.children import Fuzzer, main
from tests.fuzz.options import VALID

SUFFIXES = "", ".png", ".tif", ".onnx", ".py", ".json", ".npz", ".pth", ".pkl", ".txt", ".yaml"
OUTPUTS = (
    ["test", "model.onnx", "--ann", "annotations.json", "--img-dir", "images", "--eval", "bbox", "--metrics-json", "m"],
    ["test", "model.onnx", "--ann", "annotations.json", "--img-dir", "images", "--show-dir", "show"],
    ["test", "model.onnx", "--ann", "set.txt", "--img-dir", ".", "--eval", "recall"],
    ["predict", "model.onnx", "images", "--config", "config.py"],
    ["verify", "model.onnx", "--against", "model.onnx", "--image", "images/a.png"],
    ["verify", "model.onnx", "--against", "model.onnx", "--library", "lib.so"],
    ["export", "config.py", "checkpoint.pth", "--output-file", "out.onnx"],
    ["demo", "--output", "out/demo"],
)
KINDS = (
    "pipe",
    "zero",
    "full",
    "null",
    "tty",
    "directory",
    "loop",
    "dangling",
    "empty",
    "random",
    "sparse",
    "long",
    "socket",
)


def make(rng: random.Random, folder: Path) -> tuple[Path, list[str]]:
    """Return a command line in which one or two files are none."""
    commands.write_files(folder)
    arguments = list(rng.choice((*VALID, *OUTPUTS)))
    places = [
        index
        for index, word in enumerate(arguments)
        if index and not word.startswith("-") and word not in ("bbox", "recall")
    ]
    for number in range(rng.choice((1, 1, 1, 2))):
        if not places:
            break
        index = rng.choice(places)
        suffix = Path(arguments[index]).suffix if rng.random() < 0.6 else rng.choice(SUFFIXES)
        kinds = [kind for kind in KINDS if arguments[0] != "demo" or kind != "directory"]  # demo would run in it
        arguments[index] = strange(rng, folder, f"strange{number}{suffix}", kinds)
    if rng.random() < 0.2:  # beside what a folder has
        strange(rng, folder / "images", f"strange{rng.choice(SUFFIXES)}", KINDS)
    return folder, arguments


def strange(rng: random.Random, folder: Path, name: str, kinds: Sequence[str]) -> str:
    """Make something that is no ordinary file; return its path."""
    path, kind = folder / name, rng.choice(kinds)
    if path.exists() or path.is_symlink():
        return str(path)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind in ("zero", "full", "null", "tty"):
        os.symlink(f"/dev/{kind}", path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "loop":
        os.symlink(name, path)
    elif kind == "dangling":
        os.symlink("missing/below", path)
    elif kind == "empty":
        path.touch()
    elif kind == "random":
        path.write_bytes(rng.randbytes(rng.choice((1, 100, 10_000))))
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(rng.choice((2**20, 2**26)))
    elif kind == "long":
        return str(folder / ("a" * rng.choice((250, 255, 256)) + name))
    elif kind == "socket":
        os.mknod(path, 0o140600)
    return os.path.relpath(path, folder) if rng.random() < 0.5 and folder.name != "images" else str(path)


if __name__ == "__main__":
    commands.prepare()
    sys.exit(main(Fuzzer("files that are none", make, lambda case: commands.run(*case), (commands.RefusedError,), 20)))
