"""Data sets in YOLO's format: a ``data.yaml`` of ultralytics, folders of images, and a text file of labels for each."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mmort._files.inputs import read_text
from mmort.configs.budget import Budget
from mmort.configs.sources import parse_yaml
from mmort.evaluate.coco import CocoDataset
from mmort.evaluate.coco_format import is_path, is_text
from mmort.evaluate.dataset import DatasetWarning
from mmort.images import image_size
from mmort.predict.image_files import list_images
from mmort.predict.output import count_text

Split = Literal["train", "val", "test"]
"""The entries of ``data.yaml`` that list images."""

_TOLERANCE = 0.01
"""How far beyond the image coordinates may lie, as in ultralytics."""


class YoloDataset(CocoDataset):
    """The images and labels that a ``data.yaml`` lists under ``val``, or another of its entries.

    Labels are text files in the folder ``labels`` beside ``images``, with a line ``class cx cy width height`` for each
    object, relative to the image, or ``class x y x y ...``, a polygon.  An image without such a file has no objects.
    The figures are those of COCO's metrics; the area of an object is that of its box.

    Parameters
    ----------
    data_file : path
        The YAML file, with ``names``, ``val`` and perhaps ``path``, to which ``val`` is relative.
    classes : sequence of str, optional
        Names of the classes to evaluate.  By default all of the file.
    root : path, optional
        Instead of the file's ``path``, which is relative to the file.
    split : {"train", "val", "test"}, default "val"
        The entry that lists the images.
    skip_wrong_labels : bool, default False
        Leave out lines of labels that are not in this format, and warn of them.

    Raises
    ------
    ValueError
        If the file or a label is not in this format, or the file lacks a class.
    ImportError
        If PyYAML or OpenCV is not installed.
    OSError
        If a file cannot be opened.
    """

    def __init__(
        self,
        data_file: str | os.PathLike[str],
        classes: Sequence[str] | None = None,
        root: str | os.PathLike[str] | None = None,
        split: Split = "val",
        *,
        skip_wrong_labels: bool = False,
    ) -> None:
        if split not in get_args(Split):
            raise ValueError(f"evaluate: split must be 'train', 'val' or 'test', got {split!r}")
        path = Path(data_file)
        text = read_text("data set", path)
        try:
            entries = parse_yaml(path, text, Budget())
        except ValueError as error:
            raise ValueError(f"evaluate: {path}: {error}") from None
        if not isinstance(entries, dict):
            raise ValueError(f"evaluate: {path} must be a mapping, got {type(entries).__name__}")
        names = _names(path, entries)
        stated = entries.get("path")
        if stated is not None and not is_path(stated):
            raise ValueError(f"evaluate: path in {path} must be a path, got {stated!r:.60}")
        if split not in entries:
            raise ValueError(
                f"evaluate: {path} must have the entry {split}, which lists images; "
                f"it has {', '.join(map(str, entries))}"
            )
        images = _images(path, path.parent / (stated or "") if root is None else Path(root), split, entries[split])
        self._source, self._has_polygons = f"{split} in {path}", False
        rows: list[dict[str, Any]] = []
        objects: list[dict[str, Any]] = []
        wrong: list[str] | None = [] if skip_wrong_labels else None
        for number, image in enumerate(images):
            height, width = image_size(image)
            rows.append({"id": number, "file_name": str(image), "height": height, "width": width})
            for label, corners, is_polygon in _labels(_label_file(image), len(names), wrong):
                self._has_polygons |= is_polygon
                polygon = corners * (width, height)
                x, y = polygon.min(axis=0).tolist()
                w, h = np.ptp(polygon, axis=0).tolist()
                entry = {"id": len(objects) + 1, "image_id": number, "category_id": label, "iscrowd": 0}
                objects.append(
                    entry | {"bbox": [x, y, w, h], "area": w * h, "segmentation": [polygon.ravel().tolist()]}
                )
        if wrong:
            text = f"{path}: {count_text(len(wrong), 'line')} of labels left out, the first: {wrong[0]}"
            warnings.warn(text, DatasetWarning, stacklevel=2)
        categories = [{"id": label, "name": name} for label, name in enumerate(names)]
        annotations = {"images": rows, "annotations": objects, "categories": categories}
        self._open(annotations, path, Path(), classes, labels_by_name=True)

    def check(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse metrics and options that `score` does not have, and labels by which they cannot be measured."""
        if metrics and self.images and not self._has_objects:
            raise ValueError(
                f"evaluate: no image of {self._source} has labels, so nothing can be measured; those of "
                f"{self.images[0].path} are looked for in {_label_file(self.images[0].path)}"
            )
        if "segm" in metrics and self.images and not self._has_polygons:
            raise ValueError(f"evaluate: segm needs polygons in the labels of {self._source}, which has boxes only")
        super().check(metrics, options)


