"""Metadata of another type or range than `mmort export` writes is an error when the file is opened, never a default."""

import json
from dataclasses import replace

import numpy as np
import onnx
import onnx.helper as oh
import pytest

from mmort.contract import EncoderFile, Metadata
from mmort.contract.metadata import _MASKS, _PREPROCESSING, read_metadata
from mmort.contract.padding import Padding
from mmort.detections.panoptic import PanopticFormat
from mmort.predict import MaskFormat, Predictor, Preprocessing
from tests.predict import tiny_detector

PREPROCESSING = tiny_detector.PREPROCESSING.to_dict()


def error(**entries):
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in entries.items()}
    with pytest.raises(ValueError, match=r"^model: metadata that mmort cannot read: ") as caught:
        read_metadata("model", texts)
    return str(caught.value).partition("cannot read: ")[2]


def test_what_mmort_writes_is_read_back():
    """Every field has a rule, and every value that a Python user can set passes it."""
    preprocessing = Preprocessing(
        mean=(1, 2.5, 3),
        std=(4, 5, 6),
        size=(1333, 800),
        pad_or=127,
        pad_add=1,
        padding=Padding((104, 117, 123), (640, 640), True, 32),
        color_type="unchanged",
    )
    masks = MaskFormat("image", 0, 8, "scale", "masks", "masks", "corners", PanopticFormat("instances", 80, 133))
    entries = {
        "classes": '["a", "b\\u001b"]',
        "preprocessing": json.dumps(preprocessing.to_dict()),
        "masks": json.dumps(masks.to_dict()),
        "texts": '{"encoder": "a.texts.onnx", "digest": "1f"}',
    }
    assert read_metadata("model", entries) == Metadata(
        classes=("a", "b\x1b"),
        preprocessing=preprocessing,
        mask_format=masks,
        texts=EncoderFile("a.texts.onnx", "1f"),
    )
    # Which are written only if they are set.
    rare = {"side_divisor", "by_ratio", "enlarges", "edge", "crop", "crop_padding", "line"}
    assert _PREPROCESSING.keys() == preprocessing.to_dict().keys() | rare
    assert replace(preprocessing, side_divisor=16).to_dict()["side_divisor"] == 16
    assert _PREPROCESSING["padding"].keys() == preprocessing.to_dict()["padding"].keys() | {
        "half_pixels",
        "long_side",
        "margin",
    }
    assert _MASKS.keys() == masks.to_dict().keys()
    assert _MASKS["panoptic"].keys() == masks.to_dict()["panoptic"].keys()


def test_metadata_may_be_missing_or_of_a_later_version():
    assert read_metadata("model", {}) == Metadata()
    assert read_metadata("model", {"mmort_version": "0.1"}).mask_format == MaskFormat()
    later = json.dumps(PREPROCESSING | {"a later entry": [1]})
    with pytest.raises(ValueError, match=r"model: .*preprocessing has no entry a later entry; its entries: mean, std"):
        read_metadata("model", {"preprocessing": later})
    later = json.dumps(PREPROCESSING | {"padding": {"side": "left"}})
    with pytest.raises(ValueError, match=r"preprocessing\.padding has no entry side; its entries: value, size"):
        read_metadata("model", {"preprocessing": later})


@pytest.mark.parametrize("value", ["[1, 2]", '"x"', "5", "true", "[]", '""', "0", "false"])
def test_other_types_are_no_defaults(value):
    assert error(preprocessing=value) == f"preprocessing must be an object, got {value}"
    assert error(masks=value) == f"masks must be an object, got {value}"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"to_rgb": "no"}, 'to_rgb must be true or false, got "no"'),
        ({"to_rgb": 1}, "to_rgb must be true or false, got 1"),
        ({"mean": "abc"}, 'mean must be finite numbers, one for each channel, at most 16, got "abc"'),
        ({"mean": [1, 2, True]}, "mean must be finite numbers, one for each channel, at most 16, got [1, 2, true]"),
        ({"std": [1, 1, 1e39]}, "std must be finite numbers, one for each channel, at most 16, got [1, 1, 1e+39]"),
        ({"size": 5}, "size must be width and height, "),
        ({"size": [2.5, 5]}, "size must be width and height, "),
        ({"size": [2**20, 2**20]}, "size must be width and height, integers from 1 with a product of at most 16777216"),
        ({"size_divisor": 10**9}, "size_divisor must be an integer from 1 to 4096, got 1000000000"),
        ({"size_divisor": 32.0}, "size_divisor must be an integer from 1 to 4096, got 32.0"),
        ({"pad_add": -1}, "pad_add must be an integer from 0 to 4096, got -1"),
        ({"padding": 5}, "padding must be an object, got 5"),
        ({"padding": {"size_divisor": True}}, "padding.size_divisor must be an integer from 1 to 4096, got true"),
        (
            {"padding": {"value": [0, "a"]}},
            'padding.value must be a finite number, one for each channel, or null, got [0, "a"]',
        ),
        ({"resize_backend": []}, "resize_backend must be 'cv2' or 'pillow' or 'torchvision', got []"),
    ],
)
def test_entries_of_preprocessing(changed, message):
    assert error(preprocessing=PREPROCESSING | changed).startswith(f"preprocessing.{message}")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"threshold": "x"}, 'threshold must be a finite number, got "x"'),
        ({"stride": 10**6}, "stride must be an integer from 1 to 4096, got 1000000"),
        ({"area": ["box"]}, "area must be 'box' or 'image', got [\"box\"]"),
        ({"panoptic": {"things": 2.5}}, "panoptic.things must be an integer from 0 to 999, got 2.5"),
    ],
)
def test_entries_of_masks(entries, message):
    assert error(masks=entries) == f"masks.{message}"


