"""Detectors with queries, whole, against MMDetection's; what Conditional DETR, DAB-DETR and DDQ do, by hand."""

import copy
import json
import math
import pathlib
import re

import numpy as np
import pytest
import torch

from mmort.detect import build
from mmort.detect.entries import Parts
from mmort.detect.families.query.conditional_detr import ConditionalDETRHead
from mmort.detect.families.query.dab_detr import DABDETRHead
from tests.detect import query_cases
from tests.detect.part_cases import names

RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "data/detect/query_detectors.json").read_text())


@pytest.fixture(scope="module")
def detector():
    """Return a function that builds a detector, once."""
    built = {}

    def get(name):
        if name not in built:
            built[name] = build({"model": copy.deepcopy(query_cases.MODELS[name])})
            query_cases.fill(built[name])
        return built[name]

    return get


@pytest.mark.parametrize("name", query_cases.MODELS)
def test_weights_and_detections_are_mmdetections(name, detector):
    ours, recorded = detector(name), RECORDED[name]
    assert names(ours) == recorded["names"]
    dets, labels = (output.numpy() for output in ours(*query_cases.batch()))
    for actual, classes, expected, expected_classes in zip(
        dets, labels, recorded["dets"], recorded["labels"], strict=True
    ):
        assert classes.tolist() == expected_classes
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("name", ["conditional_detr", "dab_detr"])
def test_images_of_a_batch_are_found_as_if_alone(name, detector):
    """After `isolate_images`."""
    ours = copy.deepcopy(detector(name))
    ours.isolate_images()
    images, shapes = query_cases.batch()
    together = ours(images, shapes)
    height, width = shapes[1].tolist()
    alone = ours(images[1:, :, :height, :width])
    torch.testing.assert_close(together[0][1], alone[0][0], rtol=1e-4, atol=1e-3)
    assert torch.equal(together[1][1], alone[1][0])


@pytest.mark.parametrize(("head", "far"), [(ConditionalDETRHead, 1e-5), (DABDETRHead, 1e-3)])
def test_boxes_are_relative_to_references(head, far):
    """Without moves a box is its reference; at the border it is as far away from it as `eps` says."""
    entries = Parts({}).read("bbox_head", head.Entries, {"num_classes": 3, "loss_cls": {"type": "FocalLoss"}})
    layer = head(entries, 8).requires_grad_(False)
    for parameter in layer.parameters():
        parameter.zero_()
    references = torch.tensor([[[0.3, 1.0], [0.5, 0.25]]])
    logits, boxes = layer(torch.ones(1, 2, 8), references)
    assert logits.shape == (1, 2, 3)
    expected = torch.tensor([[[0.3, 1 / (1 + far), 0.5, 0.5], [0.5, 0.25, 0.5, 0.5]]])
    torch.testing.assert_close(boxes, expected, rtol=0, atol=far / 4)


def test_dab_detr_weights_positions_by_size(detector):
    """The object is said to be half as wide and as high as the image: a box twice as wide counts half in x."""
    decoder = copy.deepcopy(detector("dab_detr").decoder)
    for parameter in decoder.ref_anchor_head.parameters():
        parameter.zero_()
    waves, boxes = torch.ones(1, 1, 256), torch.tensor([[[0.5, 0.5, 1.0, 0.25]]])
    weighted = decoder.weighted(waves, boxes, torch.zeros(1, 1, 256), first=True)[0, 0]
    assert weighted[:128].unique().tolist() == [2.0]  # y: half the image over a quarter
    assert weighted[128:].unique().tolist() == [0.5]


def test_ddq_keeps_distinct_boxes(detector):
    """The second box is like the first, which is better; the third takes no part; unused rows are none's."""
    ddq = detector("ddq")
    boxes = torch.tensor([[[0.5, 0.5, 0.2, 0.2], [0.5, 0.5, 0.2, 0.19], [0.1, 0.1, 0.1, 0.1], [0.8, 0.8, 0.1, 0.1]]])
    assert ddq.kept(boxes, torch.tensor([[0.9, 0.8, -1.0, 0.0]])).tolist() == [[True, False, False, True]]
    assert ddq.kept(boxes, torch.tensor([[0.7, 0.8, 0.5, 0.1]])).tolist() == [[False, True, True, True]]
    assert ddq.suppressed(boxes, torch.tensor([[0.7, 0.8, 0.5, 0.9]]))[0, :5].tolist() == [3, 1, 2, -1, -1]


def test_ddq_detections_of_suppressed_queries_are_unused_rows(detector, monkeypatch):
    ddq = detector("ddq")
    logits = torch.full((1, 3, 5), -math.inf)
    logits[0, 1] = torch.arange(5.0)
    monkeypatch.setattr(ddq, "_raw", lambda input, limits: (logits, torch.full((1, 3, 4), 0.5)))
    dets, labels = ddq(torch.zeros(1, 3, 40, 40))
    assert labels.tolist() == [[4, 3, 2, 1, 0] + [-1] * 7]
    assert dets[0, 5:].abs().max() == 0
    assert dets[0, 0, :4].tolist() == [10, 10, 30, 30]


@pytest.mark.parametrize(
    ("name", "path", "value", "match"),
    [
        ("conditional_detr", "bbox_head.loss_cls", {"type": "SeesawLoss"}, "loss_cls 'SeesawLoss' is not supported"),
        ("conditional_detr", "bbox_head.num_reg_fcs", 1, "num_reg_fcs of bbox_head must be an integer of at least 2"),
        ("conditional_detr", "bbox_head.embed_dims", 64, "embed_dims of bbox_head must be embed_dims of encoder, 256"),
        ("conditional_detr", "encoder.layer_cfg.self_attn_cfg.add_zero_attn", True, "must be False, got True"),
        ("conditional_detr", "encoder.layer_cfg.self_attn_cfg.num_heads", None, "must be an integer of at least 1"),
        ("conditional_detr", "decoder.layer_cfg.norm_cfg", {"type": "BN"}, "decoder.layer_cfg.norm_cfg 'BN' is not"),
        ("conditional_detr", "decoder.layer_cfg.norm_cfg", None, "decoder.layer_cfg.norm_cfg must be a dict, got None"),
        ("conditional_detr", "decoder.layer_cfg.self_attn_cfg.cross_attn", True, "cross_attn of decoder.layer_cfg"),
        (
            "conditional_detr",
            "positional_encoding.temperature",
            0,
            "temperature of positional_encoding must be",
        ),
        ("dab_detr", "num_patterns", 3, "num_patterns of model must be 0, got 3"),
        ("dab_detr", "decoder.query_dim", 2, "query_dim of decoder must be 4, got 2"),
        ("dab_detr", "decoder.layer_cfg.cross_attn_cfg.keep_query_pos", True, "keep_query_pos of decoder.layer_cfg"),
        ("ddq", "dqs_cfg.type", "soft_nms", "dqs_cfg 'soft_nms' is not supported; supported: nms"),
        ("ddq", "bbox_head.loss_cls", {"type": "CrossEntropyLoss"}, "loss_cls 'CrossEntropyLoss' is not supported"),
        ("ddq", "dqs_cfg.max_num", 3, "dqs_cfg with max_num"),
    ],
)
def test_unsupported_entries_are_named(name, path, value, match):
    model = copy.deepcopy(query_cases.MODELS[name])
    *parents, last = path.split(".")
    part = model
    for parent in parents:
        part = part[parent]
    part[last] = value
    with pytest.raises(ValueError, match=re.escape(match)):
        build({"model": model})
