"""Layouts, metadata and configs of other exporters, of which `mmort adopt` makes a file: a result, or one line.

python -m tests.fuzz.layouts --seconds 60 [--seed N] [--count N]
"""

import copy
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from tests.fuzz import commands, json_values
from tests.fuzz.children import Fuzzer, main
from tests.fuzz.foreign_files import ENTRIES, KINDS
from tests.onnx.foreign import HEIGHT, WIDTH, write

LENGTHS = 1, 3, 33, 1000, 30_000, 200_000, 2**20
LAYOUT = {
    "boxes": "output0[:4]",
    "box_format": "cxcywh",
    "scores": "output0[4:7]",
    "mask_format": {"area": "image", "stride": 4, "threshold": 0.5},
    "strides": [8, 16, 32],
    "iou_threshold": 0.5,
    "max_detections": 100,
    "classes": ["a", "b", "c"],
    "preprocessing": {"size": [WIDTH, HEIGHT], "mean": [0, 0, 0], "padding": {"size_divisor": 32, "value": 114}},
}
PREPROCESSOR = {
    "do_resize": True,
    "size": {"height": HEIGHT, "width": WIDTH},
    "do_rescale": True,
    "rescale_factor": 0.00392,
    "do_normalize": True,
    "image_mean": [0.4, 0.4, 0.4],
    "image_std": [0.2, 0.2, 0.2],
    "id2label": {"0": "a", "1": "b", "2": "c"},
}


def long_text(rng: random.Random) -> str:
    """Return a text that names outputs and columns again and again, or nests brackets."""
    part = rng.choice(
        ("output0", "output0[:4]", "output0[0:99999999]", "[", "]", ":", "x", "9", "\x1b", "\u202e", "\n")
    )
    return rng.choice(("", " + ", "+", " ", ",")).join([part] * rng.choice(LENGTHS[:6]))


def literal(rng: random.Random) -> str:
    """Return a text in Python's notation: names or sizes, or what takes its parser long."""
    count = rng.choice(LENGTHS)
    return rng.choice(
        (
            lambda: repr({label: "n" * rng.choice((1, 5)) for label in range(min(count, 30_000))}),
            lambda: repr([rng.choice((0, 32, 64, -1, 2**40, 10**300))] * min(count, 30_000)),
            lambda: repr(json_values.value(rng, 3)),
            lambda: "[" * count + "]" * rng.choice((count, 0)),
            lambda: "-" * count + "1",
            lambda: "1" + "+1" * count,
            lambda: "0x" + "f" * count,
            lambda: "9" * count,
            lambda: "{0: " + "'a'" * count + "}",
            lambda: "{" + ",".join(["0:0"] * min(count, 30_000)) + "}",
            lambda: "{0: '\\x1b[31m', 1: '\\u202e\\n', 2: '\\ud800'}",
            lambda: "__import__('os').system('true')",
            lambda: "{0: b'x', 1: ..., 2: 1j}",
            lambda: "{0: f'{1}', 1: '\\d', 2: 'c'}",
            lambda: "(" * count,
            lambda: "\0",
            lambda: "'" + "\\" * count,
            lambda: "{0: 'a', 1: 'b', 2: 'c'}"[: rng.randrange(25)],
        )
    )()


def layout(rng: random.Random) -> Any:
    """Return a layout, most of whose entries suit some file."""
    drawn: Any = {name: value for name, value in copy.deepcopy(LAYOUT).items() if rng.random() < 0.3}
    for name in rng.sample(list(ENTRIES), rng.choice((0, 1, 2, 4))):
        drawn[name] = rng.choice(ENTRIES[name])
    drawn = json_values.mutated(rng, drawn, rng.choice((0, 0, 1, 1, 2, 4)))
    if isinstance(drawn, dict) and rng.random() < 0.3:
        name = rng.choice((*LAYOUT, "labels", "masks", "keypoints", "", "x" * 500))
        drawn[name] = rng.choice((long_text(rng), [long_text(rng)] * 3, ["output0"] * 40, 10 ** rng.choice((20, 400))))
    if isinstance(drawn, dict) and rng.random() < 0.1:
        drawn["classes"] = ["c" * rng.choice((1, 100))] * rng.choice(LENGTHS[:5])
    return drawn


def make(rng: random.Random, folder: Path) -> tuple[Path, list[str]]:
    """Write a file, and what is said of it; return a folder and a command line."""
    arguments = rng.choice(KINDS)(np.random.default_rng(rng.randrange(2**32)), rng.random() < 0.5)
    metadata = arguments.get("metadata")
    if metadata is not None:
        for name in rng.sample(list(metadata), rng.choice((0, 1, 1, 2))):
            metadata[name] = literal(rng).encode("utf-8", "replace").decode()
    write(folder / "model.onnx", **arguments)
    command = ["adopt", "model.onnx", "-o", "out.onnx"]
    if rng.random() < 0.7:
        text = json_values.text(rng, layout(rng))
        (folder / "layout.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        command += ["--layout", "layout.json"]
    if rng.random() < 0.2:
        text = json_values.text(rng, json_values.mutated(rng, PREPROCESSOR, rng.choice((0, 1, 2, 4))))
        (folder / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        command += ["--config", "config.json"]
    if rng.random() < 0.2:
        entry = rng.choice((*ENTRIES, "preprocessing.size", "mask_format.stride", "a.b.c"))
        value = rng.choice((literal(rng)[:10_000], long_text(rng)[:10_000], "0.5", "null", "[64,96]"))
        command += ["--set", f"{entry}={value}".replace("\0", "0")]
    return folder, command


def run(case: tuple[Path, list[str]]) -> None:
    """Adopt the file, and detect in an image by it; what is refused leaves nothing."""
    folder, command = case
    try:
        commands.run(folder, command)
    except commands.RefusedError:
        left = {path.name for path in folder.iterdir()} - {"model.onnx", "layout.json", "config.json"}
        assert not left, left
        raise
    (folder / "image.ppm").write_bytes(b"P6 30 20 255\n" + bytes(range(200)) * 9)
    commands.run(folder, ["predict", "out.onnx", "image.ppm", "--json"])


if __name__ == "__main__":
    commands.prepare()
    onnxruntime.set_default_logger_severity(4)
    sys.exit(main(Fuzzer("layouts", make, run, (commands.RefusedError,), 50)))
