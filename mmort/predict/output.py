"""Where the results of a run over many pictures go: a record from which the run resumes, and annotated pictures."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmort.predict.detections import Detections
from mmort.predict.drawing import draw
from mmort.predict.image_files import SUFFIXES
from mmort.predict.images import read_image, write_image


class Record:
    """The results in a directory: a line of JSON for each picture, in ``detections.jsonl``.

    A run that was killed leaves whole lines, and perhaps half a line, which is dropped.  ``run.json`` holds the
    settings of the run, so that results of different runs are not mixed.

    Parameters
    ----------
    directory : path
        It is created if it does not exist.
    settings : mapping
        What the results depend on, ready for JSON.

    Attributes
    ----------
    images : set of str
        The pictures that have a line.

    Raises
    ------
    ValueError
        If the directory has results of other settings, or a line that is not a result.
    OSError
        If the files cannot be read or written.
    """

    def __init__(self, directory: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self.path = Path(directory) / "detections.jsonl"
        _refuse_file(directory)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _check_settings(self.path, settings)
        self.images = _recorded(self.path)
        self._file = self.path.open("a", encoding="utf-8")

    def add(self, image: str | os.PathLike[str], detections: Detections) -> None:
        """Write the line of a picture, which then counts as done."""
        self._file.write(to_line(image, detections) + "\n")
        self._file.flush()
        self.images.add(os.fspath(image))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def to_line(image: str | os.PathLike[str], detections: Detections) -> str:
    """Return a picture's results as JSON: its path as ``image``, and the entries of `Detections.to_dict`."""
    return json.dumps({"image": os.fspath(image), **detections.to_dict()}, allow_nan=False)


class AnnotatedPictures:
    """Annotated pictures in a directory, under the pictures' names.

    Parameters
    ----------
    directory : path
    images : sequence of path
        All pictures of the run.  If they are in several folders, so are the annotated ones.

    Raises
    ------
    ValueError
        If an annotated picture would replace one of the pictures.
    OSError
        If the directory is a file.
    """

    def __init__(self, directory: str | os.PathLike[str], images: Sequence[Path]) -> None:
        _refuse_file(directory)
        folders = {path.parent.absolute() for path in images}
        self._base, self._directory = os.path.commonpath(folders), Path(directory)
        replaced = {path.resolve() for path in images} & {self.path(path).resolve() for path in images}
        if replaced:
            raise ValueError(f"the annotated picture of {min(replaced)} would replace it; do not write to {directory}")

    def path(self, image: Path) -> Path:
        """Return the file of a picture: of the same format, if OpenCV writes colours in it, and otherwise PNG."""
        target = self._directory / image.absolute().relative_to(self._base)
        writable = image.suffix.lower() in SUFFIXES and image.suffix.lower() != ".pgm"
        return target if writable else target.with_name(f"{target.name}.png")

    def write(self, image: Path, detections: Detections) -> None:
        """Draw the detections on a picture, and write it."""
        target = self.path(image)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".unfinished-{target.name}")
        write_image(unfinished, draw(read_image(image), detections))
        unfinished.replace(target)


def _refuse_file(directory: str | os.PathLike[str]) -> None:
    """Refuse a file as the directory for results, or as a directory above it."""
    for path in (Path(directory), *Path(directory).parents):
        if path.is_file():
            raise NotADirectoryError(f"output directory must not be a file, got {path}")


def _check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Compare the settings with those of the run that began the record, or write them."""
    file = path.with_name("run.json")
    if not file.exists() and not path.exists():
        file.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        return
    try:
        before = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = None
    wanted = json.loads(json.dumps(settings))
    changed = [name for name in wanted if not isinstance(before, dict) or before.get(name) != wanted[name]]
    if changed:
        raise ValueError(
            f"{path} is of a run with another {' and '.join(changed)}; give another directory, or delete the file"
        )


def _recorded(path: Path) -> set[str]:
    """Return the pictures of a record; half a line at its end is removed."""
    if not path.exists():
        return set()
    with path.open("rb+") as file:
        images, end = set(), 0
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                file.truncate(end)
                break
            try:
                images.add(json.loads(line)["image"])
            except (KeyError, TypeError, ValueError):
                raise ValueError(f"{path}, line {number}: not a picture's results; delete the file") from None
            end += len(line)
    return images