def test_numbers_that_are_none_and_depth():
    for text in ("NaN", "Infinity", "-Infinity"):
        assert error(masks=f'{{"threshold": {text}}}') == f"masks is not JSON: numbers must be finite, got {text}"
    assert error(preprocessing="[" * 100_000).startswith("preprocessing is not JSON: ")
    assert error(preprocessing="{").startswith("preprocessing is not JSON: ")
    assert error(classes='["' + "a" * 2**22 + '"]') == "classes must have at most 4194304 characters, got 4194308"


@pytest.mark.parametrize("classes", ['"abc"', "{}", "[1]", "[null]", '["\\ud800"]', "5", '{"0": "a"}'])
def test_classes_are_names(classes):
    assert error(classes=classes).startswith("classes must be a list of names, got ")


def test_a_file_with_wrong_metadata_is_not_opened(tmp_path):
    path = tiny_detector.write(tmp_path / "x.onnx", metadata=tiny_detector.METADATA | {"preprocessing": "[1, 2]"})
    with pytest.raises(ValueError, match=r"x\.onnx: metadata that mmort cannot read: preprocessing must be an object"):
        Predictor(path, score_threshold=0)


def detector_with_masks(path, shape, masks):
    """Write a detector whose masks have a shape."""
    tiny_detector.write(path, metadata=tiny_detector.METADATA | {"masks": json.dumps(masks)})
    model = onnx.load(path)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(shape, 9, np.float32), "values"))
    model.graph.node.append(oh.make_node("Identity", ["values"], ["masks"]))
    model.graph.output.append(oh.make_tensor_value_info("masks", onnx.TensorProto.FLOAT, shape))
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("rescaling", ["crop", "scale"])
def test_masks_larger_than_the_image(tmp_path, rescaling):
    """28 x 28 cells of 1000 pixels would take 3 GB."""
    masks = {"area": "image", "stride": 1000, "rescaling": rescaling}
    predict = Predictor(detector_with_masks(tmp_path / "x.onnx", (1, 1, 28, 28), masks), score_threshold=0)
    with pytest.raises(ValueError, match=r"masks would become 28000 x 28000 pixels for 512 of the image; the stride"):
        predict(np.zeros((16, 32, 3), np.uint8))


def test_masks_scaled_by_their_padding(tmp_path):
    """The image is made 1 pixel small and padded to 4096, which in its scale are 10**14 pixels."""
    preprocessing = json.dumps(PREPROCESSING | {"size": [1, 1], "size_divisor": 4096})
    path = detector_with_masks(
        tmp_path / "x.onnx", (1, 1, 64, 64), {"area": "image", "stride": 64, "rescaling": "scale"}
    )
    model = onnx.load(path)
    oh.set_model_props(
        model, {entry.key: entry.value for entry in model.metadata_props} | {"preprocessing": preprocessing}
    )
    onnx.save(model, path)
    with pytest.raises(ValueError, match=r"masks would become \d+ x \d+ pixels for 4000000 of the image"):
        Predictor(path, score_threshold=0)(np.zeros((2000, 2000, 3), np.uint8))


@pytest.mark.parametrize("area", ["box", "image"])
def test_masks_without_pixels(tmp_path, area):
    predict = Predictor(detector_with_masks(tmp_path / "x.onnx", (1, 1, 0, 0), {"area": area}), score_threshold=0)
    with pytest.raises(ValueError, match=r"masks must have pixels, got masks of 0 x 0"):
        predict(np.zeros((16, 32, 3), np.uint8))


def test_padding_out_of_proportion():
    square = Preprocessing(padding=Padding(square=True))
    with pytest.raises(
        ValueError, match=r"padding makes 20000 x 20000 pixels of 1 x 20000, which is more than the limit"
    ):
        square(np.zeros((1, 20_000, 3), np.uint8))
    assert square(np.zeros((1, 2000, 3), np.uint8)).pad_shape == (2000, 2000)


def test_configs_with_other_types():
    for step in (
        {"type": "Pad", "size_divisor": "x"},
        {"type": "Resize", "scale": 5.5},
        {"type": "Normalize", "mean": 5, "std": 1},
    ):
        with pytest.raises(ValueError, match=r"^preprocessing: "):
            Preprocessing.from_config({"test_pipeline": [step]})
