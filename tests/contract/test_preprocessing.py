"""Preprocessing: the same bits as MMDetection, from configs of MMDetection 2 and 3."""

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmort import images
from mmort.configs import register_step, test_pipeline
from mmort.predict import Padding, Preprocessing, read_image

FOLDER = Path(__file__).parents[1] / "data" / "preprocessing"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())  # by pack.py beside it
IMAGES = [(family, image) for family, case in EXPECTED.items() for image in case["images"]]


def preprocessing(family):
    return Preprocessing.from_config({"model": {}, "data": {"test": {"pipeline": EXPECTED[family]["pipeline"]}}})


@pytest.mark.parametrize(
    ("family", "image"), IMAGES, ids=lambda value: value if isinstance(value, str) else value["file"]
)
def test_equal_to_mmdetection(family, image):
    prepared = preprocessing(family)(FOLDER / image["file"])
    assert prepared.ori_shape == tuple(image["ori_shape"][:2])
    assert prepared.img_shape == tuple(image["img_shape"][:2])
    assert prepared.pad_shape == tuple(image["pad_shape"][:2]) == prepared.input.shape[1:]
    assert prepared.scale_factor.dtype == np.float32
    assert prepared.scale_factor.tolist() == image["scale_factor"]
    if "border" in image:
        assert list(prepared.border) == image["border"]
    assert prepared.input.flags.c_contiguous
    assert hashlib.sha256(prepared.input.tobytes()).hexdigest() == image["sha256"]


EXPECTED_3 = json.loads((FOLDER / "expected3.json").read_text())  # by pack3.py beside it


@pytest.mark.parametrize(
    ("name", "image"),
    [(name, image) for name, case in EXPECTED_3.items() for image in case["images"]],
    ids=lambda value: value if isinstance(value, str) else value["file"],
)
def test_equal_to_mmdetection_3(name, image):
    case = EXPECTED_3[name]
    pipeline = [{"type": "LoadImageFromFile", **case["load"]}, *case["steps"]]
    settings = Preprocessing.from_config(
        {"model": {"data_preprocessor": case["data_preprocessor"]}, "test_pipeline": pipeline}
    )
    assert Preprocessing.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    prepared = settings(FOLDER / image["file"])
    assert prepared.ori_shape == tuple(image["ori_shape"])
    assert prepared.pad_shape == tuple(image["pad_shape"]) == prepared.input.shape[1:]
    assert prepared.scale_factor.tolist() == np.tile(np.float32(image["scale_factor"]), 2).tolist()
    if "border" in image:
        assert list(prepared.border) == image["border"]
    else:
        assert prepared.img_shape == tuple(image["img_shape"])
    assert hashlib.sha256(prepared.input.tobytes()).hexdigest() == image["sha256"]


SIZES = st.tuples(st.integers(1, 90), st.integers(1, 90))


@given(
    size=SIZES,
    keep_ratio=st.booleans(),
    size_divisor=st.sampled_from((1, 32)),
    pad_or=st.sampled_from((0, 31)),
    padding=st.none() | st.builds(Padding, size=st.none() | SIZES, square=st.booleans()),
    image=SIZES,
)
def test_shapes_of_inputs(image, **settings):
    """`largest_shape` holds the input of any image, and equals that of some image in each direction."""
    prepare = Preprocessing(**settings)

    def shape(height, width):
        return prepare(np.zeros((height, width, 3), np.uint8)).pad_shape

    extremes = [shape(*size) for size in ((1, 400), (400, 1), (60, 60), prepare.size, prepare.size[::-1])]
    assert prepare.largest_shape == tuple(map(max, zip(*extremes, strict=True)))
    assert all(side <= largest for side, largest in zip(shape(*image), prepare.largest_shape, strict=True))
    if prepare.fixed_shape is None:
        assert len(set(extremes)) > 1
    else:
        assert prepare.fixed_shape == prepare.largest_shape == shape(*image)


