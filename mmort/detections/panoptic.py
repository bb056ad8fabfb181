"""Panoptic segmentation: from masks that overlap to a map in which each pixel has one segment, as MMDetection does it.

There are two ways.  MaskFormer's queries compete for each pixel; Panoptic FPN lays instances on each other, and fills
what they leave with a semantic segmentation.  Both work on masks in the size of the image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mmort.detections.masks import Masks

INSTANCE_OFFSET = 1000
"""A segment's id is its label plus this times the number of its instance: from 1 for things, 0 for stuff."""

Source = Literal["queries", "instances"]


@dataclass(frozen=True, eq=False)
class PanopticMap:
    """The segments of an image.

    Attributes
    ----------
    ids : ndarray of int32, (H, W)
        The id of each pixel's segment; the number of classes where there is none.
    scores : dict of int to float
        The score of each segment that has pixels, by its id.
    """

    ids: NDArray[np.int32]
    scores: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SegmentIds:
    """The ids of the segments that `Detections` are, if they are those of a panoptic segmentation.

    Attributes
    ----------
    values : ndarray of int64, (N,)
        MMDetection's: the label, and for things 1000 times the number of the instance.
    things, classes : int
        Labels below `things` are of things, the others, below `classes`, of stuff.
    """

    values: NDArray[np.int64]
    things: int
    classes: int

    def select(self, indices: NDArray[np.intp]) -> SegmentIds:
        """Return the ids of some segments."""
        return SegmentIds(self.values[indices], self.things, self.classes)


