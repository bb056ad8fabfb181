"""Run a command of mmort inside this process, and check how it ends."""

import contextlib
import io
import os
import signal
import warnings
from pathlib import Path
from typing import Any

# What commands import, so that it counts for no case.
import faster_coco_eval
import numpy as np
import onnx
import onnxruntime
import torch
import tqdm

import mmort
import mmort.cli
import mmort.configs
import mmort.detect.export
import mmort.evaluate
import mmort.onnx
from mmort.images import opencv, write_image
from tests.onnx import foreign
from tests.predict import tiny_detector

IMPORTED = faster_coco_eval, onnx, onnxruntime, torch, tqdm
MAX_WAIT = 20
"""Seconds after which a command hangs."""

MAX_LINE = 25_000
"""Characters of a line beside those of the arguments, which may be escaped."""


class CommandError(BaseException):
    """A command that ended in another way than with a result or a line."""


class RefusedError(Exception):
    """A command that ended with a line."""


class UsageError(RefusedError):
    """A command line that is none."""


def prepare() -> None:
    """Let libraries use one thread, and be silent."""
    opencv().setNumThreads(1)
    torch.set_num_threads(1)
    mmort.set_num_threads(1)


def write_files(folder: Path) -> None:
    """Write valid models, images, a config, data sets, arrays, a layout and texts."""
    tiny_detector.write(folder / "model.onnx", shape=(1, 3, 16, 32))
    tiny_detector.write(folder / "other.onnx", shape=(1, 3, 16, 32))
    rows = np.repeat([[20.0, 30.0, 20.0, 30.0, 0.5, 0.1, 0.1]], 4, 0).T
    foreign.write(folder / "foreign.onnx", {"output0": rows}, metadata=foreign.ultralytics())
    (folder / "layout.json").write_text('{"box_format": "cxcywh", "preprocessing": {"divide": true}}')
    (folder / "data.yaml").write_text("val: images\nnames: [a, b]\n")
    (folder / "texts.json").write_text('{"text": "a cat", "tokens_positive": [[[0, 5]]]}')
    (folder / "images").mkdir()
    for name in "ab":
        write_image(folder / "images" / f"{name}.png", np.full((20, 30, 3), 90, np.uint8))
    (folder / "config.py").write_text("test_pipeline = [dict(type='LoadImageFromFile'), dict(type='Collect')]\n")
    (folder / "annotations.json").write_text(
        '{"images": [{"id": 1, "file_name": "a.png"}], "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], '
        '"annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 9], "area": 81}]}'
    )
    np.savez(folder / "inputs.npz", image=np.zeros((1, 3, 16, 32), np.float32))
    (folder / "repository").mkdir()
    (folder / "checkpoint.pth").write_bytes(b"x")


def run(folder: Path, arguments: list[str]) -> None:
    """Run a command in a folder; raise RefusedError if it ends with a line, and CommandError if it does otherwise."""

    def hang(*ignored: Any) -> None:
        raise CommandError(f"hangs: {arguments}")

    os.chdir(folder)
    out, err = io.StringIO(), io.StringIO()
    signal.signal(signal.SIGALRM, hang)
    signal.alarm(MAX_WAIT)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code: Any = mmort.cli.main(arguments)
    except SystemExit as usage:
        code = usage.code
        if code == 0 or (code == 2 and ": error: " in err.getvalue()):
            raise UsageError from None
    finally:
        signal.alarm(0)
        mmort.set_num_threads(1)
    lines = err.getvalue().splitlines()
    if "\x1b" in out.getvalue() + err.getvalue():
        raise CommandError(f"controls the terminal: {arguments}")
    verbose = {"-v", "--verbose"} & {*arguments}
    if any(len(line) > MAX_LINE + 6 * sum(map(len, arguments)) for line in lines):
        raise CommandError(f"a line of {max(map(len, lines))} characters: {arguments}")
    if code not in (0, 1, 2) or any("did not foresee" in line for line in lines):
        raise CommandError(f"code {code} of {arguments}: {lines[-1:]}")
    if not verbose and any("Traceback" in line for line in lines):
        raise CommandError(f"a traceback of {arguments}: {lines[-1:]}")
    messages = [line for line in lines if not line.startswith("  ")]  # --check lists problems below its message
    if code and not "".join(messages[-1:]).startswith("mmort: error: "):
        raise CommandError(f"code {code} of {arguments} without a line: {lines[-1:]}")
    if code:
        raise RefusedError
