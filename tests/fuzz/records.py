"""Random runs that share a record, are killed and damaged: each image has one line, and no whole line is lost.

python -m tests.fuzz.records --seconds 60 [--seed N] [--count N]
"""

import contextlib
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mmort.predict import Detections, Record
from mmort.predict.image_files import identity
from tests.fuzz import json_values
from tests.fuzz.children import Fuzzer, main

IMAGES = "in/a.png", "in/b.png", "in/deep/a.png", "in/\x1b.png", "in/\udcff.png", "in/c\n.png"
PLACES = ".", "in", "in/deep", "out"
KILLED = "open", "write", "fsync", "replace", "ftruncate"
STEPS = ("add",) * 10 + ("kill", "cut", "settings", "move", "damage", "link", "second")


class LostError(Exception):
    """A line is lost, or an image has two."""


class KilledError(BaseException):
    """Stands for the end of the process."""


def make(rng: random.Random, folder: Path) -> Any:
    """Make folders; return the steps of some runs."""
    (folder / "in/deep").mkdir(parents=True)
    os.symlink("in", folder / "linked")
    steps: list[Any] = []
    for _ in range(rng.randrange(1, 12)):
        step = rng.choice(STEPS)
        document = json_values.text(rng, json_values.mutated(rng, {"model": "x", "windows": ["x"]}, rng.randrange(3)))
        steps.append((step, rng.choice(IMAGES), rng.choice(PLACES), rng.random(), rng.choice(KILLED), document))
    return folder, steps


def run(case: Any) -> None:
    """Run the steps; a run may be refused, and then changes nothing."""
    folder, steps = case
    refused: Exception | None = None
    for step, image, place, share, call, document in steps:
        os.chdir(folder / place) if (folder / place).is_dir() else os.chdir(folder)
        lines = folder / "out/detections.jsonl"
        before = whole_lines(lines)
        changed = False
        try:
            if step in ("add", "kill", "second", "settings"):
                with killed(call if step == "kill" else None):
                    add(
                        folder,
                        image,
                        share,
                        {"model": "y" if step == "settings" and share < 0.5 else "x"},
                        step == "second",
                    )
            elif step == "cut" and lines.is_file():
                data = lines.read_bytes()
                lines.write_bytes(data[: int(share * len(data))])
                changed = True
            elif step == "damage" and (folder / "out").is_dir():
                (folder / "out/run.json").write_bytes(document.encode("utf-8", "surrogatepass"))
            elif step == "link" and not lines.exists() and (folder / "out").is_dir():
                os.symlink("/dev/full" if share < 0.5 else "../in/x", lines)
                changed = True
            elif step == "move" and share < 0.2 and (folder / "out").is_dir():
                os.chdir(folder)
        except (OSError, ValueError) as error:
            refused = error
        except KilledError:
            pass
        after = whole_lines(lines)
        if not changed and after[: len(before)] != before:
            raise LostError(f"{step}: {before} became {after}")
        check_lines(folder, after)
    if refused is not None:
        raise refused


def add(folder: Path, image: str, share: float, settings: dict[str, str], twice: bool) -> None:
    """Run over an image, by one of its paths."""
    name = image.replace("in/", "linked/", 1) if share < 0.3 else image
    path = folder / name if share < 0.6 else Path(os.path.relpath(folder / name))
    with contextlib.closing(Record(folder / "out", settings)) as record:
        if twice:
            with contextlib.suppress(ValueError):
                Record(folder / "out", settings)
                raise LostError("two runs have the same record")
        record.add(path, Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0), (), (4, 5)))
        if path not in record:
            raise LostError("an image is not recorded")
    json.loads((folder / "out/run.json").read_bytes())


def whole_lines(path: Path) -> list[bytes]:
    """Return the whole lines of a record."""
    if not path.is_file():
        return []
    data = path.read_bytes()
    return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)


def check_lines(folder: Path, lines: list[bytes]) -> None:
    """Assert that each image has one line, in JSON without lone surrogates."""
    images = []
    for line in lines:
        entry = json.loads(line)
        entry["image"].encode()
        images.append(identity(folder / entry["image"]))
    base = os.path.realpath(folder)
    seen = {image for image in images if image.startswith(base)}
    if len(seen) != len([image for image in images if image.startswith(base)]):
        raise LostError(f"an image has two lines: {images}")


@contextlib.contextmanager
def killed(call: str | None) -> Any:
    """Let a call of the system end the run."""
    if call is None:
        yield
        return
    original = getattr(os, call)

    def kill(*arguments: Any, **options: Any) -> None:
        if call == "write" and isinstance(arguments[1], bytes):
            original(arguments[0], arguments[1][: len(arguments[1]) // 2])
        raise KilledError

    setattr(os, call, kill)
    try:
        yield
    finally:
        setattr(os, call, original)


if __name__ == "__main__":
    sys.exit(main(Fuzzer("records", make, run, (ValueError, OSError), 100)))
