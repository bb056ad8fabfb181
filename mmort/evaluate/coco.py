"""Data sets in COCO's format."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmort._files.outputs import require_output, write_output
from mmort.configs import class_names
from mmort.evaluate import coco_format
from mmort.evaluate.coco_metrics import CocoOptions, coco_library, coco_metrics
from mmort.evaluate.dataset import Metrics, SubmissionDataset
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
    category_ids : list of int
        The category of each label.

    Raises
    ------
    ValueError
        If the file is not in COCO's format, or lacks a class.
    """

    metric_names = ("bbox", "segm", "proposal")
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
        self._path, self.annotations = annotation_file, annotations
        self.classes, evaluated = coco_format.categories_of(annotation_file, annotations, classes)
        if labels_by_name:
            evaluated.sort(key=lambda category: self.classes.index(category["name"]))
        self.category_ids = [category["id"] for category in evaluated]
        if tuple(category["name"] for category in evaluated) != self.classes:
            warnings.warn(
                f"{annotation_file} lists its categories in another order than the classes; "
                "labels follow the file, as in MMDetection, so names shown with detections may be wrong",
                stacklevel=3,
            )
        self.images = coco_format.images_of(annotations, folder)

    def check(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse metrics and options that `score` does not have, and a file without ground truth."""
        super().check(metrics, options)
        CocoOptions.parse(options).check(metrics)
        if metrics:
            coco_library()  # before anything is predicted
        if metrics and not self.annotations.get("annotations"):
            raise ValueError("evaluate: the annotation file has no annotations, so nothing can be measured")
        if metrics:
            coco_format.require_integer_ids(self.annotations)
            for text in coco_format.unknown_ids(self._path, self.annotations, self.annotations["annotations"]):
                warnings.warn(text, stacklevel=3)
        if "segm" in metrics:
            measured = [entry for entry in self.annotations["annotations"] if entry["category_id"] in self.category_ids]
            for kind, entries, names in (
                ("image", self.annotations["images"], {"height", "width"}),
                ("annotation", measured, {"segmentation"}),
            ):
                lacking = next((entry for entry in entries if not names <= entry.keys()), None)
                if lacking is not None:
                    raise ValueError(f"evaluate: segm needs {' and '.join(sorted(names))} of {kind} {lacking['id']}")
            self._check_segmentations()

    def _check_segmentations(self) -> None:
        """Refuse segmentations that are not in the format, or not of their image."""
        sizes = {image["id"]: (int(image["height"]), int(image["width"])) for image in self.annotations["images"]}
        for entry in self.annotations["annotations"]:
            if entry["category_id"] not in self.category_ids or entry["image_id"] not in sizes:
                continue
            problem = coco_format.segmentation_problem(entry["segmentation"], *sizes[entry["image_id"]])
            if problem is not None:
                got = coco_format.shown(entry["segmentation"])
                raise ValueError(f"evaluate: the segmentation of annotation {entry['id']} must be {problem}, got {got}")

    def score(self, results: Sequence[ImageResult], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Compute AP and AR; the options are those of `CocoOptions`."""
        figures: dict[str, float] = {}
        tables: list[str] = []
        classwise: dict[str, dict[str, dict[str, float]]] = {}
        for metric in metrics:
            rows = self.rows(results, masks=metric == "segm")
            measured = coco_metrics(self.annotations, self.category_ids, rows, metric, CocoOptions.parse(options))
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
        rows = []
        for image, result in zip(self.images, results, strict=True):
            if masks and result.masks is None:
                raise ValueError("evaluate: segm needs masks, but the detector makes none")
            boxes = result.boxes.astype(float)
            boxes[:, 2:] -= boxes[:, :2]
            # Ties between scores are broken by the order of rows: stable, class by class.
            for position in result.labels.argsort(kind="stable").tolist():
                row = {
                    "image_id": image.id,
                    "category_id": self.category_ids[result.labels[position]],
                    "score": float(result.scores[position]),
                }
                if masks and result.masks is not None:
                    row["segmentation"] = result.masks[position]
                else:
                    row["bbox"] = boxes[position].tolist()
                rows.append(row)
        return rows

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
        names = tuple(class_names.COCO_90 if classes is None else classes)
        named = [name for label, name in enumerate(names) if name != str(label)]
        super()._open(annotations, annotation_file, folder, named, labels_by_name=labels_by_name)
        ids = iter(self.category_ids)
        self.category_ids = [label if name == str(label) else next(ids) for label, name in enumerate(names)]
        self.classes = names


_REQUIRED = {
    "images": {"id": coco_format.is_id, "file_name": coco_format.is_path},
    "categories": {"id": coco_format.is_id, "name": coco_format.is_text},
    "annotations": {
        "id": coco_format.is_id,
        "image_id": coco_format.is_id,
        "category_id": coco_format.is_id,
        "bbox": coco_format.is_box,
        "area": coco_format.is_area,
    },
}
"""What each object of an annotation file must have."""

_OPTIONAL = {
    "images": {"height": coco_format.is_side, "width": coco_format.is_side},
    "annotations": {"iscrowd": coco_format.is_flag},
}


def _read(path: Path) -> dict[str, Any]:
    """Read an annotation file."""
    annotations = coco_format.read_annotations(path, "COCO's format", _REQUIRED, _OPTIONAL)
    for annotation in annotations.get("annotations", ()):
        annotation.setdefault("iscrowd", 0)
    return annotations
