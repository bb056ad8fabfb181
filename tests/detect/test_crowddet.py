"""CrowdDet's suppression, which spares the other box of the same proposal, against the same thing box by box."""

import dataclasses

import numpy as np
import pytest
import torch

import mmort.onnx
from mmort.detect import build
from mmort.detect.families.two_stage.crowddet import left_by, select
from mmort.onnx.verify.double_precision import rounded_otherwise
from tests.detect.two_stage_cases import config_of


@pytest.fixture(scope="module")
def test_cfg():
    entries = build(config_of("CrowdDet")).roi_head.test_cfg
    return dataclasses.replace(entries, score_thr=0.05, max_per_img=40)


def greedy(boxes, scores, score_thr, iou_threshold):
    """Return the indices that MMDetection's loop keeps."""
    overlap = mmort.box_iou(boxes, boxes)
    kept = []
    for index in np.argsort(-scores):
        rivals = [other for other in kept if other // 2 != index // 2]
        if scores[index] > score_thr and not (overlap[rivals, index] > iou_threshold).any():
            kept.append(index)
    return kept


def test_boxes_of_a_proposal_stay_together(test_cfg):
    near, far = [10.0, 10, 50, 50], [11.0, 10, 51, 50]
    boxes = torch.tensor([[near, far, near, [70.0, 70, 90, 90]]])
    scores = torch.tensor([[0.9, 0.8, 0.7, 0.04]])
    dets, labels = select(boxes, scores, test_cfg)
    assert dets.tolist()[0][:2] == [[*near, pytest.approx(0.9)], [*far, pytest.approx(0.8)]]
    assert labels.tolist() == [[0, 0, -1, -1]]
    assert not dets[0, 2:].any()


@pytest.mark.parametrize("seed", range(8))
def test_suppression_box_by_box_leaves_the_same(test_cfg, seed):
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 40 + 30 * seed, (2, 120, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(5, 60, (2, 120, 2))], 2).astype(np.float32)
    scores = rng.permuted(np.tile(np.arange(120, dtype=np.float32) / 120, (2, 1)), axis=1)
    dets, labels = select(*map(torch.from_numpy, (boxes, scores)), test_cfg)
    for image in range(2):
        kept = greedy(boxes[image], scores[image], 0.05, 0.5)
        first = np.sort(kept)[:40]  # MMDetection keeps the first proposals', not the best
        expected = first[np.argsort(-scores[image, first])]
        used = labels[image] >= 0
        np.testing.assert_array_equal(dets[image][used, :4], boxes[image, expected])
        np.testing.assert_array_equal(dets[image][used, 4], scores[image, expected])


def test_a_chain_takes_as_many_rounds_as_it_has_boxes():
    """Each box suppresses the next one, so every other box is left."""
    pairs = torch.eye(31, dtype=torch.bool).roll(1, 1).triu(1)[None]
    assert left_by(pairs)[0].tolist() == [index % 2 == 0 for index in range(31)]


def test_rounding_changes_nothing():
    """The proof of an export rounds sums otherwise; the loop ends all the same."""
    pairs = torch.rand(1, 40, 40, generator=torch.Generator().manual_seed(0)).triu(1) > 0.7
    with rounded_otherwise(0):
        result = left_by(pairs)
    assert torch.equal(result, left_by(pairs))


def test_the_exporter_without_loops_is_refused(tmp_path):
    pairs = torch.zeros(1, 3, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="opset_version must be 18 or later"):
        mmort.onnx.export(left_by, (pairs,), tmp_path / "file.onnx", exporter="legacy")


def test_other_numbers_of_objects_are_refused():
    config = config_of("CrowdDet")
    config["model"]["roi_head"]["bbox_head"]["num_classes"] = 3
    with pytest.raises(ValueError, match="must have num_classes=1 and num_instance=2, as in MMDetection, got 3 and 2"):
        build(config)
