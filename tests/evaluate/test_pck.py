"""PCK of poses: keypoints near those of the annotations, by the boxes' longer sides."""

import json

import numpy as np
import pytest

from mmort import Detections
from mmort.evaluate.poses import PoseDataset

OBJECTS = [([0, 0, 20, 10], [5, 5, 2, 9, 5, 2]), ([30, 0, 10, 40], [35, 5, 1, 0, 0, 0])]
"""Two boxes with two keypoints each, of which one is not labelled."""


def dataset(folder, box_file=None, objects=OBJECTS):
    annotations = [
        {"id": index, "image_id": 1, "category_id": 1, "bbox": box, "keypoints": points}
        for index, (box, points) in enumerate(objects, 1)
    ]
    images = [{"id": 1, "file_name": "1.png", "width": 100, "height": 100}]
    categories = [{"id": 1, "name": "figure"}]
    (folder / "x.json").write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return PoseDataset(folder / "x.json", folder, box_file)


def found(*moves):
    """Return the keypoints of both objects, moved to the right."""
    points = np.array([[[5, 5], [9, 5]], [[35, 5], [0, 0]]], np.float32)
    points[..., 0] += np.array(moves).reshape(2, 2)
    keypoints = np.dstack([points, np.ones((2, 2), np.float32)])
    return [Detections(np.ones((2, 4)), [1, 1], [0, 0], ("a", "a"), (100, 100), keypoints=keypoints)]


@pytest.mark.parametrize(
    ("moves", "options", "expected"),
    [
        ((0, 0, 0, 0), {}, 1),
        ((0.9, 0, 1.9, 99), {}, 1),  # a twentieth of 20, and of 40 pixels; the last one is not labelled
        ((1.1, 0, 0, 0), {}, (0.5 + 1) / 2),  # of the first keypoint one of two, of the second one of one
        ((1.1, 0, 2.1, 0), {}, (0 + 1) / 2),
        ((1.1, 0, 2.1, 0), {"thr": 0.06}, 1),
    ],
)
def test_keypoints_that_are_near(tmp_path, moves, options, expected):
    assert dataset(tmp_path).score(found(*moves), ["pck"], options).figures == {"PCK": expected}


def test_no_keypoint_is_labelled(tmp_path):
    """As in MMPose, nothing is near then."""
    unlabelled = [(box, [x, y, 0] * 2) for box, (x, y, *_) in OBJECTS]
    assert dataset(tmp_path, objects=unlabelled).score(found(0, 0, 0, 0), ["pck"], {}).figures == {"PCK": 0}


ROW = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "score": 0.5}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"bbox": [0, 0, 10**400, 5]}, r"boxes\[1\]\.bbox in .* must be x, y, width, height: finite numbers"),
        ({"bbox": [0, 0, 1e300, 5]}, r"boxes\[1\]\.bbox in .* must be x, y, width, height: finite numbers"),
        ({"bbox": [0, 0, float("nan"), 5]}, r"boxes\[1\]\.bbox in .* must be x, y, width, height: finite numbers"),
        ({"bbox": 5}, r"boxes\[1\]\.bbox in .* must be x, y, width, height: finite numbers"),
        ({"score": 10**400}, r"boxes\[1\]\.score in .* must be a number of float32"),
        ({"bbox": [0, 0, 5]}, r"boxes\[1\]\.bbox in .* must be x, y, width, height: finite numbers"),
        ({"score": "high"}, r"boxes\[1\]\.score in .* must be a number of float32"),
        ({"image_id": [1]}, r"boxes\[1\]\.image_id in .* must be a number or text"),
    ],
)
def test_wrong_box_files(tmp_path, entries, message):
    (tmp_path / "boxes.json").write_text(json.dumps([ROW, ROW | entries]))
    with pytest.raises(ValueError, match=message):
        dataset(tmp_path, tmp_path / "boxes.json")


def test_keypoints_beyond_float32(tmp_path):
    with pytest.raises(ValueError, match=r"keypoints .*must be finite numbers"):
        dataset(tmp_path, objects=[([0, 0, 20, 10], [10**400, 5, 2, 9, 5, 2])])


def test_refusals(tmp_path):
    (tmp_path / "boxes.json").write_text(json.dumps([ROW]))
    with pytest.raises(ValueError, match="pck is measured in the boxes of the annotations, but there is a box_file"):
        dataset(tmp_path, tmp_path / "boxes.json").check(["pck"], {})
    for options, message in (
        ({"thr": "a"}, "thr must be a number"),
        ({"norm_item": "head"}, "must be 'bbox', got"),
        ({"norm_item": []}, "must be 'bbox', got"),
        ({"norm_item": 5}, "must be 'bbox', got"),
    ):
        with pytest.raises(ValueError, match=message):
            dataset(tmp_path).check(["pck"], options)
