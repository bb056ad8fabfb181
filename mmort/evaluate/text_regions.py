"""Data sets of images with texts in MMOCR's format, and its ``HmeanIOUMetric``: texts found, by overlap."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmort.contract import TEXT_DETECTION, Task
from mmort.detections.text_regions import TextRegions
from mmort.evaluate.dataset import Dataset, DatasetImage, Metrics
from mmort.evaluate.option_checks import option_values
from mmort.evaluate.words import read_data_list
from mmort.limits import MAX_SCORE_THRESHOLDS


@dataclass(frozen=True)
class HmeanOptions:
    """The options of ``HmeanIOUMetric``, by MMOCR's names.

    Parameters
    ----------
    match_iou_thr : float, default 0.5
        Texts whose overlap is larger are the same.
    ignore_precision_thr : float, default 0.5
        What is found counts neither way if a larger share of it is in a text that is to be ignored.
    pred_score_thrs : mapping, optional
        The scores from which on texts count, of which the best for the figures is taken; the arguments of `np.arange`.
        By default from 0.3 to below 0.9 in steps of 0.1.
    strategy : str, default "vanilla"
        Texts are matched in the order of the annotations; "max_matching" is not supported.
    """

    match_iou_thr: float = 0.5
    ignore_precision_thr: float = 0.5
    pred_score_thrs: Mapping[str, float] | None = None
    strategy: str = "vanilla"

    @property
    def thresholds(self) -> NDArray[np.float64]:
        """The scores from which on texts count."""
        stated = {"start": 0.3, "stop": 0.9, "step": 0.1} if self.pred_score_thrs is None else self.pred_score_thrs
        thresholds: NDArray[np.float64] = np.arange(stated["start"], stated["stop"], stated["step"], dtype=np.float64)
        return thresholds


class _Truth(NamedTuple):
    """The texts of an image, and which of them are to be ignored."""

    polygons: list[NDArray[np.float32]]
    ignored: list[bool]


class _Overlaps(NamedTuple):
    """How far the texts of an image (G) and those that were found (N) overlap, (G, N), and the scores of the latter."""

    overlaps: NDArray[np.float64]
    scores: NDArray[np.float32]


class TextRegionDataset(Dataset):
    """Images with the outlines of texts.

    Parameters
    ----------
    images : path
        The folder that the paths of the images are relative to.
    annotations : path
        A JSON file of MMOCR's: ``data_list``, with an ``img_path`` and ``instances`` each, which have a ``polygon`` and
        perhaps ``ignore``.

    Raises
    ------
    ValueError
        If the file is not in this format.
    OSError
        If it cannot be opened.
    ImportError
        If shapely is not installed.
    """

    task: ClassVar[Task] = TEXT_DETECTION
    metric_names = ("hmean",)
    classes = ("text",)

    def __init__(self, images: str | os.PathLike[str], annotations: str | os.PathLike[str]) -> None:
        _shapely()
        folder, entries = Path(images), read_data_list(annotations)
        self._truths = [_truth_of(annotations, name, instances) for name, instances in entries]
        self.images = tuple(DatasetImage(index, folder / name, name) for index, (name, _) in enumerate(entries))

    def check(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse metrics and options that `score` does not have."""
        super().check(metrics, options)
        _options(options)

    def result_of(self, image: DatasetImage, found: TextRegions) -> TextRegions:
        """Return the texts in an image."""
        return found

    def score(self, results: Sequence[Any], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Return precision, recall and their harmonic mean at the score where that is highest, by MMOCR's names."""
        chosen = _options(options)
        thresholds = chosen.thresholds
        of_images = [
            _overlaps(truth, found, chosen, thresholds.min())
            for truth, found in zip(self._truths, results, strict=True)
        ]
        count = sum(len(image.overlaps) for image in of_images)
        best: dict[str, float] = {}
        for threshold in thresholds:
            kept = [image.overlaps[:, image.scores >= threshold] > chosen.match_iou_thr for image in of_images]
            figures = _figures(sum(map(_matches, kept)), count, sum(matched.shape[1] for matched in kept))
            if figures["hmean"] > best.get("hmean", -1):
                best = figures
        return Metrics(best)


def _options(options: Mapping[str, Any]) -> HmeanOptions:
    """Return options of the metric; ValueError if one is unknown or out of range."""
    chosen = HmeanOptions(**option_values(HmeanOptions, options))
    for name in ("match_iou_thr", "ignore_precision_thr"):
        if not isinstance(getattr(chosen, name), Real):
            raise ValueError(f"evaluate: {name} must be a number, got {getattr(chosen, name)!r}")
    if chosen.strategy != "vanilla":
        raise ValueError(f"evaluate: strategy must be 'vanilla', got {chosen.strategy!r}")
    stated = chosen.pred_score_thrs
    if stated is not None:
        values = dict(stated) if isinstance(stated, Mapping) else {}
        if set(values) != {"start", "stop", "step"} or not all(isinstance(value, Real) for value in values.values()):
            raise ValueError(f"evaluate: pred_score_thrs must have the numbers start, stop and step, got {stated}")
        if not 0 < (values["stop"] - values["start"]) / (values["step"] or np.inf) <= MAX_SCORE_THRESHOLDS:
            raise ValueError(f"evaluate: pred_score_thrs must be 1 to {MAX_SCORE_THRESHOLDS} scores, got {stated}")
    return chosen


def _truth_of(annotations: str | os.PathLike[str], name: str, instances: Sequence[Mapping[str, Any]]) -> _Truth:
    """Return the texts of an image; ValueError if one has no polygon."""
    polygons = []
    for instance in instances:
        try:
            polygon = np.array(instance.get("polygon"), np.float32)
        except (TypeError, ValueError):
            polygon = np.zeros(0, np.float32)
        if polygon.ndim != 1 or polygon.size < 6 or polygon.size % 2 or not np.isfinite(polygon).all():
            raise ValueError(
                f"evaluate: {annotations}: a polygon of {name} must be x1, y1, x2, y2 ... of three corners"
            )
        polygons.append(polygon.reshape(-1, 2))
    return _Truth(polygons, [bool(instance.get("ignore")) for instance in instances])


def _overlaps(truth: _Truth, found: TextRegions, options: HmeanOptions, lowest: float) -> _Overlaps:
    """Return the overlaps of texts that count."""
    polygon = _shapely().Polygon
    truths = [_valid(polygon(corners)) for corners in truth.polygons]
    ignored = [shape for shape, is_ignored in zip(truths, truth.ignored, strict=True) if is_ignored]
    counted = [shape for shape, is_ignored in zip(truths, truth.ignored, strict=True) if not is_ignored]
    shapes, scores = [], []
    for corners, score in zip(found.polygons, found.scores, strict=True):
        made = polygon(corners.astype(np.float32))
        shape = _valid(made)
        shares = (other.intersection(shape).area / (made.area + 1e-5) for other in ignored)
        if score >= lowest and not any(share > options.ignore_precision_thr for share in shares):
            shapes.append(shape)
            scores.append(score)
    overlaps = [[_overlap(one, other) for other in shapes] for one in counted]
    return _Overlaps(np.array(overlaps, np.float64).reshape(len(counted), len(shapes)), np.array(scores, np.float32))


def overlaps_of(polygons: Sequence[NDArray[np.float64]], others: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the IoU of polygons (N) and others (M), (N, M).

    Raises
    ------
    ImportError
        If shapely is not installed.
    """
    made = _shapely().Polygon
    shapes, of_others = ([_valid(made(corners)) for corners in group] for group in (polygons, others))
    overlaps = [[_overlap(shape, other) for other in of_others] for shape in shapes]
    return np.array(overlaps, np.float64).reshape(len(shapes), len(of_others))


def _overlap(one: Any, other: Any) -> float:
    """Return the area of two shapes' intersection by that of their union."""
    union = one.union(other).area
    return float(one.intersection(other).area / union) if union else 0.0


def _valid(shape: Any) -> Any:
    """Return a polygon that does not cross itself, as MMOCR makes it."""
    made = shape if shape.is_valid else shape.buffer(0)
    return made if made.geom_type == "Polygon" else made.convex_hull


def _matches(matched: NDArray[np.bool_]) -> int:
    """Return how many texts have a match of their own, the first that is free."""
    texts: set[int] = set()
    found: set[int] = set()
    for text, match in zip(*(indices.tolist() for indices in np.nonzero(matched)), strict=True):
        if text not in texts and match not in found:
            texts.add(text)
            found.add(match)
    return len(texts)


def _figures(hits: int, texts: int, found: int) -> dict[str, float]:
    """Return the figures of a number of hits; without texts recall is 1, and each region that is found is wrong."""
    recall = hits / texts if texts else 1.0
    precision = (hits / found if found else 0.0) if texts else float(not found)
    total = recall + precision
    return {"precision": precision, "recall": recall, "hmean": 2 * precision * recall / total if total else 0.0}


def _shapely() -> ModuleType:
    """Return shapely, which computes the overlap of polygons; ImportError with the command if it is missing."""
    try:
        import shapely
    except ModuleNotFoundError:
        raise ImportError("overlaps of texts need shapely: pip install 'mmort[text]'") from None
    module: ModuleType = shapely
    return module