def _names(path: Path, entries: dict[str, Any]) -> list[str]:
    """Return the class names by label."""
    names = entries.get("names")
    if isinstance(names, dict):
        names = [names[label] for label in range(len(names))] if set(names) == set(range(len(names))) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, (str, int, float)) for name in names):
        raise ValueError(f"evaluate: names in {path} must be a name for each of the labels 0, 1, ...")
    if entries.get("nc", len(names)) != len(names):
        raise ValueError(f"evaluate: nc in {path} must be the number of names, {len(names)}, got {entries['nc']!r:.60}")
    if unprintable := [name for name in map(str, names) if not is_text(name)]:
        raise ValueError(f"evaluate: names in {path} must be text without control characters, got {unprintable[0]!r}")
    return list(map(str, names))


def _images(path: Path, folder: Path, split: str, sources: Any) -> list[Path]:
    """Return the images that folders, and text files with a path in each line, list."""
    sources = sources if isinstance(sources, list) else [sources]
    if not sources or not all(map(is_path, sources)):
        raise ValueError(
            f"evaluate: {split} in {path} must be a folder, a text file, or a list of these, got {sources!r:.60}"
        )
    images = []
    for source in (folder / source for source in sources):
        if source.suffix == ".txt":
            lines = [line.strip() for line in read_text("list of images", source).split("\n")]
            if wrong := [line for line in lines if line and not is_path(line)]:
                raise ValueError(f"evaluate: lines in {source} must be paths, got {wrong[0]!r:.60}")
            images += [source.parent / line for line in lines if line]
        elif source.is_dir():
            images += list_images(source, recursive=True)
        else:
            raise FileNotFoundError(
                f"evaluate: {split} in {path} must be a folder or a text file, but {source} does not exist; "
                "--data-root replaces the file's path"
            )
    return images


def _label_file(image: Path) -> Path:
    """Return the file with the labels of an image: below ``labels`` in place of the last folder named ``images``."""
    parts = list(image.parent.parts)
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return Path(*parts, f"{image.stem}.txt")


def _labels(path: Path, count: int, wrong: list[str] | None) -> Iterator[tuple[int, NDArray[np.float64], bool]]:
    """Yield the label of each object, less than `count`, its corners (N, 2), and whether it is a polygon; each once.

    Lines that are not in the format are added to `wrong`, if there is such a list; otherwise they raise an error.
    """
    try:
        text = read_text("labels", path)
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():  # which leads nowhere
            raise
        return
    seen = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = tuple(line.split())
        if not words or words in seen:
            continue
        seen.add(words)
        label, corners = _parsed(words)
        if corners is None or not 0 <= label < count:
            problem = (
                f"{path}, line {number} must be a label below {count} and center x, center y, width and height, or the "
                f"corners of a polygon, from 0 to 1, got {line[:60]!r}"
            )
            if wrong is None:
                raise ValueError(f"evaluate: {problem}; --skip-wrong-labels leaves such lines out")
            wrong.append(problem)
            continue
        yield label, corners, len(words) > 5


def _parsed(words: Sequence[str]) -> tuple[int, NDArray[np.float64] | None]:
    """Return a label and the corners of its object, or no corners if they are not in the format."""
    try:
        label, *values = map(float, words)
    except ValueError:
        return -1, None
    if len(values) != 4 and (len(values) < 6 or len(values) % 2):
        return -1, None
    if label != int(label if np.isfinite(label) else -1) or not all(
        -_TOLERANCE <= value <= 1 + _TOLERANCE for value in values
    ):
        return -1, None
    if len(values) > 4:
        return int(label), np.reshape(values, (-1, 2))
    x, y, width, height = values
    if width < 0 or height < 0:
        return -1, None
    left, right, top, bottom = x - width / 2, x + width / 2, y - height / 2, y + height / 2
    return int(label), np.array([[left, top], [right, top], [right, bottom], [left, bottom]])
