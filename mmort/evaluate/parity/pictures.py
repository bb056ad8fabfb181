"""An image in which two models differ, as the report shows it: both versions drawn, and a list of what differs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mmort.evaluate.parity.comparison import Example
from mmort.predict import read_image
from mmort.predict.drawing import draw
from mmort.predict.images import opencv

if TYPE_CHECKING:
    from mmort.predict import Detections

DRAW_THRESHOLD = 0.3
"""Detections that do not differ are drawn from this score on: low scores cover an image with boxes."""

PICTURE_SIDE = 800
"""The longer side of a picture, in pixels: sharp on a screen, and about 100 kB."""

MAX_ROWS = 10
"""How many of an image's differing detections are listed."""


@dataclass(frozen=True)
class Side:
    """A model's version of an image: the picture as a data URI, and boxes (x, y, width, height) to outline."""

    caption: str
    kind: str
    picture: str
    size: tuple[int, int]
    boxes: tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True)
class Row:
    """A detection without an equal one."""

    name: str
    only_in: str
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


def picture_pair(example: Example, reference: str, name: str) -> Pair:
    """Draw both versions of an image, and list the detections that differ, by descending score.

    Raises
    ------
    OSError, ValueError
        If the image cannot be read.
    """
    result = example.comparison
    image = read_image(example.image.path)
    differing = np.concatenate([result.missing, result.other_masks])
    other_differing = np.concatenate([result.extra, result.matches[result.other_masks]])
    rows = [*_rows(example.reference, differing, reference), *_rows(example.found, other_differing, name)]
    rows.sort(key=lambda row: -row.score)
    sides = (
        _side(image, example.reference, differing, reference, "missing"),
        _side(image, example.found, other_differing, name, "extra"),
    )
    return Pair(example.image.name, sides, tuple(rows[:MAX_ROWS]), max(0, len(rows) - MAX_ROWS))


def _side(image: NDArray[np.uint8], detections: Detections, differing: NDArray[np.int64], name: str, kind: str) -> Side:
    """Draw a model's detections, and outline those that differ."""
    shown = detections.scores >= DRAW_THRESHOLD
    shown[differing] = True
    height, width = image.shape[:2]
    boxes = detections.boxes[differing].astype(float)
    outlines = np.column_stack([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]]).tolist()
    caption = f"{name}: {len(detections)} detections, {len(differing) or 'none'} of them only here"
    picture = draw(image, detections[shown], scale=PICTURE_SIDE / max(height, width))
    return Side(caption, kind, _data_uri(picture), (width, height), tuple(map(tuple, outlines)))


def _rows(detections: Detections, indices: Sequence[int] | NDArray[np.int64], model: str) -> list[Row]:
    """Describe detections."""
    return [
        Row(
            detections.names[index],
            model,
            float(detections.scores[index]),
            ", ".join(f"{corner:.1f}" for corner in detections.boxes[index]),
        )
        for index in indices
    ]


def _data_uri(picture: NDArray[np.uint8]) -> str:
    """Encode a picture, blue, green, red, as an address that holds the picture itself."""
    cv2 = opencv()
    encoded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 88])[1]
    return "data:image/jpeg;base64," + base64.b64encode(encoded.tobytes()).decode()
