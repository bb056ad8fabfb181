"""RTMDet, RTMDet-Ins and YOLOX: hand-computed decoding, masks computed one by one, and exported heads."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.loading import PARTS

NORM, STRIDES = {"type": "SyncBN"}, [8, 16, 32]
CSP = {"deepen_factor": 0.33, "widen_factor": 0.125}
RTMDET_HEAD = {
    "num_classes": 3,
    "in_channels": 8,
    "feat_channels": 8,
    "stacked_convs": 1,
    "anchor_generator": {"type": "MlvlPointGenerator", "offset": 0, "strides": STRIDES},
    "bbox_coder": {"type": "DistancePointBBoxCoder"},
    "loss_cls": {"type": "QualityFocalLoss", "use_sigmoid": True},
    "norm_cfg": NORM,
    "act_cfg": {"type": "SiLU", "inplace": True},
    "with_objectness": False,
}


def rtmdet_config(kind="RTMDetSepBNHead", **entries):
    neck = {"type": "CSPNeXtPAFPN", "in_channels": [32, 64, 128], "out_channels": 8, "num_csp_blocks": 1}
    return {
        "model": {
            "type": "RTMDet",
            "data_preprocessor": {"type": "DetDataPreprocessor"},
            "backbone": {"type": "CSPNeXt", **CSP, "norm_cfg": NORM},
            "neck": {**neck, "norm_cfg": NORM},
            "bbox_head": {"type": kind, **RTMDET_HEAD, **entries},
            "test_cfg": {
                "nms_pre": 1000,
                "min_bbox_size": 0,
                "score_thr": 0.05,
                "nms": {"type": "nms", "iou_threshold": 0.6},
                "max_per_img": 10,
            },
        }
    }


def yolox_config():
    return {
        "model": {
            "type": "YOLOX",
            "input_size": (64, 64),
            "backbone": {"type": "CSPDarknet", **CSP},
            "neck": {"type": "YOLOXPAFPN", "in_channels": [32, 64, 128], "out_channels": 8, "num_csp_blocks": 1},
            "bbox_head": {"type": "YOLOXHead", "num_classes": 3, "in_channels": 8, "feat_channels": 8},
            "test_cfg": {"score_thr": 0.25, "nms": {"type": "nms", "iou_threshold": 0.65}},
        }
    }


CONFIGS = {
    "rtmdet": rtmdet_config(),
    "rtmdet_ins": rtmdet_config("RTMDetInsSepBNHead"),
    "yolox": yolox_config(),
}


class Pyramid(nn.Module):
    """Stands for backbone and neck: sums over squares of 8, 16 and 32 pixels."""

    def __init__(self, levels):
        super().__init__()
        self.conv, self.levels = nn.Conv2d(3, 8, 8, stride=8), levels

    def forward(self, x):
        x = self.conv(x)
        return tuple(nn.functional.avg_pool2d(x, 2**level) for level in range(self.levels))


def head_on_pyramid(name, levels=3):
    """Return a detector whose backbone and neck are cheap to export, with random statistics too."""
    torch.manual_seed(0)
    config = copy.deepcopy(CONFIGS[name])
    head = config["model"]["bbox_head"]
    head.get("anchor_generator", head)["strides"] = STRIDES[:levels]
    detector = build(config)
    detector.backbone, detector.neck = Pyramid(levels), nn.Identity()
    detector.eval().requires_grad_(False)
    for module in detector.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    return detector


def detect_maps(detector, monkeypatch, maps, size=64):
    monkeypatch.setattr(detector, "raw", lambda input: tuple(maps))
    with torch.inference_mode():
        return [output.numpy() for output in detector(torch.zeros(1, 3, size, size), torch.tensor([[60, 64]]))]


def empty_maps(channels, value=-9.0):
    return [torch.full((1, channels, 64 // stride, 64 // stride), value) for stride in STRIDES]


def test_distances_of_rtmdet(monkeypatch):
    """The location (2, 1) of stride 16 is the point (32, 16); a box that is turned inside out is dropped."""
    detector = build(copy.deepcopy(CONFIGS["rtmdet"]))
    logits, distances = empty_maps(3), empty_maps(4, 0.0)
    logits[1][0, 2, 1, 2], logits[1][0, 1, 3, 3] = 1.5, 3.0
    distances[1][0, :, 1, 2] = torch.tensor([40.0, 3.0, 10.0, 90.0])
    distances[1][0, :, 3, 3] = torch.tensor([-5.0, 3.0, -10.0, 9.0])
    dets, labels = detect_maps(detector, monkeypatch, (*logits, *distances))
    np.testing.assert_allclose(dets[0, 0], [0, 13, 42, 60, 1 / (1 + np.exp(-1.5))], rtol=1e-6)
    assert labels[0].tolist() == [2] + [-1] * 9


@pytest.mark.parametrize(("exp_on_reg", "expected"), [(False, -0.5), (True, np.exp(-0.5))])
def test_distances_are_in_strides(exp_on_reg, expected):
    config = rtmdet_config(exp_on_reg=exp_on_reg)
    head = build(config).bbox_head
    for predict in head.rtm_reg:
        predict.weight.zero_()
        predict.bias.fill_(-0.5)
    maps = head([torch.zeros(1, 8, size, size) for size in (8, 4, 2)])
    for map, stride in zip(maps[3:], STRIDES, strict=True):
        np.testing.assert_allclose(map, expected * stride, rtol=1e-6)


def test_boxes_and_scores_of_yolox(monkeypatch):
    """The location (3, 2) of stride 8 is the point (24, 16); each location has its best class only."""
    detector = build(copy.deepcopy(CONFIGS["yolox"]))
    logits, regressed, objectness = empty_maps(3), empty_maps(4, 0.0), empty_maps(1, 0.0)
    logits[0][0, :, 2, 3] = torch.tensor([1.0, 2.0, -1.0])
    regressed[0][0, :, 2, 3] = torch.tensor([0.5, -0.25, np.log(3.0), np.log(10.0)])
    logits[1][0, 0, 0, 0] = 0.0  # a score of 0.25, which is the threshold
    dets, labels = detect_maps(detector, monkeypatch, (*logits, *regressed, *objectness))
    score = 0.5 / (1 + np.exp(-2.0))
    assert labels.tolist() == [[1, 0]]  # as many rows as detections
    np.testing.assert_allclose(dets[0], [[16, -26, 40, 54, score], [-8, -8, 8, 8, 0.25]], rtol=1e-6, atol=1e-5)


def test_convolutions_are_shared_and_norms_are_not():
    weights = build(copy.deepcopy(CONFIGS["rtmdet"])).state_dict()
    first, last = (f"bbox_head.cls_convs.{level}.0" for level in (0, 2))
    assert weights[f"{first}.conv.weight"].data_ptr() == weights[f"{last}.conv.weight"].data_ptr()
    assert weights[f"{first}.bn.weight"].data_ptr() != weights[f"{last}.bn.weight"].data_ptr()
    ins = build(copy.deepcopy(CONFIGS["rtmdet_ins"]))
    weights = ins.state_dict()  # MMDetection's head has one tower under two names
    same = "bbox_head.cls_convs.1.0.bn.weight", "bbox_head.reg_convs.1.0.bn.weight"
    assert weights[same[0]].data_ptr() == weights[same[1]].data_ptr()
    kernels = [weights[f"bbox_head.kernel_convs.{level}.0.conv.weight"] for level in (0, 1)]
    assert kernels[0].data_ptr() != kernels[1].data_ptr()
    load_weights(ins, {key: value.clone() for key, value in weights.items()})


def masks_one_by_one(head, maps, index):
    """Return a prior's mask logits [h, w], from a loop over the layers of its network."""
    points, strides, weights = [], [], []
    for stride, map in zip(STRIDES, maps[6:9], strict=True):
        for y, x in np.ndindex(*map.shape[2:]):
            points.append((x * stride, y * stride))
            strides.append(stride)
            weights.append(map[0, :, y, x].numpy().astype(np.float64))
    features = maps[9][0].numpy().astype(np.float64)
    height, width = features.shape[1:]
    y, x = np.mgrid[:height, :width] * 8
    unit = strides[index] * 8
    values = np.stack([(points[index][0] - x) / unit, (points[index][1] - y) / unit, *features])
    numbers = weights[index]
    kernels, biases = np.split(numbers[:152], [80, 144]), np.split(numbers[152:], [8, 16])
    for layer, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
        values = np.einsum("oi,ihw->ohw", kernel.reshape(len(bias), -1), values) + bias[:, None, None]
        values = np.maximum(values, 0) if layer < 2 else values
    return values[0]


