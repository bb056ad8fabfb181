"""PCK of poses: keypoints near those of the annotations, by the boxes' longer sides."""

import json

import numpy as np
import pytest

from mmort import Detections
from mmort.evaluate.poses import PoseDataset


def dataset(folder, box_file=None):
    """Return a data set of two objects with two keypoints each, of which one is not labelled."""
    objects = [([0, 0, 20, 10], [5, 5, 2, 9, 5, 2]), ([30, 0, 10, 40], [35, 5, 1, 0, 0, 0])]
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


def test_refusals(tmp_path):
    (tmp_path / "boxes.json").write_text(
        json.dumps([{"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "score": 0.5}])
    )
    with pytest.raises(ValueError, match="pck is measured in the boxes of the annotations, but there is a box_file"):
        dataset(tmp_path, tmp_path / "boxes.json").check(["pck"], {})
    for options, message in (({"thr": "a"}, "thr must be a number"), ({"norm_item": "head"}, "must be 'bbox', got")):
        with pytest.raises(ValueError, match=message):
            dataset(tmp_path).check(["pck"], options)
