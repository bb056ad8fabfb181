"""FCOS, FSAF, RetinaNet, SSD and YOLOv3 give MMDetection's results, which `data/detect/pack.py` has collected."""

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from mmort.configs import read_config
from mmort.detect import build, load
from mmort.detect.loading import PARTS
from mmort.detect.parts.selection import best_priors, detections, take
from mmort.detect.parts.test_cfg import NMS, SelectionEntries
from mmort.detections.matching import match_detections
from mmort.predict import Preprocessing
from mmort.torch import filter_scores

DATA = Path(__file__).parents[1] / "data/detect"
MODELS = json.loads((DATA / "dense.json").read_text())


class Found(NamedTuple):
    """Detections in an image: boxes and scores [K, 5], labels [K]."""

    dets: np.ndarray
    labels: np.ndarray


FAMILIES = ("fcos", "fsaf", "retinanet", "ssd", "yolov3")


@pytest.fixture(scope="module")
def recorded():
    with np.load(DATA / "dense.npz") as file:
        return {key: file[key] for key in file.files}


@pytest.fixture(scope="module")
def fcos():
    return load(DATA / "fcos/config.py", DATA / "fcos/checkpoint.pth")


@pytest.fixture(scope="module")
def images(recorded, tmp_path_factory):
    prepare = Preprocessing.from_config(read_config(DATA / "fcos/config.py"))
    prepared = []
    for index in range(3):
        path = tmp_path_factory.mktemp("images") / f"{index}.png"
        path.write_bytes(recorded[f"image{index}/png"].tobytes())
        prepared.append(prepare(path))
    return prepare, prepared


def run(detector, input, img_shape=None):
    with torch.inference_mode():
        shapes = None if img_shape is None else torch.as_tensor(np.asarray(img_shape))
        dets, labels = (output.numpy() for output in detector(torch.as_tensor(np.asarray(input)), shapes))
    return [found(*pair) for pair in zip(dets, labels, strict=True)]


def found(dets, labels):
    used = labels >= 0
    assert (np.diff(dets[used, 4]) <= 0).all()
    assert not used[used.argmin() :].any() or used.all()
    assert not dets[~used].any()
    return Found(dets[used], labels[used])


def assert_same(ours, theirs, box=1e-2, score=1e-4):
    """Assert that each detection has one match, within tolerances; that of a box grows with its size."""
    sides = (theirs.dets[:, 2:4] - theirs.dets[:, :2]).max(1, initial=1)
    tolerances = np.maximum(box, sides * box / 10)
    matches = match_detections(*ours, *theirs, box_tolerance=tolerances, score_tolerance=score)
    assert len(ours.dets) == len(theirs.dets)
    assert (matches >= 0).all(), theirs.dets[matches < 0]


def model(family):
    return copy.deepcopy(MODELS[family]["config"])


@pytest.mark.parametrize("name", MODELS)
def test_state_dict_is_mmdetections(name):
    with torch.device("meta"):
        weights = build(model(name)).state_dict()
    assert {key: list(value.shape) for key, value in weights.items()} == MODELS[name]["shapes"]


@pytest.mark.parametrize("family", FAMILIES)
def test_detections_of_recorded_maps(family, recorded, monkeypatch):
    detector = build(model(family))
    maps, index = [], 0
    while f"{family}/map{index}" in recorded:
        maps.append(torch.from_numpy(recorded[f"{family}/map{index}"]))
        index += 1
    monkeypatch.setattr(detector, "raw", lambda input: tuple(maps))
    (ours,) = run(detector, np.zeros(recorded[f"{family}/input_shape"], np.float32), [recorded[f"{family}/img_shape"]])
    assert len(ours.dets) > 5
    assert_same(ours, Found(recorded[f"{family}/dets"], recorded[f"{family}/labels"]))


def test_fcos_from_picture_to_detections(fcos, images, recorded):
    for index, image in enumerate(images[1]):
        (ours,) = run(fcos, image.input[None], [image.img_shape])
        ours.dets[:, :4] /= image.scale_factor
        assert_same(ours, Found(recorded[f"image{index}/dets"], recorded[f"image{index}/labels"]))


