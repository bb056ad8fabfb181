"""The steps of README.md: a checkpoint of MMDetection is exported, and its detections are drawn."""

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "tests" / "data"
IMAGE = DATA / "preprocessing" / "000000.png"


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "fcos.onnx"
    files = DATA / "detect" / "fcos" / "config.py", DATA / "detect" / "fcos" / "checkpoint.pth"
    shape = "--shape", "160", "224"
    subprocess.run(["mmort", "export", *files, "--output-file", path, "--dynamic-export", *shape], check=True)
    return path


def test_program_draws_detections(model, tmp_path):
    command = [sys.executable, HERE / "predict.py", model, IMAGE, "--output", tmp_path]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    drawn = cv2.imread(str(tmp_path / "000000.detected.png"))
    image = cv2.imread(str(IMAGE))
    assert drawn.shape == image.shape
    assert (drawn != image).any()
    assert output.startswith(f"{IMAGE}: ")
    assert "nothing" not in output


def test_detections_are_those_of_torch(model):
    import torch
    from predict import Predictor

    import mmort.detect
    from mmort.predict import read_image

    predictor = Predictor(model)
    found = predictor(read_image(IMAGE), 0.3)
    detector = mmort.detect.load(DATA / "detect" / "fcos" / "config.py", DATA / "detect" / "fcos" / "checkpoint.pth")
    prepared = predictor.preprocessing(read_image(IMAGE))
    dets, labels = detector(torch.from_numpy(prepared.input[None]), torch.tensor([prepared.img_shape]))
    strong = dets[0, :, 4] >= 0.3
    assert len(found) == strong.sum() > 0
    assert [detector.classes[label] for label in labels[0, strong]] == [detection.name for detection in found]
    boxes = np.stack([detection.box for detection in found])
    np.testing.assert_allclose(boxes, dets[0, strong, :4].numpy() / prepared.scale_factor, atol=1e-3)
