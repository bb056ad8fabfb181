"""Draw the pictures of operators.md: `python docs/pictures/draw.py` writes the *.svg beside it.

mmort itself computes the results that a picture shows.  A formula that a picture explains is a function here, and
tests/docs/test_pictures.py compares it with mmort.  Every picture has a white background, to be readable on any page.
"""

import math
import pathlib

import numpy as np

import mmort

FOLDER = pathlib.Path(__file__).parent

INK, GREY, FAINT, PIXEL = "#1f2933", "#616e7c", "#cbd2d9", "#f1f4f8"
BLUE, PALE_BLUE, RED, GREEN = "#1f5fbf", "#e9effa", "#c92a2a", "#2b8a3e"
HEAT = ((0xE7, 0xF0, 0xFB), (0x1B, 0x4F, 0x9C))  # colours of the smallest and the largest value
BIN, GHOST = "5 3", "2 3"  # dashes of the borders between bins, and of outlines drawn for comparison
FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"


def number(value):
    """Format a number with at most two decimals."""
    return f"{round(float(value), 2) + 0.0:g}"  # + 0.0: no -0


class Picture:
    """An SVG file to which each call adds an element; (0, 0) is the top left corner."""

    def __init__(self, title, width, height):
        self.width, self.height = width, height
        self.lines = [f"<title>{title}</title>"]
        self.rectangle(0.5, 0.5, width - 1, height - 1, fill="#ffffff", stroke=FAINT, rx=8)

    def element(self, name, text=None, **attributes):
        """Add an element; numbers are rounded, and underscores in names become hyphens."""
        words = [name]
        for key, value in attributes.items():
            words.append(f'{key.replace("_", "-")}="{value if isinstance(value, str) else number(value)}"')
        self.lines.append(f"<{' '.join(words)}/>" if text is None else f"<{' '.join(words)}>{text}</{name}>")

    def rectangle(self, x, y, width, height, **style):
        """Add a rectangle with a corner at (x, y)."""
        self.element("rect", x=x, y=y, width=width, height=height, **style)

    def line(self, points, stroke=INK, width=1.0, **style):
        """Add a line through points."""
        path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self.element("polyline", points=path, fill="none", stroke=stroke, stroke_width=width, **style)

    def shape(self, points, **style):
        """Add a polygon."""
        self.element("polygon", points=" ".join(f"{number(x)},{number(y)}" for x, y in points), **style)

    def dot(self, x, y, radius=3.0, **style):
        """Add a circle around (x, y)."""
        self.element("circle", cx=x, cy=y, r=radius, **style)

    def arrow(self, points, stroke=INK, width=1.6):
        """Add a line with an arrowhead at its last point."""
        (x0, y0), (x1, y1) = points[-2:]
        length = math.hypot(x1 - x0, y1 - y0)
        x, y = (x1 - x0) / length, (y1 - y0) / length
        self.line([*points[:-1], (x1 - 5 * x, y1 - 5 * y)], stroke, width)
        wings = [(x1 - 8 * x - side * y, y1 - 8 * y + side * x) for side in (4, -4)]
        self.shape([(x1, y1), *wings], fill=stroke)

    def text(self, x, y, words, size=12, fill=INK, anchor="middle", **style):
        """Add a line of text; `anchor` says whether (x, y) is its middle, start or end."""
        self.element("text", words, x=x, y=y + 0.35 * size, font_size=size, fill=fill, text_anchor=anchor, **style)

    def label(self, x, y, words, behind="#ffffff", **style):
        """Add text with a rim in the background's colour, so that no line crosses it."""
        self.text(x, y, words, stroke=behind, stroke_width=4, stroke_linejoin="round", paint_order="stroke", **style)

    def heading(self, x, y, words, anchor="middle"):
        """Add the title of a panel."""
        self.text(x, y, words, size=14, font_weight="bold", anchor=anchor)

    def svg(self):
        """Return the text of the file."""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
        head += f'viewBox="0 0 {self.width} {self.height}" font-family="{FONT}">'
        return "\n".join((head, *self.lines, "</svg>", ""))


# ---- roi_align ---------------------------------------------------------------------------------------------------


def sample_coordinates(low, high, bins, samples, aligned):
    """Return the coordinates of roi_align's samples along an axis, in pixels; 0 is the centre of the first pixel."""
    start = low - 0.5 if aligned else low
    bin_size = (high - low) / bins
    return [start + (b + (i + 0.5) / samples) * bin_size for b in range(bins) for i in range(samples)]


