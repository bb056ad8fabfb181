"""Data sets of classified images, and MMPretrain's accuracy: a folder for each class, or a list of files and labels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mmort._files.inputs import read_text
from mmort.contract import CLASSIFICATION, Task
from mmort.contract.names import as_names
from mmort.detections.classes import Classes
from mmort.evaluate.dataset import Dataset, DatasetImage, Metrics
from mmort.evaluate.option_checks import option_values

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif")
"""Those of images, as MMPretrain has them."""


@dataclass(frozen=True)
class ClassificationOptions:
    """The options of ``Accuracy``, by MMPretrain's names.

    Parameters
    ----------
    topk : int or sequence of int, default 1
        An image counts if its class is among the `topk` most probable ones.
    thrs : float, None or sequence of these, default 0
        And if its probability is above this.
    """

    topk: int | Sequence[int] = 1
    thrs: float | Sequence[float | None] | None = 0.0

    @property
    def counts(self) -> tuple[Any, ...]:
        """The numbers of classes."""
        return _tuple(self.topk)

    @property
    def thresholds(self) -> tuple[Any, ...]:
        """The thresholds."""
        return _tuple(self.thrs)


class ClassificationDataset(Dataset):
    """Images with a class each.

    Parameters
    ----------
    images : path
        The folder of the images.
    listed : path, optional
        A text file with the path of an image below `images` and its label in each line.  By default `images` has a
        folder for each class, whose names in alphabetical order are the labels.
    classes : sequence of str, optional
        The names by label.  By default those of the folders.

    Raises
    ------
    ValueError
        If there are no images, as many folders as classes, or a line is not a path and a label.
    OSError
        If the folder or the list does not exist.
    """

    task: ClassVar[Task] = CLASSIFICATION
    max_figure = 100.0  # percent
    metric_names = ("accuracy",)

    def __init__(
        self,
        images: str | os.PathLike[str],
        listed: str | os.PathLike[str] | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        folder = Path(images)
        named = () if classes is None else as_names("evaluate", classes)
        samples = _of_list(listed) if listed is not None else _of_folders(folder, named)
        if not samples:
            raise ValueError(f"evaluate: no images in {folder}")
        names = named or tuple(_folders_of(folder))
        if wrong := [label for _, label in samples if not 0 <= label < len(names)]:
            raise ValueError(
                f"evaluate: {listed}: labels must be below the number of classes, {len(names)}, got {wrong[0]}"
            )
        self.classes, self.labels = names, tuple(label for _, label in samples)
        self.images = tuple(DatasetImage(index, folder / name, name) for index, (name, _) in enumerate(samples))

    def check(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse metrics and options that `score` does not have."""
        super().check(metrics, options)
        _options(options, len(self.classes))

    def result_of(self, image: DatasetImage, found: Classes) -> Classes:
        """Return the classes of an image; ValueError if they are not those of the data set."""
        if len(found) != len(self.classes):
            raise ValueError(
                f"evaluate: the model has {len(found)} classes, and the data set {len(self.classes)}: "
                f"{', '.join(self.classes[:10])}"
            )
        return found

    def score(self, results: Sequence[Any], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Return the accuracies in percent, by MMPretrain's names: ``accuracy/top1``."""
        chosen = _options(options, len(self.classes))
        truth = np.array(self.labels)[:, None]
        count = max(chosen.counts)
        hits = np.stack([result.labels[:count] for result in results]) == truth
        scores = np.stack([result.scores[:count] for result in results])
        figures = {}
        for top in chosen.counts:
            for threshold in chosen.thresholds:
                counted = hits if threshold is None else hits & (scores > np.float32(threshold))
                name = f"accuracy/top{top}"
                if len(chosen.thresholds) > 1:
                    name += "_no-thr" if threshold is None else f"_thr-{threshold:.2f}"
                figures[name] = float(counted[:, :top].any(axis=1).mean() * 100)
        return Metrics(figures)


def _options(options: Mapping[str, Any], classes: int) -> ClassificationOptions:
    """Return options of the metric; ValueError if one is unknown or out of range."""
    chosen = ClassificationOptions(**option_values(ClassificationOptions, options))
    counts, thresholds = chosen.counts, chosen.thresholds
    if not counts or not all(isinstance(count, Integral) and 1 <= int(count) <= classes for count in counts):
        raise ValueError(f"evaluate: topk must be from 1 to the number of classes, {classes}, got {chosen.topk!r}")
    if not thresholds or not all(threshold is None or isinstance(threshold, Real) for threshold in thresholds):
        raise ValueError(f"evaluate: thrs must be numbers or None, got {chosen.thrs!r}")
    return chosen


def _tuple(value: Any) -> tuple[Any, ...]:
    """Return the elements of a sequence, or a single value."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _of_list(file: str | os.PathLike[str]) -> list[tuple[str, int]]:
    """Return the paths and labels in a text file."""
    samples = []
    for number, line in enumerate(read_text("annotation file", file).splitlines(), 1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        if not name or not label.isdecimal():
            raise ValueError(f"evaluate: {file}, line {number}: must be a path and a label, got {line[:60]!r}")
        samples.append((name, int(label)))
    return samples


def _folders_of(folder: Path) -> list[str]:
    """Return the names of the folders of classes; hidden ones, such as ``.git``, are none."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _of_folders(folder: Path, classes: Sequence[str]) -> list[tuple[str, int]]:
    """Return the paths below a folder, and the labels that the folders there are."""
    folders = _folders_of(folder)
    if classes and len(classes) != len(folders):
        raise ValueError(
            f"evaluate: {folder} must have a folder for each class, {len(classes)}, got {len(folders)}: "
            f"{', '.join(folders[:10])}"
        )
    samples = []
    for label, name in enumerate(folders):
        files = sorted(
            path.relative_to(folder / name).as_posix()
            for path in (folder / name).rglob("*")
            if path.name.lower().endswith(IMAGE_SUFFIXES) and not path.name.startswith(".") and path.is_file()
        )
        samples += [(f"{name}/{file}", label) for file in files]
    return samples