def test_shapes_of_inputs_of_images_that_keep_their_size():
    assert (Preprocessing().fixed_shape, Preprocessing(pad_or=127).largest_shape) == (None, None)
    assert Preprocessing(padding=Padding(size=(40, 33)), size_divisor=16).fixed_shape == (48, 48)


def test_padding_of_mmdetection_2():
    """YOLOX and Mask2Former pad before normalizing, or do not normalize; the padding is not part of the image."""
    image = np.full((3, 5, 3), 7, np.uint8)
    grey = {"img": (114.0, 114.0, 114.0), "masks": 0}
    normalize = {"type": "Normalize", "mean": [1, 2, 3], "std": [2, 2, 2], "to_rgb": False}

    def prepared(*steps):
        steps = [*steps, {"type": "Collect", "keys": ["img"]}]  # by which version 2 is known
        return Preprocessing.from_config({"model": {}, "test_pipeline": steps})(image)

    yolox = prepared({"type": "Pad", "pad_to_square": True, "pad_val": grey})
    assert yolox.img_shape == (3, 5)
    assert (yolox.input[:, :3] == 7).all()
    assert yolox.input.shape == (3, 5, 5)
    assert (yolox.input[:, 3:] == 114).all()
    mask2former = prepared({"type": "Pad", "size_divisor": 4, "pad_val": grey}, normalize)
    assert mask2former.input.shape == (3, 4, 8)
    assert mask2former.input[:, 3, 7].tolist() == [56.5, 56, 55.5]
    efficientnet = prepared(normalize, {"type": "Pad", "size": (4, 9)})
    assert efficientnet.input.shape == (3, 4, 9)
    assert not efficientnet.input[:, 3:].any()
    assert not efficientnet.input[:, :, 5:].any()


LOAD = {"type": "LoadImageFromFile", "backend_args": None}
PACK = [{"type": "LoadAnnotations", "with_bbox": True}, {"type": "mmdet.PackDetInputs", "meta_keys": ("img_id",)}]


def config3(*steps, **data_preprocessor):
    """Return a config in the style of MMDetection 3."""
    dataset = {"type": "RepeatDataset", "dataset": {"pipeline": [LOAD, *steps, *PACK]}}
    return {"model": {"data_preprocessor": data_preprocessor}, "test_dataloader": {"dataset": dataset}}


def test_configs_of_mmdetection_3():
    resize = {"type": "mmdet.datasets.transforms.Resize", "scale": (208, 160), "keep_ratio": True}
    mean, std = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
    config = config3(resize, mean=mean, std=std, bgr_to_rgb=True, pad_size_divisor=32, pad_mask=True)
    version_3 = {"divide": True, "turn_boxes": True}
    assert Preprocessing.from_config(config) == replace(preprocessing("cascade_mask_rcnn"), **version_3)
    resize = {"type": "Resize", "scale": (320, 320)}  # keep_ratio=False is the default there
    assert not Preprocessing.from_config(config3(resize)).keep_ratio
    pad = {"type": "RandomCenterCropPad", "test_mode": True, "test_pad_mode": ["logical_or", 31], "test_pad_add_pix": 0}
    pad |= {"mean": mean, "std": std, "to_rgb": True}
    config = config3(pad, mean=mean, std=std, bgr_to_rgb=True)
    assert Preprocessing.from_config(config) == replace(preprocessing("cornernet"), **version_3, to_float32=False)


