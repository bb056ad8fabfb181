"""EfficientDet with the keys of its checkpoint, and its paddings, against what MMDetection's project detected."""

import copy
import json
import pathlib
import re

import pytest
import torch

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.parts.layers import convolution
from mmort.onnx import export
from tests.detect import efficientdet_cases, query_cases

RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "data/detect/efficientdet.json").read_text())


@pytest.mark.parametrize("name", efficientdet_cases.MODELS)
def test_detections_are_the_projects(name):
    detector, recorded = build({"model": copy.deepcopy(efficientdet_cases.MODELS[name])}), RECORDED[name]
    load_weights(detector, efficientdet_cases.weights(recorded["shapes"]))
    query_cases.assert_recorded(detector, recorded, efficientdet_cases.SHAPES[name])


@pytest.mark.parametrize(
    ("part", "entries", "match"),
    [
        ("neck", {"in_channels": [24, 40]}, "in_channels of neck 'BiFPN' must have at least 3 elements, got 2"),
        ("neck", {"num_stages": 0}, "num_stages of neck 'BiFPN' must be an integer of at least 1, got 0"),
        ("neck", {"norm_cfg": None}, "norm_cfg of neck 'BiFPN' must be a dict, got None"),
        ("neck", {"act_cfg": {"type": "ReLU"}}, "neck 'BiFPN' with act_cfg is not supported"),
        ("bbox_head", {"num_ins": 4}, "num_ins of bbox_head 'EfficientDetSepBNHead' must be the number of strides, 5"),
        (
            "bbox_head",
            {"feat_channels": 24},
            "in_channels of bbox_head 'EfficientDetSepBNHead' must be feat_channels, 24, as its last layers read both",
        ),
        (
            "bbox_head",
            {"conv_cfg": None},
            "bbox_head 'EfficientDetSepBNHead' with conv_cfg (did you mean norm_cfg?)",
        ),
        ("backbone", {"conv_cfg": {"type": "Conv2dSamePadding", "padding": 1}}, "with padding is not supported"),
    ],
)
def test_other_entries_are_refused(part, entries, match):
    model = copy.deepcopy(efficientdet_cases.MODELS["efficientdet"])
    model[part] |= entries
    with pytest.raises(ValueError, match=re.escape(match)):
        build({"model": model})


def test_the_neck_reads_three_maps():
    model = copy.deepcopy(efficientdet_cases.MODELS["efficientdet"])
    model["neck"]["start_level"] = 1
    with pytest.raises(ValueError, match=r"neck 'BiFPN' needs three maps from start_level on, got 2"):
        build({"model": model})(torch.zeros(1, 3, 64, 64))


def test_sides_need_not_be_multiples():
    """The project raises an error in torch; in mmort every level is as large as its padding says."""
    detector = build({"model": copy.deepcopy(efficientdet_cases.MODELS["efficientdet"])})
    maps = detector.levels(torch.zeros(1, 3, 75, 97))
    assert [tuple(map.shape[2:]) for map in maps] == [(38, 49), (19, 25), (10, 13), (5, 7), (3, 4)]


def test_padding_does_not_take_dilation_into_account():
    layer = convolution({"type": "Conv2dSamePadding"}, 1, 1, 3, dilation=2)
    assert layer(torch.zeros(1, 1, 8, 9)).shape == (1, 1, 6, 7)


def test_padding_is_computed_in_the_file(tmp_path):
    """A kernel smaller than its stride cuts the first row or column off an even side."""
    layers = torch.nn.Sequential(*(convolution({"type": "Conv2dSamePadding"}, 1, 1, size, stride=2) for size in (3, 1)))
    sizes = [(2, 1, 12, 13), (2, 1, 11, 10)]
    example, path = torch.randn(2, 1, 9, 14), tmp_path / "layers.onnx"
    assert export(layers.eval(), (example,), path, dynamic_shapes=({2: "h", 3: "w"},), check_sizes=sizes).ok
