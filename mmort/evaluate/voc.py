"""Data sets in PASCAL VOC's format."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from mmort._files.inputs import open_regular, read_text
from mmort.contract.names import as_names
from mmort.evaluate.coco_format import listed
from mmort.evaluate.dataset import Dataset, DatasetImage, Metrics
from mmort.evaluate.image_objects import ImageObjects
from mmort.evaluate.mean_ap import ImageOfClass, check_mode, mean_average_precision
from mmort.evaluate.option_checks import check_numbers, option_values
from mmort.evaluate.recall import recalls
from mmort.evaluate.results import ImageResult
from mmort.limits import MAX_CORNER, MAX_PATH
from mmort.tables import lay_out


@dataclass(frozen=True, kw_only=True)
class VocOptions:
    """Options of VOC's metrics, by the names of MMDetection's ``--eval-options``.

    Parameters
    ----------
    iou_thrs : sequence of float
        IoU thresholds; MMDetection 2 names it ``iou_thr``.
    proposal_nums : sequence of int
        Numbers of detections, the best of an image, for which to compute recall.
    eval_mode : {"11points", "area"}, optional
        How precision is averaged over recalls.  By default 11 points for VOC2007 and the area for VOC2012.
    """

    iou_thrs: Sequence[float] = (0.5,)
    proposal_nums: Sequence[int] = (100, 300, 1000)
    eval_mode: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> VocOptions:
        """Return the options; ValueError if one is unknown.  None is the default, and a single value a list of it."""
        renamed = {"iou_thrs" if name == "iou_thr" else name: value for name, value in options.items()}
        return cls(**option_values(cls, renamed))


@dataclass(frozen=True, eq=False)
class _GroundTruth:
    """The objects in one image; difficult ones are neither demanded nor counted as errors."""

    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    difficult: NDArray[np.bool_]


class VocDataset(Dataset):
    """A data set in PASCAL VOC's format.

    Parameters
    ----------
    image_set : path
        A text file with the name of an image on each line.
    folder : path
        Contains the images and the annotations: ``JPEGImages/NAME.jpg`` and ``Annotations/NAME.xml``.
    classes : sequence of str
        Class names by label; objects of other classes are left out.
    image_subdir : str, default "JPEGImages"
    annotation_subdir : str, default "Annotations"
        The two directories in `folder`.
    """

    metric_names = ("mAP", "recall")

    def __init__(
        self,
        image_set: str | os.PathLike[str],
        folder: str | os.PathLike[str],
        classes: Sequence[str],
        image_subdir: str = "JPEGImages",
        annotation_subdir: str = "Annotations",
    ) -> None:
        self.folder, self.classes = Path(folder), as_names("evaluate", classes)
        self.annotation_dir = self.folder / annotation_subdir
        image_dir, lines = self.folder / image_subdir, read_text("image set", image_set).splitlines()
        names = list(filter(None, map(str.strip, lines)))
        if any(len(name) > MAX_PATH for name in names):  # which would stand in an error
            raise ValueError(f"evaluate: names of images must have at most {MAX_PATH} characters: {image_set}")
        self.images = tuple(DatasetImage(name, image_dir / f"{name}.jpg", f"{name}.jpg") for name in names)

    def check(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse metrics and options that `score` does not have, and annotations that cannot be read."""
        super().check(metrics, options)
        parsed = VocOptions.parse(options)
        check_numbers(parsed.iou_thrs, parsed.proposal_nums)
        if "mAP" in metrics:
            self._mode(parsed)
        if metrics:
            _ = self._truths  # before anything is predicted

    def objects(self) -> list[ImageObjects]:
        """Return the objects of each image; difficult ones are ignored."""
        return [
            ImageObjects(truth.boxes.astype(float), truth.labels, truth.difficult, np.zeros(len(truth.labels), bool))
            for truth in self._truths
        ]

    def score(self, results: Sequence[ImageResult], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Compute mAP and recall; the options are those of `VocOptions`."""
        parsed = VocOptions.parse(options)
        figures: dict[str, float] = {}
        tables: list[str] = []
        for metric in metrics:
            measured = (self._mean_ap if metric == "mAP" else self._recall)(self._truths, results, parsed)
            figures |= measured.figures
            tables += measured.tables
        return Metrics(figures, tuple(tables))

    def _mode(self, options: VocOptions) -> str:
        """Return how precision is averaged."""
        mode = options.eval_mode
        if mode is None:
            for year, default in (("VOC2007", "11points"), ("VOC2012", "area")):
                if year in str(self.folder):
                    return default
            raise ValueError(
                f"evaluate: {self.folder} is neither VOC2007 nor VOC2012, so mAP needs eval_mode=11points or area"
            )
        check_mode(mode)
        return mode

    def _mean_ap(self, truths: Sequence[_GroundTruth], results: Sequence[ImageResult], options: VocOptions) -> Metrics:
        """Compute mAP at each threshold, and their mean."""
        return mean_average_precision(
            self.classes, partial(_of_class, truths, results), options.iou_thrs, self._mode(options)
        )

    def _recall(self, truths: Sequence[_GroundTruth], results: Sequence[ImageResult], options: VocOptions) -> Metrics:
        """Compute recall whatever the class, for each number of detections and each threshold."""
        demanded = [truth.boxes[~truth.difficult] for truth in truths]
        boxes = [result.boxes[np.argsort(-result.scores, kind="stable")] for result in results]
        shares = recalls(demanded, boxes, options.proposal_nums, options.iou_thrs)
        rows = [["", *map(str, options.iou_thrs)]]
        figures: dict[str, float] = {}
        for number, row in zip(options.proposal_nums, shares.tolist(), strict=True):
            rows.append([str(number), *(f"{recall:.3f}" for recall in row)])
            for threshold, recall in zip(options.iou_thrs, row, strict=True):
                figures[f"recall@{number}@{threshold}"] = recall
        if len(options.iou_thrs) > 1:
            for number, row in zip(options.proposal_nums, shares, strict=True):
                figures[f"AR@{number}"] = float(row.mean())
        return Metrics(figures, (lay_out(rows),))

    @cached_property
    def _truths(self) -> list[_GroundTruth]:
        """The objects in each image; ValueError if there are objects, but none of the classes."""
        other_names: set[str] = set()
        truths = [self._ground_truth(image, other_names) for image in self.images]
        if other_names and not any(len(truth.labels) for truth in truths):
            raise ValueError(
                f"evaluate: {self.annotation_dir} has no object of the classes {listed(self.classes)}; its objects are "
                f"called {listed(sorted(other_names))}"
            )
        return truths

    def _ground_truth(self, image: DatasetImage, other_names: set[str]) -> _GroundTruth:
        """Read an image's annotation, whose corners count from 1; add the names of objects that are left out."""
        path = self.annotation_dir / f"{image.id}.xml"
        try:
            with open_regular("annotation", path) as file:
                root = ElementTree.parse(file).getroot()
            boxes, labels, difficult = [], [], []
            for element in root.iter("object"):
                name = element.findtext("name")
                if name not in self.classes:
                    other_names.add(str(name))
                    continue
                corners = [element.findtext(f"bndbox/{corner}", "") for corner in ("xmin", "ymin", "xmax", "ymax")]
                boxes.append([int(_coordinate(corner)) - 1 for corner in corners])
                labels.append(self.classes.index(name))
                difficult.append(int(element.findtext("difficult", "0")) != 0)
        except (ElementTree.ParseError, LookupError, RecursionError, ValueError) as error:  # LookupError: an encoding
            raise ValueError(f"evaluate: {path} is not an annotation in VOC's format: {error}") from None
        return _GroundTruth(
            np.array(boxes, np.float32).reshape(-1, 4), np.array(labels, np.int64), np.array(difficult, bool)
        )


def _coordinate(text: str) -> float:
    """Return a corner's coordinate."""
    number = float(text)
    if not abs(number) <= MAX_CORNER:
        raise ValueError(f"corners must be finite and at most {MAX_CORNER:g}, got {text}")
    return number


def _of_class(truths: Sequence[_GroundTruth], results: Sequence[ImageResult], label: int) -> Iterator[ImageOfClass]:
    """Yield the detections and objects of one class in each image."""
    for truth, result in zip(truths, results, strict=True):
        of_class, present = result.labels == label, truth.labels == label
        yield ImageOfClass(
            result.boxes[of_class], result.scores[of_class], truth.boxes[present], truth.difficult[present]
        )