def test_images_of_a_padded_batch_give_the_results_of_each_alone(fcos, images):
    prepare, prepared = images
    batch, shapes = prepare.batch(prepared)
    assert len({image.pad_shape for image in prepared}) > 1
    for image, ours in zip(prepared, run(fcos, batch, shapes), strict=True):
        padded = np.zeros((1, *batch.shape[1:]), np.float32)
        padded[0, :, : image.pad_shape[0], : image.pad_shape[1]] = image.input
        (alone,) = run(fcos, padded, [image.img_shape])
        assert_same(ours, alone)
        assert (ours.dets[:, 2:4] <= np.array(image.img_shape)[::-1]).all()


def test_without_shapes_boxes_may_reach_into_the_padding(fcos, images):
    image = images[1][0]
    assert image.img_shape[0] < image.pad_shape[0]
    whole = run(fcos, image.input[None])
    assert_same(whole[0], run(fcos, image.input[None], [image.pad_shape])[0], 0, 0)
    assert whole[0].dets[:, 3].max() > image.img_shape[0]


def test_version_3_drops_boxes_without_area(recorded, monkeypatch):
    config = model("fsaf")
    config["model"]["test_cfg"]["min_bbox_size"] = 0
    kept = []
    config["optimizer"] = {}  # by which version 2 is known
    for version_3 in (False, True):
        if version_3:
            config["model"]["data_preprocessor"] = {"type": "DetDataPreprocessor"}
        detector = build(config)
        maps = [torch.from_numpy(recorded[f"fsaf/map{index}"]) for index in range(10)]
        maps = maps[:5] + [torch.zeros_like(map) for map in maps[5:]]
        monkeypatch.setattr(detector, "raw", lambda input, maps=maps: tuple(maps))
        (ours,) = run(detector, np.zeros(recorded["fsaf/input_shape"], np.float32))
        kept.append(len(ours.dets))
    assert kept[0] > 0
    assert kept[1] == 0


def test_version_3_of_yolov3_limits_the_pairs_before_their_objectness(recorded, monkeypatch):
    config = model("yolov3")
    config["model"]["test_cfg"]["nms_pre"] = 5
    counts = []
    config["optimizer"] = {}  # by which version 2 is known
    for version in (2, 3):
        if version == 3:
            config["model"]["data_preprocessor"] = {"type": "DetDataPreprocessor"}
        detector = build(config)
        maps = tuple(torch.from_numpy(recorded[f"yolov3/map{index}"]) for index in range(3))
        monkeypatch.setattr(detector, "raw", lambda input, maps=maps: maps)
        counts.append(len(run(detector, np.zeros(recorded["yolov3/input_shape"], np.float32))[0].dets))
    assert counts[0] > 5 >= counts[1] > 0


def test_take_equals_gathering_from_a_permuted_map(rng):
    map = torch.from_numpy(rng.standard_normal((2, 3 * 5, 4, 6)))
    flat = map.permute(0, 2, 3, 1).reshape(2, -1, 5)  # [N, h*w*A, channels]
    indices = torch.from_numpy(rng.permutation(72)[None].repeat(2, 0)[:, :20])
    expected = flat.gather(1, indices[..., None].expand(-1, -1, 5))
    assert torch.equal(take(map, indices, 5), expected)
    assert torch.equal(take(map, indices, 5, 3), expected[..., :3])


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("nms_pre", [-1, 1, 7, 10_000])
def test_the_best_pairs_are_those_of_all_priors(rng, softmax, nms_pre):
    map = torch.from_numpy(rng.standard_normal((2, 3 * (4 + softmax), 5, 6), np.float32))
    flat = map.permute(0, 2, 3, 1).reshape(2, -1, 4 + softmax)
    every = flat.softmax(-1)[..., :4] if softmax else flat.sigmoid()
    scores, indices = best_priors(map, 4, nms_pre, "softmax" if softmax else "sigmoid")
    chosen = filter_scores(scores, 0.3, nms_pre)
    ours = torch.zeros_like(every).scatter(1, indices[..., None].expand(-1, -1, 4), chosen)
    for scores_of_image, all_scores in zip(ours, every, strict=True):
        above = all_scores[all_scores > 0.3].sort(descending=True).values
        wanted = above if nms_pre < 0 else above[:nms_pre]
        torch.testing.assert_close(scores_of_image[scores_of_image > 0].sort(descending=True).values, wanted)
        torch.testing.assert_close(scores_of_image[scores_of_image > 0], all_scores[scores_of_image > 0])