RESIZE = {"type": "Resize", "scale": (6, 8)}
PAD = {"type": "Pad", "size_divisor": 4}
NORMALIZE = {"type": "Normalize", "mean": [1, 2, 3], "std": [2, 2, 2]}
CENTER_PAD = {"test_mode": True, "mean": [0, 0, 0], "std": [1, 1, 1], "to_rgb": True}


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([PAD, RESIZE], "Resize of the test pipeline is not supported after Pad; the supported order"),
        ([RESIZE, RESIZE], "Resize of the test pipeline is not supported after Resize"),
        ([RESIZE, PAD, PAD], "Pad of the test pipeline is not supported after Pad"),
        ([NORMALIZE, RESIZE], "Resize of the test pipeline is not supported after Normalize"),
        ([RESIZE, NORMALIZE, NORMALIZE], "Normalize of the test pipeline is not supported after Normalize"),
        (
            [RESIZE, {"type": "RandomCenterCropPad", "test_pad_mode": ["logical_or", 3], **CENTER_PAD}],
            "RandomCenterCropPad after Resize is not supported",
        ),
        ([RESIZE, LOAD], "LoadImageFromFile of the test pipeline is not supported after Resize"),
        ([RESIZE, {"type": "RandomFlip", "prob": 1.0}], "RandomFlip is supported with prob=0 only, got 1.0"),
        (
            [RESIZE, {"type": "RandomFlip", "prob": [0.0, 0.5]}],
            r"RandomFlip is supported with prob=0 only, got \[0.0, 0.5",
        ),
        ([{**LOAD, "size": 3}], "LoadImageFromFile of the test pipeline with size is not supported"),
        ([{"type": "PackDetInputs", "colour": 1}], "PackDetInputs of the test pipeline with colour is not supported"),
    ],
)
def test_steps_are_obeyed_in_order_or_refused(steps, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing.from_config({"test_pipeline": [*steps, *PACK]})


def test_a_step_beside_the_model_normalizes_once():
    """In MMDetection 3 the pipeline may normalize, then the model must not."""
    image = np.full((2, 2, 3), (9, 8, 7), np.uint8)
    prepared = Preprocessing.from_config(config3(NORMALIZE, pad_size_divisor=4))(image)
    assert prepared.input[:, 0, 0].tolist() == [3, 3, 3]
    assert prepared.input.shape == (3, 4, 4)
    for model in ({"mean": [1, 2, 3], "std": [2, 2, 2]}, {"bgr_to_rgb": True}):
        with pytest.raises(ValueError, match="Normalize beside a data_preprocessor"):
            Preprocessing.from_config(config3(NORMALIZE, **model))


@pytest.mark.parametrize(
    ("version", "value", "levels"),
    [
        (2, 50, (50, 0, 0)),
        (2, {"img": 50}, (50, 0, 0)),
        (3, 50, 50),
        (3, {"img": 50}, 50),
        (3, {"img": 50.0}, (50, 0, 0)),
    ],
)
def test_a_number_for_padding_is_that_of_blue(version, value, levels):
    """As OpenCV reads it; only MMDetection 3 repeats it, if it is an integer."""
    pad = {"type": "Pad", "size": (3, 2), "pad_val": value}
    config = config3(pad) if version == 3 else {"model": {}, "test_pipeline": [pad, {"type": "Collect", "keys": []}]}
    assert Preprocessing.from_config(config).padding.value == levels


def test_paddings_of_three_values_are_of_blue_green_and_red():
    pad = {"type": "Pad", "size": (3, 2), "pad_val": {"img": (9, 8, 7)}}
    settings = Preprocessing.from_config(config3(pad, bgr_to_rgb=True))
    assert settings(np.zeros((2, 2, 3), np.uint8)).input[:, :, 2].tolist() == [[7, 7], [8, 8], [9, 9]]
    assert Preprocessing.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    pad = {"type": "RandomCenterCropPad", "test_pad_mode": ["logical_or", 3], **CENTER_PAD, "mean": [7, 8, 9]}
    settings = Preprocessing.from_config(config3(pad, mean=[1, 1, 1], std=[2, 2, 2], bgr_to_rgb=True))
    assert settings(np.zeros((2, 2, 3), np.uint8)).input[:, 0, 2].tolist() == [3, 3.5, 4]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"mean": [1, 2, 3]}, "must have both mean and std or neither"),
        ({"mean": [1, 2, 3], "std": None}, "must have both mean and std or neither"),
        ({"std": [1, 2, 3]}, "must have both mean and std or neither"),
        ({"bgr_to_rgb": True, "rgb_to_bgr": True}, "both bgr_to_rgb and rgb_to_bgr"),
        ({"colour": 1}, "data_preprocessor with colour is not supported"),
        ({"type": "HSIDataPreprocessor"}, "data_preprocessor HSIDataPreprocessor is not supported"),
        ({"type": "SegDataPreProcessor", "pad_value": 0}, r"data_preprocessor with pad_value .*is not supported"),
        ({"type": "SegDataPreProcessor", "test_cfg": {"size": (1, 2), "size_divisor": 2}}, "size or size_divisor"),
        ({"type": "SegDataPreProcessor", "test_cfg": {"size": (1, 2, 3)}}, "must be height and width, got"),
        ({"type": "SegDataPreProcessor", "pad_val": 1, "test_cfg": {"size": (1, 2)}}, "pad_val must be 0, got 1"),
        ({"type": "ClsDataPreprocessor", "bgr_to_rgb": True}, r"data_preprocessor with bgr_to_rgb .*is not supported"),
    ],
)
def test_data_preprocessors_that_are_refused(entries, message):
    with pytest.raises(ValueError, match=f"preprocessing: .*{message}"):
        Preprocessing.from_config(config3(**entries))


