"""Data sets in the format of COCO's panoptic segmentations: a JSON file, and a PNG file for each image.

The color of a pixel in the PNG file is the id of its segment, red + 256 green + 65536 blue; 0 is no segment.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort._files.outputs import inside, make_folder, require_output, write_output
from mmort.evaluate import coco_format
from mmort.evaluate.coco_metrics import coco_library
from mmort.evaluate.dataset import DatasetImage, DatasetWarning, Metrics, SubmissionDataset
from mmort.evaluate.option_checks import option_values
from mmort.evaluate.panoptic_quality import ClassCounts, TrueSegment, add_image, mean_qualities
from mmort.evaluate.results import ImageResult
from mmort.limits import MAX_SEGMENT_ID
from mmort.predict import read_image, write_image
from mmort.tables import lay_out

FIGURES = "PQ", "SQ", "RQ"

_REQUIRED = {
    "images": {"id": coco_format.is_id, "file_name": coco_format.is_path},
    "categories": {"id": coco_format.is_id, "name": coco_format.is_text},
    "annotations": {
        "image_id": coco_format.is_id,
        "file_name": coco_format.is_path,
        "segments_info": coco_format.is_list,
    },
}
"""The keys that each object of an annotation file must have, and their checks."""

_OPTIONAL = {
    "images": {"height": coco_format.is_side, "width": coco_format.is_side},
    "categories": {"isthing": coco_format.is_flag},
}


@dataclass(frozen=True, kw_only=True)
class PanopticOptions:
    """Options of panoptic quality, by the names of MMDetection's.

    Parameters
    ----------
    classwise : bool, default False
        Add the figures of each class.
    """

    classwise: bool = False


class CocoPanopticDataset(SubmissionDataset):
    """A data set with panoptic segmentations in COCO's format.

    Parameters
    ----------
    annotation_file : path
        The JSON file.
    image_dir : path
        What the ``file_name`` entries of its images are relative to.
    segment_dir : path, optional
        What those of its annotations, the PNG files, are relative to.  By default the annotation file's path without
        its suffix, as COCO has it.
    classes : sequence of str, optional
        Names of the classes, of things and of stuff.  By default all categories of the file.

    Raises
    ------
    ValueError
        If the file is not in this format, or lacks a class.
    """

    metric_names = ("PQ",)
    submission_option = "jsonfile_prefix"

    def __init__(
        self,
        annotation_file: str | os.PathLike[str],
        image_dir: str | os.PathLike[str],
        segment_dir: str | os.PathLike[str] | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        path = Path(annotation_file)
        annotations = coco_format.read_annotations(path, "COCO's panoptic format", _REQUIRED, _OPTIONAL)
        self.segment_dir = path.with_suffix("") if segment_dir is None else Path(segment_dir)
        # As in MMDetection, labels count the file's categories that are among the classes, in the file's order.
        self.classes, self.categories = coco_format.categories_of(path, annotations, classes)
        self.labels = {coco_format.id_key(category["id"]): label for label, category in enumerate(self.categories)}
        self.images = coco_format.images_of(annotations, Path(image_dir))
        entries = annotations.get("annotations", ())
        for index, entry in enumerate(entries):
            _check_segments(f"annotations[{index}] in {path}", entry["segments_info"])
        self.annotations = {coco_format.id_key(entry["image_id"]): entry for entry in entries}
        if len(self.annotations) != len(entries):
            raise ValueError(f"evaluate: several annotations in {path} are of the same image")
        segments = [{"image_id": entry["image_id"], **info} for entry in entries for info in entry["segments_info"]]
        for text in coco_format.unknown_ids(path, annotations, segments):
            warnings.warn(text, DatasetWarning, stacklevel=2)

    def check(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse metrics and options that `score` does not have, and a file without ground truth."""
        super().check(metrics, options)
        option_values(PanopticOptions, options)
        if metrics:
            coco_library()  # before anything is predicted
            lacking = [image.name for image in self.images if coco_format.id_key(image.id) not in self.annotations]
            if lacking:
                raise ValueError(f"evaluate: {len(lacking)} images have no annotation, so {lacking[0]} has no truth")
            for image in self.images:
                self._truth(image)  # which takes a hundredth of the time of a detector

    def score(self, results: Sequence[ImageResult], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Compute panoptic quality; the options are those of `PanopticOptions`."""
        if not metrics:
            return Metrics({})
        counts = {label: ClassCounts() for label in range(len(self.categories))}
        for image, result in zip(self.images, results, strict=True):
            self._add(counts, image, result)
        kinds = {
            "All": ("", list(counts)),
            "Things": ("_th", [label for label in counts if self._is_thing(label)]),
            "Stuff": ("_st", [label for label in counts if not self._is_thing(label)]),
        }
        figures: dict[str, float] = {}
        rows = [["", *FIGURES, "classes"]]
        for kind, (ending, labels) in kinds.items():
            qualities = mean_qualities([counts[label] for label in labels])
            percents = [100 * quality if quality >= 0 else -1.0 for quality in qualities]
            figures |= {f"{name}{ending}": value for name, value in zip(FIGURES, percents, strict=True)}
            measured = sum(counts[label].is_measured for label in labels)
            rows.append([kind, *(f"{value:.3f}" if value >= 0 else "-" for value in percents), str(measured)])
        tables, classwise = [lay_out(rows)], dict[str, dict[str, dict[str, float]]]()
        if PanopticOptions(**option_values(PanopticOptions, options)).classwise:
            classwise["PQ"] = {
                self.classes_in_file[label]: {
                    name: 100 * quality for name, quality in zip(FIGURES, count.qualities, strict=True)
                }
                for label, count in counts.items()
            }
            lines = [[name, *(f"{value:.3f}" for value in row.values())] for name, row in classwise["PQ"].items()]
            tables.append(lay_out([["category", *FIGURES], *lines]))
        return Metrics(figures, tuple(tables), classwise)

    @property
    def classes_in_file(self) -> tuple[str, ...]:
        """The names of the classes in the order of the labels."""
        return tuple(category["name"] for category in self.categories)

    def write_submission(self, results: Sequence[ImageResult], target: str | os.PathLike[str]) -> dict[Path, str]:
        """Write ``TARGET.panoptic.json`` and the PNG files in ``TARGET.panoptic``; return the JSON file's path."""
        entries = []
        path, *segment_files = self.submission_files(target)
        folder = path.with_suffix("")
        for image, result, file in zip(self.images, results, segment_files, strict=True):
            map = result.segment_map()
            if map is None:
                map = np.zeros(read_image(image.path).shape[:2], np.int64)
            make_folder(file.parent)
            write_image(file, np.stack([map >> 16 & 255, map >> 8 & 255, map & 255], 2).astype(np.uint8))
            areas = np.bincount(map.ravel(), minlength=len(result.labels) + 1).tolist()
            segments = [
                {"id": index, "category_id": self.categories[label]["id"], "area": areas[index]}
                for index, label in enumerate(result.labels.tolist(), 1)
            ]
            name = file.relative_to(folder).as_posix()
            entries.append({"image_id": image.id, "file_name": name, "segments_info": segments})
        write_output(path, json.dumps({"annotations": entries}))
        return {path: ""}

    def submission_files(self, target: str | os.PathLike[str]) -> list[Path]:
        """Return the JSON file, and the PNG file of each image.

        Raises
        ------
        ValueError
            If an image's name leads out of the folder, or two have the same file.
        OSError
            If the folder of the JSON file cannot be written to.
        """
        path = Path(f"{os.fspath(target)}.panoptic.json")
        require_output(path)
        files: dict[Path, str] = {}
        for image in self.images:
            file = inside(path.with_suffix(""), PurePath(image.name).with_suffix(".png"))
            if file in files:
                raise ValueError(f"evaluate: the segments of {files[file]} and {image.name} would both be {file}")
            files[file] = image.name
        return [path, *files]

    def _add(self, counts: Mapping[int, ClassCounts], image: DatasetImage, result: ImageResult) -> None:
        """Add an image to the counts."""
        truth, segments = self._truth(image)
        segment_map = result.segment_map()
        if segment_map is None:
            segment_map = np.zeros(truth.shape, np.int64)
        if segment_map.shape != truth.shape:
            path = self.segment_dir / self.annotations[coco_format.id_key(image.id)]["file_name"]
            raise ValueError(f"evaluate: {path} has {truth.shape} pixels, but {image.path} has {segment_map.shape}")
        add_image(counts, truth, segments, segment_map, result.labels.tolist())

    def _truth(self, image: DatasetImage) -> tuple[NDArray[np.int64], list[TrueSegment]]:
        """Read an image's map of segments, without those of other categories; ValueError if it is not as annotated."""
        annotation = self.annotations[coco_format.id_key(image.id)]
        path = self.segment_dir / annotation["file_name"]
        blue, green, red = np.moveaxis(read_image(path).astype(np.int64), 2, 0)
        truth = red + 256 * green + 65536 * blue
        present, position = np.unique(truth, return_inverse=True)
        unknown = set(present.tolist()) - {0, *(info["id"] for info in annotation["segments_info"])}
        if unknown:
            raise ValueError(
                f"evaluate: {path}: segment {min(unknown)} of the map is not among those of the annotation"
            )
        ignored = [info["id"] for info in annotation["segments_info"] if self._label(info) is None]
        if ignored:
            truth = np.where(np.isin(present, ignored), 0, present)[position].reshape(truth.shape)
        return truth, [
            TrueSegment(info["id"], label, bool(coco_format.flag(info.get("iscrowd"))))
            for info in annotation["segments_info"]
            if (label := self._label(info)) is not None
        ]

    def _is_thing(self, label: int) -> bool:
        """Return whether a label is a class of things, the default."""
        return coco_format.flag(self.categories[label].get("isthing")) is not False

    def _label(self, segment: Mapping[str, Any]) -> int | None:
        """Return the label of a segment; None if its category is not evaluated."""
        return self.labels.get(coco_format.id_key(segment["category_id"]))


def _check_segments(name: str, segments: list[dict[str, Any]]) -> None:
    """Refuse segments of an image that are not in the format."""
    for segment in segments:
        number, category, crowd = segment.get("id"), segment.get("category_id"), segment.get("iscrowd", 0)
        if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= MAX_SEGMENT_ID:
            raise ValueError(
                f"evaluate: {name}: id of a segment must be an integer from 1 to {MAX_SEGMENT_ID}, got "
                f"{coco_format.shown(number)}"
            )
        if not coco_format.is_id(category) or not coco_format.is_flag(crowd):
            raise ValueError(
                f"evaluate: {name}: segment {number} must have a category_id, a number or text, and iscrowd of 0 or 1"
            )
    if len({segment["id"] for segment in segments}) != len(segments):
        raise ValueError(f"evaluate: {name}: ids of segments are not unique")