ROI, BINS, SAMPLES, MAP = (1, 1, 5, 4), (3, 2), 2, (6, 5)  # bins and pixels: along x, y


UNIT, ROI_TOP = 46, 84  # of the drawing: the size of a pixel, the top of the maps


def roi_panel(picture, left, aligned):
    """Draw the map, the region and its samples."""
    zero = -0.5 if aligned else 0.0  # the region's coordinate 0, in pixels

    def to_drawing(x, y):
        return left + (x + 0.5) * UNIT, ROI_TOP + (y + 0.5) * UNIT

    middle = left + MAP[0] * UNIT / 2
    picture.heading(middle, 24, f"aligned = {aligned:d}")
    where = "outer corner" if aligned else "centre"
    picture.text(middle, 44, f"0 is the {where} of the first pixel", fill=GREY)
    for row in range(MAP[1]):
        for column in range(MAP[0]):
            x, y = to_drawing(column, row)
            picture.rectangle(x - UNIT / 2, y - UNIT / 2, UNIT, UNIT, fill=PIXEL, stroke=FAINT)
            picture.dot(x, y, 2, fill=GREY)
    for value in range(MAP[0] + aligned):
        x, y = to_drawing(value + zero, -0.5)
        picture.line([(x, y - 5), (x, y)], GREY)
        picture.text(x, y - 13, str(value), fill=GREY)
    for value in range(MAP[1] + aligned):
        x, y = to_drawing(-0.5, value + zero)
        picture.line([(x - 5, y), (x, y)], GREY)
        picture.text(x - 13, y, str(value), fill=GREY)
    (x0, y0), (x1, y1) = to_drawing(ROI[0] + zero, ROI[1] + zero), to_drawing(ROI[2] + zero, ROI[3] + zero)
    picture.rectangle(x0, y0, x1 - x0, y1 - y0, fill=BLUE, fill_opacity=0.1, stroke=BLUE, stroke_width=2)
    for b in range(1, BINS[0]):
        x = x0 + b * (x1 - x0) / BINS[0]
        picture.line([(x, y0), (x, y1)], BLUE, stroke_dasharray=BIN)
    for b in range(1, BINS[1]):
        y = y0 + b * (y1 - y0) / BINS[1]
        picture.line([(x0, y), (x1, y)], BLUE, stroke_dasharray=BIN)
    for y in sample_coordinates(ROI[1], ROI[3], BINS[1], SAMPLES, aligned):
        for x in sample_coordinates(ROI[0], ROI[2], BINS[0], SAMPLES, aligned):
            picture.dot(*to_drawing(x, y), 3.5, fill=RED)
    if not aligned:
        x, y = x0 - UNIT / 2, y0 - UNIT / 2
        picture.rectangle(x, y, x1 - x0, y1 - y0, fill="none", stroke=GREY, stroke_dasharray=GHOST)
        picture.arrow([(x, y), (x0, y0)])
        picture.label(x - 4, y - 10, "½ pixel", anchor="start", behind=PIXEL)


def roi_align():
    """Draw the samples of one region, aligned and not."""
    picture = Picture("RoIAlign: samples of one region, aligned and not", 760, 412)
    roi_panel(picture, 56, True)
    roi_panel(picture, 432, False)
    y = ROI_TOP + MAP[1] * UNIT + 28
    picture.dot(82, y, 2, fill=GREY)
    picture.text(92, y, "centre of a pixel", anchor="start")
    picture.rectangle(222, y - 6, 20, 12, fill=BLUE, fill_opacity=0.1, stroke=BLUE, stroke_width=2)
    picture.text(250, y, "region ({}, {}, {}, {})".format(*ROI), anchor="start")
    picture.line([(396, y), (420, y)], BLUE, stroke_dasharray=BIN)
    picture.text(428, y, f"{BINS[1]} x {BINS[0]} bins", anchor="start")
    picture.dot(520, y, 3.5, fill=RED)
    picture.text(530, y, f"sample, sampling_ratio {SAMPLES}", anchor="start")
    picture.text(380, y + 31, "column of a sample = start + (bin + (i + ½) / sampling_ratio) · width of a bin")
    picture.text(
        380, y + 51, "start = x1 · spatial_scale, less ½ if aligned; column 0 is the centre of the first pixel"
    )
    return picture


