"""The pictures of docs/operators.md are what docs/pictures/draw.py draws, by the formulas of the operators."""

import importlib.util
import itertools
import pathlib
import re

import numpy as np
import pytest

import mmort

DOCS = pathlib.Path(__file__).parents[2] / "docs"

spec = importlib.util.spec_from_file_location("draw", DOCS / "pictures" / "draw.py")
draw = importlib.util.module_from_spec(spec)
spec.loader.exec_module(draw)

ROWS, COLUMNS = np.mgrid[:12.0, :12.0]
COORDINATES = np.stack([COLUMNS, ROWS])[None]
"""A map whose pixels hold their own column and row: a sample of it is its position."""


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", draw.PICTURES)
def test_committed_picture_is_what_the_script_draws(name):
    assert (draw.FOLDER / f"{name}.svg").read_text(encoding="utf-8") == draw.PICTURES[name]().svg()


def test_document_shows_every_picture_and_says_what_is_on_it():
    shown = re.findall(r"^!\[(.+)\]\(pictures/(\w+)\.svg\)$", (DOCS / "operators.md").read_text(encoding="utf-8"), re.M)
    assert {name for _, name in shown} == set(draw.PICTURES) == {path.stem for path in draw.FOLDER.glob("*.svg")}
    assert all(len(words) > 60 for words, _ in shown)


@pytest.mark.parametrize("aligned", [False, True])
def test_samples_of_roi_align(aligned):
    (x1, y1, x2, y2), (columns, rows), samples = draw.ROI, draw.BINS, draw.SAMPLES
    x = np.array(draw.sample_coordinates(x1, x2, columns, samples, aligned))
    y = np.array(draw.sample_coordinates(y1, y2, rows, samples, aligned))
    roi = [[0, x1, y1, x2, y2]]
    one_each = mmort.roi_align(COORDINATES, roi, (rows * samples, columns * samples), 1, 1, "avg", aligned)
    close(one_each[0], np.stack(np.meshgrid(x, y)))
    means = mmort.roi_align(COORDINATES, roi, (rows, columns), 1, samples, "avg", aligned)
    close(means[0], np.stack(np.meshgrid(x.reshape(columns, -1).mean(1), y.reshape(rows, -1).mean(1))))
    last = mmort.roi_align(COORDINATES, roi, (rows, columns), 1, samples, "max", aligned)
    close(last[0], np.stack(np.meshgrid(x[samples - 1 :: samples], y[samples - 1 :: samples])))


CENTRE, WIDTH, HEIGHT = np.array([5.0, 6.0]), 6, 3.6


@pytest.mark.parametrize("clockwise", [False, True])
def test_bins_of_roi_align_rotated(clockwise):
    roi = [[0, *CENTRE, WIDTH, HEIGHT, draw.ANGLE]]
    bins = mmort.roi_align_rotated(COORDINATES, roi, (2, 3), 1, 1, False, clockwise)
    for row, column in np.ndindex(2, 3):
        offset = draw.turned((column - 1) * WIDTH / 3, (row - 0.5) * HEIGHT / 2, draw.ANGLE, clockwise)
        close(bins[0, :, row, column], CENTRE + offset)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("read", [False, True])
def test_sense_of_box_iou_rotated(turned, read):
    """Tiny boxes at the ends of a box's axis lie in the box only if it is turned in the same sense."""
    ends = [CENTRE + draw.turned(x * WIDTH, 0, draw.ANGLE, turned) for x in (-0.48, 0.48)]
    tiny = [[*end, 0.01, 0.01, 0] for end in ends]
    box = [[*CENTRE, WIDTH, HEIGHT, draw.ANGLE]]
    close(mmort.box_iou_rotated(tiny, box, "iof", clockwise=read)[:, 0], float(turned == read))


def test_corners_of_rotated_feature_align():
    # the centre's first number is the row
    boxes = np.broadcast_to([*CENTRE[::-1], WIDTH, HEIGHT, draw.ANGLE], (1, *ROWS.shape, 5))
    sums = [COORDINATES] + [mmort.rotated_feature_align(COORDINATES, boxes, 1, points) for points in range(1, 6)]
    points = [(after - before)[0, :, 0, 0] for before, after in itertools.pairwise(sums)]
    corners = [draw.turned(x * WIDTH / 2, y * HEIGHT / 2, draw.ANGLE, True) for x, y in draw.CORNERS]
    close(points, np.add([(0, 0), *corners], CENTRE))


@pytest.mark.parametrize("align_corners", [False, True])
def test_coordinates_of_grid_sample(align_corners):
    x = np.linspace(-0.75, 0.75, 7)
    grid = np.stack([x, np.zeros_like(x)], axis=-1)[None, None]
    pixels = mmort.grid_sample(COORDINATES, grid, align_corners=align_corners)[0, 0, 0]
    close(pixels, draw.pixel_coordinate(x, 12, align_corners))
    close(draw.grid_coordinate(pixels, 12, align_corners), x)
