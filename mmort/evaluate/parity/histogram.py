"""The geometry of the report's histogram of scores; the template draws it as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WIDTH, PANEL, HALF = 720, 150, 40
LEFT, TOP, GAP, BOTTOM = 52, 8, 32, 40


@dataclass(frozen=True)
class Bar:
    """A bar: its series, its rectangle, and the text shown when the mouse is over it."""

    series: str
    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True)
class Text:
    """A text, centred on x."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Tick:
    """A label on an axis, at a coordinate."""

    position: float
    text: str


@dataclass(frozen=True)
class Histogram:
    """Counts by score: a pair of bars for each bin and, if detections differ, a panel of those below.

    Counts are drawn as ``log(1 + count)``, because there are many more detections with low scores than with high ones.
    """

    height: float
    bars: tuple[Bar, ...]
    labels: tuple[Text, ...]
    """The counts of the panel of differing detections."""
    counts: tuple[Tick, ...]
    scores: tuple[Tick, ...]
    differing: float | None
    """The y of the axis of the panel of differing detections: missing ones are above it, extra ones below."""
    width: float = WIDTH
    left: float = LEFT
    top: float = TOP
    base: float = TOP + PANEL
    """The y of the axis of the panel of all detections."""


def histogram(scores: Mapping[str, NDArray[np.int64]], reference: str, name: str) -> Histogram:
    """Lay out the histogram of `Comparison.scores`.

    Parameters
    ----------
    scores : mapping of str to ndarray
        Counts by score of the "reference", "found", "missing" and "extra" detections.
    reference, name : str
        The names of the two models.
    """
    bins = len(scores["reference"])
    step = (WIDTH - LEFT) / bins
    base = TOP + PANEL
    limit = _largest(scores, "reference", "found")
    differing_limit = _largest(scores, "missing", "extra")
    axis = base + GAP + HALF if differing_limit else None
    bars, labels = [], []
    for index in range(bins):
        left, score = LEFT + index * step, f"score {index / bins:.2f} to {(index + 1) / bins:.2f}"
        for series, offset, model in (("reference", 0.1, reference), ("found", 0.51, name)):
            count = int(scores[series][index])
            height = PANEL * _share(count, limit)
            title = f"{score}: {count:,} of {model}"
            bars.append(Bar(series, left + offset * step, base - height, 0.39 * step, height, title))
        for series, model in (("missing", reference), ("extra", name)):
            count = int(scores[series][index])
            if axis is None or not count:
                continue
            height = HALF * _share(count, differing_limit)
            top, baseline = (axis - height, axis - height - 3) if series == "missing" else (axis, axis + height + 10)
            bars.append(Bar(series, left + 0.2 * step, top, 0.6 * step, height, f"{score}: {count:,} only in {model}"))
            labels.append(Text(left + step / 2, baseline, f"{count:,}"))
    return Histogram(
        height=(base if axis is None else axis + HALF + 12) + BOTTOM,
        bars=tuple(bars),
        labels=tuple(labels),
        counts=tuple(Tick(base - PANEL * _share(count, limit), f"{count:,}") for count in _count_ticks(limit)),
        scores=tuple(Tick(LEFT + (WIDTH - LEFT) * tenth / 10, f"{tenth / 10:.1f}") for tenth in range(0, 11, 2)),
        differing=axis,
    )


def _largest(scores: Mapping[str, NDArray[np.int64]], *series: str) -> int:
    """Return the largest count of some series."""
    return max(int(scores[name].max(initial=0)) for name in series)


def _share(count: int, limit: int) -> float:
    """Return the height of a count as a share of the height of the largest one."""
    return math.log1p(count) / math.log1p(limit) if limit else 0.0


def _count_ticks(limit: int) -> list[int]:
    """Return 0 and the powers of ten up to a count."""
    return [0, *(10**exponent for exponent in range(len(str(limit))) if 10**exponent <= limit)]
