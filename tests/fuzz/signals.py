"""SIGTERM, SIGINT and SIGKILL at random times of commands: nothing is left behind, and nothing that is half written.

python -m tests.fuzz.signals --seconds 60 [--seed N] [--count N]

Half of the signals come after a random time, and half at a random change of a file.  What SIGKILL leaves is gone after
the next write in the same directory.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import onnx
import torch

import mmort.cli
from mmort._files.drafts import temporary_folder
from mmort._files.outputs import write_output
from mmort.images import read_image
from tests.fuzz import commands, exports
from tests.fuzz.children import Fuzzer, main, parser
from tests.onnx.test_quantize import detector

HEAD = "YOLOFHead"
SCENES = "model.onnx", "--ann", "annotations.json", "--img-dir", "images"
CALLS = (
    ["predict", "model.onnx", "images", "-o", "out", "--show-dir", "show"],
    ["predict", "model.onnx", "clip.avi", "-o", "out", "--show-dir", "show"],
    ["test", "model.onnx", "--ann", "annotations.json", "--img-dir", "images", "--eval", "bbox", "--metrics-json", "m"],
    [
        "test",
        "model.onnx",
        "--ann",
        "annotations.json",
        "--img-dir",
        "images",
        "--out",
        "out.pkl",
        "--show-dir",
        "show",
    ],
    ["quantize", "layers.onnx", "-o", "out.onnx", "--calibrate", "arrays"],
    ["parity", "model.onnx", "other.onnx", "images", "--report", "out.html"],
    ["adopt", "foreign.onnx", "-o", "out.onnx", "--layout", "layout.json"],
    ["portable", "model.onnx", "-o", "out.onnx"],
)
EXPORTS = (
    ["export", "detector.json", "checkpoint.pth", "-o", "out.onnx", "--input-img", "images/a.png", "--shape", "64"],
    ["parity", "detector.json", "checkpoint.pth", "-o", "out.onnx", "--report", "out.html"],
)
"""Commands that take seconds, one in thirty."""

SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGKILL
CODES = {signal.SIGTERM: mmort.cli.TERMINATED, signal.SIGINT: mmort.cli.INTERRUPTED}
MAX_SECONDS = 10.0
"""After a signal, on a busy machine; a second of it may be a run of ONNX Runtime."""

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree", "fcntl.flock"}
"""Events of Python's audit that change a file or begin to; besides files that are opened to be written."""


class Course(NamedTuple):
    """A command that nothing disturbs: its seconds, its changes of files, and the content of what it writes."""

    seconds: float
    events: int
    files: dict[str, bytes]


class Case(NamedTuple):
    """A folder, a command, a signal and when it comes: after seconds, or at the number of a change."""

    folder: Path
    arguments: list[str]
    signal: signal.Signals
    seconds: float | None
    event: int | None


