"""From MMDetection's checkpoint to a picture, as README.md says."""

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "tests" / "data"
PICTURE = DATA / "preprocessing" / "000000.png"


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "fcos.onnx"
    files = DATA / "detect" / "fcos" / "config.py", DATA / "detect" / "fcos" / "checkpoint.pth"
    shape = "--shape", "160", "224"
    subprocess.run(["mmort", "export", *files, "--output-file", path, "--dynamic-export", *shape], check=True)
    return path


def test_program_draws_what_it_finds(model, tmp_path):
    command = [sys.executable, HERE / "predict.py", model, PICTURE, "--output", tmp_path]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    drawn = cv2.imread(str(tmp_path / "000000.detected.png"))
    picture = cv2.imread(str(PICTURE))
    assert drawn.shape == picture.shape
    assert (drawn != picture).any()
    assert said.startswith(f"{PICTURE}: ")
    assert "nothing" not in said


def test_detections_are_those_of_torch(model):
    import torch
    from predict import Predictor

    import mmort.detect
    from mmort.predict import read_image

    predictor = Predictor(model)
    found = predictor(read_image(PICTURE), 0.3)
    detector = mmort.detect.load(DATA / "detect" / "fcos" / "config.py", DATA / "detect" / "fcos" / "checkpoint.pth")
    image = predictor.preprocessing(read_image(PICTURE))
    dets, labels = detector(torch.from_numpy(image.input[None]), torch.tensor([image.img_shape]))
    strong = dets[0, :, 4] >= 0.3
    assert len(found) == strong.sum() > 0
    assert [detector.classes[label] for label in labels[0, strong]] == [one.name for one in found]
    boxes = np.stack([one.box for one in found])
    np.testing.assert_allclose(boxes, dets[0, strong, :4].numpy() / image.scale_factor, atol=1e-3)
