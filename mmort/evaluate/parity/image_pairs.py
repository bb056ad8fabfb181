"""An image in which two models differ, as the report shows it: both versions drawn, and a list of what differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mmort.evaluate.pages import Side
from mmort.evaluate.parity.comparison import Example
from mmort.evaluate.parity.task_comparison import ResultExample
from mmort.predict import read_image

if TYPE_CHECKING:
    from mmort.predict import Detections

DRAW_THRESHOLD = 0.3
"""Detections are drawn from this score on, and the listed ones below it: low scores cover an image with boxes."""

MAX_ROWS = 10
"""How many of an image's differing detections are outlined and listed, those with the highest scores."""


@dataclass(frozen=True)
class Row:
    """A detection without an equal one."""

    name: str
    found_by: str
    score: float
    box: str


@dataclass(frozen=True)
class Pair:
    """Both versions of an image."""

    name: str
    sides: tuple[Side, Side]
    rows: tuple[Row, ...]
    more: int
    """How many rows are left out."""


def image_pair(example: Example, reference: str, name: str) -> Pair:
    """Draw both versions of an image, and list the detections that differ, by descending score.

    Raises
    ------
    OSError, ValueError
        If the image cannot be read.
    """
    result = example.comparison
    versions = (
        _Version(reference, "missing", example.reference, result.missing, result.other_masks),
        _Version(name, "extra", example.detections, result.extra, result.matches[result.other_masks]),
    )
    scores = np.sort(np.concatenate([version.detections.scores[version.differing] for version in versions]))[::-1]
    lowest = float(scores[:MAX_ROWS][-1])
    image = read_image(example.image.path)
    rows = sorted((row for version in versions for row in version.rows(lowest)), key=lambda row: -row.score)
    first, second = (version.side(image, lowest) for version in versions)
    return Pair(example.image.name, (first, second), tuple(rows), len(scores) - len(rows))


def result_pair(example: ResultExample, reference: str, name: str) -> Pair:
    """Draw both versions of an image of a model of another task than detection.

    Raises
    ------
    OSError, ValueError
        If the image cannot be read.
    """
    image = read_image(example.image.path)
    first = Side.drawn(reference, "missing", image, example.reference)
    return Pair(example.image.name, (first, Side.drawn(name, "extra", image, example.found)), (), 0)


@dataclass(frozen=True)
class _Version:
    """Detections of a model in an image, and the indices of those that the other lacks, or has with another mask."""

    name: str
    kind: str
    detections: Detections
    only_here: NDArray[np.int64]
    other_masks: NDArray[np.int64]

    @property
    def differing(self) -> NDArray[np.int64]:
        """All detections without an equal one."""
        return np.sort(np.concatenate([self.only_here, self.other_masks]))

    def listed(self, lowest: float) -> NDArray[np.int64]:
        """Return the differing detections with at least the lowest score that is listed."""
        return self.differing[self.detections.scores[self.differing] >= lowest]

    def side(self, image: NDArray[np.uint8], lowest: float) -> Side:
        """Draw the detections, and outline the listed ones."""
        listed = self.listed(lowest)
        shown = self.detections.scores >= DRAW_THRESHOLD
        shown[listed] = True
        count = len(self.differing)
        caption = f"{self.name}: {len(self.detections)} detections, {count or 'none'} of them without an equal one"
        return Side.drawn(caption, self.kind, image, self.detections[shown], self.detections.boxes[listed])

    def rows(self, lowest: float) -> list[Row]:
        """Describe the listed detections."""
        return [
            Row(
                self.detections.names[index],
                f"{self.name}, other mask" if index in self.other_masks else self.name,
                float(self.detections.scores[index]),
                ", ".join(f"{corner:.1f}" for corner in self.detections.boxes[index]),
            )
            for index in self.listed(lowest)
        ]
