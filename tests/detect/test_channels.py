"""Detectors of images with one or four channels, of 8 or 16 bits, on the whole road from config to windows."""

import json

import cv2
import numpy as np
import pytest
import torch

import mmort
from mmort.cli import main
from mmort.detect import build, load
from mmort.detect.export import ExportOptions, export
from mmort.evaluate import CocoDataset, evaluate
from mmort.predict import Predictor, Preprocessing, Windows, benchmark, predict_windows
from tests.detect.dense_cases import config as dense_config

CASES = {"grey": ("grayscale", 1, np.uint8), "alpha16": ("unchanged", 4, np.uint16)}


def config(color_type, channels, mean):
    """A small detector in MMDetection 3's form."""
    settings = dense_config("ATSSHead")
    settings["model"]["backbone"]["in_channels"] = channels
    settings["model"]["data_preprocessor"] = {
        "type": "DetDataPreprocessor",
        "mean": [mean],
        "std": [mean / 2],
        "pad_size_divisor": 32,
    }
    settings["test_pipeline"] = [
        {"type": "LoadImageFromFile", "color_type": color_type},
        {"type": "Resize", "scale": (128, 96), "keep_ratio": True},
        {"type": "PackDetInputs"},
    ]
    return settings


@pytest.fixture(scope="module", params=CASES)
def detector(request, tmp_path_factory):
    """A config, a checkpoint, an exported file and an image."""
    color_type, channels, dtype = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    mean = 0.5 * np.iinfo(dtype).max
    settings = config(color_type, channels, mean)
    (folder / "config.json").write_text(json.dumps(settings))
    torch.manual_seed(0)
    torch.save({"state_dict": build(settings).state_dict(), "meta": {"classes": ["a", "b", "c"]}}, folder / "a.pth")
    rng = np.random.default_rng(0)
    smooth = cv2.GaussianBlur(rng.random((90, 120, channels)), (0, 0), 4)
    pixels = ((smooth - smooth.min()) / np.ptp(smooth) * np.iinfo(dtype).max).astype(dtype)
    cv2.imwrite(str(folder / "image.png"), pixels)
    export(folder / "config.json", folder / "a.pth", folder / "a.onnx", ExportOptions(), progress=lambda line: None)
    return settings, folder, pixels.reshape(90, 120, channels)


def test_the_file_detects_what_torch_does(detector):
    settings, folder, pixels = detector
    predictor = Predictor(folder / "a.onnx", score_threshold=0)
    prepared = Preprocessing.from_config(settings)(folder / "image.png")
    assert prepared.input.shape[0] == pixels.shape[2]
    network = load(folder / "config.json", folder / "a.pth")
    input, img_shape = predictor.input_of([prepared])
    with torch.inference_mode():
        dets, labels = (output[0].numpy() for output in network(torch.from_numpy(input), torch.from_numpy(img_shape)))
    of_file = predictor(folder / "image.png")
    assert len(of_file) == (labels >= 0).sum() > 0
    assert of_file.scores == pytest.approx(dets[labels >= 0, 4], abs=1e-4)
    for other in (pixels, (folder / "image.png").read_bytes()):
        assert (predictor(other).boxes == of_file.boxes).all()
    assert benchmark({"a": predictor}, [folder / "image.png"], runs=1).to_dict()


def test_images_of_other_channels_are_refused(detector):
    _, folder, pixels = detector
    predictor = Predictor(folder / "a.onnx")
    if pixels.shape[2] == 1:
        color = cv2.cvtColor(pixels, cv2.COLOR_GRAY2BGR)  # grey is what is taken of it
        assert (predictor(color).boxes == predictor(pixels).boxes).all()
    else:
        with pytest.raises(ValueError, match="image must have 4 channels, got 3"):
            predictor(pixels[..., :3])
        with pytest.raises(ValueError, match="uint8, uint16, int16, float32, got"):
            predictor(pixels.astype(np.float64))
    with pytest.raises(TypeError, match="image must be a numpy array or a path, got int"):
        predictor(5)


def test_windows_and_commands(detector, tmp_path):
    _, folder, pixels = detector
    predictor = Predictor(folder / "a.onnx", score_threshold=0)
    windows = Windows(200, 20)
    whole = predictor(folder / "image.png")
    for image in (pixels, folder / "image.png"):
        assert (predict_windows(predictor, image, windows).boxes == whole.boxes).all()
    entry = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 40, 30], "area": 1200, "iscrowd": 0}
    annotations = {
        "images": [{"id": 1, "file_name": "image.png", "width": 120, "height": 90}],
        "categories": [{"id": index, "name": name} for index, name in enumerate("abc", 1)],
        "annotations": [entry],
    }
    (tmp_path / "a.json").write_text(json.dumps(annotations))
    assert "bbox_mAP" in evaluate(CocoDataset(tmp_path / "a.json", folder), predictor, ["bbox"]).figures
    command = "--ann", tmp_path / "a.json", "--img-dir", folder, "--show-dir", tmp_path / "shown", "--report"
    assert main(["test", *map(str, (folder / "a.onnx", *command, tmp_path / "r.html"))]) == 0
    assert cv2.imread(str(tmp_path / "shown" / "image.png")).shape == (90, 264, 3)
    assert main(["predict", str(folder / "a.onnx"), str(folder / "image.png"), "-o", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize(
    ("color_type", "channels", "changes", "message"),
    [
        ("color", 1, {}, "color_type 'color' reads images for in_channels=3, but the backbone has 1"),
        ("grayscale", 3, {}, "color_type 'grayscale' reads images for in_channels=1, but the backbone has 3"),
        ("unchanged", 4, {"bgr_to_rgb": True}, "to_rgb must be False with 4 channels"),
        ("unchanged", 4, {"mean": [1, 2, 3], "std": [1, 2, 3]}, "mean must be 4 numbers, as images have channels"),
    ],
)
def test_refused(color_type, channels, changes, message):
    settings = config(color_type, channels, 128)
    settings["model"]["data_preprocessor"] |= changes
    with pytest.raises(ValueError, match=message):
        Preprocessing.from_config(settings)


def test_resizing_by_pillow_is_for_color():
    with pytest.raises(ValueError, match="resize_backend must be 'cv2' with color_type 'grayscale', got 'pillow'"):
        Preprocessing(mean=(0,), std=(1,), color_type="grayscale", resize_backend="pillow")
    assert mmort.predict.Preprocessing(mean=[0], std=[2], color_type="grayscale").channels == 1
