"""Data sets of poses in COCO's format, and the AP and PCK of keypoints as MMPose measures them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mmort._files.inputs import read_bytes
from mmort.contract import POSE, Task
from mmort.detections.detections import Detections
from mmort.evaluate import coco_format
from mmort.evaluate.coco_metrics import coco_library
from mmort.evaluate.dataset import Dataset, DatasetImage, Metrics
from mmort.evaluate.option_checks import option_values
from mmort.predict import PosePredictor

ScoreMode = Literal["bbox", "keypoint", "bbox_keypoint", "bbox_rle"]
NmsMode = Literal["oks_nms", "none"]

FIGURES = "AP", "AP .5", "AP .75", "AP (M)", "AP (L)", "AR", "AR .5", "AR .75", "AR (M)", "AR (L)"
"""COCO's figures of keypoints, in its order, by MMPose's names."""

AREA_OF_BOX = 0.53
"""The share of a box that an object covers whose area is not stated, as MMPose has it."""


@dataclass(frozen=True, kw_only=True)
class PoseOptions:
    """The options of ``CocoMetric`` and ``PCKAccuracy``, by MMPose's names.

    Parameters
    ----------
    score_mode : {"bbox_keypoint", "bbox", "keypoint", "bbox_rle"}, default "bbox_keypoint"
        The score of a pose: the product of the box's and the mean of its keypoints'; either; or their sum with the
        largest one.
    keypoint_score_thr : float, default 0.2
        With "bbox_keypoint": keypoints with lower scores are not in the mean.
    nms_mode : {"oks_nms", "none"}, default "oks_nms"
        Whether poses that are like one with a better score are left out.
    nms_thr : float, default 0.9
        From which similarity on.
    use_area : bool, default True
        Whether distances are measured by the area of objects; otherwise by that of boxes.
    thr : float, default 0.05
        Of PCK: keypoints count that are nearer, as a share of the box's longer side.
    norm_item : str or sequence of str, default "bbox"
        Of PCK: what distances are measured by; "head" and "torso" are not supported.
    """

    score_mode: ScoreMode = "bbox_keypoint"
    keypoint_score_thr: float = 0.2
    nms_mode: NmsMode = "oks_nms"
    nms_thr: float = 0.9
    use_area: bool = True
    thr: float = 0.05
    norm_item: str | Sequence[str] = "bbox"

    def __post_init__(self) -> None:
        for name, choices in (("score_mode", get_args(ScoreMode)), ("nms_mode", get_args(NmsMode))):
            if getattr(self, name) not in choices:
                raise ValueError(f"evaluate: {name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        for name in ("keypoint_score_thr", "nms_thr", "thr"):
            if not isinstance(getattr(self, name), Real):
                raise ValueError(f"evaluate: {name} must be a number, got {getattr(self, name)!r}")
        if self.norm_item not in ("bbox", ["bbox"], ("bbox",)):
            raise ValueError(f"evaluate: norm_item of PCK must be 'bbox', got {self.norm_item!r}")


@dataclass(frozen=True, eq=False)
class _Boxes:
    """The boxes of an image, (N, 4): x1, y1, x2, y2, with scores and the ids of their categories.

    Those of annotations have keypoints, (N, P, 3): x, y, and whether they are labelled.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    categories: tuple[Any, ...]
    keypoints: NDArray[np.float32] | None = None


