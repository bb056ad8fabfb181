"""Data sets in COCO's format."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mmort._files.outputs import require_output, write_output
from mmort.configs import class_names
from mmort.contract.names import as_names
from mmort.evaluate import coco_format
from mmort.evaluate.coco_metrics import CocoOptions, coco_library, coco_metrics
from mmort.evaluate.coco_truth import CocoTruth
from mmort.evaluate.dataset import DatasetWarning, Metrics, SubmissionDataset
from mmort.evaluate.image_objects import ImageObjects
from mmort.evaluate.results import ImageResult


class CocoDataset(SubmissionDataset):
    """A data set with an annotation file in COCO's format.

    Parameters
    ----------
    annotation_file : path
        The JSON file.
    image_dir : path
        What the file's ``file_name`` entries are relative to.
    classes : sequence of str, optional
        Names of the classes to evaluate.  By default all categories of the file.
    labels_by_name : bool, default False
        Whether labels count `classes`.  Otherwise they count the file's categories that are among `classes`, in the
        file's order, as in MMDetection.

    Attributes
    ----------
    category_ids : list
        The file's id of each label's category.
    truth : CocoTruth
        The objects to evaluate.

    Raises
    ------
    ValueError
        If the file is not in COCO's format, or lacks a class.
    """

    metric_names: ClassVar[tuple[str, ...]] = ("bbox", "segm", "proposal")
    submission_option = "jsonfile_prefix"

    def __init__(
        self,
        annotation_file: str | os.PathLike[str],
        image_dir: str | os.PathLike[str],
        classes: Sequence[str] | None = None,
        *,
        labels_by_name: bool = False,
    ) -> None:
        path = Path(annotation_file)
        self._open(_read(path), path, Path(image_dir), classes, labels_by_name=labels_by_name)

    def _open(
        self,
        annotations: dict[str, Any],
        annotation_file: Path,
        folder: Path,
        classes: Sequence[str] | None,
        *,
        labels_by_name: bool,
    ) -> None:
        """Set the attributes from annotations in COCO's format."""
        self.classes, evaluated = coco_format.categories_of(annotation_file, annotations, classes)
        if labels_by_name:
            evaluated.sort(key=lambda category: self.classes.index(category["name"]))
        if tuple(category["name"] for category in evaluated) != self.classes:
            warnings.warn(
                f"{annotation_file} lists its categories in another order than the classes; "
                "labels follow the file, as in MMDetection, so names shown with detections may be wrong",
                DatasetWarning,
                stacklevel=3,
            )
        self.category_ids = self._ids_of_labels([category["id"] for category in evaluated])
        self.images = coco_format.images_of(annotations, folder)
        self.truth = CocoTruth.of(annotations, self.category_ids)
        names = {coco_format.id_key(category["id"]): category["name"] for category in evaluated}
        labels = zip(map(coco_format.id_key, self.category_ids), self.truth.category_numbers.tolist(), strict=True)
        self._category_names = {number: names[key] for key, number in labels if key in names}
        objects = annotations.get("annotations", ())
        self._has_objects = bool(objects)
        self._notes = coco_format.unknown_ids(annotation_file, annotations, objects)
        if self.truth.filled_areas:
            self._notes.append(
                f"{annotation_file}: {self.truth.filled_areas} of {len(objects)} objects have no area; that of the "
                "mask, or else of the box, is used"
            )

    def _ids_of_labels(self, ids: list[Any]) -> list[Any]:
        """Return the category of each label, from those of the classes that the file has."""
        return ids

    def check(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse metrics and options that `score` does not have, and a file without ground truth."""
        super().check(metrics, options)
        self._check_options(metrics, options)
        if metrics:
            coco_library()  # before anything is predicted
        if metrics and not self._has_objects:
            raise ValueError("evaluate: the annotation file has no annotations, so nothing can be measured")
        for text in self._notes if metrics else ():
            warnings.warn(text, DatasetWarning, stacklevel=3)
        if "segm" in metrics:
            self._check_segmentations()

    def _check_options(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse options of the metrics that are unknown or have no such value."""
        CocoOptions.parse(options).check(metrics)

    def _check_segmentations(self) -> None:
        """Refuse images without a size, and segmentations that are missing, malformed, or not of their image."""
        truth = self.truth
        lacking = np.flatnonzero((truth.image_sizes == 0).any(axis=1))
        if len(lacking):
            raise ValueError(f"evaluate: segm needs height and width of images, which images[{lacking[0]}] lacks")
        sizes = dict(zip(truth.image_numbers.tolist(), truth.image_sizes.tolist(), strict=True))
        rows = zip(truth.indices.tolist(), truth.images.tolist(), truth.segmentations, strict=True)
        for index, image, segmentation in rows:
            if segmentation is None:
                raise ValueError(f"evaluate: segm needs segmentation of objects, which annotations[{index}] lacks")
            problem = coco_format.segmentation_problem(segmentation, *sizes[image])
            if problem is not None:
                got = coco_format.shown(segmentation)
                raise ValueError(f"evaluate: annotations[{index}].segmentation must be {problem}, got {got}")

    def objects(self) -> list[ImageObjects] | None:
        """Return the objects of each image, crowds ignored; None for a file without annotations."""
        return self.truth.objects() if self._has_objects else None

    def score(self, results: Sequence[ImageResult], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Compute AP and AR; the options are those of `CocoOptions`."""
        figures: dict[str, float] = {}
        tables: list[str] = []
        classwise: dict[str, dict[str, dict[str, float]]] = {}
        for metric in metrics:
            masks = metric == "segm"
            categories = self.truth.category_numbers.tolist()
            rows = rows_of(results, self.truth.image_numbers.tolist(), categories, masks=masks)
            truth = self.truth.annotations(masks=masks)
            measured = coco_metrics(truth, categories, self._category_names, rows, metric, CocoOptions.parse(options))
            figures |= measured.figures
            tables += measured.tables
            classwise |= measured.classwise
        return Metrics(figures, tuple(tables), classwise)

    def rows(self, results: Sequence[ImageResult], *, masks: bool) -> list[dict[str, Any]]:
        """Return the results in COCO's format, class by class as MMDetection does, with boxes or with masks.

        Raises
        ------
        ValueError
            If `masks` are wanted and there are none.
        """
        return rows_of(results, [image.id for image in self.images], self.category_ids, masks=masks)

    def submission_files(self, target: str | os.PathLike[str]) -> list[Path]:
        """Return ``TARGET.bbox.json`` and ``TARGET.segm.json``."""
        files = [Path(f"{os.fspath(target)}.{kind}.json") for kind in ("bbox", "segm")]
        for file in files:
            require_output(file)
        return files

    def write_submission(self, results: Sequence[ImageResult], target: str | os.PathLike[str]) -> dict[Path, str]:
        """Write ``TARGET.bbox.json`` and, if there are masks, ``TARGET.segm.json``; return their paths."""
        bbox, segm = self.submission_files(target)
        with_masks = bool(results) and results[0].masks is not None
        write_output(bbox, json.dumps(self.rows(results, masks=False)))
        if with_masks:
            write_output(segm, json.dumps(self.rows(results, masks=True)))
        return dict.fromkeys((bbox, segm) if with_masks else (bbox,), "")


class Coco90Dataset(CocoDataset):
    """COCO, for detectors with a label for each of its 90 ids: ``Coco90Dataset`` of MMDetection's EfficientDet.

    As there, detections of a label that has no category, which is called by the label, count as those of the category
    whose id is the label, if there is one: that of the class before it.

    Parameters
    ----------
    annotation_file, image_dir, labels_by_name
        See `CocoDataset`.
    classes : sequence of str, optional
        Names of the classes by label.  By default COCO's 80 names, and ten labels.
    """

    def _open(
        self,
        annotations: dict[str, Any],
        annotation_file: Path,
        folder: Path,
        classes: Sequence[str] | None,
        *,
        labels_by_name: bool,
    ) -> None:
        self._names = class_names.COCO_90 if classes is None else as_names("evaluate", classes)
        named = [name for label, name in enumerate(self._names) if name != str(label)]
        super()._open(annotations, annotation_file, folder, named, labels_by_name=labels_by_name)
        self.classes = self._names

    def _ids_of_labels(self, ids: list[Any]) -> list[Any]:
        """Return the category of each label; that of a label without one has the label as its id."""
        remaining = iter(ids)
        return [label if name == str(label) else next(remaining) for label, name in enumerate(self._names)]


class Objects365V1Dataset(CocoDataset):
    """Objects365 of 2019, whose files list the same categories in different orders: labels count them by id.

    Parameters
    ----------
    annotation_file, image_dir, classes, labels_by_name
        See `CocoDataset`.
    """

    def _open(
        self,
        annotations: dict[str, Any],
        annotation_file: Path,
        folder: Path,
        classes: Sequence[str] | None,
        *,
        labels_by_name: bool,
    ) -> None:
        in_order = sorted(annotations["categories"], key=lambda category: coco_format.id_order(category["id"]))
        annotations = annotations | {"categories": in_order}
        super()._open(annotations, annotation_file, folder, classes, labels_by_name=labels_by_name)


def rows_of(
    results: Sequence[ImageResult], image_ids: Sequence[Any], category_ids: Sequence[Any], *, masks: bool
) -> list[dict[str, Any]]:
    """Return results in COCO's format, by the ids of images and of the labels' categories."""
    rows = []
    for image_id, result in zip(image_ids, results, strict=True):
        if masks and result.masks is None:
            raise ValueError("evaluate: segm needs masks, but the detector makes none")
        boxes = result.boxes.astype(float)
        boxes[:, 2:] -= boxes[:, :2]
        # Ties between scores are broken by the order of rows: stable, class by class.
        for position in result.labels.argsort(kind="stable").tolist():
            row = {
                "image_id": image_id,
                "category_id": category_ids[result.labels[position]],
                "score": float(result.scores[position]),
            }
            if masks and result.masks is not None:
                row["segmentation"] = result.masks[position]
            else:
                row["bbox"] = boxes[position].tolist()
            rows.append(row)
    return rows


_REQUIRED = {
    "images": {"id": coco_format.is_id, "file_name": coco_format.is_path},
    "categories": {"id": coco_format.is_id, "name": coco_format.is_text},
    "annotations": {
        "id": coco_format.is_id,
        "image_id": coco_format.is_id,
        "category_id": coco_format.is_id,
        "bbox": coco_format.is_box,
    },
}
"""The keys that each object of an annotation file must have, and their checks."""

_OPTIONAL = {
    "images": {"height": coco_format.is_side, "width": coco_format.is_side},
    "annotations": {"area": coco_format.is_area, "iscrowd": coco_format.is_flag},
}


def _read(path: Path) -> dict[str, Any]:
    """Read an annotation file."""
    return coco_format.read_annotations(path, "COCO's format", _REQUIRED, _OPTIONAL)
