"""``mmort benchmark``: times of one file, and of files by turns, as a table and as JSON."""

import json
import shutil

import pytest

from mmort import demo
from tests.cli.running import misused, refused, run
from tests.predict import tiny_detector


@pytest.fixture
def files(tmp_path):
    first = tiny_detector.write(tmp_path / "first.onnx")
    (tmp_path / "folder").mkdir()
    for name in ("second.onnx", "folder/first.onnx"):
        shutil.copyfile(first, tmp_path / name)
    return first, tmp_path / "second.onnx", tmp_path / "folder" / "first.onnx"


def test_a_table(files):
    code, out, err = run("benchmark", files[0], *demo.IMAGES, "--runs", 2, "--threads", 1)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["ms", "an", "image", "first.onnx"]
    stages = ["read", "preprocess", "run", "postprocess", "total", "images"]
    assert [line.split()[0] for line in lines[1:7]] == stages
    assert lines[7].startswith("medians of 2 runs of 4 images in batches of 1; onnxruntime, 1 thread")


def test_json_of_several_files(files):
    command = "benchmark", files[0], "--against", files[1], "--against", files[2], "--runs", 2, "--batch-size", 2
    code, out, _ = run(*command, "--json")
    assert code == 0
    result = json.loads(out)
    assert [file["name"] for file in result["files"]] == list(map(str, files))  # two have the same name
    assert (result["images"], result["batch_size"], result["runs"]) == (0, 2, 2)
    for file in result["files"]:
        assert list(file["milliseconds"]) == ["preprocess", "run", "postprocess", "total"]
        assert file["times_as_fast"].keys() == file["milliseconds"].keys()
    assert set(result["files"][0]["times_as_fast"].values()) == {1}


def test_refused(files, tmp_path):
    assert "the same file is given twice" in misused("benchmark", files[0], "--against", files[0])
    command = "benchmark", files[0], "--engine", "openvino", "--provider", "CPUExecutionProvider"
    assert "--provider is for --engine onnxruntime, got CPUExecutionProvider" in misused(*command)
    assert "no such file" in refused("benchmark", files[0], tmp_path / "nowhere")
