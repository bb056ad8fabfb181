"""Results of an earlier run, read to be scored again: MMDetection's pickles, COCO's JSON, and ``detections.jsonl``."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmort._files.inputs import read_text
from mmort.detections.detections import RunLengths
from mmort.evaluate import coco_format
from mmort.evaluate.coco import CocoDataset
from mmort.evaluate.dataset import Dataset, DatasetImage, DatasetWarning
from mmort.evaluate.pickles import read_pickle
from mmort.evaluate.results import ImageResult

RESULT_SUFFIXES = ".pkl", ".pickle", ".json", ".jsonl"
"""Of the files that `read_results` reads."""


def read_results(path: str | os.PathLike[str], dataset: Dataset) -> list[ImageResult]:
    """Read the detections of an earlier run in the images of a data set.

    Parameters
    ----------
    path : path
        ``results.pkl`` of MMDetection 2 or 3, or of ``mmort test --out``; results in COCO's format, such as
        ``results.bbox.json`` or ``results.segm.json``; or ``detections.jsonl`` of ``mmort predict``.
    dataset : Dataset
        Whose images the file has results of; labels count its classes.

    Returns
    -------
    list of ImageResult
        For each image of the data set.  Images that COCO's format does not have found nothing.

    Raises
    ------
    ValueError
        If the file is not in its format, or is of other images or classes.
    OSError
        If it cannot be opened.

    Warns
    -----
    DatasetWarning
        If detections with low scores were left out, which metrics count, or boxes are those of masks.
    """
    suffix = Path(path).suffix
    if suffix not in RESULT_SUFFIXES:
        raise ValueError(f"evaluate: results must be one of {', '.join(RESULT_SUFFIXES)}, got {os.fspath(path)}")
    read = {".json": _of_coco, ".jsonl": _of_lines}.get(suffix, _of_pickle)
    try:
        results = read(Path(path), dataset)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        if str(error).startswith("evaluate: "):
            raise
        problem = f"{type(error).__name__}: {error}"
        raise ValueError(f"evaluate: {os.fspath(path)} is not in the format of its suffix: {problem:.100}") from None
    for result in results:
        wrong = result.labels[(result.labels < 0) | (result.labels >= len(dataset.classes))]
        if len(wrong):
            raise ValueError(
                f"evaluate: {os.fspath(path)} has label {wrong[0]}, but the data set has {len(dataset.classes)} "
                f"classes: {coco_format.listed(dataset.classes)}"
            )
    return results


def _result(
    boxes: ArrayLike,
    scores: ArrayLike,
    labels: ArrayLike,
    masks: Sequence[Mapping[str, Any]] | None = None,
    rotated: ArrayLike | None = None,
) -> ImageResult:
    """Return the result of an image, by descending score; equal scores keep their order."""
    of_scores: NDArray[Any] = np.asarray(scores).reshape(-1)
    order = np.argsort(-of_scores, kind="stable")
    of_boxes = np.asarray(boxes, float if np.asarray(boxes).dtype == object else None).reshape(-1, 4)
    if len(of_boxes) != len(order) or not (np.isfinite(of_boxes).all() and np.isfinite(of_scores).all()):
        raise ValueError("evaluate: results must have a finite box and score of each detection")
    return ImageResult(
        of_boxes[order],
        of_scores[order],
        np.asarray(labels, np.int64).reshape(-1)[order],
        None if masks is None else [_lengths(masks[index]) for index in order],
        None if rotated is None else np.asarray(rotated).reshape(-1, 5)[order],
    )


def _lengths(mask: Mapping[str, Any]) -> RunLengths:
    """Return run lengths whose counts are text."""
    counts, (height, width) = mask["counts"], mask["size"]
    if isinstance(counts, bytes):
        counts = counts.decode("ascii", "replace")
    size = [int(height), int(width)]
    problem = coco_format.segmentation_problem({"size": size, "counts": counts}, *size)
    if problem is not None or not isinstance(counts, str):
        raise ValueError(f"evaluate: a mask of the results must be {problem or 'compressed run lengths'}")
    return RunLengths(size=size, counts=counts)


# ---- MMDetection's pickles -------------------------------------------------------------------------------------


def _of_pickle(path: Path, dataset: Dataset) -> list[ImageResult]:
    """Read MMDetection 2's list, in the order of the images, or MMDetection 3's, whose entries have an ``img_id``."""
    entries = read_pickle(path)
    if not isinstance(entries, list) or len(entries) != len(dataset):
        count = f"{len(entries)} entries" if isinstance(entries, list) else f"a {type(entries).__name__}"
        raise ValueError(
            f"evaluate: {path} must have a list with an entry for each of {len(dataset)} images, got {count}"
        )
    if entries and all(isinstance(entry, dict) and "pred_instances" in entry for entry in entries):
        by_id = {coco_format.id_key(entry["img_id"]): entry["pred_instances"] for entry in entries}
        missing = [image.name for image in dataset.images if coco_format.id_key(image.id) not in by_id]
        if missing:
            raise ValueError(f"evaluate: {path} has no results of {missing[0]}")
        return [_of_instances(by_id[coco_format.id_key(image.id)]) for image in dataset.images]
    return [_of_classes(path, entry, len(dataset.classes)) for entry in entries]


def _of_instances(instances: Mapping[str, Any]) -> ImageResult:
    """Return the result of an image of MMDetection 3."""
    boxes = np.asarray(instances["bboxes"])
    rotated = boxes if boxes.ndim == 2 and boxes.shape[1] == 5 else None
    around = boxes if rotated is None else np.zeros((len(boxes), 4), np.float32)
    return _result(around, instances["scores"], instances["labels"], instances.get("masks"), rotated)


def _of_classes(path: Path, entry: Any, count: int) -> ImageResult:
    """Return the result of an image of MMDetection 2: arrays by class, with masks beside them if there are any."""
    arrays, masks = entry if isinstance(entry, tuple) else (entry, None)
    if not isinstance(arrays, list) or len(arrays) != count:
        raise ValueError(
            f"evaluate: {path} must have a list of {count} arrays for each image, one for each class of the data set; "
            f"got {len(arrays) if isinstance(arrays, list) else type(arrays).__name__}"
        )
    labels = np.repeat(np.arange(count), list(map(len, arrays)))
    rows = np.concatenate([np.asarray(array, np.float32) for array in arrays])
    rotated = rows[:, :5] if rows.shape[1] == 6 else None
    boxes = rows[:, :4] if rotated is None else np.zeros((len(rows), 4), np.float32)
    flat = None if masks is None else [mask for of_class in masks for mask in of_class]
    return _result(boxes, rows[:, -1], labels, flat, rotated)


# ---- JSON ------------------------------------------------------------------------------------------------------


def _of_coco(path: Path, dataset: Dataset) -> list[ImageResult]:
    """Read a list of detections in COCO's format."""
    if not isinstance(dataset, CocoDataset):
        raise ValueError(f"evaluate: {path} has results in COCO's format, so annotations must be in it, too")
    rows = _parsed(path, read_text("results", path))
    if not coco_format.is_list(rows):
        raise ValueError(f"evaluate: {path} must be a list of detections, as COCO's format has results")
    labels: dict[Any, int] = {}
    for label, category in enumerate(dataset.category_ids):
        labels.setdefault(coco_format.id_key(category), label)
    of_images: dict[Any, list[dict[str, Any]]] = {coco_format.id_key(image.id): [] for image in dataset.images}
    for index, row in enumerate(rows):
        image, category = coco_format.id_key(row["image_id"]), coco_format.id_key(row["category_id"])
        if image not in of_images:
            raise ValueError(f"evaluate: [{index}].image_id in {path} is no image of the data set: {image!r}")
        if category in labels:  # others are of classes that are not evaluated
            of_images[image].append({**row, "label": labels[category]})
    has_masks = bool(rows) and all("segmentation" in row for row in rows)
    if has_masks and not all("bbox" in row for row in rows):
        warnings.warn(f"{path} has no boxes; those of its masks are used", DatasetWarning, stacklevel=4)
    return [_of_rows(of_image, has_masks=has_masks) for of_image in of_images.values()]


