"""Draws detections onto their images, and images side by side onto one sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from mmort.demo.detector import CLASSES, Detection

PANEL_HEIGHT, WIDEST_PANEL = 440, 800
COLUMNS, MARGIN, CAPTION = 4, 24, 40
BACKGROUND, INK = "#14171c", "#e8eaed"
COLOURS = dict(
    zip(
        CLASSES,
        ("#4cc9f0", "#ff6b6b", "#ffd166", "#7ae582", "#c792ea", "#ff9f1c", "#f78fb3", "#5b8def", "#2ec4b6", "#d9ed92"),
        strict=True,
    )
)
MASK_OPACITY = 0.45

Rectangle = tuple[float, float, float, float]  # left, top, right, bottom


def annotate(image: Image.Image, detections: Sequence[Detection]) -> Image.Image:
    """Return the image, scaled to a panel of the sheet, with masks, boxes and labels."""
    scale = min(PANEL_HEIGHT / image.height, WIDEST_PANEL / image.width)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    panel = image.resize(size, Image.Resampling.LANCZOS)
    worst_first = detections[::-1]  # so that the best are on top
    for detection in worst_first:
        _draw_mask(panel, detection, scale)
    for detection in worst_first:
        _draw_box(panel, detection, scale)
    obstacles = [_scaled(detection.box, scale) for detection in detections]
    for detection in detections:
        obstacles.append(_draw_label(panel, detection, scale, obstacles))
    return panel


def _draw_mask(panel: Image.Image, detection: Detection, scale: float) -> None:
    """Tint the mask's pixels, and trace their outline."""
    x, y = (math.floor(corner) for corner in detection.box[:2])
    height, width = detection.mask.shape
    left, top = round(x * scale), round(y * scale)
    size = max(1, round((x + width) * scale) - left), max(1, round((y + height) * scale) - top)
    mask = Image.fromarray(detection.mask.astype(np.uint8) * 255).resize(size, Image.Resampling.BICUBIC)
    # Where the image is enlarged, a blur over a pixel of the original takes the stairs out of the mask's edge, and a
    # steep ramp makes it sharp again.
    mask = mask.filter(ImageFilter.GaussianBlur(max(0.0, scale - 1) / 2))
    mask = mask.point([min(255, max(0, 128 + 4 * (level - 128))) for level in range(256)])
    inside = np.asarray(mask.filter(ImageFilter.MinFilter(3)), np.float32)
    alpha = inside * MASK_OPACITY + (np.asarray(mask, np.float32) - inside)
    panel.paste(COLOURS[detection.label], (left, top), Image.fromarray(alpha.astype(np.uint8)))


def _draw_box(panel: Image.Image, detection: Detection, scale: float) -> None:
    box = [round(edge) for edge in _scaled(detection.box, scale)]
    ImageDraw.Draw(panel).rounded_rectangle(box, radius=4, outline=COLOURS[detection.label], width=2)


def _draw_label(panel: Image.Image, detection: Detection, scale: float, obstacles: Sequence[Rectangle]) -> Rectangle:
    """Write class and score on a tag beside the box, where it hides least of boxes and other tags; return where."""
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
    draw.rounded_rectangle(tag, radius=4, fill=COLOURS[detection.label])
    draw.text((tag[0] + 6, middle), detection.label, BACKGROUND, class_font, anchor="lm")
    draw.text((tag[0] + 11 + class_width, middle), score, BACKGROUND, score_font, anchor="lm")
    return tag


def _scaled(box: Rectangle, scale: float) -> Rectangle:
    x1, y1, x2, y2 = box
    return x1 * scale, y1 * scale, x2 * scale, y2 * scale


def _common_area(one: Rectangle, other: Rectangle) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)


def arrange(panels: Sequence[tuple[str, Image.Image]]) -> Image.Image:
    """Put captioned panels side by side, in rows."""
    rows = [panels[i : i + COLUMNS] for i in range(0, len(panels), COLUMNS)]
    widths = [sum(panel.width + MARGIN for _, panel in row) for row in rows]
    heights = [max(panel.height for _, panel in row) + CAPTION for row in rows]
    sheet = Image.new("RGB", (max(widths) + MARGIN, sum(heights) + MARGIN), BACKGROUND)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(15)
    y = MARGIN
    for row, width, height in zip(rows, widths, heights, strict=True):
        x = (sheet.width - width + MARGIN) // 2
        for caption, panel in row:
            sheet.paste(panel, (x, y))
            draw.text((x, y + panel.height + 9), _fit(caption, panel.width, font), INK, font)
            x += panel.width + MARGIN
        y += height
    return sheet


def _fit(text: str, width: float, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """Shorten a text to the width."""
    while text and font.getlength(text) > width:
        text = text[:-2].rstrip() + "…" if len(text) > 1 else ""
    return text
