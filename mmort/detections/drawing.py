"""Draw what models find on images with OpenCV, and arrange images on one sheet.

Lines and letters grow with the image.  A pixel has the tint of only one mask, that of the smallest detection there, so
that a hundred masks do not bury the image; their outlines are all drawn.
"""

from __future__ import annotations

import colorsys
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mmort.detections.labels import MIN_LETTER_HEIGHT, Colour, Font, place_labels
from mmort.detections.masks import Region
from mmort.images import Image, as_image, opencv, read_image, write_image

if TYPE_CHECKING:
    from mmort.detections.classes import Classes
    from mmort.detections.detections import Detections
    from mmort.detections.recognized_text import RecognizedText
    from mmort.detections.segmentation_map import SegmentationMap
    from mmort.detections.skeleton import Skeleton
    from mmort.detections.text_regions import TextRegions

MASK_OPACITY = 0.4
MAP_OPACITY = 0.5  # of a segmentation, which covers all of the image
MIN_NAMED_SHARE = 0.01  # of the image's pixels, that a class has whose name is drawn
LINES_PER_SIDE = 270  # a side is the square root of the image's area
FRACTION_BITS = 4  # of the coordinates of polygons
MIN_KEYPOINT_SCORE = 0.5  # of those that are drawn: points that are not visible have a low one
MIN_SKELETON_SCORE = 0.3  # of those of a skeleton, which MMPose draws from there on
MAX_POSITION = 100_000  # pixels; corners of polygons that are further out are moved there

PANEL_HEIGHT, MAX_PANEL_WIDTH, COLUMNS, MARGIN, CAPTION_HEIGHT, CAPTION_LETTERS = 440, 800, 4, 24, 40, 15
BACKGROUND: Colour = (28, 23, 20)
INK: Colour = (237, 234, 232)


