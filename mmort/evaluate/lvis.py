"""LVIS: annotations in COCO's format of which an image has some classes only, and metrics that know which.

A detection counts only if its class is annotated in the image or stated to be absent; where a class is not annotated
exhaustively, a detection without an object is no error.  Source: A. Gupta et al., "LVIS: A Dataset for Large Vocabulary
Instance Segmentation", CVPR 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.evaluate import coco_format
from mmort.evaluate.coco import CocoDataset, rows_of
from mmort.evaluate.coco_metrics import AREAS, classwise_table, coco_library, mean_of_measured
from mmort.evaluate.dataset import Metrics
from mmort.evaluate.image_objects import ImageObjects
from mmort.evaluate.option_checks import option_values
from mmort.evaluate.results import ImageResult
from mmort.tables import lay_out

MAX_DETECTIONS = 300
"""Detections of an image that count, the best ones."""

FREQUENCIES = {"r": "rare", "c": "common", "f": "frequent"}
"""The groups of classes by the number of training images that have them."""


class NotFederatedError(ValueError):
    """An annotation file does not state which classes of an image are annotated."""


@dataclass(frozen=True, kw_only=True)
class LvisOptions:
    """Options of LVIS's metrics, by the names of MMDetection's.

    Parameters
    ----------
    classwise : bool, default False
        Add the AP of each class.
    """

    classwise: bool = False


class LvisDataset(CocoDataset):
    """LVIS, whose AP is also that of its rare, common and frequent classes: ``bbox_APr``, ``bbox_APc``, ``bbox_APf``.

    Parameters
    ----------
    annotation_file, image_dir, classes, labels_by_name
        See `CocoDataset`.

    Raises
    ------
    NotFederatedError
        If images have no ``neg_category_ids`` and ``not_exhaustive_category_ids``, or categories no ``frequency``.
    ValueError
        As for `CocoDataset`.
    """

    metric_names = "bbox", "segm"

    def _open(
        self,
        annotations: dict[str, Any],
        annotation_file: Path,
        folder: Path,
        classes: Sequence[str] | None,
        *,
        labels_by_name: bool,
    ) -> None:
        _require_federated(annotation_file, annotations)
        super()._open(annotations, annotation_file, folder, classes, labels_by_name=labels_by_name)
        keys = map(coco_format.id_key, self.category_ids)
        numbers = dict(zip(keys, self.truth.category_numbers.tolist(), strict=True))

        def of_images(name: str) -> list[list[int]]:
            ids = ([coco_format.id_key(id) for id in image[name]] for image in annotations["images"])
            return [[numbers[key] for key in of_image if key in numbers] for of_image in ids]

        self._absent, self._not_exhaustive = of_images("neg_category_ids"), of_images("not_exhaustive_category_ids")
        frequencies = {coco_format.id_key(entry["id"]): entry["frequency"] for entry in annotations["categories"]}
        self._frequencies = {number: frequencies[key] for key, number in numbers.items()}

    def _check_options(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        option_values(LvisOptions, options)

    def objects(self) -> list[ImageObjects] | None:
        """Return the objects of each image, and by which classes it is judged."""
        objects = super().objects()
        if objects is None:
            return None
        numbers = self.truth.category_numbers.tolist()
        judged = []
        for of_image, absent, not_exhaustive in zip(objects, self._absent, self._not_exhaustive, strict=True):
            present = {numbers[label] for label in of_image.labels.tolist()}
            labels = frozenset(self.truth.label_of[number] for number in (present | {*absent}) - {*not_exhaustive})
            judged.append(replace(of_image, judged=labels))
        return judged

    def score(self, results: Sequence[ImageResult], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Compute AP; the options are those of `LvisOptions`."""
        parsed = LvisOptions(**option_values(LvisOptions, options))
        figures: dict[str, float] = {}
        tables: list[str] = []
        classwise: dict[str, dict[str, dict[str, float]]] = {}
        for metric in metrics:
            evaluator = self._evaluated([_best(result) for result in results], metric)
            of_metric = self._figures(evaluator)
            figures |= {f"{metric}_{name}": value for name, value in of_metric.items()}
            rows = [[name, f"{value:.3f}"] for name, value in of_metric.items()]
            tables.append(f"Evaluating {metric} of LVIS...\n{lay_out(rows)}")
            if parsed.classwise:
                classwise[metric] = self._classwise(evaluator)
                tables.append(classwise_table(classwise[metric]))
        return Metrics(figures, tuple(tables), classwise)

    def _evaluated(self, results: Sequence[ImageResult], metric: str) -> Any:
        """Run faster-coco-eval; return its evaluator."""
        library, masks = coco_library(), metric == "segm"
        truth = self.truth.annotations(masks=masks)
        for image, absent, not_exhaustive in zip(truth["images"], self._absent, self._not_exhaustive, strict=True):
            image |= {"neg_category_ids": absent, "not_exhaustive_category_ids": not_exhaustive}
        for category in truth["categories"]:
            category["frequency"] = self._frequencies[category["id"]]
        numbers = self.truth.image_numbers.tolist(), self.truth.category_numbers.tolist()
        ground_truth = library.COCO(truth)
        detections = ground_truth.loadRes(rows_of(results, *numbers, masks=masks))
        evaluator = library.COCOeval_faster(ground_truth, detections, metric, lvis_style=True)
        evaluator.params.maxDets = [MAX_DETECTIONS]
        evaluator.evaluate()
        evaluator.accumulate()
        return evaluator

    def _figures(self, evaluator: Any) -> dict[str, float]:
        """Return the figures by LVIS's names."""
        precision: NDArray[Any] = evaluator.eval["precision"][..., -1]
        thresholds = evaluator.params.iouThrs
        frequencies = np.array([self._frequencies[category] for category in evaluator.params.catIds])
        parts = {
            "AP": precision[..., 0],
            "AP50": precision[np.isclose(thresholds, 0.5), ..., 0],
            "AP75": precision[np.isclose(thresholds, 0.75), ..., 0],
            **{f"AP{area[0]}": precision[..., index] for index, area in enumerate(AREAS) if area != "all"},
            **{f"AP{group}": precision[:, :, frequencies == group, 0] for group in FREQUENCIES},
        }
        return {name: mean_of_measured(part) for name, part in parts.items()}

    def _classwise(self, evaluator: Any) -> dict[str, dict[str, float]]:
        """Return the AP of each class, by its name."""
        precision: NDArray[Any] = evaluator.eval["precision"][..., 0, -1]
        categories = list(evaluator.params.catIds)
        return {
            name: {"AP": mean_of_measured(precision[:, :, categories.index(number)])}
            for number, name in self._category_names.items()
        }


def _require_federated(path: Path, annotations: Mapping[str, Any]) -> None:
    """Refuse annotations that do not state which classes of an image are annotated."""
    names = "neg_category_ids", "not_exhaustive_category_ids"
    for index, image in enumerate(annotations["images"]):
        for name in names:
            ids = image.get(name)
            if not isinstance(ids, list) or not all(map(coco_format.is_id, ids)):
                raise NotFederatedError(f"evaluate: images[{index}].{name} in {path} must be a list of ids, as in LVIS")
    for index, category in enumerate(annotations["categories"]):
        if category.get("frequency") not in FREQUENCIES:
            raise NotFederatedError(f"evaluate: categories[{index}].frequency in {path} must be r, c or f, as in LVIS")


def _best(result: ImageResult) -> ImageResult:
    """Return the detections of an image that count, the highest scores first."""
    best = np.argsort(-result.scores, kind="stable")[:MAX_DETECTIONS]
    masks = None if result.masks is None else [result.masks[index] for index in best]
    return ImageResult(result.boxes[best], result.scores[best], result.labels[best], masks)
