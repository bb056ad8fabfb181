"""Random names of images and links in the way of outputs: each file is written inside its directory, or refused.

python -m tests.fuzz.outputs --seconds 60 [--seed N] [--count N]
"""

import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mmort._files.drafts import TEMPORARY
from mmort.images import write_image
from mmort.predict import AnnotatedImages, Detections, list_images
from tests.fuzz.children import Fuzzer, main

NAMES = (
    "a.png",
    "b.png",
    "a.PGM",
    "a.PGM.png",
    "a.jpg",
    "x",
    "\x1b[2J.png",
    "c" * 251 + ".png",
    "d" * 253 + ".",
    "\udcff.png",
)
FOLDERS = "", "in", "in/deep", "other", "linked", "out", "out/in", "in/../other", "./in"
TARGETS = "../secret", "../in", "/dev/full", "/dev/zero", "missing", ".", ".."


class EscapedError(Exception):
    """A file was written where it must not be."""


def make(rng: random.Random, folder: Path) -> Any:
    """Make folders of images, links in the directory of outputs, and a choice of images."""
    for name in ("in/deep", "other", "out/in"):
        (folder / name).mkdir(parents=True)
    (folder / "secret").write_text("secret")
    os.symlink("in", folder / "linked")
    image = folder / "image.png"
    write_image(image, np.zeros((4, 5, 3), np.uint8))
    sources = []
    for _ in range(rng.randrange(1, 5)):
        source = folder / rng.choice(FOLDERS) / rng.choice(NAMES)
        if not os.path.lexists(source):
            os.link(image, source)
        sources.append(source)
    for _ in range(rng.choice((0, 0, 1, 2))):
        place = folder / "out" / rng.choice(("", "in", "other", "deep")) / rng.choice((*NAMES, "in", "other"))
        if place.parent.is_dir() and not os.path.lexists(place):
            kind = rng.random()
            if kind < 0.6:
                os.symlink(rng.choice(TARGETS), place)
            elif kind < 0.8:
                os.mkfifo(place)
            else:
                place.mkdir()
    output = rng.choice(("out", "out", "out/new", "out/in", "in", "secret", "", "linked", "none/new", "."))
    return folder, output, sources, rng.random() < 0.5


def run(case: Any) -> None:
    """Write annotated pictures; nothing else may change."""
    folder, output, sources, is_relative = case
    os.chdir(folder)
    if is_relative:
        sources = [Path(os.path.relpath(source)) for source in sources]
    images = list_images(*sources)
    before = contents(folder)
    refused = None
    try:
        annotated = AnnotatedImages(output, images)
        for image in images:
            try:
                annotated.write(image, Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0), (), (4, 5)))
            except (OSError, ValueError) as error:
                refused = error
        targets = {os.path.realpath(annotated.path(image)) for image in images}
        if len(targets) != len(images):
            raise EscapedError("two images have the same file")
    except (OSError, ValueError) as error:
        refused, targets = error, set()
    allowed = os.path.realpath(output) + os.sep if output else ""
    for path, content in contents(folder).items():
        if before.get(path) != content and (path not in targets or not path.startswith(allowed)):
            raise EscapedError(path)
        if TEMPORARY in path:
            raise EscapedError(f"{path} is left")
    if before.keys() - contents(folder).keys():
        raise EscapedError("a file has gone")
    if refused is not None:
        raise refused


def contents(folder: Path) -> dict[str, Any]:
    """Return each file below a folder, links as what they are."""
    files: dict[str, Any] = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(os.path.realpath(root), name)
            if os.path.islink(path):
                files[path] = os.readlink(path)
            elif os.path.isfile(path):
                files[path] = (os.stat(path).st_ino, Path(path).read_bytes())
            else:
                files[path] = os.stat(path).st_mode
    return files


if __name__ == "__main__":
    sys.exit(main(Fuzzer("outputs", make, run, (ValueError, OSError), 100)))