def write_files(folder: Path) -> None:
    """Write what the commands read, and a folder for temporary files."""
    commands.write_files(folder)
    (folder / "repository").rmdir()
    writer = cv2.VideoWriter(os.fspath(folder / "clip.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 5, (64, 48))
    for number in range(12):
        writer.write(np.full((48, 64, 3), 20 * number, np.uint8))
    writer.release()
    (folder / "detector.json").write_text(json.dumps(exports.config(HEAD)))
    torch.save({"state_dict": exports.weights(HEAD), "meta": {"classes": ["a", "b"]}}, folder / "checkpoint.pth")
    layers = detector(np.random.default_rng(0))
    (folder / "layers.onnx").write_bytes(layers.SerializeToString())
    (folder / "arrays").mkdir()
    np.savez(folder / "arrays" / "x.npz", x=np.random.default_rng(1).normal(0, 1, (1, 3, 32, 32)).astype(np.float32))
    (folder / "temporary").mkdir()


def child(folder: Path, arguments: list[str], disturb: Callable[[], None]) -> int:
    """Run a command in a process of its own, whose errors are in the folder's file ``lines``; return its id."""
    process = os.fork()
    if process:
        return process
    code = 99
    try:
        os.chdir(folder)
        tempfile.tempdir = os.environ["TMPDIR"] = os.fspath(folder / "temporary")
        for descriptor, name in ((1, os.devnull), (2, "lines")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        disturb()
        code = mmort.cli.main(arguments)
    except KeyboardInterrupt:  # before the command has begun, or after it has ended
        code = mmort.cli.INTERRUPTED
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def at_changes(act: Callable[[int], None]) -> None:
    """Call a function before each change of a file by this process, with its number."""
    number = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal number
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in CHANGES or writes:
            number += 1
            act(number)

    sys.addaudithook(hook)


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files below a folder and their content, and folders with none."""
    for path in sorted(folder.rglob("*")):
        if path.name != "lines":
            yield path.relative_to(folder).as_posix(), path.read_bytes() if path.is_file() else b""


def course(arguments: list[str]) -> Course:
    """Run a command undisturbed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        inputs, counted = dict(contents(folder)), folder / "lines.count"

        def count(number: int) -> None:
            os.pwrite(descriptor, number.to_bytes(8, "little"), 0)

        descriptor = os.open(counted, os.O_RDWR | os.O_CREAT)
        begin = time.monotonic()
        _, status = os.waitpid(child(folder, arguments, lambda: at_changes(count)), 0)
        seconds = time.monotonic() - begin
        events = int.from_bytes(os.pread(descriptor, 8, 0), "little")
        os.close(descriptor)
        counted.unlink()
        assert os.waitstatus_to_exitcode(status) in (0, 1), (arguments, (folder / "lines").read_text())
        files = {path: content for path, content in contents(folder) if path not in inputs}
        assert files, arguments
        return Course(seconds, events, files)


COURSES = {
    tuple(EXPORTS[0]): Course(15, 15, {"out.onnx": b""}),
    tuple(EXPORTS[1]): Course(30, 25, {"out.onnx": b"", "out.html": b""}),
}
"""Of commands that take seconds, about."""


def make(rng: random.Random, folder: Path) -> Case:
    """Write the files of a command, and choose a signal."""
    write_files(folder)
    arguments = rng.choice(EXPORTS if rng.random() < 1 / 30 else CALLS)
    undisturbed = COURSES[tuple(arguments)]
    at_time = rng.random() < 0.5
    return Case(
        folder,
        arguments,
        rng.choice(SIGNALS),
        rng.uniform(0, 1.1 * undisturbed.seconds) if at_time else None,
        None if at_time else rng.randint(1, undisturbed.events),
    )


def run(case: Case) -> None:
    """Send the signal, and check what the command leaves."""
    inputs = dict(contents(case.folder))

    def disturb() -> None:
        if case.event is not None:
            at_changes(lambda number: os.kill(os.getpid(), case.signal) if number == case.event else None)

    begin = time.monotonic()
    process = child(case.folder, case.arguments, disturb)
    status = None
    if case.seconds is not None:
        while time.monotonic() < begin + case.seconds and status is None:
            ended, status_now = os.waitpid(process, os.WNOHANG)
            status = status_now if ended else None
            time.sleep(0.002)
        if status is None:
            begin = time.monotonic()
            os.kill(process, case.signal)
    if status is None:
        _, status = os.waitpid(process, 0)
        assert case.seconds is None or time.monotonic() - begin < MAX_SECONDS, f"{time.monotonic() - begin:.1f} s"
    code = os.waitstatus_to_exitcode(status)
    lines = (case.folder / "lines").read_text() if (case.folder / "lines").exists() else ""
    ends = {0, 1, CODES.get(case.signal, 0)}
    assert code in ends | {-case.signal}, (code, lines)  # before the command has begun, or after it has ended
    swallowed = "Exception ignored in: <function" in lines  # by Python, in a callback of its own
    assert swallowed or "Traceback" not in lines, lines
    if case.signal == signal.SIGKILL:
        write_next(case.folder)
    after = dict(contents(case.folder))
    after = {path: content for path, content in after.items() if "torchinductor_" not in path}  # torch's cache
    left = [path for path in after if ".mmort" in path or path.startswith("temporary/")]
    assert not left, left
    assert inputs.items() <= after.items()
    for path, content in after.items():
        if path not in inputs and Path(path).name != "next":
            require_whole(case, path, content)


def write_next(folder: Path) -> None:
    """Write into all directories, in another process, as the next command does."""
    process = os.fork()
    if not process:
        tempfile.tempdir = os.fspath(folder / "temporary")
        with temporary_folder():
            pass
        for directory in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            if ".mmort" not in os.fspath(directory.relative_to(folder)) and directory.name != "temporary":
                write_output(directory / "next", b"")
        os._exit(0)
    assert os.waitpid(process, 0)[1] == 0


def require_whole(case: Case, path: str, content: bytes) -> None:
    """Raise AssertionError if a file is not what the command writes in the end, or the first lines of it."""
    expected = COURSES[tuple(case.arguments)].files
    assert path in expected, path
    name = Path(path).name
    if content == expected[path]:
        return
    if name == "detections.jsonl":
        whole = content[: content.rfind(b"\n") + 1]
        assert expected[path].startswith(whole), content
        assert whole == content or case.signal == signal.SIGKILL, content
    elif name == "run.json":
        assert json.loads(content).keys() == json.loads(expected[path]).keys()
    elif name.endswith(".onnx"):
        onnx.checker.check_model(onnx.load_from_string(content))
        assert len(content) > 0.9 * len(expected[path]), (len(content), len(expected[path]))
    elif name.endswith(".html"):
        assert content.rstrip().endswith(b"</html>")
    elif name.endswith((".png", ".jpg")):
        read_image(case.folder / path)
    elif name.endswith(".mp4"):
        assert abs(len(content) - len(expected[path])) < 100
    elif name == "m":
        assert json.loads(content).keys() == json.loads(expected[path]).keys()
    else:
        raise AssertionError(f"{path}: {len(content)} bytes, not {len(expected[path])}")


if __name__ == "__main__":
    commands.prepare()
    COURSES |= {tuple(call): course(call) for call in CALLS}
    sys.exit(main(Fuzzer("signals", make, run, (), 25), parser(__doc__).parse_args()))
