"""Backbones and necks against MMDetection's own modules: names, shapes, and numbers recorded from them."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import mmort.onnx
from mmort.detect.loading import PARTS
from mmort.detect.parts.layers import ConvModule, convolution
from tests.detect import part_cases, two_stage_cases

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "detect" / "parts.json").read_text())


@pytest.mark.parametrize(
    ("kind", "name", "config"), part_cases.CASES, ids=[f"{kind}-{name}" for kind, name, _ in part_cases.CASES]
)
def test_parts_compute_what_mmdetections_do(kind, name, config):
    expected = RECORDED[f"{kind} {name}"]
    module = PARTS.build(kind, config).eval()
    assert part_cases.names(module) == expected["names"]
    part_cases.fill(module)
    with torch.inference_mode():
        outputs = part_cases.summary(module(part_cases.inputs(kind, name)))
    assert [output[0] for output in outputs] == [output[0] for output in expected["outputs"]]
    for (_, size, values), (_, expected_size, expected_values) in zip(outputs, expected["outputs"], strict=True):
        assert expected_size > 1e-3
        assert size == pytest.approx(expected_size, rel=1e-4)
        np.testing.assert_allclose(values, expected_values, rtol=0, atol=3e-4 * expected_size)


class OverBoxes(torch.nn.Module):
    """A convolution with a normalization, over the features of as many boxes as an image has."""

    def __init__(self, **norm_cfg):
        super().__init__()
        self.layer = ConvModule(3, 4, 3, padding=1, norm_cfg=norm_cfg)

    def forward(self, features):
        return self.layer(features[features.amax((1, 2, 3)) > 0])


@pytest.mark.parametrize(
    "exporter",
    [{}, {"exporter": "legacy", "opset_version": 11}, {"exporter": "legacy", "opset_version": 17}],
    ids=["dynamo", "legacy, 11", "legacy, 17"],
)
@pytest.mark.parametrize("kind", ["BN", "SyncBN"])
def test_normalizations_over_boxes(tmp_path, kind, exporter):
    """A batch normalization of torch asks whether there are any boxes, which a program for any number cannot answer."""
    torch.manual_seed(0)
    module = OverBoxes(type=kind).eval()
    two_stage_cases.fill(module)
    features = torch.randn(4, 3, 5, 5)
    checks = [(torch.randn(7, 3, 5, 5),), (-features.abs()[:2],)]  # without a box, too
    file, axes = tmp_path / "boxes.onnx", ({0: "n"},)
    report = mmort.onnx.export(module, (features,), file, dynamic_shapes=axes, check_sizes=checks, **exporter)
    assert report.ok
    nodes = [node.op_type for node in onnx.load(file).graph.node]
    assert "Conv" in nodes
    assert "BatchNormalization" not in nodes  # it is folded into the convolution


SABL = {"type": "SABLHead", "num_classes": 3}
OF_SABL = "of bbox_head 'SABLHead' must be"


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        (
            "backbone",
            {**part_cases.BACKBONES["trident"], "trident_dilations": [1, 2]},
            "trident_dilations of backbone 'TridentResNet' must have num_branch = 3 entries, got 2",
        ),
        (
            "backbone",
            {**part_cases.BACKBONES["trident"], "test_branch_idx": 3},
            "test_branch_idx of backbone 'TridentResNet' must be one of the 3 branches, got 3",
        ),
        ("neck", {**part_cases.NECKS["nas_fpn"], "num_outs": 4}, "neck.num_outs must be 5 for NASFPN, got 4"),
        (
            "neck",
            {**part_cases.NECKS["nas_fpn"], "in_channels": [8] * 7},
            "neck.in_channels must have at most 5 levels from start_level to end_level for NASFPN, got 6",
        ),
        (
            "bbox_head",
            {**SABL, "reg_class_agnostic": False},
            f"reg_class_agnostic {OF_SABL} True, got False",
        ),
        (
            "bbox_head",
            {**SABL, "reg_feat_up_ratio": 1},
            f"reg_feat_up_ratio {OF_SABL} an integer of at least 2, got 1",
        ),
        (
            "bbox_head",
            {**SABL, "roi_feat_size": 6},
            f"roi_feat_size * reg_feat_up_ratio {OF_SABL} num_buckets of its bbox_coder, 14, got 6 * 2",
        ),
    ],
)
def test_parts_that_are_refused(kind, config, message):
    with pytest.raises(ValueError, match=rf"^detect\.build: .*{re.escape(message)}$"):
        PARTS.build(kind, config)


@pytest.mark.parametrize("temperature", ["tempearture", "temperature"])  # MMDetection's and its fork's spelling
def test_seesaw_scores_and_normalized_predictors(temperature):
    """A class's score is its softmax among the classes times the probability of an object."""
    head = PARTS.build(
        "bbox_head",
        {
            "type": "Shared2FCBBoxHead",
            "num_classes": 3,
            "in_channels": 2,
            "roi_feat_size": 1,
            "fc_out_channels": 4,
            "cls_predictor_cfg": {"type": "NormedLinear", temperature: 10},
            "loss_cls": {"type": "SeesawLoss", "num_classes": 3, "p": 0.8},
        },
    )
    assert [*head.fc_cls.weight.shape] == [5, 4]
    assert [*head.state_dict()["loss_cls.cum_samples"].shape] == [4]
    scores = head.loss_cls(torch.tensor([[1.0, 1, 2, 3, 1]]).log())
    torch.testing.assert_close(scores, torch.tensor([[1 / 4, 1 / 4, 2 / 4]]) * 3 / 4)
    features = torch.tensor([[3.0, 0, 4, 0]])
    with torch.no_grad():
        head.fc_cls.weight[:] = torch.tensor([[0.0, 0, 2, 0]])
        head.fc_cls.bias[:] = torch.arange(5.0)
        torch.testing.assert_close(head.fc_cls(features), 10 * 4 / 5 + torch.arange(5.0)[None])


@pytest.mark.parametrize("temperature", ["tempearture", "temperature"])
def test_normalized_convolution(temperature):
    config = {"type": "NormedConv2d", temperature: 10}
    conv = convolution(config, 2, 1, 1)
    with torch.no_grad():
        conv.weight[:] = torch.tensor([3.0, 4.0])[None, :, None, None]
        conv.bias[:] = 1
        maps = torch.tensor([[[[0.0, 5.0]], [[2.0, 12.0]]]])
        expected = torch.tensor([[[[8.0, 10 * (15 + 48) / 65]]]]) + 1
        torch.testing.assert_close(conv(maps), expected)


def test_deformable_groups_is_an_old_name():
    conv = convolution({"type": "DCNv2", "deformable_groups": 2}, 4, 4, 3, padding=1)
    assert conv.deform_groups == 2
