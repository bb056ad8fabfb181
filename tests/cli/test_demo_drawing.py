"""Drawing: masks, boxes and tags where they belong, in their class's colour."""

import numpy as np
from PIL import Image

from mmort.demo import drawing

COLOURS = drawing.class_colours("0123456789")


def test_annotate_draws_mask_box_and_tag():
    mask = np.zeros((50, 60), bool)
    mask[:, :30] = True
    detection = drawing.Detection("3", 0.75, (20.0, 40.0, 80.0, 90.0), mask)
    panel = np.asarray(drawing.annotate(Image.new("RGB", (100, 100), "black"), [detection], COLOURS)).astype(int)
    scale = drawing.PANEL_HEIGHT / 100
    assert panel.shape == (drawing.PANEL_HEIGHT, drawing.PANEL_HEIGHT, 3)
    colour = np.array([int(COLOURS["3"][i : i + 2], 16) for i in (1, 3, 5)])
    row, middle = round(65 * scale), round(50 * scale)
    np.testing.assert_allclose(panel[row, round(35 * scale)], colour * drawing.MASK_OPACITY, atol=2)
    assert (panel[row, middle - 4 : middle + 4].max(axis=0) > 0.7 * colour).all()  # the mask's outline
    assert not panel[row, round(65 * scale)].any()
    assert (panel[row, [round(20 * scale), round(80 * scale)]] == colour).all()
    assert (panel[: round(40 * scale)] == colour).all(axis=2).sum() > 500  # the tag, above the box


def test_annotate_tags_keep_apart():
    mask = np.ones((20, 30), bool)
    detections = [drawing.Detection(label, 0.9, (40.0, 40.0, 70.0, 60.0), mask) for label in "0123"]
    panel = np.asarray(drawing.annotate(Image.new("RGB", (100, 100), "black"), detections, COLOURS))
    for label in "0123":
        colour = [int(COLOURS[label][i : i + 2], 16) for i in (1, 3, 5)]
        assert (panel == colour).all(axis=2).sum() > 500, label
