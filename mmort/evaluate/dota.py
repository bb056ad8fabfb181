"""Data sets of rotated boxes in DOTA's format: average precision, and the files of its server."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort import ops
from mmort._files.inputs import read_text
from mmort._files.outputs import inside, make_folder, require_folder, write_output
from mmort.contract.names import as_names
from mmort.evaluate.dataset import DatasetImage, Metrics, SubmissionDataset
from mmort.evaluate.image_objects import ImageObjects
from mmort.evaluate.mean_ap import ImageOfClass, check_mode, mean_average_precision
from mmort.evaluate.option_checks import check_numbers, option_values
from mmort.evaluate.results import ImageResult
from mmort.limits import MAX_CORNER
from mmort.predict import Detections
from mmort.predict.image_files import IMAGE_SUFFIXES
from mmort.predict.output import count_text
from mmort.predict.windows import merged

MIN_SIDE = 2
"""Pixels; as in MMRotate, thinner objects are not measured."""

_PATCH = re.compile(r"(?P<image>.+)__\d+__(?P<left>\d{1,8})___(?P<top>\d{1,8})", re.ASCII)
"""The name of a window that MMRotate's and DOTA's tools have cut out of an image."""


@dataclass(frozen=True, kw_only=True)
class DotaOptions:
    """Options of DOTA's metric, by the names of MMRotate's ``--eval-options``.

    Parameters
    ----------
    iou_thrs : sequence of float
        IoU thresholds; MMRotate 0.x names it ``iou_thr``.
    eval_mode : {"11points", "area"}, default "11points"
        How precision is averaged over recalls.
    """

    iou_thrs: Sequence[float] = (0.5,)
    eval_mode: str = "11points"

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> DotaOptions:
        """Return the options; ValueError if one is unknown.  None is the default, and a single value a list of it."""
        renamed = {"iou_thrs" if name == "iou_thr" else name: value for name, value in options.items()}
        parsed = cls(**option_values(cls, renamed))
        check_numbers(parsed.iou_thrs, [1])
        check_mode(parsed.eval_mode)
        return parsed


@dataclass(frozen=True, eq=False)
class _GroundTruth:
    """The objects in one image."""

    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]


class DotaDataset(SubmissionDataset):
    """A data set in DOTA's format.

    Parameters
    ----------
    annotations : path
        A folder with a file ``NAME.txt`` for each image: a line for each object, with eight coordinates of its corners,
        its class and its difficulty.  A folder without such files has no ground truth: its images are only detected in.
    images : path
        The folder of the images, ``NAME.png`` or with another suffix of images.
    classes : sequence of str
        Class names by label.
    """

    metric_names = ("mAP",)
    submission_option = "submission_dir"
    metric_advice = "; a folder of annotations is read as DOTA's, a .json file as COCO's"

    def __init__(
        self, annotations: str | os.PathLike[str], images: str | os.PathLike[str], classes: Sequence[str]
    ) -> None:
        self.classes, self.annotations, folder = as_names("evaluate", classes), Path(annotations), Path(images)
        if not self.annotations.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(self.annotations))
        files = {path.stem: path for path in sorted(folder.iterdir()) if path.suffix.lower() in IMAGE_SUFFIXES}
        named = sorted(path.stem for path in self.annotations.glob("*.txt")) or list(files)
        missing = [name for name in named if name not in files]
        if missing:
            raise ValueError(
                f"evaluate: {folder} has no image for {len(missing)} annotations: {', '.join(missing[:3])}"
            )
        self.images = tuple(DatasetImage(name, files[name], files[name].name) for name in named)

    def check(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse metrics and options that `score` does not have, and annotations that cannot be read."""
        super().check(metrics, options)
        DotaOptions.parse(options)
        if metrics:
            _ = self._truths  # before anything is predicted

    def objects(self) -> list[ImageObjects] | None:
        """Return the objects of each image; None for a folder of images without annotations."""
        if not any(self.annotations.glob("*.txt")):
            return None
        return [ImageObjects.of_rotated(truth.boxes, truth.labels) for truth in self._truths]

    def score(self, results: Sequence[ImageResult], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Compute mAP with the overlap of rotated boxes; the options are those of `DotaOptions`."""
        parsed = DotaOptions.parse(options)
        if not metrics:
            return Metrics({})
        return mean_average_precision(
            self.classes, partial(self._of_class, results), parsed.iou_thrs, parsed.eval_mode, ops.box_iou_rotated
        )

    def write_submission(self, results: Sequence[ImageResult], target: str | os.PathLike[str]) -> dict[Path, str]:
        """Write the files of DOTA's task 1, ``Task1_CLASS.txt``, with a line for each detection.

        A line has the image's name, the score, and x, y of the four corners.  Images that are windows of others, by
        their names ``NAME__SIZE__X___Y``, are merged as `mmort.predict.predict_windows` merges its windows.

        Parameters
        ----------
        results : sequence of ImageResult
            In the order of the data set's images.
        target : path
            The folder; it is created if it does not exist.

        Returns
        -------
        dict of Path to str
            The folder, with the number of its files.
        """
        lines: list[list[str]] = [[] for _ in self.classes]
        for name, detections in self._by_image(results):
            for label, score, corners in zip(
                detections.labels, detections.scores, detections.polygons.reshape(-1, 8), strict=True
            ):
                numbers = " ".join(f"{number:.2f}" for number in corners)
                lines[label].append(f"{name} {score:.4f} {numbers}\n")
        paths = self.submission_files(target)
        make_folder(target)
        for path, of_class in zip(paths, lines, strict=True):
            write_output(path, "".join(of_class))
        return {Path(target): count_text(len(paths), "file")}

    def submission_files(self, target: str | os.PathLike[str]) -> list[Path]:
        """Return the file of each class; ValueError if a class has a name that is not one for a file."""
        require_folder(target)
        for name in self.classes:
            if PurePath(f"Task1_{name}.txt").name != f"Task1_{name}.txt":
                raise ValueError(f"evaluate: Task1_{name}.txt cannot be the name of a file, as the class is {name!r}")
        return [inside(target, f"Task1_{name}.txt") for name in self.classes]

    def _by_image(self, results: Sequence[ImageResult]) -> Iterator[tuple[str, Detections]]:
        """Yield the name of each whole image and the detections in it."""
        parts: dict[str, list[Detections]] = {}
        for image, result in zip(self.images, results, strict=True):
            patch = _PATCH.fullmatch(str(image.id))
            left, top = (int(patch["left"]), int(patch["top"])) if patch else (0, 0)
            moved = rotated_boxes_of(result) + np.array([left, top, 0, 0, 0], np.float32)
            names = tuple(self.classes[label] for label in result.labels)
            detections = Detections.of_rotated(moved, result.scores, result.labels, names, (0, 0))
            parts.setdefault(patch["image"] if patch else str(image.id), []).append(detections)
        for name, windows in parts.items():
            yield name, windows[0] if len(windows) == 1 else merged(windows)

    def _of_class(self, results: Sequence[ImageResult], label: int) -> Iterator[ImageOfClass]:
        """Yield the detections and objects of one class in each image."""
        for truth, result in zip(self._truths, results, strict=True):
            of_class, present = result.labels == label, truth.boxes[truth.labels == label]
            ignored = np.zeros(len(present), bool)
            yield ImageOfClass(rotated_boxes_of(result)[of_class], result.scores[of_class], present, ignored)

    @cached_property
    def _truths(self) -> list[_GroundTruth]:
        """The objects in each image."""
        return [self._ground_truth(self.annotations / f"{image.id}.txt") for image in self.images]

    def _ground_truth(self, path: Path) -> _GroundTruth:
        """Read an image's annotation; lines that begin it with its source and scale are left out."""
        boxes, labels = [], []
        for number, line in enumerate(read_text("annotation file", path).splitlines(), 1):
            words = line.split()
            if not words or line.startswith(("imagesource:", "gsd:")):
                continue
            try:
                corners, name = np.array(words[:8], np.float64).reshape(4, 2), words[8]
            except (IndexError, ValueError) as error:
                raise ValueError(
                    f"evaluate: {path}, line {number} is not an object in DOTA's format: {error}"
                ) from None
            if not (np.abs(corners) <= MAX_CORNER).all():
                raise ValueError(
                    f"evaluate: {path}, line {number}: corners must be finite and at most {MAX_CORNER:g}, got "
                    f"{' '.join(words[:8])}"
                )
            if name not in self.classes:
                raise ValueError(
                    f"evaluate: {path}, line {number} has the class {name!r}, but the classes are "
                    f"{', '.join(self.classes)}"
                )
            box = _smallest_rectangle(corners.astype(np.float32))
            if min(box[2:4]) >= MIN_SIDE:
                boxes.append(box)
                labels.append(self.classes.index(name))
        return _GroundTruth(np.array(boxes, np.float32).reshape(-1, 5), np.array(labels, np.int64))


def rotated_boxes_of(result: ImageResult) -> NDArray[np.float32]:
    """Return the rotated boxes of a result; ValueError if the detector's are upright."""
    if result.rotated_boxes is None:
        raise ValueError("evaluate: a data set in DOTA's format needs rotated boxes, but the detector's are upright")
    return result.rotated_boxes


def _smallest_rectangle(corners: NDArray[np.float32]) -> list[float]:
    """Return the smallest rotated box around four corners, as OpenCV finds it."""
    from mmort.images import opencv

    (x, y), (width, height), degrees = opencv().minAreaRect(corners)
    return [x, y, width, height, float(np.radians(degrees))]
