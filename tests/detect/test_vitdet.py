"""ViTDet with the keys of its checkpoint, against what MMDetection's project detected."""

import copy
import json
import pathlib
import re

import pytest
import torch

from mmort.detect import build, unsupported
from mmort.detect.checkpoint import load_weights
from tests.detect import co_dino_cases, query_cases, vitdet_cases

RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "data/detect/vitdet.json").read_text())


@pytest.mark.parametrize("name", vitdet_cases.MODELS)
def test_detections_are_the_projects(name):
    detector, recorded = build({"model": copy.deepcopy(vitdet_cases.MODELS[name])}), RECORDED[name]
    load_weights(detector, vitdet_cases.weights(recorded["shapes"]))
    query_cases.assert_recorded(detector, recorded)


@pytest.mark.parametrize(
    ("part", "entries", "match"),
    [
        ("backbone", {"num_heads": 5}, "embed_dim of backbone 'ViT' must be a multiple of num_heads = 5, got 48"),
        ("backbone", {"rope": True}, "backbone 'ViT' with rope is not supported"),
        ("neck", {"in_channels": [12, 24, 48]}, "neck.in_channels must be [12, 24, 48, 48], because of backbone_chan"),
        ("neck", {"norm_cfg": {"type": "LN2d", "affine": True}}, "norm_cfg 'LN2d' with affine is not supported"),
    ],
)
def test_other_entries_are_refused(part, entries, match):
    model = copy.deepcopy(vitdet_cases.MODELS["vitdet"])
    model[part] |= entries
    with pytest.raises(ValueError, match=re.escape(match)):
        build({"model": model})


def test_the_neck_reads_one_map():
    model = copy.deepcopy(vitdet_cases.MODELS["vitdet"])
    model["backbone"] = {"type": "ResNet", "depth": 18, "base_channels": 8, "out_indices": (2, 3)}
    with pytest.raises(ValueError, match=r"neck 'SimpleFPN' needs a backbone with one map, as ViT, got 2 maps"):
        build({"model": model})(torch.zeros(1, 3, 64, 64))


def test_the_type_of_two_backbones_is_read_by_its_detector():
    """What is unsupported in Co-DETR's is not looked for in ViTDet's, whose entries differ."""
    model = copy.deepcopy(co_dino_cases.OF_AUTHORS["co_dino_vit"])
    model["backbone"] |= {"pt_hw_seq_len": 16, "colour": "red"}
    assert unsupported({"model": model, "optimizer": {}}) == [
        "backbone 'ViT' with colour is not supported",
        "preprocessing: the config has no test pipeline",
    ]