class PoseDataset(Dataset):
    """A data set whose objects have keypoints, in COCO's format.

    Parameters
    ----------
    annotation_file : path
        The JSON file.
    image_dir : path
        What the file's ``file_name`` entries are relative to.
    box_file : path, optional
        What a detector found, in COCO's format, whose first category is looked at.  By default poses are looked for in
        the boxes of the annotations.

    Raises
    ------
    ValueError
        If a file is not in COCO's format.
    """

    task: ClassVar[Task] = POSE
    metric_names: ClassVar[tuple[str, ...]] = ("keypoints", "pck")

    def __init__(
        self,
        annotation_file: str | os.PathLike[str],
        image_dir: str | os.PathLike[str],
        box_file: str | os.PathLike[str] | None = None,
    ) -> None:
        path = Path(annotation_file)
        annotations = coco_format.read_annotations(path, "COCO's format with keypoints", _REQUIRED, _OPTIONAL)
        self.images = coco_format.images_of(annotations, Path(image_dir))
        self.classes = tuple(category["name"] for category in annotations["categories"])
        self._objects: list[dict[str, Any]] = annotations.get("annotations", [])
        self._numbers = {coco_format.id_key(image.id): number for number, image in enumerate(self.images, 1)}
        self._categories = [category["id"] for category in annotations["categories"]]
        if not self._objects:
            raise ValueError(f"evaluate: {path} has no annotations, so nothing can be measured")
        for text in coco_format.unknown_ids(path, annotations, self._objects):
            raise ValueError(f"evaluate: {text}")
        self._boxes = _boxes_of_annotations(annotations) if box_file is None else _boxes_of_file(Path(box_file))
        self._sigmas: tuple[float, ...] = ()  # of the file, which `predict` reads
        self._needs_sigmas = True

    def check(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse metrics and options that `score` does not have."""
        super().check(metrics, options)
        PoseOptions(**option_values(PoseOptions, options))
        self._needs_sigmas = "keypoints" in metrics
        if self._needs_sigmas:
            coco_library()  # before anything is predicted
        if "pck" in metrics and any(boxes.keypoints is None for boxes in self._boxes.values()):
            raise ValueError("evaluate: pck is measured in the boxes of the annotations, but there is a box_file")

    def predict(self, predictor: PosePredictor, paths: Sequence[Path]) -> Iterator[Detections]:
        """Yield the poses in the boxes of each image.

        Raises
        ------
        ValueError
            If the predictor's file does not state how precisely people place its keypoints, which AP needs, or has
            other keypoints than the data set.
        """
        names, self._sigmas = predictor.format.names, predictor.format.sigmas
        if self._needs_sigmas and not self._sigmas:
            raise ValueError("evaluate: the file does not state the sigmas of its keypoints, by which AP is measured")
        for index, entry in enumerate(self._objects):
            if len(entry["keypoints"]) != 3 * len(names):
                raise ValueError(
                    f"evaluate: annotations[{index}] must have as many keypoints as the file, {len(names)}, got "
                    f"{len(entry['keypoints']) // 3}"
                )
        for image, path in zip(self.images, paths, strict=True):
            rows = self._boxes.get(coco_format.id_key(image.id))
            found = predictor.poses(path, np.zeros((0, 4)) if rows is None else rows.boxes)
            yield found

    def result_of(self, image: DatasetImage, found: Detections) -> Detections:
        """Return the poses of an image."""
        return found

    def score(self, results: Sequence[Any], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Return the AP and AR of keypoints, by MMPose's names: ``coco/AP``; and ``PCK``."""
        chosen = PoseOptions(**option_values(PoseOptions, options))
        figures = self._precisions(results, chosen) if "keypoints" in metrics else {}
        return Metrics(figures | ({"PCK": self._share_of_correct(results, chosen.thr)} if "pck" in metrics else {}))

    def _share_of_correct(self, results: Sequence[Any], limit: float) -> float:
        """Return the mean over keypoints of the share that is nearer than a share of the box's longer side."""
        near, labelled = [], []
        for image, found in zip(self.images, results, strict=True):
            boxes = self._boxes.get(coco_format.id_key(image.id))
            if boxes is None or boxes.keypoints is None:
                continue
            sides = (boxes.boxes[:, 2:] - boxes.boxes[:, :2]).max(axis=1)[:, None, None]
            distances = np.linalg.norm((found.keypoints[..., :2] - boxes.keypoints[..., :2]) / sides, axis=-1)
            near.append(distances < limit)
            labelled.append(boxes.keypoints[..., 2] > 0)
        if not labelled:
            return 0.0
        counted = np.concatenate(labelled)
        hits, counts = (np.concatenate(near) & counted).sum(axis=0), counted.sum(axis=0)
        return float((hits[counts > 0] / counts[counts > 0]).mean()) if counts.any() else 0.0

    def _precisions(self, results: Sequence[Any], chosen: PoseOptions) -> dict[str, float]:
        """Return the AP and AR of keypoints."""
        sigmas, rows = np.array(self._sigmas, np.float32), []
        for image, found in zip(self.images, results, strict=True):
            key = coco_format.id_key(image.id)
            if key not in self._boxes:
                continue
            boxes, keypoints = self._boxes[key], found.keypoints
            scores = _scores(keypoints[..., 2], boxes.scores, chosen)
            kept = list(range(len(scores)))
            if chosen.nms_mode == "oks_nms":
                kept = _suppressed(keypoints, scores, sigmas, chosen.nms_thr)
            rows += [
                {
                    "image_id": self._numbers[key],
                    "category_id": self._category(boxes.categories[index]),
                    "keypoints": keypoints[index].astype(float).ravel().tolist(),
                    "score": float(scores[index]),
                }
                for index in kept
            ]
        values = _average_precisions(self._truth(), rows, sigmas, use_area=chosen.use_area)
        return {f"coco/{name}": float(value) for name, value in zip(FIGURES, values, strict=True)}

    def _category(self, id: Any) -> int:
        """Return the number of a category, from 1 on."""
        keys = [coco_format.id_key(category) for category in self._categories]
        return keys.index(coco_format.id_key(id)) + 1

    def _truth(self) -> dict[str, Any]:
        """Return the annotations, with ids from 1 on."""
        entries = [
            {
                "id": number,
                "image_id": self._numbers[coco_format.id_key(entry["image_id"])],
                "category_id": self._category(entry["category_id"]),
                "bbox": _sides_of(entry),
                "area": _area_of(entry),
                "iscrowd": int(coco_format.flag(entry.get("iscrowd")) or 0),
                "keypoints": entry["keypoints"],
                "num_keypoints": _visible(entry),  # MMPose's metric does not read what is stated
            }
            for number, entry in enumerate(self._objects, 1)
        ]
        images = [{"id": number} for number in self._numbers.values()]
        categories = [{"id": number, "name": name} for number, name in enumerate(self.classes, 1)]
        return {"images": images, "annotations": entries, "categories": categories}


def _sides_of(entry: Mapping[str, Any]) -> list[float]:
    """Return an object's box: x, y, width, height."""
    return [float(coco_format.number(side) or 0) for side in entry["bbox"]]


def _area_of(entry: Mapping[str, Any]) -> float:
    """Return an object's area, which may be stated."""
    stated = coco_format.number(entry.get("area"))
    return float(np.prod(_sides_of(entry)[2:]) * AREA_OF_BOX if stated is None else stated)


def _visible(entry: Mapping[str, Any]) -> int:
    """Return how many keypoints of an object are labelled."""
    return int(np.count_nonzero(entry["keypoints"][2::3]))


def _boxes_of_annotations(annotations: Mapping[str, Any]) -> dict[Any, _Boxes]:
    """Return the boxes of the objects that MMPose looks at, clipped to their images, by the ids of these."""
    sizes = {
        coco_format.id_key(image["id"]): [coco_format.number(image[side]) for side in ("width", "height")]
        for image in annotations["images"]
    }
    rows: dict[Any, list[tuple[Any, Any, Any]]] = {}
    for entry in annotations["annotations"]:
        key = coco_format.id_key(entry["image_id"])
        x, y, width, height = _sides_of(entry)
        last = np.array(sizes[key] * 2, float) - 1
        box = np.clip([x, y, x + width, y + height], 0, last).astype(np.float32)
        has_points = np.reshape(entry["keypoints"], (-1, 3))[:, :2].max() > 0
        is_labelled = has_points and entry.get("num_keypoints") not in (0, "0")
        is_empty = (box[2:] <= box[:2]).any() or not is_labelled
        if not is_empty and not coco_format.flag(entry.get("iscrowd")):
            keypoints = np.array(entry["keypoints"], np.float32).reshape(-1, 3)
            rows.setdefault(key, []).append((box, entry["category_id"], keypoints))
    made = {}
    for key, found in rows.items():
        boxes, ids, points = zip(*found, strict=True)
        made[key] = _Boxes(np.stack(boxes), np.ones(len(found), np.float32), ids, np.stack(points))
    return made


def _boxes_of_file(path: Path) -> dict[Any, _Boxes]:
    """Return the boxes of the first category in a detector's results, by the ids of images."""
    try:
        results = json.loads(read_bytes("box file", path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"evaluate: {path} is not a JSON file: {error}") from None
    coco_format.check_objects(path, "boxes", results, _REQUIRED_OF_BOXES, {})
    rows: dict[Any, list[tuple[Any, float]]] = {}
    for row in results:
        x, y, width, height = (float(coco_format.number(edge) or 0) for edge in row["bbox"][:4])
        if coco_format.id_key(row["category_id"]) == 1 and width > 0 and height > 0:
            box = np.array([x, y, x + width, y + height], np.float32)
            score = float(coco_format.number(row["score"]) or 0)
            rows.setdefault(coco_format.id_key(row["image_id"]), []).append((box, score))
    return {
        key: _Boxes(
            np.stack([box for box, _ in found]), np.array([score for _, score in found], np.float32), (1,) * len(found)
        )
        for key, found in rows.items()
    }


def _scores(keypoints: NDArray[np.float32], boxes: NDArray[np.float32], options: PoseOptions) -> NDArray[np.float32]:
    """Return the score of each pose, from those of its keypoints (N, P) and of its box (N,)."""
    if options.score_mode == "bbox":
        return boxes
    mean: NDArray[np.float32] = keypoints.mean(axis=1)
    if options.score_mode == "keypoint":
        return mean
    if options.score_mode == "bbox_rle":
        mean += boxes + keypoints.max(axis=1)
        return mean
    counted = keypoints > options.keypoint_score_thr
    counts = counted.sum(axis=1)
    means: NDArray[np.float32] = np.where(counted, keypoints, 0).sum(axis=1) / np.maximum(counts, 1)
    return boxes * means


def _suppressed(
    keypoints: NDArray[np.float32], scores: NDArray[np.float32], sigmas: NDArray[np.float32], threshold: float
) -> list[int]:
    """Return the indices of poses that are not like one with a better score, best first."""
    areas = np.ptp(keypoints[..., 0], axis=1) * np.ptp(keypoints[..., 1], axis=1)
    order, kept = scores.argsort()[::-1], []
    while len(order):
        best, rest = order[0], order[1:]
        kept.append(int(best))
        squares = ((keypoints[rest, :, :2] - keypoints[best, :, :2]) ** 2).sum(axis=2)
        spreads = (2 * sigmas) ** 2 * 2 * ((areas[best] + areas[rest]) / 2 + np.spacing(1))[:, None]
        order = rest[np.exp(-squares / spreads).mean(axis=1) <= threshold]
    return kept


def _average_precisions(
    truth: dict[str, Any], rows: list[dict[str, Any]], sigmas: NDArray[np.float32], *, use_area: bool
) -> list[float]:
    """Return COCO's ten figures of keypoints."""
    if not rows:
        return [0.0] * len(FIGURES)
    library = coco_library()
    loaded = library.COCO(truth)
    evaluator = library.COCOeval_faster(
        loaded, loaded.loadRes(rows), "keypoints", kpt_oks_sigmas=sigmas.tolist(), use_area=use_area
    )
    evaluator.params.imgIds = [image["id"] for image in truth["images"]]
    evaluator.evaluate()
    evaluator.accumulate()
    evaluator.summarize()
    figures: list[float] = [float(value) for value in evaluator.stats[: len(FIGURES)]]
    return figures


_REQUIRED = {
    "images": {
        "id": coco_format.is_id,
        "file_name": coco_format.is_path,
        "height": coco_format.is_side,
        "width": coco_format.is_side,
    },
    "categories": {"id": coco_format.is_id, "name": coco_format.is_text},
    "annotations": {
        "id": coco_format.is_id,
        "image_id": coco_format.is_id,
        "category_id": coco_format.is_id,
        "bbox": coco_format.is_box,
        "keypoints": coco_format.is_keypoints,
    },
}
"""The keys that each object of an annotation file must have, and their checks."""

_REQUIRED_OF_BOXES = {
    "image_id": coco_format.is_id,
    "category_id": coco_format.is_id,
    "bbox": coco_format.is_detected_box,
    "score": coco_format.is_score,
}

_OPTIONAL = {"annotations": {"area": coco_format.is_area, "iscrowd": coco_format.is_flag}}