@dataclass(frozen=True)
class PanopticFormat:
    """How segments are made of a file's masks; a file's metadata ``masks`` holds it.

    Parameters
    ----------
    source : {"queries", "instances"}
        What the masks are: those of queries, of which the most probable one has a pixel; or those of instances, of
        which the best one has a pixel, before a semantic segmentation, the output ``semantic``.
    things, classes : int
        Labels below `things` are of things, which are counted, and the others, below `classes`, of stuff.
    min_visible : float, default 0.8
        Of queries: the smallest share of a mask that must be left, or else it is dropped (``iou_thr``).
    inside_only : bool, default False
        Of queries: a segment has only pixels inside its own mask (``filter_low_score``).
    max_overlap : float, default 0.5
        Of instances: the largest share of a mask that better ones may cover, or else it is dropped (``mask_overlap``).
    min_stuff_area : int, default 4096
        With instances: pixels of stuff that has fewer belong to no segment (``stuff_area_limit``).

    Examples
    --------
    Two queries compete for three pixels; the second one, a thing, has the higher score.

    >>> import numpy as np
    >>> from mmort.detections.panoptic import PanopticFormat
    >>> logits = np.array([[[4.0, 1.0, -3.0]], [[-4.0, 2.0, 1.0]]], np.float32)
    >>> PanopticFormat("queries", things=1, classes=2, min_visible=0.5).of_queries(logits, [1, 0], [0.5, 0.75], (1, 3))
    PanopticMap(ids=array([[   1, 1000, 1000]], dtype=int32), scores={1: 0.5, 1000: 0.75})
    """

    source: Source
    things: int
    classes: int
    min_visible: float = 0.8
    inside_only: bool = False
    max_overlap: float = 0.5
    min_stuff_area: int = 4096

    def __post_init__(self) -> None:
        if self.source not in get_args(Source):
            raise ValueError(f"PanopticFormat: source must be 'queries' or 'instances', got {self.source!r}")
        if not 0 <= self.things <= self.classes < INSTANCE_OFFSET:
            raise ValueError(
                f"PanopticFormat: things and classes must be 0 <= things <= classes < {INSTANCE_OFFSET}, got "
                f"{self.things} and {self.classes}"
            )

    def of_queries(
        self,
        logits: Iterable[NDArray[np.float32]],
        labels: Sequence[int] | NDArray[np.int64],
        scores: Sequence[float] | NDArray[np.float32],
        size: tuple[int, int],
    ) -> PanopticMap:
        """Give each pixel to the query with the largest product of score and probability.

        Parameters
        ----------
        logits : iterable of ndarray, (H, W)
            The mask of each query, one at a time.
        labels, scores : sequence
            Of the queries, (K,), in the order in which their instances are numbered.
        size : (int, int)
            H and W.
        """
        labels, scores = np.asarray(labels, np.int64), np.asarray(scores, np.float32)
        best, owner = np.full(size, -np.inf, np.float32), np.full(size, -1, np.int32)
        inside, areas = np.zeros(size, bool), np.zeros(len(labels), np.int64)
        for query, values in enumerate(logits):
            _require_size(values, size)
            probabilities = scores[query] * (1 / (1 + np.exp(-values)))
            better, is_inside = probabilities > best, values >= 0
            areas[query] = is_inside.sum()
            best[better], owner[better], inside[better] = probabilities[better], query, is_inside[better]
        owned = np.bincount(owner[owner >= 0], minlength=len(labels))
        ids = np.full(len(labels) + 1, self.classes, np.int32)  # the last is of pixels without a query
        kept = (owned > 0) & (areas > 0)
        kept[kept] = owned[kept] / areas[kept] >= self.min_visible
        things = kept & (labels < self.things)
        ids[:-1][kept] = labels[kept]
        ids[:-1][things] += INSTANCE_OFFSET * np.arange(1, things.sum() + 1, dtype=np.int32)
        map = ids[owner]
        if self.inside_only:
            map[~inside] = self.classes
        best_scores: dict[int, float] = {}
        for query in np.flatnonzero(kept).tolist():
            segment = int(ids[query])
            best_scores[segment] = max(best_scores.get(segment, 0.0), float(scores[query]))
        present = set(np.unique(map).tolist())
        return PanopticMap(map, {segment: score for segment, score in best_scores.items() if segment in present})

    def of_instances(
        self,
        masks: Masks,
        labels: Sequence[int] | NDArray[np.int64],
        scores: Sequence[float] | NDArray[np.float32],
        semantic: Iterable[NDArray[np.float32]],
        size: tuple[int, int],
    ) -> PanopticMap:
        """Give each pixel to the best instance there, and the other pixels to the most probable kind of stuff.

        Parameters
        ----------
        masks : Masks
            Of the instances, by descending score.
        labels, scores : sequence
            Of the instances, (K,).
        semantic : iterable of ndarray, (H, W)
            The logits of each kind of stuff, one at a time, and those of all things last.
        size : (int, int)
            H and W.
        """
        labels, scores = np.asarray(labels, np.int64), np.asarray(scores, np.float32)
        instances = np.zeros(size, np.int32)
        accepted: list[int] = []
        for index in range(len(masks)):
            top, left, mask = masks.region(index, *size)
            part = instances[top : top + mask.shape[0], left : left + mask.shape[1]]
            area, covered = np.float32(mask.sum()), np.float32((mask & (part > 0)).sum())
            if area and covered / (area + np.float32(1e-5)) <= self.max_overlap:
                accepted.append(index)
                part[mask & (part == 0)] = len(accepted)
        map, probabilities = _most_probable(semantic, size)
        map += self.things
        numbers = [number for number in np.unique(instances).tolist() if number]
        segment_scores: dict[int, float] = {}
        for instance, number in enumerate(numbers, 1):
            index = accepted[number - 1]
            segment = int(labels[index]) + INSTANCE_OFFSET * instance
            map[instances == number] = segment
            segment_scores[segment] = float(scores[index])
        stuff, areas = np.unique(map[instances == 0], return_counts=True)
        for segment, area in zip(stuff.tolist(), areas.tolist(), strict=True):
            pixels = (map == segment) & (instances == 0)
            if area < self.min_stuff_area:
                map[pixels] = self.classes
            elif segment < self.classes:
                segment_scores[segment] = float(probabilities[pixels].mean(dtype=np.float64))
        return PanopticMap(map, segment_scores)


def _most_probable(
    logits: Iterable[NDArray[np.float32]], size: tuple[int, int]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the channel with the largest logit of each pixel, the first of equal ones, and its probability."""
    best, channel = np.full(size, -np.inf, np.float32), np.zeros(size, np.int32)
    total = np.zeros(size, np.float32)  # of the exponentials, relative to the best
    for index, values in enumerate(logits):
        _require_size(values, size)
        better = values > best
        with np.errstate(invalid="ignore"):  # the first is compared with -infinity
            total = np.where(better, total * np.exp(best - values) + 1, total + np.exp(values - best))
        best[better], channel[better] = values[better], index
    probabilities: NDArray[np.float32] = (1 / np.maximum(total, 1)).astype(np.float32)
    return channel, probabilities


def _require_size(values: NDArray[np.float32], size: tuple[int, int]) -> None:
    """Refuse a mask that does not cover the image, as its format in the file's metadata is not that of the output."""
    if values.shape != size:
        raise ValueError(
            f"masks must cover the image, {size[0]} x {size[1]}, got {values.shape[0]} x {values.shape[1]}"
        )