# ---- corner_pool -------------------------------------------------------------------------------------------------

FEATURES = np.array([[1, 4, 0, 2], [3, 0, 5, 1], [2, 6, 1, 3], [0, 2, 4, 7]])


def heat(value, low, high):
    """Return the colours of a cell and of the number in it."""
    part = (value - low) / (high - low)
    colour = [round(a + part * (b - a)) for a, b in zip(*HEAT, strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*colour), INK if part < 0.6 else "#ffffff"


def corner_pool():
    """Draw a map and its four results."""
    picture = Picture("corner_pool: a map and its four results", 832, 238)
    unit, top, step = 32, 56, 160
    maps = [("input", FEATURES)]
    maps += [(mode, mmort.corner_pool(FEATURES[None, None], mode)[0, 0]) for mode in ("top", "bottom", "left", "right")]
    rows, columns = FEATURES.shape
    for index, (name, values) in enumerate(maps):
        left = 32 + index * step
        picture.heading(left + columns * unit / 2, 28, name)
        for (row, column), value in np.ndenumerate(values):
            colour, ink = heat(value, FEATURES.min(), FEATURES.max())
            x, y = left + column * unit, top + row * unit
            picture.rectangle(x, y, unit, unit, fill=colour, stroke="#ffffff", stroke_width=2.0)
            weight = "normal" if value == FEATURES[row, column] else "bold"
            picture.text(x + unit / 2, y + unit / 2, str(value), size=14, fill=ink, font_weight=weight)
        right, bottom = left + columns * unit, top + rows * unit
        if name in ("top", "bottom"):
            ends = [(right + 9, bottom - 4), (right + 9, top + 4)]
        else:
            ends = [(right - 4, bottom + 10), (left + 4, bottom + 10)]
        if name != "input":
            picture.arrow(ends if name in ("top", "left") else ends[::-1], RED)
    picture.text(416, 218, "arrow: where the maximum runs to · bold: another value than the input's", fill=GREY)
    return picture


# ---- rotated boxes -----------------------------------------------------------------------------------------------

CORNERS = ((1, 1), (-1, 1), (-1, -1), (1, -1))
"""Corners in the order of rotated_feature_align, in halves of width and height."""


def turned(x, y, angle, clockwise):
    """Rotate a point of a box's own frame around the box's centre, with y downwards."""
    cosine, sine = math.cos(angle), math.sin(angle) if clockwise else -math.sin(angle)
    return x * cosine - y * sine, x * sine + y * cosine


WIDTH, HEIGHT, ANGLE = 180, 108, math.pi / 6


def rotated_panel(picture, x, y, clockwise):
    """Draw a rotated box around (x, y)."""

    def to_drawing(dx, dy):
        dx, dy = turned(dx, dy, ANGLE, clockwise)
        return x + dx, y + dy

    picture.heading(x, 26, f"clockwise = {clockwise:d}")
    for end, name in (((x - 120, 58), "x"), ((x - 164, 102), "y")):
        picture.arrow([(x - 164, 58), end], GREY, 1.2)
        picture.text(end[0] + 8 * (name == "x"), end[1] + 9 * (name == "y"), name, fill=GREY)
    picture.rectangle(x - WIDTH / 2, y - HEIGHT / 2, WIDTH, HEIGHT, fill="none", stroke=GREY, stroke_dasharray=GHOST)
    corners = [to_drawing(u * WIDTH / 2, v * HEIGHT / 2) for u, v in CORNERS]
    picture.shape(corners, fill=BLUE, fill_opacity=0.1, stroke=BLUE, stroke_width=2)
    for u in (-WIDTH / 6, WIDTH / 6):
        picture.line([to_drawing(u, -HEIGHT / 2), to_drawing(u, HEIGHT / 2)], BLUE, stroke_dasharray=BIN)
    picture.line([to_drawing(-WIDTH / 2, 0), to_drawing(WIDTH / 2, 0)], BLUE, stroke_dasharray=BIN)
    picture.line([(x, y), (x + 148, y)], GREY, stroke_dasharray=GHOST)
    picture.line([(x, y), to_drawing(148, 0)], RED)
    arc = [turned(132, 0, ANGLE * part / 16, clockwise) for part in range(17)]
    picture.arrow([(x + dx, y + dy) for dx, dy in arc], RED)
    dx, dy = turned(154, 0, ANGLE / 2, clockwise)
    picture.text(x + dx, y + dy, "a > 0", fill=RED)
    for row, column in ((0, 0), (0, 1), (0, 2), (1, 0)):
        u, v = (column - 1) * WIDTH / 3, (row - 0.5) * HEIGHT / 2
        picture.label(*to_drawing(u, v), f"{row}, {column}", fill=BLUE, behind=PALE_BLUE)
    picture.dot(x, y, 3.5, fill=INK)
    picture.label(x - 2, y + 14, "(x, y)", size=11, behind=PALE_BLUE)
    picture.label(*to_drawing(-WIDTH / 4, -HEIGHT / 2 - 12), "w")
    picture.label(*to_drawing(-WIDTH / 2 - 13, HEIGHT / 5), "h")
    if clockwise:
        for k, corner in enumerate(corners, 1):
            picture.dot(*corner, 9, fill="#ffffff", stroke=GREEN, stroke_width=1.6)
            picture.text(*corner, str(k), fill=GREEN, font_weight="bold")


def rotation():
    """Draw a box that is rotated by the same angle in either direction."""
    picture = Picture("Rotated boxes: the sense of the angle", 760, 376)
    rotated_panel(picture, 196, 186, False)
    rotated_panel(picture, 564, 186, True)
    picture.text(196, 312, "roi_align_rotated by default")
    picture.text(564, 312, "box_iou_rotated, nms_rotated by default,")
    picture.text(564, 330, "nms_rotated_indices, rotated_feature_align always")
    picture.text(408, 356, "0, 0 …: output bins of roi_align_rotated (row, column)", fill=BLUE, anchor="end")
    picture.text(436, 356, "1 … 4: corners of rotated_feature_align", fill=GREEN, anchor="start")
    return picture


# ---- grid_sample -------------------------------------------------------------------------------------------------

LINE = np.array([3.0, 1.0, 4.0, 2.0])


def pixel_coordinate(x, size, align_corners):
    """Convert a coordinate of grid_sample to pixels along an axis; 0 is the centre of the first pixel."""
    return (x + 1) / 2 * (size - 1) if align_corners else ((x + 1) * size - 1) / 2


def grid_coordinate(pixel, size, align_corners):
    """Convert pixels to a coordinate of grid_sample: the inverse of `pixel_coordinate`."""
    return pixel * 2 / (size - 1) - 1 if align_corners else (2 * pixel + 1) / size - 1


def read_line(pixels, padding_mode, align_corners):
    """Sample LINE with grid_sample at positions given in pixels."""
    x = grid_coordinate(pixels, len(LINE), align_corners)
    grid = np.stack([x, np.zeros_like(x)], axis=-1)[None, None]
    return mmort.grid_sample(LINE[None, None, None], grid, "bilinear", padding_mode, align_corners)[0, 0, 0]


FIRST, LAST = -3.5, 6.5  # range of the positions that are drawn, in pixels


def across(pixel):
    """Convert a position in pixels to the drawing's x."""
    return 178 + (pixel - FIRST) * 62


def grid_axis(picture, y, align_corners):
    """Draw the axis of grid_sample's coordinates."""
    picture.text(across(FIRST) - 18, y, f"align_corners = {align_corners:d}", anchor="end", font_weight="bold")
    picture.line([(across(FIRST), y), (across(LAST), y)], GREY)
    for value in (-2, -1, 0, 1, 2):
        x = across(pixel_coordinate(value, len(LINE), align_corners))
        style = {"fill": RED, "font_weight": "bold"} if abs(value) == 1 else {"fill": GREY}
        picture.line([(x, y - 6), (x, y + 6)], style["fill"], 2.5 if abs(value) == 1 else 1.0)
        picture.label(x, y + 17, str(value), behind=PIXEL if abs(value) < 2 else "#ffffff", **style)


def padding_panel(picture, bottom, number_of_mode, mode):
    """Draw the values that are sampled along the line and outside it."""

    def curve(align_corners, stroke, width, **style):
        pixels = np.arange(FIRST, LAST + 0.1, 0.125)
        values = read_line(pixels, mode, align_corners)
        points = [(across(pixel), bottom - 18 * value) for pixel, value in zip(pixels, values, strict=True)]
        picture.line(points, stroke, width, stroke_linejoin="round", **style)

    right = across(FIRST) - 44
    picture.text(right, bottom - 44, mode, size=13, anchor="end", font_weight="bold")
    picture.text(right, bottom - 27, f"padding_mode = {number_of_mode}", size=11, fill=GREY, anchor="end")
    for value in (0, 2, 4):
        picture.line([(across(FIRST), bottom - 18 * value), (across(LAST), bottom - 18 * value)], FAINT)
        picture.text(across(FIRST) - 18, bottom - 18 * value, str(value), fill=GREY)
    if mode == "reflection":
        curve(True, GREEN, 1.6, stroke_dasharray=BIN)
        for y, colour, align_corners in ((-8, BLUE, 0), (8, GREEN, 1)):
            picture.text(right, bottom + y, f"align_corners = {align_corners}", size=11, fill=colour, anchor="end")
    curve(False, BLUE, 2.2)
    for pixel, value in enumerate(LINE):
        picture.dot(across(pixel), bottom - 18 * value, 3.5, fill=RED)


def grid_sample():
    """Draw the positions of -1 and 1, and the values outside the map for each padding mode."""
    picture = Picture("grid_sample: align_corners and padding_mode", 826, 520)
    left, right, top, bottom = across(-0.5), across(len(LINE) - 0.5), 38, 496
    picture.heading((left + right) / 2, 20, f"a line of {len(LINE)} pixels")
    picture.rectangle(left, top, right - left, bottom - top, fill=PIXEL)
    for pixel in range(len(LINE) + 1):
        picture.line([(across(pixel - 0.5), top), (across(pixel - 0.5), bottom)], FAINT)
    for pixel, value in enumerate(LINE):
        colour, ink = heat(value, 0, 7)
        x, unit = across(pixel - 0.5), across(1) - across(0)
        picture.rectangle(x, top, unit, 34, fill=colour, stroke="#ffffff", stroke_width=2)
        picture.text(across(pixel), top + 17, number(value), size=14, fill=ink)
    grid_axis(picture, 104, False)
    grid_axis(picture, 150, True)
    for k, mode in enumerate(("zeros", "border", "reflection")):
        padding_panel(picture, 276 + k * 104, k, mode)
    return picture


# ---- nms and soft_nms --------------------------------------------------------------------------------------------

BOXES = np.array([[13, 24, 88, 99], [28, 34, 103, 109], [73, 65, 148, 140]], np.float64)
SCORES = np.array([0.9, 0.8, 0.7])
COLOURS = BLUE, RED, GREEN


def suppression():
    """Draw what nms and soft_nms return for three boxes."""
    picture = Picture("nms and soft_nms: what becomes of three boxes", 760, 240)
    parts = [
        ("boxes and scores", "", np.c_[BOXES, SCORES], np.arange(3)),
        ("nms", "iou_threshold 0.5", *mmort.nms(BOXES, SCORES, 0.5)),
        ("soft_nms, linear", "iou_threshold 0.3", *mmort.soft_nms(BOXES, SCORES, 0.3, method="linear")),
        ("soft_nms, gaussian", "sigma 0.5", *mmort.soft_nms(BOXES, SCORES, sigma=0.5, method="gaussian")),
    ]
    anchors = "start", "start", "end"
    for panel, (name, setting, dets, indices) in enumerate(parts):
        left, top = 24 + panel * 184, 66
        picture.heading(left + 80, 24, name)
        picture.text(left + 80, 44, setting, fill=GREY)
        picture.rectangle(left, top, 160, 150, fill=PIXEL, stroke=FAINT)
        kept = sorted(zip(indices.tolist(), dets[:, 4], strict=True))
        for index, score in kept:
            x1, y1, x2, y2 = BOXES[index] + (left, top, left, top)
            style = {"fill": COLOURS[index], "stroke": COLOURS[index], "stroke_width": 0.8 + 2.8 * score}
            picture.rectangle(x1, y1, x2 - x1, y2 - y1, fill_opacity=0.1, **style)
        for index, score in kept:
            x1, y1, x2, y2 = BOXES[index] + (left, top, left, top)
            x, y = ((x1, y1 - 11), (x2 + 5, y1 + 8), (x2 - 6, y2 - 11))[index]
            style = {"fill": COLOURS[index], "anchor": anchors[index], "font_weight": "bold"}
            picture.label(x, y, f"{score:.2f}", behind=PIXEL, **style)
    return picture


PICTURES = {
    "corner_pool": corner_pool,
    "grid_sample": grid_sample,
    "roi_align": roi_align,
    "rotation": rotation,
    "suppression": suppression,
}


def main():
    """Write the pictures."""
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