def _of_rows(rows: Sequence[Mapping[str, Any]], *, has_masks: bool) -> ImageResult:
    """Return the result of an image from COCO's rows; of rows with masks alone, boxes are those of the masks."""
    masks = [_lengths(row["segmentation"]) for row in rows] if has_masks else None
    boxes = np.array([row["bbox"] if "bbox" in row else _box_of_mask(row) for row in rows], float).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    return _result(boxes, [row["score"] for row in rows], [row["label"] for row in rows], masks)


def _box_of_mask(row: Mapping[str, Any]) -> list[float]:
    """Return the box around the mask of a detection: x, y, width, height."""
    from faster_coco_eval.core import mask as coco

    box: list[float] = coco.toBbox(_lengths(row["segmentation"])).tolist()
    return box


def _of_lines(path: Path, dataset: Dataset) -> list[ImageResult]:
    """Read the lines of ``detections.jsonl``, each with the path of its image; classes are matched by name."""
    _warn_of_threshold(path)
    by_name: dict[str, list[Any]] = {}
    for line in filter(str.strip, read_text("results", path).splitlines()):
        entry = _parsed(path, line)
        by_name.setdefault(Path(entry["image"]).name, []).append(entry)
    lines = [_line_of(by_name.get(image.path.name, ()), image) for image in dataset.images]
    missing = [image.name for image, line in zip(dataset.images, lines, strict=True) if line is None]
    if missing:
        raise ValueError(f"evaluate: {path} must have one line of each image of the data set, also of {missing[0]}")
    rows = [line["detections"] for line in lines if line is not None]
    labels = {name: label for label, name in enumerate(dataset.classes)}
    labels |= {str(label): label for label in range(len(labels)) if str(label) not in labels}  # of unnamed classes
    names = {row["name"] for of_image in rows for row in of_image}
    if names and not names & labels.keys():
        raise ValueError(
            f"evaluate: {path} has no detection of the classes {coco_format.listed(dataset.classes)}; it has "
            f"{coco_format.listed(sorted(names))}"
        )
    has = {name: any(name in row for of_image in rows for row in of_image) for name in ("segmentation", "rotated_box")}
    return [_of_line([row for row in of_image if row["name"] in labels], labels, has) for of_image in rows]