@pytest.mark.parametrize(
    ("size", "keep_ratio", "crop_padding"),
    [((8, 8), False, -1), ((8, 6), False, 2), ((8, 8), True, 2), (None, False, 2)],
)
def test_squares_in_the_middle_that_are_refused(size, keep_ratio, crop_padding):
    with pytest.raises(ValueError, match="crop_padding must not be negative, with a square size without keep_ratio"):
        Preprocessing(size=size, keep_ratio=keep_ratio, crop_padding=crop_padding)


def test_a_square_in_the_middle():
    """Of 8 of 10 parts of the shorter side, whatever the longer one is."""
    image = np.zeros((20, 41, 3), np.uint8)
    image[2:18, 12:28] = 200
    for view in (image, image.transpose(1, 0, 2)):
        prepared = Preprocessing(size=(8, 8), keep_ratio=False, crop_padding=2)(np.ascontiguousarray(view))
        assert prepared.input.shape == (3, 8, 8)
        assert (prepared.input == 200).all()


def test_configs_may_lack_a_model():
    resize = {"type": "Resize", "scale": (3, 4)}
    assert Preprocessing.from_config({"test_pipeline": [resize]}).size == (3, 4)


def test_settings_round_trip_through_json():
    for family in EXPECTED:
        settings = preprocessing(family)
        assert Preprocessing.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"type": "Albu"}, "step Albu of the test pipeline is not supported"),
        ({"type": "Resize", "scale": (1, 2), "interpolation": "area"}, "interpolation='bilinear' or 'bicubic' only"),
        ({"type": "ResizeEdge", "scale": 4, "edge": "long"}, "ResizeEdge is supported with edge='short' only"),
        ({"type": "CenterCrop", "crop_size": 4}, "crop must be at most edge, or size without keep_ratio"),
        ({"type": "CenterCrop", "crop_size": 4, "auto_pad": True}, "CenterCrop is supported with auto_pad=False only"),
        ({"type": "Resize", "scale": [(1, 2), (3, 4)]}, "needs one size"),
        ({"type": "Resize", "scale": (0, 4)}, "size must be positive"),
        ({"type": "Resize", "scale_factor": 2.0}, "scale_factor=1.0 only"),
        ({"type": "Resize", "img_scale": (3, 4), "ratio_range": (0.5, 1)}, "ratio_range"),
        ({"type": "MultiScaleFlipAug", "img_scale": [(3, 4), (5, 6, 7)], "transforms": []}, "needs one size"),
        (
            {"type": "Resize", "scale": (1, 2), "backend": "tifffile"},
            "resize_backend must be 'cv2', 'pillow' or 'torchvision', got 'tif",
        ),
        ({"type": "LoadImageFromFile", "imdecode_backend": "turbojpeg"}, "imdecode_backend='cv2' only"),
        ({"type": "Pad", "size": (640, 640), "padding_mode": "edge"}, "padding_mode='constant' only"),
        ({"type": "Pad", "size_divisor": 32, "pad_val": {"img": (114, 0)}}, "must be 1 or 3 finite numbers"),
        (
            {"type": "Pad", "size_divisor": 32, "padding": 1},
            r"Pad of the test pipeline with padding .* is not supported",
        ),
        ({"type": "Pad", "size": (0, 4)}, "padding.size must be positive"),
        ({"type": "Pad", "size_divisor": 0}, "padding.size_divisor must be positive"),
        *(
            ({"type": kind, "pad_val": {"img": value}, **size}, f"pad_val of {kind} must be 1 or 3 finite numbers")
            for kind, size in (("Pad", {"size": (8, 8)}), ("LetterResize", {"scale": (64, 64)}))
            for value in (float("inf"), (0, float("nan"), 0), (0, 10**400, 0), (0, "a", 0), (0, 0))
        ),
        *(
            (
                {
                    "type": "RandomCenterCropPad",
                    "test_pad_mode": ["logical_or", 3],
                    **CENTER_PAD,
                    "mean": [value, 0, 0],
                },
                "padding.value must be finite numbers of float32, got ",
            )
            for value in (float("inf"), float("nan"), 1e300)
        ),
        ({"type": "Normalize", "mean": [1], "std": [1]}, "mean must be 3 numbers"),
        ({"type": "Normalize", "mean": [1, 1, 1], "std": [1, 0, 1]}, "std must be 3 numbers, none of which is 0, got"),
        ({"type": "Normalize", "mean": [1, 1, 1]}, "step Normalize of the test pipeline must have std"),
        ({"scale": (3, 4)}, "a step of the test pipeline has no entry 'type'"),
        ({"type": "LoadImageFromFile", "color_type": "anycolor"}, "'grayscale', 'unchanged' only, got 'anycolor'"),
        (
            {"type": "RandomCenterCropPad", "test_pad_mode": ["size_divisor", 127], **CENTER_PAD},
            "'logical_or' only",
        ),
        (
            {"type": "RandomCenterCropPad", "test_mode": True, "test_pad_mode": ["logical_or", 127]},
            "step RandomCenterCropPad of the test pipeline must have mean",
        ),
    ],
)
def test_refused(step, message):
    with pytest.raises(ValueError, match=f"preprocessing: .*{message}"):
        Preprocessing.from_config(config3(step))


