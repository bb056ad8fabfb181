"""Detections of rotated boxes: from a network's outputs to JSON, other libraries and pictures."""

import json
import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from mmort import Detections, Predictor
from mmort.predict import Preprocessing, draw

BOXES = np.array([[50, 40, 20, 10, math.pi / 2], [30, 30, 8, 4, 0.3]], np.float32)


@pytest.fixture
def detections():
    return Detections.of_rotated(BOXES, [0.9, 0.5], [1, 0], ("ship", "plane"), (80, 100))


def test_selection_keeps_the_rotated_boxes(detections):
    np.testing.assert_array_equal(detections[[1, 0]].rotated_boxes, BOXES[::-1])
    np.testing.assert_array_equal(detections.above(0.6).rotated_boxes, BOXES[:1])


def test_polygons_and_upright_boxes(detections):
    np.testing.assert_allclose(detections.boxes[0], [45, 30, 55, 50], atol=1e-4)
    np.testing.assert_allclose(detections.polygons[0], [[55, 30], [55, 50], [45, 50], [45, 30]], atol=1e-4)
    upright = Detections([[1, 2, 5, 8]], [0.9], [0], ("cat",), (10, 12))
    assert upright.polygons.tolist() == [[[1, 2], [5, 2], [5, 8], [1, 8]]]


def test_boxes_turn_with_the_image_as_in_mmrotate_1_or_not_as_in_0():
    """A square of 12 on its tip, in an image that is made twice as high: its sides run along (1, 2) and (-1, 2)."""
    image, tip = np.zeros((20, 30, 3), np.uint8), np.array([[15, 10, 12, 12, math.pi / 4]], np.float32)
    half_as_high = Preprocessing(size=(30, 10), keep_ratio=False, turn_boxes=True)
    side = 12 * math.hypot(1, 2) / math.sqrt(2)
    result = half_as_high(image).rotated_boxes_in_image(tip)
    np.testing.assert_allclose(result, [[15, 20, side, side, math.atan(1 / 2)]], rtol=1e-6)
    stays = replace(half_as_high, turn_boxes=False)(image).rotated_boxes_in_image(tip)
    np.testing.assert_allclose(stays, [[15, 20, 12, 24, math.pi / 4]], rtol=1e-6)


def test_json(detections):
    entry = json.loads(detections.to_json())["detections"][1]
    assert entry["rotated_box"] == [30, 30, 8, 4, 0.3]
    assert len(entry["box"]) == 4


def test_supervision(detections, monkeypatch):
    monkeypatch.setitem(sys.modules, "supervision", SimpleNamespace(Detections=dict))
    np.testing.assert_array_equal(detections.to_supervision()["data"]["xyxyxyxy"], detections.polygons)


def test_wrong_shape():
    with pytest.raises(ValueError, match=r"rotated_boxes must be \(1, 5\), got \(1, 4\)"):
        Detections([[1, 2, 5, 8]], [0.9], [0], ("cat",), (10, 12), rotated_boxes=np.zeros((1, 4)))


def test_rotated_outlines_are_drawn(detections):
    canvas = draw(np.zeros((80, 100, 3), np.uint8), detections[:1])
    lines = canvas.any(2)
    assert lines[30:50, 45].all()  # the left side of the box, which is turned by a quarter
    assert not lines[32:48, 48:52].any()
    tilted = Detections.of_rotated([[100, 80, 120, 10, 0.5]], [0.9], [0], ("ship",), (160, 200))
    lines = draw(np.zeros((160, 200, 3), np.uint8), tilted).any(2)
    x1, _, _, y2 = np.rint(tilted.boxes[0]).astype(int)
    assert not lines[y2 - 8 : y2, x1 : x1 + 8].any()  # a corner of the upright box around it


class Network:
    """A detector of one rotated box."""

    input_shape = None, None, None
    mask_format = None

    def __call__(self, input, img_shape):
        dets, labels = np.zeros((len(input), 2, 6), np.float32), np.full((len(input), 2), -1)
        dets[:, 0], labels[:, 0] = (10, 20, 8, 4, 0.3, 0.7), 0
        return dets, labels


def test_boxes_are_mapped_to_the_picture():
    predictor = Predictor(Network(), classes=("ship",), preprocessing=Preprocessing(size=(50, 40)), score_threshold=0)
    result = predictor(np.zeros((80, 100, 3), np.uint8))
    np.testing.assert_allclose(result.rotated_boxes, [[20, 40, 16, 8, 0.3]], rtol=1e-6)
    assert result.names == ("ship",)
    assert result.scores.tolist() == [pytest.approx(0.7)]
