"""The program of docs/cpp.md, as it stands, finds what Python finds; other lines compile, or are an example's."""

import os
import pathlib
import re
import subprocess

import numpy as np
import onnxruntime
import pytest

import mmort.ort
from mmort.demo import IMAGES
from mmort.images import resize, write_image
from mmort.predict import read_image
from tests import old_export

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "cpp.md"
INCLUDE = pathlib.Path(__file__).with_name("include")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The document's program, compiled by the document's command, with ONNX Runtime laid out as in its releases."""
    folder = tmp_path_factory.mktemp("cpp")
    document = DOCUMENT.read_text(encoding="utf-8")
    (text,) = re.findall(r"^`detect\.cpp`:\n\n```cpp\n(.*?)^```$", document, re.M | re.S)
    (folder / "detect.cpp").write_text(text, encoding="utf-8")
    (folder / "onnxruntime" / "lib").mkdir(parents=True)
    (folder / "onnxruntime" / "include").symlink_to(INCLUDE)
    (runtime,) = pathlib.Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (folder / "onnxruntime" / "lib" / name).symlink_to(runtime)
    (command,) = re.findall("^g[+][+] .*", document, re.M)
    environment = os.environ | {"ORT": str(folder / "onnxruntime")}
    subprocess.run(f"{command} -Wall -Wextra -Werror", shell=True, cwd=folder, env=environment, check=True)
    return folder / "detect"


def test_program_finds_what_python_finds(program, tmp_path):
    image = read_image(IMAGES[0])
    height, width = image.shape[:2]
    resized = resize(image, *old_export.PREPROCESSING.resized_size(width, height))
    write_image(tmp_path / "picture.ppm", resized)
    command = [program, old_export.MODEL, mmort.ort.library_path(), tmp_path / "picture.ppm"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = np.array([line.split() for line in printed.splitlines()], float)

    session = mmort.ort.session(old_export.MODEL)
    feeds = {"input": old_export.network_input(IMAGES[0])}
    dets, labels = (output[0] for output in session.run(["dets", "labels"], feeds))
    strong = dets[:, 4] > 0.5
    assert strong.sum() == len(result) > 3
    np.testing.assert_array_equal(result[:, 0], labels[strong])
    np.testing.assert_allclose(result[:, 1], dets[strong, 4], atol=0.006)
    np.testing.assert_allclose(result[:, 2:], dets[strong, :4], atol=0.06)


def test_program_names_its_errors(program, tmp_path):
    command = [program, "missing.onnx", mmort.ort.library_path(), "missing.ppm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "missing.ppm is not a PPM image\n")
    write_image(tmp_path / "picture.ppm", np.zeros((64, 64, 3), np.uint8))
    done = subprocess.run([*command[:3], tmp_path / "picture.ppm"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "missing.onnx" in done.stderr


def test_lines_compile_or_are_of_the_example():
    text = DOCUMENT.read_text(encoding="utf-8")
    example = (ROOT / "examples" / "cpp" / "detect.cpp").read_text(encoding="utf-8")
    parts = [code for code in re.findall(r"^```cpp\n(.*?)^```$", text, re.M | re.S) if "main(" not in code]
    (lines,) = (code for code in parts if code not in example)
    assert len(parts) > 1
    lines = f"""
        #include <onnxruntime_cxx_api.h>
        int main() {{
            Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "");
            Ort::SessionOptions options;
            {{ {lines} }}
        }}
    """
    subprocess.run(
        ["g++", "-std=c++17", "-fsyntax-only", "-I", INCLUDE, "-x", "c++", "-"], input=lines, text=True, check=True
    )