def test_arrays_are_loaded_as_files_are():
    """Tools of MMDetection put this step in place of the file's."""
    resize = {"type": "Resize", "scale": (3, 4)}
    for entries in ({}, {"to_float32": True}):
        first, second = (
            Preprocessing.from_config({"test_pipeline": [{"type": f"LoadImageFrom{kind}", **entries}, resize]})
            for kind in ("File", "NDArray")
        )
        assert first == second


def test_steps_of_ones_own(monkeypatch):
    for table in ("_STEPS", "_WITHOUT_EFFECT"):
        monkeypatch.setattr(test_pipeline, table, dict(getattr(test_pipeline, table)))
    steps = [{"type": "ForkResize", "scale": (3, 4), "speed": 5}, {"type": "ForkPack", "keys": [], "depth": True}]
    with pytest.raises(ValueError, match="step ForkResize of the test pipeline is not supported"):
        Preprocessing.from_config({"test_pipeline": steps})
    register_step("ForkResize", "Resize", ["speed"])
    register_step("ForkPack", "PackDetInputs", ["depth"])
    actual = Preprocessing.from_config({"test_pipeline": steps})
    assert actual == Preprocessing.from_config({"test_pipeline": [{"type": "Resize", "scale": (3, 4)}]})
    steps[0]["sped"] = 5
    with pytest.raises(ValueError, match=r"step ForkResize of the test pipeline with sped .*is not supported"):
        Preprocessing.from_config({"test_pipeline": steps})
    for name in ("ForkResize", "Pad", "ForkPack", "Collect"):
        with pytest.raises(ValueError, match=f"register_step: step {name} is supported already"):
            register_step(name, "Resize")
    with pytest.raises(ValueError, match=r"like must be one of .*Pad.*, got 'RandomCrop'"):
        register_step("MyCrop", "RandomCrop")