def far_apart(count):
    corners = torch.arange(count) * 100.0
    return torch.stack([corners, corners, corners + 10, corners + 10], -1)[None]


def test_limit_of_a_class():
    scores = torch.zeros(1, 8, 2)
    scores[0, :5, 0] = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5])
    scores[0, 5:, 1] = torch.tensor([0.4, 0.3, 0.2])
    test_cfg = SelectionEntries(score_thr=0, nms=NMS(max_output_boxes_per_class=2), max_per_img=3)
    for boxes in (far_apart(8), far_apart(8)[:, :, None].expand(-1, -1, 2, -1)):
        dets, labels = detections(boxes, scores, test_cfg)
        np.testing.assert_allclose(dets[0, :, 4], [0.9, 0.8, 0.4])
        assert labels.tolist() == [[0, 0, 1]]
    test_cfg = replace(test_cfg, max_per_img=2)
    assert detections(far_apart(8), scores, test_cfg)[1].tolist() == [[0, 0]]


def test_deploy_nms_pre_keeps_the_boxes_with_the_best_scores():
    scores = torch.tensor([[[0.1, 0.2], [0.9, 0.0], [0.3, 0.8], [0.5, 0.4]]])
    test_cfg = SelectionEntries(score_thr=0, nms=NMS(), max_per_img=6, deploy_nms_pre=2)
    dets, labels = detections(far_apart(4), scores, test_cfg)
    np.testing.assert_allclose(dets[0, :, 4], [0.9, 0.8, 0.3, 0, 0, 0])
    assert labels.tolist() == [[0, 1, 0, -1, -1, -1]]
    assert dets[0, :3, 0].tolist() == [100, 200, 200]


def test_anchors_of_ssd():
    """The sizes that SSD's authors give for COCO."""
    anchors = PARTS.build(
        "prior generator",
        {
            "type": "SSDAnchorGenerator",
            "scale_major": False,
            "input_size": 300,
            "basesize_ratio_range": (0.15, 0.9),
            "strides": [8, 16, 32, 64, 100, 300],
            "ratios": [[2], [2, 3], [2, 3], [2, 3], [2], [2]],
        },
    )
    assert anchors.num_base_priors == [4, 6, 6, 6, 4, 4]
    smallest, largest = [21, 45, 99, 153, 207, 261], [45, 99, 153, 207, 261, 315]
    for level, (min_size, max_size) in enumerate(zip(smallest, largest, strict=True)):
        boxes = anchors.level(level, torch.zeros(1, 1, 1, 1))
        sizes = boxes[:, 2:] - boxes[:, :2]
        middle = anchors.strides[level][0] / 2
        torch.testing.assert_close((boxes[:, 2:] + boxes[:, :2]) / 2, torch.full((len(boxes), 2), middle))
        torch.testing.assert_close(sizes[0], torch.tensor([min_size, min_size]).float())
        torch.testing.assert_close(sizes[1], torch.tensor([1.0, 1.0]) * math.sqrt(min_size * max_size))
        torch.testing.assert_close(sizes[2], torch.tensor([math.sqrt(2), math.sqrt(0.5)]) * min_size)
        torch.testing.assert_close(sizes[3], torch.tensor([math.sqrt(0.5), math.sqrt(2)]) * min_size)


