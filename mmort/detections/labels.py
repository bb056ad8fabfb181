"""Labels of boxes: as large as the image allows, and placed where they neither overlap nor leave it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmort.images import Image, opencv

Colour = tuple[int, int, int]  # blue, green, red

LETTERS_PER_SIDE = 40  # a side is the square root of the image's area
MIN_LETTER_HEIGHT = 9  # pixels; smaller letters cannot be read
MAX_LABELLED_SHARE = 0.2  # of the image; letters shrink where labels would cover more
MAX_COVERED_SHARE = (
    0.3  # of the image, where letters cannot shrink further: beyond, all labels but the first are left out
)
MAX_WIDTH_SHARE = 0.5  # of the image's width, unless the box is wider; longer names are shortened
ROWS_INSIDE = 8  # that are tried in a box


class Font(NamedTuple):
    """OpenCV's letters in one size."""

    scale: float
    stroke: int
    """Width of the letters' lines."""
    ascent: int
    descent: int
    """Height of letters above the base line, and below."""

    @classmethod
    def of_height(cls, letter_height: float) -> Font:
        """Return the font whose letters have a height in pixels above the base line."""
        cv2 = opencv()
        (_, reference), _ = cv2.getTextSize("A", cv2.FONT_HERSHEY_SIMPLEX, 8.0, 1)
        scale = letter_height / reference * 8
        stroke = max(1, round(1.2 * scale))
        (_, ascent), descent = cv2.getTextSize("Agj", cv2.FONT_HERSHEY_SIMPLEX, scale, stroke)
        return cls(scale, stroke, ascent, descent)

    def width(self, text: str) -> int:
        """Return the width of a text."""
        cv2 = opencv()
        (width, _), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, self.scale, self.stroke)
        return int(width)

    def shortened(self, text: str, ending: str, limit: float) -> str:
        """Return the text and its ending in one line, with dots for what is wider than `limit`; empty if none fits."""
        text = "".join(character if character.isprintable() else " " for character in text)
        if self.width(text + ending) <= limit:
            return text + ending
        while text := text[:-1].rstrip():
            if self.width(f"{text}...{ending}") <= limit:
                return f"{text}...{ending}"
        return ""

    def write(self, canvas: Image, text: str, position: tuple[int, int], colour: Colour) -> None:
        """Write a text whose base line begins at (x, y)."""
        cv2 = opencv()
        cv2.putText(canvas, text, position, cv2.FONT_HERSHEY_SIMPLEX, self.scale, colour, self.stroke, cv2.LINE_AA)


class Label(NamedTuple):
    """A text on a rectangle of its class's colour."""

    text: str
    font: Font
    colour: Colour
    left: int
    top: int
    width: int
    height: int

    def draw(self, canvas: Image) -> None:
        """Draw the rectangle, and the text in black or white, whichever is easier to read."""
        corner = self.left + self.width - 1, self.top + self.height - 1
        opencv().rectangle(canvas, (self.left, self.top), corner, self.colour, -1)
        blue, green, red = self.colour
        ink = (0, 0, 0) if 0.114 * blue + 0.587 * green + 0.299 * red > 128 else (255, 255, 255)
        padding = _padding(self.font)
        self.font.write(canvas, self.text, (self.left + padding, self.top + padding + self.font.ascent), ink)


def place_labels(
    names: Sequence[str],
    scores: Sequence[float],
    boxes: NDArray[np.float32],
    colours: Sequence[Colour],
    image_size: tuple[int, int],
) -> list[Label]:
    """Place a label with name and score, unless that is NaN, beside or inside each box (x1, y1, x2, y2), in this order.

    A label goes where it covers the least area of boxes.  Where no position is free, or the labels would hide too much
    of the image, the name is shortened, and if that does not help the label is left out.  `image_size` is height and
    width.
    """
    height, width = image_size
    limits = np.minimum(np.maximum(boxes[:, 2] - boxes[:, 0], MAX_WIDTH_SHARE * width), width).tolist()
    font = _fitting_font(names, scores, limits, image_size)
    labels: list[Label] = []
    taken = np.zeros((0, 4))
    remaining = MAX_COVERED_SHARE * height * width
    for name, score, limit, box, colour in zip(names, scores, limits, boxes, colours, strict=True):
        for text in dict.fromkeys((_text(font, name, score, limit), _text(font, name, score, limit / 3))):
            size = _size(font, text)
            if not text or size[1] > height or (labels and math.prod(size) > remaining):
                continue
            candidates = _candidates(box, size, image_size)
            free = candidates[_common_areas(candidates, taken).sum(axis=1) == 0]
            if len(free):
                rectangle = free[_common_areas(free, boxes).sum(axis=1).argmin()]
                taken = np.concatenate([taken, rectangle[None]])
                remaining -= math.prod(size)
                labels.append(Label(text, font, colour, int(rectangle[0]), int(rectangle[1]), *size))
                break
    return labels


def _fitting_font(
    names: Sequence[str], scores: Sequence[float], limits: Sequence[float], image_size: tuple[int, int]
) -> Font:
    """Return a font that grows with the image, and shrinks where labels would cover too much of it."""
    area = image_size[0] * image_size[1]
    letter_height = max(MIN_LETTER_HEIGHT, math.sqrt(area) / LETTERS_PER_SIDE)
    font = Font.of_height(letter_height)
    texts = (_text(font, name, score, limit) for name, score, limit in zip(names, scores, limits, strict=True))
    share = sum(math.prod(_size(font, text)) for text in texts) / area
    if share <= MAX_LABELLED_SHARE:
        return font
    return Font.of_height(max(MIN_LETTER_HEIGHT, letter_height * math.sqrt(MAX_LABELLED_SHARE / share)))


def _text(font: Font, name: str, score: float, limit: float) -> str:
    """Return the text of a label that is at most `limit` wide, empty if there is none."""
    return font.shortened(name, "" if math.isnan(score) else f" {score:.2f}", limit - 2 * _padding(font))


def _size(font: Font, text: str) -> tuple[int, int]:
    """Return the width and height of a label."""
    padding = _padding(font)
    return font.width(text) + 2 * padding, font.ascent + font.descent + 2 * padding


def _padding(font: Font) -> int:
    """Return the distance of a text from the edges of its label."""
    return max(1, font.ascent // 6)


def _candidates(box: NDArray[np.float32], size: tuple[int, int], image_size: tuple[int, int]) -> NDArray[np.float64]:
    """Return rectangles beside and inside a box and inside the image, (N, 4), the preferred first."""
    x1, y1, x2, y2 = (round(float(edge)) for edge in box)
    width, height = size
    rows = [y1 + row * height for row in range(ROWS_INSIDE) if y1 + (row + 1) * height <= max(y2, y1 + height)]
    corners = [(x, y) for y in (y1 - height, y2, *rows) for x in (x1, x2 - width)]
    corners += [(x, y) for y in (y1, y2 - height) for x in (x2, x1 - width)]
    low = np.clip(corners, 0, [image_size[1] - width, image_size[0] - height]).astype(np.float64)
    return np.concatenate([low, low + np.array(size)], axis=1)


def _common_areas(first: NDArray[np.floating], second: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the area of each rectangle of `first`, (N, 4), that each of `second`, (M, 4), covers: (N, M)."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    common: NDArray[np.floating] = np.maximum(high - low, 0).prod(axis=2)
    return common
