"""Small panoptic detectors against MMDetection's maps, their configs, and their files."""

import json
import pathlib

import numpy as np
import pytest
import torch

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.predict import PanopticFormat
from tests.detect import panoptic_cases

RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "data" / "detect" / "panoptic.json").read_text())


def built(name):
    """Return a detector with weights."""
    detector = build(panoptic_cases.config(name))
    panoptic_cases.fill(name, detector)
    return detector


@pytest.mark.parametrize("name", panoptic_cases.MODELS)
def test_mmdetections_maps(name):
    """Each segment's id, pixels and their mean position, in the original sizes of two images in a batch."""
    actual = panoptic_cases.predicted(built(name), *panoptic_cases.batch(name))
    for detections, wanted in zip(actual, RECORDED[name], strict=True):
        summary = panoptic_cases.summary(detections.panoptic_map)
        assert [row[0] for row in summary] == [row[0] for row in wanted]
        np.testing.assert_allclose(np.array(summary)[:, 1:], np.array(wanted)[:, 1:], atol=10, rtol=0.01)


def test_thresholds_come_from_the_config():
    config = panoptic_cases.config("mask2former")
    config["model"]["test_cfg"] = {"iou_thr": 0.6, "filter_low_score": True}
    detector = build(config)
    assert detector.mask_format.panoptic == PanopticFormat("queries", 4, 7, 0.6, True)
    assert detector.test_cfg.object_mask_thr == 0.8
    detector = build(panoptic_cases.config("panoptic_fpn"))
    expected = PanopticFormat("instances", 4, 7, max_overlap=0.5, min_stuff_area=300)
    assert detector.mask_format.panoptic == expected


def test_a_file_has_segments_or_instances():
    config = panoptic_cases.config("mask2former")
    config["model"]["test_cfg"] = {"instance_on": True}
    assert build(config).prepare_for_export(flip=False) == (
        "the instances, which model.test_cfg.panoptic_on=False gives instead of the segments",
    )
    config["model"]["test_cfg"] = {"instance_on": True, "panoptic_on": False}
    assert build(config).mask_format.panoptic is None
    config["model"]["test_cfg"] = {"panoptic_on": False}
    with pytest.raises(ValueError, match="instance_on are false, so nothing is detected"):
        build(config)


def test_instances_of_mmdetection_2():
    """Its ``test_cfg.panoptic`` also has what selects instances; ``rcnn`` is of another detector."""
    config = panoptic_cases.config("panoptic_fpn")
    test_cfg = config["model"]["test_cfg"]
    test_cfg["panoptic"] |= test_cfg["rcnn"] | {"score_thr": 0.6, "mask_thr_binary": 0.4}
    test_cfg["rcnn"] = {"score_thr": 0.05, "nms": {"type": "nms", "iou_threshold": 0.7}, "max_per_img": 99}
    detector = build(config)
    rcnn = detector.roi_head.test_cfg
    assert (rcnn.score_thr, rcnn.max_per_img, rcnn.nms.class_agnostic) == (0.6, 6, True)
    assert detector.mask_format.threshold == 0.4


def test_panoptic_fpn_is_a_mask_rcnn():
    """With the same weights it finds the same instances, whatever the weights of its other branch."""
    config = panoptic_cases.config("panoptic_fpn")
    panoptic = built("panoptic_fpn")
    model = {key: value for key, value in config["model"].items() if "semantic" not in key and "fusion" not in key}
    test_cfg = {key: value for key, value in model["test_cfg"].items() if key != "panoptic"}
    mask_rcnn = build({"model": model | {"type": "MaskRCNN", "test_cfg": test_cfg}})
    weights = panoptic.state_dict()
    load_weights(mask_rcnn, {key: value for key, value in weights.items() if not key.startswith("semantic_head.")})
    batch, _ = panoptic_cases.batch("panoptic_fpn")
    with torch.inference_mode():
        for ours, theirs in zip(panoptic(batch)[:3], mask_rcnn.eval()(batch), strict=True):
            assert torch.equal(ours, theirs)