def test_boxes_of_version_1_end_with_their_last_pixel():
    """A square of 9 pixels around (3.5, 3.5) has rounded corners; a box of 2 pixels is moved, and clipped."""
    settings = {"type": "LegacyAnchorGenerator", "strides": [8], "ratios": [1.0], "base_sizes": [8]}
    anchors = PARTS.build("prior generator", {**settings, "scales": [9 / 8], "center_offset": 0.5})
    assert anchors.level(0, torch.zeros(1, 1, 1, 2)).tolist() == [[0, 0, 8, 8], [8, 0, 16, 8]]  # -0.5 and 7.5: to even
    settings = {"type": "LegacySSDAnchorGenerator", "strides": [8] * 3, "ratios": [[2]] * 3, "scale_major": False}
    anchors = PARTS.build("prior generator", {**settings, "min_sizes": [3] * 3, "max_sizes": [12] * 3})
    assert anchors.level(0, torch.zeros(1, 1, 1, 1))[:2].tolist() == [[2, 2, 4, 4], [1, 1, 6, 6]]
    coder = PARTS.build("box coder", {"type": "LegacyDeltaXYWHBBoxCoder"})
    deltas = torch.tensor([[0.0, 0, 0, 0], [1, 0, math.log(2), 0], [9, 9, 0, 0]])
    boxes = coder.decode(torch.tensor([4.0, 6, 5, 7]), deltas, torch.tensor([[16.0, 12, 16, 12]]))
    expected = torch.tensor([[3.5, 5.5, 5.5, 7.5], [4.5, 5.5, 8.5, 7.5], [15, 11, 15, 11]])
    torch.testing.assert_close(boxes, expected)


def test_anchors_are_ordered_by_row_column_anchor():
    anchors = PARTS.build(
        "prior generator", {"type": "AnchorGenerator", "strides": [(4, 8)], "ratios": [0.5, 2.0], "scales": [1, 2]}
    )
    boxes = anchors.level(0, torch.zeros(1, 1, 2, 3)).reshape(2, 3, 4, 4)
    wide = torch.tensor([4 * math.sqrt(2), 4 * math.sqrt(0.5)])
    sizes = boxes[..., 2:] - boxes[..., :2]
    torch.testing.assert_close(sizes[1, 2], torch.stack([wide, 2 * wide, wide.flip(0), 2 * wide.flip(0)]))
    torch.testing.assert_close((boxes[1, 2, :, 2:] + boxes[1, 2, :, :2]) / 2, torch.tensor([[8.0, 8.0]]).expand(4, 2))


@pytest.mark.parametrize(("source", "inputs"), [("on_input", 8), (True, 8), ("on_lateral", 16), ("on_output", 16)])
def test_extra_levels_of_fpn(source, inputs, rng):
    config = {"type": "FPN", "in_channels": [4, 6, 8], "out_channels": 16, "start_level": 1, "num_outs": 4}
    neck = PARTS.build("neck", {**config, "add_extra_convs": source, "relu_before_extra_convs": True})
    assert [conv.conv.in_channels for conv in neck.fpn_convs] == [16, 16, inputs, 16]
    maps = [torch.from_numpy(rng.standard_normal((1, c, s, s + 1), np.float32)) for c, s in ((4, 19), (6, 9), (8, 5))]
    outputs = neck(maps)
    assert [tuple(output.shape[2:]) for output in outputs] == [(9, 10), (5, 6), (3, 3), (2, 2)]
    first = {"on_lateral": neck.lateral_convs[-1](maps[-1]), "on_output": outputs[1]}.get(source, maps[-1])
    torch.testing.assert_close(outputs[2], neck.fpn_convs[2](first))
    torch.testing.assert_close(outputs[3], neck.fpn_convs[3](outputs[2].relu()))


def test_levels_of_fpn_without_convolutions():
    config = {"type": "FPN", "in_channels": [4, 6, 8], "out_channels": 16, "num_outs": 4}
    maps = [torch.rand(1, c, s, s) for c, s in ((4, 9), (6, 5), (8, 3))]
    outputs = PARTS.build("neck", config)(maps)
    assert torch.equal(outputs[3], outputs[2][:, :, ::2, ::2])
    assert len(PARTS.build("neck", {**config, "num_outs": 2, "end_level": 1})(maps)) == 2
    with pytest.raises(ValueError, match="num_outs"):
        PARTS.build("neck", {**config, "end_level": 1})


@pytest.mark.parametrize(
    ("entries", "keys"),
    [
        ({"type": "ResNetV1d", "depth": 50}, ["stem.6.weight", "layer1.0.downsample.1.weight"]),
        ({"type": "ResNet", "depth": 34}, ["conv1.weight", "layer3.5.bn2.weight", "layer2.0.downsample.0.weight"]),
        ({"type": "ResNet", "depth": 101, "norm_cfg": {"type": "GN", "num_groups": 4}}, ["layer3.22.gn3.weight"]),
        (
            {
                "type": "mmdet.ResNet",
                "depth": 50,
                "dcn": {"type": "DCNv2", "deform_groups": 1, "fallback_on_stride": False},
                "stage_with_dcn": (False, True, True, True),
            },
            ["layer1.0.conv2.weight", "layer2.0.conv2.conv_offset.weight"],
        ),
    ],
)
def test_keys_of_resnets(entries, keys):
    with torch.device("meta"):
        weights = PARTS.build("backbone", {**entries, "base_channels": 8, "stem_channels": 8}).state_dict()
    assert set(keys) <= set(weights)
    if "dcn" in entries:
        assert not any("conv_offset" in key for key in weights if key.startswith("layer1"))