def _of_line(rows: Sequence[Mapping[str, Any]], labels: Mapping[str, int], has: Mapping[str, bool]) -> ImageResult:
    """Return the result of an image from the detections of a line, whose numbers have the digits of float32."""
    return _result(
        np.array([row["box"] for row in rows], np.float32).reshape(-1, 4),
        np.array([row["score"] for row in rows], np.float32),
        [labels[row["name"]] for row in rows],
        [row["segmentation"] for row in rows] if has["segmentation"] else None,
        np.array([row["rotated_box"] for row in rows], np.float32) if has["rotated_box"] else None,
    )


def _warn_of_threshold(path: Path) -> None:
    """Warn if the run left out detections with low scores, as its ``run.json`` has it."""
    settings = path.with_name("run.json")
    threshold = _parsed(settings, read_text("settings", settings))["score threshold"] if settings.exists() else 0
    if threshold > 0:
        text = f"{path} has no scores below {threshold:g}, which metrics count; mmort predict --score-thr 0 keeps them"
        warnings.warn(text, DatasetWarning, stacklevel=5)


def _line_of(entries: Iterable[Mapping[str, Any]], image: DatasetImage) -> Mapping[str, Any] | None:
    """Return the line of an image among those of files of its name: the only one, or that with its path."""
    entries = list(entries)
    same = [entry for entry in entries if os.path.realpath(entry["image"]) == os.path.realpath(image.path)]
    candidates = same or [entry for entry in entries if Path(entry["image"]).as_posix().endswith(image.name)]
    return candidates[0] if len(candidates) == 1 else None


def _parsed(path: Path, text: str) -> Any:
    """Parse JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"evaluate: {path} is not JSON: {error}") from None