def test_no_pipeline():
    for config in (
        {"model": {}},
        {"model": {}, "data": {"test": {}}},
        {"model": {}, "test_dataloader": {"dataset": {}}},
    ):
        with pytest.raises(ValueError, match="has no test pipeline"):
            Preprocessing.from_config(config)
    with pytest.raises(ValueError, match="pad_value must be 0"):
        Preprocessing.from_config(config3(pad_value=114))


@pytest.mark.parametrize("family", ["cascade_mask_rcnn", "cornernet", "detr"])
def test_batches(family):
    settings = preprocessing(family)
    images = [settings(FOLDER / f"00000{i}.png") for i in range(3)]
    inputs, shapes = settings.batch(images)
    assert shapes.tolist() == [list(image.img_shape) for image in images]
    assert inputs.dtype == np.float32
    assert inputs.shape[2:] == tuple(np.max([image.pad_shape for image in images], 0))
    for image, array in zip(images, inputs, strict=True):
        height, width = image.pad_shape
        assert np.array_equal(array[:, :height, :width], image.input)
        array[:, :height, :width] = 0
        assert not array.any()
    alone, shape = settings.batch(images[:1])
    assert np.array_equal(alone[0], images[0].input)
    assert shape.shape == (1, 2)
    with pytest.raises(ValueError, match="images must not be empty"):
        settings.batch([])


def test_files_that_are_not_images(tmp_path):
    settings = Preprocessing()
    for content in (b"", b"text", (FOLDER / "000000.png").read_bytes()[:40]):
        (tmp_path / "x.png").write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.png: not an image"):
            settings(tmp_path / "x.png")
    with pytest.raises(FileNotFoundError):
        settings(tmp_path / "nowhere.png")
    for array in (
        np.zeros(4, np.uint8),
        np.zeros((3, 4, 3)),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros((3, 4, 2), np.uint8),
    ):
        with pytest.raises(ValueError, match=r"image must be \[H, W, 3\] of uint8"):
            settings(array)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": "64"}, "size must be a width and a height, got '64'"),
        ({"size": (64, 64, 3)}, "size must be a width and a height"),
        ({"edge": 64, "crop": "64"}, "crop must be a width and a height, got '64'"),
        ({"keep_ratio": "False"}, "keep_ratio must be True or False, got 'False'"),
        ({"to_rgb": 1}, "to_rgb must be True or False, got 1"),
        ({"std": (1, 1e-50, 1)}, "std must be from 1e-08 to 1e+30, got"),
        ({"mean": (1e39, 0, 0)}, "mean must be from 0 to 1e+30, got"),
    ],
)
def test_settings_of_another_type_or_range(arguments, message):
    with pytest.raises(ValueError, match=re.escape(f"preprocessing: {message}")):
        Preprocessing(**arguments)


def test_the_bounds_of_mean_and_std_give_finite_inputs():
    prepare = Preprocessing(mean=(-1e30, 1e30, 0), std=(1e-8, -1e-8, 1e30), to_float32=True)
    assert np.isfinite(prepare(np.full((2, 2, 3), 255, np.uint8)).input).all()


