"""Data sets of images with a class in each pixel, and MMSegmentation's metrics of them: mIoU, mDice, mFscore."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmort._files.inputs import read_text
from mmort.configs.schema import plain_type
from mmort.contract import SEGMENTATION, Task
from mmort.contract.names import as_names
from mmort.detections.segmentation_map import SegmentationMap
from mmort.evaluate.dataset import Dataset, DatasetImage, Metrics
from mmort.evaluate.option_checks import option_values
from mmort.evaluate.segmentation_types import TYPES
from mmort.images import read_label_map
from mmort.tables import lay_out

IGNORED = 255
"""The label of pixels that belong to no class."""


@dataclass(frozen=True)
class SegmentationOptions:
    """The options of ``IoUMetric``, by MMSegmentation's names.

    Parameters
    ----------
    ignore_index : int, default 255
        The label of pixels that do not count.
    nan_to_num : float, optional
        What the figure of a class without pixels is; by default it does not count.
    beta : float, default 1
        The weight of recall in ``mFscore``.
    """

    ignore_index: int = IGNORED
    nan_to_num: float | None = None
    beta: float = 1


@dataclass(frozen=True)
class SegmentationSettings:
    """How a data set's files are found and read.

    Parameters
    ----------
    img_suffix : str, default ".jpg"
        What the names of images end with.
    seg_map_suffix : str, default ".png"
        What the names of maps end with.
    reduce_zero_label : bool, default False
        Whether label 0 belongs to no class, and all others are one less.
    classes : tuple of str, default ()
        The names of the labels in the maps; empty if they are those of the model.
    """

    img_suffix: str = ".jpg"
    seg_map_suffix: str = ".png"
    reduce_zero_label: bool = False
    classes: tuple[str, ...] = ()


def read_segmentation_entry(entry: Mapping[str, Any]) -> SegmentationSettings:
    """Return the settings of a data set's config.

    Raises
    ------
    ValueError
        If its type is not supported, or an entry is of another type.
    """
    kind = plain_type(entry.get("type"))
    if kind not in TYPES:
        raise ValueError(f"evaluate: data set {kind} is not supported; supported: {', '.join(TYPES)}")
    default = TYPES[kind]
    settings = SegmentationSettings(
        entry.get("img_suffix", default.img_suffix),
        entry.get("seg_map_suffix", default.seg_map_suffix),
        entry.get("reduce_zero_label", default.reduce_zero_label),
        default.classes,
    )
    if not isinstance(settings.reduce_zero_label, bool):
        raise ValueError(f"evaluate: reduce_zero_label must be True or False, got {settings.reduce_zero_label!r}")
    for name in ("img_suffix", "seg_map_suffix"):
        if not isinstance(getattr(settings, name), str) or not getattr(settings, name):
            raise ValueError(f"evaluate: {name} must be a text, got {getattr(settings, name)!r}")
    return settings


class Areas(NamedTuple):
    """The pixels of each class in an image, (K,)."""

    intersection: NDArray[np.int64]
    predicted: NDArray[np.int64]
    truth: NDArray[np.int64]


class SegmentationDataset(Dataset):
    """Images with a map of labels each.

    Parameters
    ----------
    images, maps : path
        The folders of the images and of the maps.
    classes : sequence of str
        The names by label.
    listed : path, optional
        A text file with the name of an image in each line, without its suffix.  By default all images in the folder.
    settings : SegmentationSettings, optional

    Raises
    ------
    ValueError
        If there are no images, or `classes` are not some of those that the type of the data set has.
    OSError
        If a folder, the list or a map does not exist.
    """

    task: ClassVar[Task] = SEGMENTATION
    max_figure = 100.0  # percent
    metric_names = ("mIoU", "mDice", "mFscore")

    def __init__(
        self,
        images: str | os.PathLike[str],
        maps: str | os.PathLike[str],
        classes: Sequence[str],
        listed: str | os.PathLike[str] | None = None,
        settings: SegmentationSettings | None = None,
    ) -> None:
        self.settings = settings or SegmentationSettings()
        self.classes = as_names("evaluate", classes)
        folder, suffix = Path(images), self.settings.img_suffix
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(folder))
        if listed is not None and not Path(listed).is_dir():
            names = [line.strip() for line in read_text("annotation file", listed).splitlines()]
        else:
            files = (path.relative_to(folder).as_posix() for path in folder.rglob(f"*{suffix}") if path.is_file())
            names = sorted(name[: -len(suffix)] for name in files if not Path(name).name.startswith("."))
        if not names:
            raise ValueError(f"evaluate: no images with the suffix {suffix} in {folder}")
        self.images = tuple(
            DatasetImage(index, folder / f"{name}{suffix}", f"{name}{suffix}") for index, name in enumerate(names)
        )
        self._maps = [Path(maps, f"{name}{self.settings.seg_map_suffix}") for name in names]
        if missing := next((path for path in self._maps if not path.is_file()), None):
            raise FileNotFoundError(f"map of labels does not exist: {missing}")
        self._mapping = _mapping(self.settings.classes, self.classes)
        self._options = SegmentationOptions()

    def check(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse metrics and options that `score` does not have."""
        super().check(metrics, options)
        self._options = _options(options)

    def truth(self, index: int) -> NDArray[np.uint8] | NDArray[np.uint16]:
        """Return the labels of an image's pixels, as MMSegmentation's ``LoadAnnotations`` does, (H, W)."""
        labels = read_label_map(self._maps[index])
        if self.settings.reduce_zero_label:
            labels[labels == 0] = IGNORED
            labels -= 1
            labels[labels == IGNORED - 1] = IGNORED
        return labels if self._mapping is None else self._mapping[labels]

    def result_of(self, image: DatasetImage, found: SegmentationMap) -> Areas:
        """Return how many pixels of each class were found, and are right; ValueError if classes or sizes differ."""
        if len(found.class_names) != len(self.classes):
            raise ValueError(
                f"evaluate: the model has {len(found.class_names)} classes, and the data set {len(self.classes)}: "
                f"{', '.join(self.classes[:10])}"
            )
        truth = self.truth(int(image.id))
        if truth.shape != found.image_size:
            raise ValueError(
                f"evaluate: {self._maps[int(image.id)]} must have the size of its image, {found.image_size}, got "
                f"{truth.shape}"
            )
        counted = truth != self._options.ignore_index
        labels, truth = found.map[counted], truth[counted]
        return Areas(*(self._areas(values) for values in (labels[labels == truth], labels, truth)))

    def _areas(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Return how many pixels each class has; labels beyond the classes count for none."""
        count = len(self.classes)
        areas: NDArray[np.int64] = np.bincount(labels.ravel(), minlength=count)[:count]
        return areas

    def score(self, results: Sequence[Any], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Return the figures in percent, by MMSegmentation's names, and a table of the classes."""
        chosen = _options(options)
        common, predicted, truth = (np.sum(areas, axis=0) for areas in zip(*results, strict=True))
        figures, of_classes = {"aAcc": 100 * float(common.sum() / max(1, truth.sum()))}, dict[str, NDArray[Any]]()
        with np.errstate(divide="ignore", invalid="ignore"):
            accuracy = common / truth
            if "mIoU" in metrics:
                of_classes |= {"IoU": common / (predicted + truth - common), "Acc": accuracy}
            if "mDice" in metrics:
                of_classes |= {"Dice": 2 * common / (predicted + truth), "Acc": accuracy}
            if "mFscore" in metrics:
                precision, weight = common / predicted, chosen.beta**2
                score = (1 + weight) * precision * accuracy / (weight * precision + accuracy)
                of_classes |= {"Fscore": score, "Precision": precision, "Recall": accuracy}
        if chosen.nan_to_num is not None:
            of_classes = {name: np.nan_to_num(values, nan=chosen.nan_to_num) for name, values in of_classes.items()}
        for name, values in of_classes.items():
            figures[f"m{name}"] = 100 * float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")
        rows = [("class", *of_classes)] + [
            (name, *(f"{100 * values[label]:.2f}" for values in of_classes.values()))
            for label, name in enumerate(self.classes)
        ]
        return Metrics(figures, (lay_out(rows),))


def _options(options: Mapping[str, Any]) -> SegmentationOptions:
    """Return options of the metrics; ValueError if one is unknown or of another type."""
    chosen = SegmentationOptions(**option_values(SegmentationOptions, options))
    if not isinstance(chosen.ignore_index, Integral):
        raise ValueError(f"evaluate: ignore_index must be an integer, got {chosen.ignore_index!r}")
    for name in ("nan_to_num", "beta"):
        value = getattr(chosen, name)
        if value is not None and not isinstance(value, Real):
            raise ValueError(f"evaluate: {name} must be a number, got {value!r}")
    return chosen


def _mapping(old: tuple[str, ...], new: tuple[str, ...]) -> NDArray[np.uint16] | None:
    """Return the labels by those of a type's maps, where a config has only some of its classes, or another order."""
    if not old or old == new:
        return None
    if unknown := [name for name in new if name not in old]:
        raise ValueError(f"evaluate: the data set has no class {unknown[0]!r}; its classes: {', '.join(old)}")
    mapping = np.arange(2**16, dtype=np.uint16)
    mapping[: len(old)] = [new.index(name) if name in new else IGNORED for name in old]
    return mapping
