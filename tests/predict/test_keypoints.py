"""Keypoints: from a network's outputs to JSON, windows and pictures."""

import json
from dataclasses import replace

import numpy as np
import pytest

import mmort
from mmort import Detections
from mmort.predict import Preprocessing, Skeleton, Windows, draw, predict_windows

POINTS = np.array([[[3, 4, 0.9], [8, 2, 0.1]], [[10, 10, 0.8], [11, 12, 0.7]]], np.float32)


@pytest.fixture
def detections():
    return Detections([[0, 0, 9, 9], [9, 9, 14, 14]], [0.9, 0.5], [1, 0], ("cat", "dog"), (80, 100), keypoints=POINTS)


class Network:
    """A detector of one object with keypoints, in the middle of an input of at least 40 pixels."""

    input_shape = (None, None, None)
    mask_format = None

    def __init__(self, keypoints=((20, 30, 0.9), (-5, 70, 0.4))):
        self.keypoints = np.array(keypoints, np.float32)

    def __call__(self, input, img_shape):
        count = len(input)
        dets = np.tile(np.array([10, 20, 30, 40, 0.9], np.float32), (count, 1, 1))
        return dets, np.zeros((count, 1), np.int64), np.tile(self.keypoints.reshape(1, 1, -1), (count, 1, 1))


def test_keypoints_of_an_original_image():
    predictor = mmort.Predictor(
        Network(), preprocessing=Preprocessing(size=(64, 64), clip_boxes=True), score_threshold=0
    )
    detections = predictor(np.zeros((32, 32, 3), np.uint8))
    expected = np.array([[[10, 15, 0.9], [0, 32, 0.4]]], np.float32)  # half the size, and clipped
    np.testing.assert_array_equal(detections.keypoints, expected)
    assert json.loads(detections.to_json())["detections"][0]["keypoints"] == [[10, 15, 0.9], [0, 32, 0.4]]


@pytest.mark.parametrize("shape", [(1, 1, 4), (1, 1, 0), (1, 2, 6)])
def test_outputs_that_are_no_keypoints(shape):
    network = Network()
    outputs = [*network(np.zeros((1, 3, 8, 8), np.float32), None)[:2], np.zeros(shape, np.float32)]
    predictor = mmort.Predictor(lambda *_: outputs, preprocessing=Preprocessing(), score_threshold=0)
    predictor.network.input_shape, predictor.network.mask_format = (None, None, None), None
    with pytest.raises(ValueError, match=r"keypoints must be \(1, 1, 3 P\), got"):
        predictor(np.zeros((8, 8, 3), np.uint8))


def test_results_of_coco_have_the_keypoints(detections):
    entries = detections.to_coco(5, [7, 8])
    assert [(entry["category_id"], entry["keypoints"]) for entry in entries] == [
        (8, POINTS[0].ravel().tolist()),
        (7, POINTS[1].ravel().tolist()),
    ]
    assert detections[:0].to_coco(5) == []


def test_other_skeletons_are_not_merged(detections):
    hands, feet = (replace(detections, skeleton=Skeleton(names)) for names in (("hand", "elbow"), ("foot", "knee")))
    assert (hands + hands).skeleton == hands.skeleton
    for other in (feet, detections):
        with pytest.raises(ValueError, match="all parts must have the same skeleton, or none"):
            hands + other


def test_selection_keeps_the_keypoints(detections):
    np.testing.assert_array_equal(detections[[1, 0]].keypoints, POINTS[::-1])
    with pytest.raises(ValueError, match=r"keypoints must be \(1, P, 3\), got \(2, 2, 3\)"):
        Detections([[0, 0, 9, 9]], [0.9], [0], ("cat",), (80, 100), keypoints=POINTS)


def test_merged_detections_have_as_many_keypoints(detections):
    other = Detections([[0, 0, 9, 9]], [0.7], [1], ("cat",), (80, 100), keypoints=POINTS[1:])
    np.testing.assert_array_equal((detections + other).keypoints, POINTS[[0, 1, 1]])
    without = Detections([[0, 0, 9, 9]], [0.7], [1], ("cat",), (80, 100))
    with pytest.raises(ValueError, match="all parts must have as many keypoints, or none"):
        detections + without


def test_windows_move_keypoints():
    predictor = mmort.Predictor(Network(), preprocessing=Preprocessing(), score_threshold=0)
    detections = predict_windows(predictor, np.zeros((60, 100, 3), np.uint8), Windows(60, 20))
    lefts = detections.boxes[:, 0] - 10
    assert sorted(lefts) == [0, 40]
    np.testing.assert_array_equal(detections.keypoints[:, 0, 0], lefts + 20)
    np.testing.assert_allclose(detections.keypoints[:, :, 1:], [[[30, 0.9], [70, 0.4]]] * 2)


def test_keypoints_that_are_likely_are_drawn(detections):
    image = np.full((80, 100, 3), 255, np.uint8)
    plain = Detections(detections.boxes, detections.scores, detections.labels, detections.names, (80, 100))
    changed = (draw(image, detections, scale=4) != draw(image, plain, scale=4)).any(2)
    for x, y, score in POINTS.reshape(-1, 3):
        assert changed[int(4 * y), int(4 * x)] == (score >= 0.5)
