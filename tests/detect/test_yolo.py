"""MMYOLO's detectors without MMYOLO: what test_cfg selects, what is refused, and the preprocessing of its configs."""

import copy

import numpy as np
import pytest
import torch

from mmort.configs.layout import DetectorConfig
from mmort.detect import build, unsupported
from mmort.predict import Padding, Preprocessing
from tests.detect import yolo_cases

KEEP_RATIO = {"type": "YOLOv5KeepRatioResize", "scale": (640, 640)}
LETTER = {"type": "LetterResize", "scale": (640, 640), "allow_scale_up": False, "pad_val": {"img": 114}}
SHAPES = {"type": "BatchShapePolicy", "batch_size": 1, "img_size": 640, "size_divisor": 32, "extra_pad_ratio": 0.5}


def config_of(name="yolov5", steps=(KEEP_RATIO, LETTER), shapes=None, **test_cfg):
    config = {"model": copy.deepcopy(yolo_cases.MODELS[name])}
    config["model"]["test_cfg"] |= test_cfg
    pipeline = [{"type": "LoadImageFromFile"}, *copy.deepcopy(steps), {"type": "mmdet.PackDetInputs"}]
    config["test_dataloader"] = {"batch_size": 8, "dataset": {"pipeline": pipeline, "batch_shapes_cfg": shapes}}
    return config


@pytest.mark.parametrize("name", yolo_cases.MODELS)
def test_nothing_is_missing(name):
    assert unsupported(config_of(name, (KEEP_RATIO, {**LETTER, "half_pad_param": True}))) == []


def test_masks_need_halves_of_the_padding():
    with pytest.raises(ValueError, match="YOLOv5InsHead needs LetterResize with half_pad_param=True"):
        build(config_of("yolov5_ins"))
    config = config_of("yolov5_ins", (KEEP_RATIO, {**LETTER, "half_pad_param": True}))
    assert build(config).output_names[2] == "masks"


def selected(scores, objectness=None, **test_cfg):
    """Return score and label of the detections among boxes far from each other."""
    detector = build(config_of(**test_cfg))
    scores = torch.tensor([scores])
    corners = torch.arange(scores.shape[1])[None, :, None] * 20.0
    boxes = torch.cat([corners, corners, corners + 10, corners + 10], 2)
    factor = None if objectness is None else torch.tensor([objectness])[..., None]
    dets, labels, _ = detector.select(boxes, scores, factor)
    return [(round(float(row[4]), 4), int(label)) for row, label in zip(dets[0], labels[0], strict=True) if label >= 0]


def test_all_classes_or_the_best():
    scores = [[0.5, 0.75, 0.25], [0.875, 0.125, 0.0]]
    assert selected(scores, score_thr=0.2) == [(0.875, 0), (0.75, 1), (0.5, 0), (0.25, 2)]
    assert selected(scores, score_thr=0.2, multi_label=False) == [(0.875, 0), (0.75, 1)]
    assert selected(scores, score_thr=0.2, nms_pre=3) == [(0.875, 0), (0.75, 1), (0.5, 0)]
    assert selected(scores, score_thr=0.2, max_per_img=1) == [(0.875, 0)]
    assert len(selected(scores, score_thr=0.2, max_per_img=1, yolox_style=True)) == 4


def test_objectness_is_compared_with_the_threshold_itself():
    scores, objectness = [[1.0, 0.0, 0.0], [1.0, 0.5, 0.0]], [0.25, 0.75]
    assert selected(scores, objectness, score_thr=0.25) == [(0.75, 0), (0.375, 1)]
    assert selected(scores, objectness, score_thr=0.2) == [(0.75, 0), (0.375, 1), (0.25, 0)]


def test_largest_distances_of_yolov6():
    config = config_of("yolov6_3_large")
    assert build(config).bbox_head.head_module.bins == 5
    config["model"]["bbox_head"]["head_module"]["reg_max"] = 1
    with pytest.raises(ValueError, match="reg_max of head_module 'YOLOv6HeadModule' must be 0 or at least 2"):
        build(config)


def test_letterbox():
    preprocessing = Preprocessing.from_config(config_of(), **build(config_of()).box_settings)
    prepared = preprocessing(np.zeros((300, 800, 3), np.uint8))
    assert prepared.input.shape == (3, 640, 640)
    assert prepared.offset == (200, 0)
    assert prepared.input[0, 0, 0] == np.float32(114) / np.float32(255)
    boxes = np.array([[-4, 196, 700, 240]], np.float32)  # clipped to the original image
    np.testing.assert_allclose(prepared.boxes_in_image(boxes), [[0, 0, 800, 50]], rtol=1e-6)


