"""TIMMBackbone: mmort returns what MMPreTrain's returns with the same weights, whatever the entries."""

import warnings
import zlib

import numpy as np
import pytest
import torch

from mmort.detect.checkpoint import load_weights
from mmort.detect.loading import PARTS
from tests.detect import part_cases
from tests.originals.mmpretrain_1 import TIMMBackbone

CASES = {
    "resnet": {"model_name": "test_resnet", "features_only": True, "out_indices": [4, 2], "drop_path_rate": 0.3},
    "one map": {"model_name": "test_resnet", "features_only": True, "out_indices": 3},
    "all maps": {"model_name": "test_efficientnet", "features_only": True, "pretrained": False},
    "renamed model": {"model_name": "tv_resnet34", "features_only": True, "out_indices": (1, 2, 3, 4)},
    "last map": {"model_name": "test_resnet", "in_channels": 1},
    "last map of ConvNeXt": {"model_name": "test_convnext"},
    "dilated": {"model_name": "resnet18", "features_only": True, "output_stride": 8, "norm_layer": "BN2d"},
    "norm without activation": {"model_name": "densenet121", "features_only": True, "norm_layer": "BN"},
    "layer norm": {"model_name": "pvt_v2_b0", "features_only": True, "norm_layer": "LN"},
}


@pytest.mark.parametrize("name", CASES)
def test_equal(name):
    config = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name that timm has changed
        original = TIMMBackbone(**config)
    original.eval()
    part_cases.fill(original)
    backbone = PARTS.build("backbone", {"type": "mmpretrain.TIMMBackbone", **config}).eval()
    load_weights(backbone, original.state_dict())
    random = np.random.default_rng(zlib.crc32(name.encode()))
    for height, width in random.integers(40, 150, (3, 2)).tolist():
        image = torch.from_numpy(random.standard_normal((2, config.get("in_channels", 3), height, width), np.float32))
        with torch.inference_mode():
            maps, expected = backbone(image), original(image)
        assert type(maps) is tuple
        assert len(maps) == len(expected)
        for ours, theirs in zip(maps, expected, strict=True):
            assert theirs.std() > 1e-3
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
