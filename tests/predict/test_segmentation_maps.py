"""The maps of semantic segmentations: grey PNG files, which a record of the run has beside it."""

import shutil
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnx.helper as oh
import pytest

from mmort import Predictor
from mmort.cli import main
from mmort.contract import Metadata, write_entries
from mmort.predict import PredictOptions, Preprocessing, predict, write_image


@pytest.fixture
def brightest(tmp_path):
    """Write a file whose logits are the image's channels, so that the brightest channel is the class of a pixel."""
    float32, sizes = onnx.TensorProto.FLOAT, ["N", 3, "H", "W"]
    graph = oh.make_graph(
        [oh.make_node("Identity", ["input"], ["logits"])],
        "brightest",
        [oh.make_tensor_value_info("input", float32, sizes)],
        [oh.make_tensor_value_info("logits", float32, sizes)],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8)
    metadata = Metadata(task="segmentation", classes=("blue", "green", "red"), preprocessing=Preprocessing())
    oh.set_model_props(model, write_entries(metadata))
    onnx.save(model, tmp_path / "brightest.onnx")
    return str(tmp_path / "brightest.onnx")


@pytest.fixture
def photos(tmp_path):
    """Write images of three sizes in two folders, and return the channel that is the brightest in each pixel."""
    rng, expected = np.random.default_rng(0), {}
    for name in ("a/1.png", "a/2.jpg", "b/1.png"):
        size = tuple(rng.integers(5, 20, 2))
        expected[name] = rng.integers(0, 3, size)
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        image = np.uint8(200 * np.eye(3)[expected[name]])
        if name.endswith("png"):
            write_image(tmp_path / "photos" / name, image)
        else:  # without losses
            (tmp_path / "photos" / name).write_bytes(cv2.imencode(".png", image)[1])
    return expected


def test_maps_are_written_beside_the_record(brightest, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["predict", brightest, "photos", "-r", "--output", "out"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "wrote out/detections.jsonl (3 images)",
        "wrote out/maps (the label of each pixel)",
    ]
    written = {path.relative_to("out/maps").as_posix(): path for path in Path("out/maps").rglob("*.*")}
    assert sorted(written) == ["a/1.png", "a/2.png", "b/1.png"]
    for name, expected in photos.items():
        labels = cv2.imread(str(written[name.replace("jpg", "png")]), cv2.IMREAD_UNCHANGED)
        assert labels.dtype == np.uint8
        np.testing.assert_array_equal(labels, expected)
    written["a/1.png"].write_text("mine")  # the record says that it is done
    assert main(["predict", brightest, "photos", "-r", "--output", "out"]) == 0
    assert written["a/1.png"].read_text() == "mine"


def test_names_that_maps_would_share(brightest, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy("photos/a/1.png", "photos/a/2.png")
    assert main(["predict", brightest, "photos", "-r", "--output", "out"]) == 1
    assert "2.png would both be out/maps/a/2.png" in capsys.readouterr().err
    assert main(["predict", brightest, "photos", "-r", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_frames_have_numbers(brightest, tmp_path):
    writer = cv2.VideoWriter(str(tmp_path / "clip.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 5, (64, 48))
    for channel in (2, 0):
        writer.write(np.full((48, 64, 3), np.uint8(200 * np.eye(3)[channel])))
    writer.release()
    result = predict(Predictor(brightest), tmp_path / "clip.avi", PredictOptions(output=tmp_path / "out"))
    assert result.written[tmp_path / "out/maps"] == "the label of each pixel"
    for number, label in enumerate((2, 0)):
        labels = cv2.imread(str(tmp_path / f"out/maps/{number:06}.png"), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(labels, np.full((48, 64), label))