def test_styles_of_resnet_and_width_of_resnext():
    strides = {"pytorch": [(1, 1), (2, 2)], "caffe": [(2, 2), (1, 1)]}
    for style, expected in strides.items():
        block = PARTS.build("backbone", {"type": "ResNet", "depth": 50, "base_channels": 8, "style": style}).layer2[0]
        assert [block.conv1.stride, block.conv2.stride] == expected
    with torch.device("meta"):
        network = PARTS.build("backbone", {"type": "ResNeXt", "depth": 101, "groups": 64, "base_width": 4})
    assert tuple(network.layer4[0].conv2.weight.shape) == (2048, 32, 3, 3)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("backbone", {"type": "ViTDet"}, "backbone 'ViTDet'"),
        ("backbone", {"plugins": [{"cfg": {"type": "ContextBlock"}}]}, "plugins"),
        ("backbone", {"depth": 20}, "depth must be one of 18, 34, 50, 101, 152, got 20"),
        ("backbone", {"dcn": {"type": "DCN"}, "stage_with_dcn": [True] * 4}, "dcn"),
        ("backbone", {"norm_cfg": {"type": "IN"}}, "'IN'"),
        ("neck", {"type": "NoFPN"}, "neck 'NoFPN'"),
        ("neck", {"add_extra_convs": "on_top"}, "'on_top'"),
        ("bbox_head", {"type": "MonoFlexHead"}, "MonoFlexHead"),
        ("roi_head", [{"type": "CascadeRoIHead"}], "model with roi_head .did you mean bbox_head.. is not supported"),
        ("bbox_head", {"with_score": True}, "with_score"),
        ("nope", 3, "model with nope is not supported; supported entries: backbone, neck, bbox_head"),
        ("bbox_head", {"bbox_coder": {"type": "PseudoBBoxCoder"}}, "PseudoBBoxCoder"),
        ("bbox_head", {"anchor_generator": {"type": "RotatedAnchorGenerator"}}, "RotatedAnchorGenerator"),
        ("bbox_head", {"anchor_generator": {"type": "AnchorGenerator", "strides": [8]}}, "ratios"),
        ("test_cfg", {"nms": {"type": "nms_match"}}, "nms_match"),
        ("test_cfg", {"nms": {"type": "nms", "max_num": 5}}, "max_num"),
        ("test_cfg", {"score_thre": 0.3}, r"test_cfg with score_thre \(did you mean score_thr\?\) is not supported"),
        ("test_cfg", {"mask_thr_binary": 0.5}, "mask_thr_binary"),
        ("test_cfg", {"score_thr": "abc"}, "score_thr of test_cfg must be a number, got 'abc'"),
        ("test_cfg", {"max_per_img": -3}, "max_per_img of test_cfg must be an integer of at least 1, got -3"),
        ("test_cfg", {"nms_pre": 2.5}, r"nms_pre of test_cfg must be an integer, got 2\.5"),
        ("test_cfg", {"nms": {"iou_thr": float("nan")}}, "iou_thr of test_cfg.nms must be a number of at least 0, got"),
        (
            "test_cfg",
            {"nms": {"class_agnostic": "no"}},
            "class_agnostic of test_cfg.nms must be True or False",
        ),
        ("bbox_head", {"num_classes": True}, "num_classes of bbox_head 'RetinaHead' must be an integer, got True"),
    ],
)
def test_unsupported_entries_are_refused_by_name(part, change, message):
    config = model("retinanet")
    if isinstance(change, dict):
        change = {**config["model"][part], **change}
    config["model"][part] = change
    with pytest.raises(ValueError, match=message) as caught:
        build(config)
    assert str(caught.value).startswith("detect.build: ")