def test_smaller_images_stay_as_they_are():
    preprocessing = Preprocessing.from_config(config_of(steps=(LETTER,)))
    assert Preprocessing.from_dict(preprocessing.to_dict()) == preprocessing
    assert preprocessing(np.zeros((100, 300, 3), np.uint8)).img_shape == (100, 300)
    assert preprocessing(np.zeros((100, 800, 3), np.uint8)).img_shape == (80, 640)
    with pytest.raises(ValueError, match="enlarges must be true without size"):
        Preprocessing(enlarges=False)


def test_half_pixels_of_odd_padding():
    preprocessing = Preprocessing.from_config(config_of(steps=(KEEP_RATIO, {**LETTER, "half_pad_param": True})))
    assert Preprocessing.from_dict(preprocessing.to_dict()) == preprocessing
    prepared = preprocessing(np.zeros((301, 640, 3), np.uint8))
    assert prepared.offset == (169, 0)
    assert prepared.box_offset == (169.5, 0)
    boxes = np.array([[10, 170, 20, 190.5]], np.float32)
    np.testing.assert_array_equal(prepared.boxes_in_image(boxes), np.float32([[10, 0.5, 20, 21]]))
    with pytest.raises(ValueError, match=r"half_pixels must be false without padding\.centred"):
        Padding(half_pixels=True)


def test_proportions_of_each_image():
    config = config_of(shapes=SHAPES)
    preprocessing = Preprocessing.from_config(config)
    assert Preprocessing.from_dict(preprocessing.to_dict()) == preprocessing
    assert preprocessing(np.zeros((421, 800, 3), np.uint8)).pad_shape == (384, 672)  # 336.8 / 32 + 0.5 is above 11
    assert preprocessing(np.zeros((420, 800, 3), np.uint8)).pad_shape == (352, 672)
    assert DetectorConfig(config).batch_size == 1
    assert DetectorConfig(config_of()).batch_size == 8
    several = DetectorConfig(config_of(shapes={**SHAPES, "batch_size": 32}))
    assert "batches of 32 images" in several.test_time_augmentation[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"steps": [KEEP_RATIO, {**LETTER, "allow_scale_up": True}]},
            "allow_scale_up=False and use_mini_pad=False only",
        ),
        (
            {"steps": [KEEP_RATIO, {**LETTER, "scale": (320, 320)}]},
            "must be at least that of YOLOv5KeepRatioResize, 640",
        ),
        ({"steps": [{**KEEP_RATIO, "scale": (640, 480)}, LETTER]}, "must have a square scale, got"),
        ({"steps": [LETTER], "shapes": SHAPES}, "without YOLOv5KeepRatioResize before it is supported without another"),
        ({"shapes": {**SHAPES, "size": 3}}, "batch_shapes_cfg with size"),
    ],
)
def test_refused_pipelines(changes, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing.from_config(config_of(**changes))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("rtmdet_rotated", {"nms": {"type": "nms"}}, "nms.type of rotated boxes must be 'nms_rotated', got 'nms'"),
        ("rtmdet_rotated", {"decode_with_angle": False}, "decode_with_angle of test_cfg must be True"),
        ("rtmdet_rotated", {"yolox_style": True}, "yolox_style of test_cfg must be False"),
    ],
)
def test_refused_selections(name, changes, message):
    with pytest.raises(ValueError, match=message):
        build(config_of(name, **changes))


@pytest.mark.parametrize(
    ("part", "entries", "message"),
    [
        ("backbone", {"arch": "P7"}, "arch must be one of P5, P6, got 'P7'"),
        ("backbone", {"plugins": [{}]}, "plugins of backbone 'YOLOv5CSPDarknet' must be None"),
        ("bbox_head", {"bbox_coder": {"type": "YOLOXBBoxCoder"}}, "'YOLOXBBoxCoder' is not supported"),
        ("test_cfg", {"min_bbox_size": 3}, "test_cfg.min_bbox_size must be 0"),
        ("backbone", {"type": "CSPNeXt", "use_depthwise": True}, "backbone 'CSPNeXt' with use_depthwise"),
        (
            "neck",
            {"type": "YOLOv6RepPAFPN", "block_cfg": {"type": "LinearAddBlock"}},
            "'LinearAddBlock' is not supported",
        ),
        ("test_cfg", {"nms_pre": -1}, "test_cfg.nms_pre of a dense detector must be at least 1"),
    ],
)
def test_refused_models(part, entries, message):
    config = config_of()
    config["model"][part] |= entries
    with pytest.raises(ValueError, match=message):
        build(config)