@pytest.fixture(scope="module")
def images():
    return torch.from_numpy(np.random.default_rng(5).standard_normal((2, 3, 64, 96)).astype(np.float32))


def test_masks_of_rtmdet_ins(images):
    detector = head_on_pyramid("rtmdet_ins")
    with torch.inference_mode():
        maps = detector.raw(images[:1])
        indices = torch.tensor([[0, 95, 100, 121, 125]])  # of the levels with 96, 24 and 6 locations
        masks = detector.bbox_head.masks(maps, indices)[0].numpy()
    for mask, index in zip(masks, indices[0].tolist(), strict=True):
        np.testing.assert_allclose(mask, masks_one_by_one(detector.bbox_head, maps, index), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_networks(name, images):
    """Maps have the strides' sizes, and P6 and depthwise networks are built."""
    detector = build(copy.deepcopy(CONFIGS[name]))
    with torch.inference_mode():
        maps = detector.raw(images)
    assert [tuple(map.shape) for map in maps[:3]] == [(2, 3, 64 // stride, 96 // stride) for stride in STRIDES]
    backbone = {**CONFIGS[name]["model"]["backbone"], "arch": "P6", "out_indices": (2, 3, 4, 5), "use_depthwise": True}
    with torch.device("meta"):
        built = PARTS.build("backbone", backbone)
    assert [tuple(map.shape[1:]) for map in built.to_empty(device="cpu").eval()(images[:, :, :, :64])] == [
        (32, 8, 8),
        (64, 4, 4),
        (96, 2, 2),
        (128, 1, 1),
    ]


@pytest.mark.parametrize(
    ("part", "entries", "message"),
    [
        ("bbox_head", {"with_objectness": True}, "with_objectness of bbox_head .* must be False, got True"),
        ("backbone", {"arch": "P7"}, "arch must be one of P5, P6, got 'P7'"),
        ("neck", {"upsample_cfg": {"mode": "bilinear", "scale_factor": 2}}, "upsample_cfg must be"),
    ],
)
def test_refused(part, entries, message):
    config = rtmdet_config()
    config["model"][part] |= entries
    with pytest.raises(ValueError, match=message):
        build(config)
