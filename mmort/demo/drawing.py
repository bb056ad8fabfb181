"""Draw detections on their images with Pillow, and arrange images on one sheet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

PANEL_HEIGHT, MAX_PANEL_WIDTH = 440, 800
COLUMNS, MARGIN, CAPTION = 4, 24, 40
BACKGROUND, INK = "#14171c", "#e8eaed"
PALETTE = (
    "#4cc9f0",
    "#ff6b6b",
    "#ffd166",
    "#7ae582",
    "#c792ea",
    "#ff9f1c",
    "#f78fb3",
    "#5b8def",
    "#2ec4b6",
    "#d9ed92",
)
MASK_OPACITY = 0.45

Rectangle = tuple[float, float, float, float]  # left, top, right, bottom


class Detection(NamedTuple):
    """One object, in pixels of the original image."""

    label: str
    score: float
    box: Rectangle
    """x1, y1, x2, y2"""
    mask: NDArray[np.bool_]
    """[h, w], of the pixels that the box touches: its first pixel is column floor(x1), row floor(y1)."""


def class_colours(classes: Iterable[str]) -> dict[str, str]:
    """Return a colour for each class; colours repeat where there are more classes than colours."""
    return dict(zip(classes, itertools.cycle(PALETTE), strict=False))


def annotate(image: Image.Image, detections: Sequence[Detection], colours: Mapping[str, str]) -> Image.Image:
    """Return the image, scaled to a panel of the sheet, with masks, boxes and labels.

    Parameters
    ----------
    image : PIL.Image.Image
        Mode RGB.
    detections : sequence of Detection
        By descending score: the first are drawn on top.
    colours : mapping of str to str
        The colour of each label, as `class_colours` returns them.
    """
    scale = min(PANEL_HEIGHT / image.height, MAX_PANEL_WIDTH / image.width)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    panel = image.resize(size, Image.Resampling.LANCZOS)
    for detection in reversed(detections):
        _draw_mask(panel, detection, scale, colours[detection.label])
    for detection in reversed(detections):
        _draw_box(panel, detection, scale, colours[detection.label])
    obstacles = [_scaled(detection.box, scale) for detection in detections]
    for detection in detections:
        obstacles.append(_draw_label(panel, detection, scale, colours[detection.label], obstacles))
    return panel


def _draw_mask(panel: Image.Image, detection: Detection, scale: float, colour: str) -> None:
    """Tint the mask's pixels, and trace their outline."""
    x, y = (math.floor(corner) for corner in detection.box[:2])
    height, width = detection.mask.shape
    left, top = round(x * scale), round(y * scale)
    size = max(1, round((x + width) * scale) - left), max(1, round((y + height) * scale) - top)
    mask = Image.fromarray(detection.mask.astype(np.uint8) * 255).resize(size, Image.Resampling.BICUBIC)
    # In an enlarged image, a blur as wide as an original pixel removes the steps of the mask's edge, and a steep ramp
    # sharpens it again.
    mask = mask.filter(ImageFilter.GaussianBlur(max(0.0, scale - 1) / 2))
    mask = mask.point([min(255, max(0, 128 + 4 * (level - 128))) for level in range(256)])
    inside = np.asarray(mask.filter(ImageFilter.MinFilter(3)), np.float32)
    alpha = inside * MASK_OPACITY + (np.asarray(mask, np.float32) - inside)
    panel.paste(colour, (left, top), Image.fromarray(alpha.astype(np.uint8)))


def _draw_box(panel: Image.Image, detection: Detection, scale: float, colour: str) -> None:
    """Outline the box."""
    box = [round(edge) for edge in _scaled(detection.box, scale)]
    ImageDraw.Draw(panel).rounded_rectangle(box, radius=4, outline=colour, width=2)


def _draw_label(
    panel: Image.Image, detection: Detection, scale: float, colour: str, obstacles: Sequence[Rectangle]
) -> Rectangle:
    """Draw a tag with class and score beside the box, where it overlaps boxes and tags least; return its rectangle."""
    draw = ImageDraw.Draw(panel)
    class_font, score_font = ImageFont.load_default(17), ImageFont.load_default(13)
    score = f"{detection.score:.2f}"
    class_width = draw.textlength(detection.label, class_font)
    width, height = class_width + draw.textlength(score, score_font) + 17, 21
    x1, y1, x2, y2 = _scaled(detection.box, scale)
    tags = []
    for x, y in ((x1, y1 - height), (x1, y2), (x2, y1), (x1 - width, y1), (x2 - width, y1 - height), (x2 - width, y2)):
        left, top = max(0.0, min(x, panel.width - width)), max(0.0, min(y, panel.height - height))
        tags.append((left, top, left + width, top + height))
    tag = min(tags, key=lambda tag: sum(_common_area(tag, obstacle) for obstacle in obstacles))
    middle = (tag[1] + tag[3]) / 2
    draw.rounded_rectangle(tag, radius=4, fill=colour)
    draw.text((tag[0] + 6, middle), detection.label, BACKGROUND, class_font, anchor="lm")
    draw.text((tag[0] + 11 + class_width, middle), score, BACKGROUND, score_font, anchor="lm")
    return tag


def _scaled(box: Rectangle, scale: float) -> Rectangle:
    """Return a box of the image as a box of its panel."""
    x1, y1, x2, y2 = box
    return x1 * scale, y1 * scale, x2 * scale, y2 * scale


def _common_area(first: Rectangle, second: Rectangle) -> float:
    """Return the area of the intersection of two rectangles."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(0.0, width) * max(0.0, height)


def arrange(panels: Sequence[tuple[str, Image.Image]]) -> Image.Image:
    """Arrange captioned panels in rows on one sheet."""
    rows = [panels[start : start + COLUMNS] for start in range(0, len(panels), COLUMNS)]
    widths = [sum(panel.width + MARGIN for _, panel in row) for row in rows]
    heights = [max(panel.height for _, panel in row) + CAPTION for row in rows]
    sheet = Image.new("RGB", (max(widths) + MARGIN, sum(heights) + MARGIN), BACKGROUND)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(15)
    y = MARGIN
    for row, width, height in zip(rows, widths, heights, strict=True):
        x = (sheet.width - width + MARGIN) // 2
        for caption, panel in row:
            sheet.paste(panel, (x, y))
            draw.text((x, y + panel.height + 9), _shortened(caption, panel.width, font), INK, font)
            x += panel.width + MARGIN
        y += height
    return sheet


def _shortened(text: str, width: float, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """Return the text, cut with an ellipsis if it is wider than `width`."""
    while text and font.getlength(text) > width:
        text = text[:-2].rstrip() + "…" if len(text) > 1 else ""
    return text