def draw(image: NDArray[np.uint8] | str | os.PathLike[str], detections: Detections, *, scale: float = 1.0) -> Image:
    """Draw masks, boxes, keypoints, class names and scores on a copy of an image.

    A class has the same colour in every image.  Segments of a panoptic segmentation have no boxes.  Labels neither
    overlap nor leave the image; where there is no room for one, it is left out, the lowest scores first.

    Parameters
    ----------
    image : ndarray of uint8, (H, W, 3), or path
        Blue, green, red; or the image's file.  Grey arrays and those with alpha are taken as files are.
    detections : Detections
        Of this image.
    scale : float, default 1.0
        Resize the image by this factor first: lines and letters are then sharp at the size at which it is shown.

    Returns
    -------
    ndarray of uint8, (H * scale, W * scale, 3)

    Raises
    ------
    ValueError
        If `image` is not of this shape and dtype, or not of the size that the detections are for, or cannot be
        decoded; if `scale` is not positive.
    TypeError
        If `image` is neither an array nor a path.
    OSError
        If the file cannot be opened.
    ImportError
        If OpenCV is not installed.

    Notes
    -----
    OpenCV 5 writes names in most scripts, OpenCV 4 writes a question mark for characters outside ASCII.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.predict import Detections, draw
    >>> image = np.zeros((48, 64, 3), np.uint8)
    >>> cat = Detections(np.array([[8, 8, 40, 40]]), np.array([0.9]), np.array([0]), ("cat",), image_size=(48, 64))
    >>> draw(image, cat, scale=2).shape
    (96, 128, 3)
    """
    cv2 = opencv()
    canvas = _canvas(image, detections, scale)
    height, width = canvas.shape[:2]
    thickness = max(1, round(math.sqrt(height * width) / LINES_PER_SIDE))
    boxes = np.clip(np.nan_to_num(detections.boxes) * scale, 0, np.array([width, height, width, height]))
    colours = [class_colour(label) for label in detections.labels.tolist()]
    order = _from_large_to_small(boxes)
    if detections.has_masks:
        regions = ((index, detections.mask_region(index)) for index in order)
        _draw_masks(canvas, regions, scale, colours, max(1, thickness // 2))
    corners = np.rint(boxes).astype(int)
    polygons = _fixed_point(detections.polygons, scale) if detections.rotated_boxes is not None else None
    for index in order if detections.segments is None else ():
        if polygons is not None:
            polygon = polygons[index : index + 1]
            cv2.polylines(canvas, polygon, True, colours[index], thickness, cv2.LINE_AA, FRACTION_BITS)
            continue
        x1, y1, x2, y2 = corners[index].tolist()
        last = max(x2 - 1, 0), max(y2 - 1, 0)  # pixel inside
        cv2.rectangle(canvas, (x1, y1), last, colours[index], thickness)
    if detections.keypoints is not None:
        for index in order:
            _draw_keypoints(canvas, detections.keypoints[index], detections.skeleton, scale, colours[index], thickness)
    for label in place_labels(detections.names, detections.scores.tolist(), boxes, colours, (height, width)):
        label.draw(canvas)
    return canvas


def draw_classes(image: NDArray[np.uint8] | str | os.PathLike[str], classes: Classes, *, scale: float = 1.0) -> Image:
    """Write the names and scores of classes on a copy of an image, below each other; see `draw`."""
    canvas = _canvas(image, classes, scale)
    height, width = canvas.shape[:2]
    corner = np.tile(np.array([0, 0, width, height], np.float32), (len(classes), 1))
    colours = [class_colour(label) for label in classes.labels.tolist()]
    for label in place_labels(classes.names, classes.scores.tolist(), corner, colours, (height, width)):
        label.draw(canvas)
    return canvas


def draw_segmentation(
    image: NDArray[np.uint8] | str | os.PathLike[str], segmentation: SegmentationMap, *, scale: float = 1.0
) -> Image:
    """Tint a copy of an image with the colours of its pixels' classes, and name those that have many; see `draw`."""
    cv2 = opencv()
    canvas = _canvas(image, segmentation, scale)
    height, width = canvas.shape[:2]
    colours = cv2.resize(segmentation.colours(), (width, height), interpolation=cv2.INTER_NEAREST)
    cv2.addWeighted(colours, MAP_OPACITY, canvas, 1 - MAP_OPACITY, 0, dst=canvas)
    named = segmentation.labels[segmentation.shares >= MIN_NAMED_SHARE].tolist()
    masks = [segmentation.mask(label) for label in named]
    boxes = [cv2.boundingRect(mask.astype(np.uint8)) for mask in masks]
    corners = np.array([(x, y, x + w, y + h) for x, y, w, h in boxes], np.float32).reshape(-1, 4) * scale
    of_classes = [_colour_of(segmentation, label) for label in named]
    names = [segmentation.class_names[label] for label in named]
    for label in place_labels(names, [math.nan] * len(names), corners, of_classes, (height, width)):
        label.draw(canvas)
    return canvas


def draw_text(
    image: NDArray[np.uint8] | str | os.PathLike[str], recognized: RecognizedText, *, scale: float = 1.0
) -> Image:
    """Write the text of an image of a word below a copy of it; see `draw`."""
    canvas = _canvas(image, recognized, scale)
    width = canvas.shape[1]
    font = Font.of_height(max(MIN_LETTER_HEIGHT, min(CAPTION_LETTERS, canvas.shape[0] // 2)))
    strip = np.full((font.ascent + 2 * font.descent, width, 3), BACKGROUND, np.uint8)
    font.write(strip, font.shortened(recognized.text, "", width), (0, font.ascent + font.descent // 2), INK)
    return np.concatenate([canvas, strip])


def draw_text_regions(
    image: NDArray[np.uint8] | str | os.PathLike[str], regions: TextRegions, *, scale: float = 1.0
) -> Image:
    """Draw the outlines of texts on a copy of an image, each in a colour of its own; see `draw`."""
    if isinstance(image, (str, os.PathLike)):
        image = read_image(image, regions.color_type)
    canvas = _canvas(image, regions, scale)
    height, width = canvas.shape[:2]
    thickness = max(1, round(math.sqrt(height * width) / LINES_PER_SIDE))
    colours = [class_colour(index) for index in range(len(regions))]
    for polygon, colour in zip(regions.polygons, colours, strict=True):
        points = _fixed_point(polygon, scale)[None]
        opencv().polylines(canvas, points, True, colour, thickness, opencv().LINE_AA, FRACTION_BITS)
    scores = [math.nan] * len(regions) if regions.texts is not None else regions.scores.tolist()
    for label in place_labels(regions.names, scores, regions.boxes * scale, colours, (height, width)):
        label.draw(canvas)
    return canvas


def _colour_of(segmentation: SegmentationMap, label: int) -> Colour:
    """Return the colour of a class, blue, green, red."""
    if segmentation.palette is None:
        return class_colour(label)
    red, green, blue = segmentation.palette[label]
    return blue, green, red


def save_drawn(
    path: str | os.PathLike[str], image: NDArray[np.uint8] | str | os.PathLike[str], plot: Callable[[], Image]
) -> None:
    """Draw on an image with a function, and write the result to a file other than the image's."""
    if isinstance(image, (str, os.PathLike)) and os.path.exists(path) and os.path.samefile(path, image):
        raise ValueError(f"save: the annotated image would replace {os.fspath(image)}; give another name")
    write_image(path, plot())


def _canvas(
    image: NDArray[np.uint8] | str | os.PathLike[str],
    result: Detections | Classes | SegmentationMap | RecognizedText | TextRegions,
    scale: float,
) -> Image:
    """Return a copy of the image to draw on; ValueError if a result is not for it, or the scale is not positive."""
    image = as_image("draw", image)
    if image.shape[:2] != tuple(result.image_size):
        kinds = {"Detections": "detections are", "Classes": "classes are"}
        kinds |= {"RecognizedText": "text is", "TextRegions": "texts are"}
        kind = kinds.get(type(result).__name__, "map is")
        raise ValueError(f"draw: image is {image.shape[:2]}, but the {kind} for {result.image_size}")
    if not 0 < scale < math.inf:
        raise ValueError(f"draw: scale must be positive, got {scale}")
    return _resized(image, scale)


def draw_beside(image: Image, versions: Sequence[Detections | Classes | SegmentationMap | RecognizedText]) -> Image:
    """Draw each version of what was found on a copy of an image, and put these side by side."""
    gap = np.full((image.shape[0], MARGIN, 3), BACKGROUND, np.uint8)
    panels = [panel for version in versions for panel in (gap, version.plot(image))]
    return np.concatenate(panels[1:], axis=1)


def class_colour(label: int) -> Colour:
    """Return the colour of a class: ten hues, in three tones, and again with hues between those."""
    hue = (0.55 + 0.3 * label + 0.033 * (label // 30)) % 1
    saturation, value = ((0.75, 1.0), (0.5, 0.9), (0.95, 0.8))[label // 10 % 3]
    red, green, blue = colorsys.hsv_to_rgb(hue, saturation, value)
    return round(blue * 255), round(green * 255), round(red * 255)


def contact_sheet(panels: Iterable[tuple[str, Image, Detections]]) -> Image:
    """Draw images with their detections on one sheet, in rows of four, each with a caption below.

    Parameters
    ----------
    panels : iterable of (str, ndarray of uint8, (H, W, 3), Detections)
        Caption, image and detections of each, as `draw` takes them.  From an iterator, only one image is held at a
        time.

    Returns
    -------
    ndarray of uint8, (H, W, 3)

    Raises
    ------
    ValueError
        If there are no panels, or `draw` refuses one.
    ImportError
        If OpenCV is not installed.
    """
    drawn = []
    for caption, image, detections in panels:
        scale = min(PANEL_HEIGHT / image.shape[0], MAX_PANEL_WIDTH / image.shape[1])
        drawn.append((caption, draw(image, detections, scale=scale)))
    if not drawn:
        raise ValueError("contact_sheet: panels must not be empty")
    rows = [drawn[start : start + COLUMNS] for start in range(0, len(drawn), COLUMNS)]
    widths = [sum(panel.shape[1] + MARGIN for _, panel in row) + MARGIN for row in rows]
    heights = [max(panel.shape[0] for _, panel in row) + CAPTION_HEIGHT for row in rows]
    sheet = np.full((sum(heights) + MARGIN, max(widths), 3), BACKGROUND, np.uint8)
    font, y = Font.of_height(CAPTION_LETTERS), MARGIN
    for row, row_width, row_height in zip(rows, widths, heights, strict=True):
        x = (max(widths) - row_width) // 2 + MARGIN
        for caption, panel in row:
            height, width = panel.shape[:2]
            sheet[y : y + height, x : x + width] = panel
            font.write(sheet, font.shortened(caption, "", width), (x, y + height + MARGIN), INK)
            x += width + MARGIN
        y += row_height
    return sheet


def _resized(image: Image, scale: float) -> Image:
    """Return a copy of the image, resized."""
    if scale == 1:
        return image.copy()
    cv2 = opencv()
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    resized: Image = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)
    return resized


def _from_large_to_small(boxes: NDArray[np.float32]) -> list[int]:
    """Return the order of drawing: small boxes end on top; of equal ones the first, which has the highest score."""
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    order: list[int] = np.lexsort((-np.arange(len(boxes)), -areas)).tolist()
    return order


def _draw_masks(
    canvas: Image,
    regions: Iterable[tuple[int, Region]],
    scale: float,
    colours: Sequence[Colour],
    thickness: int,
) -> None:
    """Tint the masks' pixels and trace the masks' outlines; a region comes with the index of its colour."""
    cv2 = opencv()
    tinted, outlines = canvas.copy(), []
    for index, region in regions:
        polygons = _polygons(region, scale)
        if polygons:
            outlines.append((polygons, colours[index]))
            cv2.fillPoly(tinted, polygons, colours[index], cv2.LINE_AA, FRACTION_BITS)
    cv2.addWeighted(tinted, MASK_OPACITY, canvas, 1 - MASK_OPACITY, 0, dst=canvas)
    for polygons, colour in outlines:
        cv2.polylines(canvas, polygons, True, colour, thickness, cv2.LINE_AA, FRACTION_BITS)


def _draw_keypoints(
    canvas: Image,
    keypoints: NDArray[np.float32],
    skeleton: Skeleton | None,
    scale: float,
    colour: Colour,
    thickness: int,
) -> None:
    """Draw links, and a dot with a dark edge for each keypoint (P, 3), where these are likely to be visible."""
    cv2 = opencv()
    visible = keypoints[:, 2] >= (MIN_KEYPOINT_SCORE if skeleton is None else MIN_SKELETON_SCORE)
    links, colours, link_colours = (
        ((), (), ()) if skeleton is None else (skeleton.links, skeleton.colours, skeleton.link_colours)
    )
    points = _fixed_point(keypoints[:, :2], scale).tolist()
    for link, (start, end) in enumerate(links):
        if visible[start] and visible[end]:
            of_link = _bgr(link_colours, link, colour)
            cv2.line(canvas, points[start], points[end], of_link, thickness, cv2.LINE_AA, FRACTION_BITS)
    for index in np.flatnonzero(visible).tolist():
        for radius, filling in ((2 * thickness + 1, BACKGROUND), (2 * thickness, _bgr(colours, index, colour))):
            cv2.circle(canvas, points[index], radius << FRACTION_BITS, filling, -1, cv2.LINE_AA, FRACTION_BITS)


def _bgr(colours: Sequence[tuple[int, int, int]], index: int, default: Colour) -> Colour:
    """Return one of some colours, if there are any, as blue, green, red."""
    return (colours[index][2], colours[index][1], colours[index][0]) if colours else default


def _polygons(region: Region, scale: float) -> list[NDArray[np.int32]]:
    """Return the polygons around a mask and its holes, in fractions of the resized image's pixels."""
    if not region.mask.size:
        return []
    cv2 = opencv()
    pixels = np.ascontiguousarray(region.mask, np.uint8)
    polygons, _ = cv2.findContours(
        pixels, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE, offset=(int(region.left), int(region.top))
    )
    return [_fixed_point(polygon + 0.5, scale) for polygon in polygons]


def _fixed_point(points: NDArray[Any], scale: float) -> NDArray[np.int32]:
    """Return points of an image, (..., 2), in fractions of the resized image's pixels, as OpenCV draws them."""
    # OpenCV's pixels have their middle at whole numbers.
    positions = np.nan_to_num(np.asarray(points, np.float64) * scale - 0.5)
    return np.rint(np.clip(positions, -MAX_POSITION, MAX_POSITION) * (1 << FRACTION_BITS)).astype(np.int32)
