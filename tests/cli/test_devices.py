"""A pipe, a device or an empty file in the place of each file of a command: one line, and no waiting."""

import os

import pytest

from tests.fuzz import commands

DATASET = "test", "model.onnx", "--img-dir", "images", "--eval", "bbox", "--ann"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path), lambda path: path.touch()])
@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "X.onnx"),
        ("predict", "X.onnx", "images"),
        ("predict", "model.onnx", "X.png"),
        ("predict", "model.onnx", "X.png", "--window", "300"),
        ("predict", "model.onnx", "images", "--config", "X.py"),
        (*DATASET, "X.json"),
        (*DATASET, "X.txt"),
        ("verify", "model.onnx", "--against", "X.onnx"),
        ("verify", "model.onnx", "--against", "model.onnx", "--inputs", "X.npz"),
        ("verify", "model.onnx", "--against", "model.onnx", "--image", "X.png"),
        ("accelerate", "model.onnx", "-o", "out.onnx", "--input", "X.npz"),
        ("accelerate", "X.onnx", "-o", "out.onnx"),
        ("upgrade", "X.onnx", "--in-place"),
        ("triton-repository", "X.onnx", "repository"),
        ("export", "config.py", "X.pth", "--output-file", "out.onnx"),
        ("export", "X.py", "checkpoint.pth", "--output-file", "out.onnx"),
    ],
    ids=" ".join,
)
def test_files_that_are_none(tmp_path, monkeypatch, make, arguments):
    monkeypatch.chdir(tmp_path)
    commands.write_files(tmp_path)
    make(tmp_path / next(word for word in arguments if word.startswith("X")))
    with pytest.raises(commands.RefusedError) as caught:
        commands.run(tmp_path, list(arguments))
    assert caught.type is commands.RefusedError
