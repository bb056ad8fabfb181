"""CentripetalNet: which corners pair, computed by hand."""

import numpy as np
import pytest
import torch

from mmort.detect import build

CONFIG = {
    "model": {
        "type": "CornerNet",
        "backbone": {
            "type": "HourglassNet",
            "downsample_times": 1,
            "num_stacks": 1,
            "stage_channels": [8, 8],
            "stage_blocks": [1, 1],
            "feat_channel": 8,
        },
        "bbox_head": {
            "type": "CentripetalHead",
            "num_classes": 2,
            "in_channels": 8,
            "num_feat_levels": 1,
            "corner_emb_channels": 0,
        },
        "test_cfg": {
            "corner_topk": 4,
            "distance_threshold": 0.5,
            "max_per_img": 5,
            "nms": {"type": "soft_nms", "iou_threshold": 0.5, "method": "gaussian"},
        },
    }
}
TOP_LEFT, BOTTOM_RIGHT = (1, 1), (9, 5)  # x, y in cells of 4 pixels


@pytest.mark.parametrize(
    ("shift", "why"),
    [
        ((4, 2), None),  # both point to the centre of the box of 32 x 16 pixels
        ((2.5, 1.25), "the area between both points is more than half of the central area"),
        ((2, 2), "28 is beyond the central area, which ends at 26.7"),
        ((4, 1), "16 is beyond the central area, which ends at 15.3"),
    ],
)
def test_corners_point_to_one_centre(shift, why, monkeypatch):
    """The top left corner points to (14, 9) in pixels, the other from (36, 20) by its shift of cells."""
    network = build(CONFIG)
    maps = {
        name: torch.full((1, 2, 8, 16), -9.0 if "heat" in name else 0.0) if "guid" not in name else None
        for name in network.raw_names
    }
    (x, y), (last_x, last_y) = TOP_LEFT, BOTTOM_RIGHT
    maps["tl_heat"][0, 1, y, x] = maps["br_heat"][0, 1, last_y, last_x] = np.log(0.8 / 0.2)
    maps["tl_centripetal_shift"][0, :, y, x] = torch.tensor([2.5, 1.25]).log()
    maps["br_centripetal_shift"][0, :, last_y, last_x] = torch.tensor(shift).log()
    monkeypatch.setattr(network, "raw", lambda input: tuple(maps[name] for name in network.raw_names))
    with torch.inference_mode():
        dets, labels = network(torch.zeros(1, 3, 32, 64))
    assert labels[0].tolist() == ([1] if why is None else [-1]) + [-1] * 4
    if why is None:
        np.testing.assert_allclose(dets[0, 0], [4, 4, 36, 20, 0.8], rtol=1e-5)


def test_maps():
    network = build(CONFIG)
    with torch.inference_mode():
        maps = dict(zip(network.raw_names, network.raw(torch.rand(2, 3, 64, 96)), strict=True))
    assert {tuple(map.shape) for map in maps.values()} == {(2, 2, 16, 24)}
    assert list(maps)[:4] == ["tl_heat", "br_heat", "tl_off", "br_off"]


def test_embeddings_are_refused():
    config = {"model": {**CONFIG["model"], "bbox_head": {**CONFIG["model"]["bbox_head"], "corner_emb_channels": 1}}}
    with pytest.raises(ValueError, match="corner_emb_channels must be 0, got 1"):
        build(config)