@pytest.mark.parametrize(("mean", "shown"), [(0, "(0,)"), ([1, 2], "(1, 2)")])
def test_means_of_other_than_three_channels(mean, shown):
    with pytest.raises(ValueError, match=re.escape(f"preprocessing: mean must be 3 numbers, got {shown}")):
        Preprocessing(mean=mean)


def test_images_are_read_upright_with_three_channels(tmp_path):
    """A grey image, one with transparency, and one with an EXIF orientation."""
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4)
    cv2.imwrite(str(tmp_path / "grey.png"), grey)
    assert np.array_equal(read_image(tmp_path / "grey.png"), np.repeat(grey[:, :, None], 3, 2))
    cv2.imwrite(str(tmp_path / "alpha.png"), np.dstack([grey, grey + 1, grey + 2, grey]))
    assert np.array_equal(read_image(tmp_path / "alpha.png"), np.dstack([grey, grey + 1, grey + 2]))
    _, encoded = cv2.imencode(".jpg", np.zeros((8, 16, 3), np.uint8))
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"  # orientation 6: a quarter turn
    data = encoded.tobytes()
    (tmp_path / "turned.jpg").write_bytes(data[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + data[2:])
    assert read_image(tmp_path / "turned.jpg").shape == (16, 8, 3)


@pytest.mark.parametrize("scale", [(2**24, 2), (10**9, 10**9)])
def test_sizes_of_configs_that_no_image_can_have(scale):
    pipeline = [{"type": "LoadImageFromFile"}, {"type": "Resize", "scale": scale}, {"type": "PackDetInputs"}]
    with pytest.raises(ValueError, match=f"must resize to at most 16777216 pixels, got {scale[0]} x {scale[1]}$"):
        Preprocessing.from_config({"model": {}, "test_pipeline": pipeline})


@pytest.mark.parametrize("shape", [(1, 300, 3), (300, 1, 3)])
def test_a_line_of_pixels_whose_shorter_side_becomes_an_edge(shape):
    prepare = Preprocessing(edge=256, crop=(224, 224))
    sides = r"256 x 76800 pixels of 1 x 300" if shape[0] == 1 else r"76800 x 256 pixels of 300 x 1"
    with pytest.raises(ValueError, match=rf"edge=256 makes {sides}, .* limit, 16777216 pixels or as many as before$"):
        prepare(np.zeros(shape, np.uint8))
    assert prepare(np.zeros((1, 200, 3), np.uint8)).input.shape == (3, 224, 224)
    assert Preprocessing(edge=1)(np.zeros((1, 2**24 + 1, 3), np.uint8)).input.shape == (3, 1, 2**24 + 1)


def test_a_png_file_that_states_a_long_chunk(monkeypatch):
    """OpenCV 5 takes 4 GB and 5 seconds for these 67 bytes, and refuses them then: it does not get them."""
    data = bytearray(cv2.imencode(".png", np.zeros((1, 1), np.uint8))[1].tobytes())
    assert images.decode_image(bytes(data) + b"and more").shape == (1, 1, 3)
    data[33] = 0xF8  # the length of the chunk behind the header
    monkeypatch.setattr(cv2, "imdecode", lambda *arguments: pytest.fail("was called"))
    with pytest.raises(ValueError, match=r"^not an image in a format that OpenCV reads, or cut short$"):
        images.decode_image(bytes(data))


def test_resizing_with_pillow(monkeypatch):
    """Half the size: a pixel in the distance d of an output pixel's centre has the weight 1 - d / 2."""
    steps = {"type": "LoadImageFromFile", "imdecode_backend": "pillow"}, {"type": "Resize", "scale": (2, 1)}
    image = np.zeros((2, 4, 3), np.uint8)
    image[:, 3] = 120
    results = {}
    for backend in ("cv2", "pillow"):
        pipeline = [steps[0], {**steps[1], "keep_ratio": False, "backend": backend}]
        settings = Preprocessing.from_config({"test_pipeline": pipeline})
        results[backend] = settings(image).input[:, 0].tolist()
    assert results["cv2"] == [[0, 60]] * 3
    assert results["pillow"] == [[0, np.rint(120 * 0.75 / (0.25 + 0.75 + 0.75))]] * 3
    with pytest.raises(ValueError, match="resize_backend must not be 'pillow', which resizes uint8, with to_float32"):
        replace(settings, to_float32=True)
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert settings(image[:1, :2]).input.shape == (3, 1, 2)
    with pytest.raises(ImportError, match=r"resized with Pillow: pip install 'mmort\[pillow\]'"):
        settings(image)


def test_bicubic_interpolation():
    """Enlarged without antialiasing an edge overshoots, which bilinear interpolation never does."""
    image = np.zeros((8, 8, 3), np.uint8)
    image[:, 4:] = 100
    for backend in ("cv2", "pillow"):
        settings = Preprocessing(size=(32, 32), keep_ratio=False, resize_backend=backend)
        assert settings(image).input.max() == 100
        assert replace(settings, interpolation="bicubic")(image).input.max() > 103


def test_pillow_decodes_as_opencv(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (37, 53, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "noise.jpg"), noise)  # with halved colours
    for path in (*sorted(FOLDER.glob("*.png")), tmp_path / "noise.jpg"):
        assert np.array_equal(np.asarray(PIL.Image.open(path).convert("RGB"))[:, :, ::-1], read_image(path))


def test_extreme_sides():
    """No side is resized to 0, as that of an image 1 pixel high would be."""
    assert Preprocessing(size=(100, 10))(np.zeros((1, 900, 3), np.uint8)).img_shape == (1, 100)


def test_opencv_is_needed_for_files_and_resizing_only(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    image = np.zeros((4, 6, 3), np.uint8)
    assert Preprocessing(size_divisor=4)(image).input.shape == (3, 4, 8)
    for use in (lambda: Preprocessing(size=(3, 2))(image), lambda: read_image(FOLDER / "000000.png")):
        with pytest.raises(ImportError, match=r"OpenCV.*pip install 'mmort\[predict\]'"):
            use()


def test_package_imports_numpy_only():
    code = "import sys, mmort.predict; print({'PIL', 'cv2', 'onnx', 'onnxruntime', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (17, 30)])
def test_numpy_looks_up_what_opencv_does(monkeypatch, rng, shape):
    """In a part of a larger canvas, from a channel of an image in either order."""
    levels = rng.standard_normal(256, np.float32)
    image = rng.integers(0, 256, (*shape, 3), np.uint8)
    canvases = np.zeros((2, 40, 50), np.float32)
    images.look_up(levels, image[..., 1], canvases[0, 3 : 3 + shape[0], 5 : 5 + shape[1]])

    def missing():
        raise ImportError

    monkeypatch.setattr(images, "opencv", missing)
    images.look_up(levels, image[..., ::-1][..., 1], canvases[1, 3 : 3 + shape[0], 5 : 5 + shape[1]])
    np.testing.assert_array_equal(*canvases)
    assert canvases.any()


def test_boxes_that_end_with_their_last_pixel():
    prepare = Preprocessing(size=(20, 10), keep_ratio=False, inclusive_boxes=True)
    boxes = prepare(np.zeros((20, 40, 3), np.uint8)).boxes_in_image(np.array([[1, 2, 19, 9]], np.float32))
    assert boxes.tolist() == [[2, 4, 39, 19]]


def test_integers_that_no_float_holds():
    """Numpy makes objects of them, which are neither finite nor infinite to it."""
    assert Preprocessing(mean=(0, 10**30, 0)).mean == (0, 1e30, 0)
    for number in (10**400, -(10**400), np.inf, np.nan):
        with pytest.raises(ValueError, match=r"^preprocessing: mean must be 3 numbers, got "):
            Preprocessing(mean=(0, number, 0))
