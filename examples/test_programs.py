"""The programs in other languages find what mmort.Predictor finds, with mmort's library and with a portable file.

`.ci/run examples` runs the tests of the languages whose tools and packages can be had.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import mmort.onnx
import mmort.ort
from mmort import Predictor
from mmort.demo import IMAGES, MODEL

HERE = Path(__file__).parent
MIN_SCORE = 0.3  # of all programs


@pytest.fixture(scope="module")
def portable(tmp_path_factory):
    path = tmp_path_factory.mktemp("portable") / "portable.onnx"
    mmort.onnx.make_portable(MODEL, path)
    return path


@pytest.fixture(scope="module")
def foreign(portable):
    """A file whose images are resized in a way that no program knows."""
    model = onnx.load(portable)
    (settings,) = (entry for entry in model.metadata_props if entry.key == "preprocessing")
    settings.value = json.dumps(json.loads(settings.value) | {"resize_backend": "pillow"})
    onnx.save(model, portable.with_name("foreign.onnx"))
    return portable.with_name("foreign.onnx")


@pytest.fixture(scope="module")
def letterboxed(portable):
    """A file as `mmort adopt` makes of a YOLO: one input, of another name, padded on all sides; boxes are clipped."""
    model = onnx.load(portable)
    width, height = 208, 192
    for node in model.graph.node:
        node.input[:] = ["images" if name == "input" else name for name in node.input]
    (image, img_shape) = model.graph.input
    assert (image.name, img_shape.name) == ("input", "img_shape")
    image.name = "images"
    model.graph.input.remove(img_shape)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([[height, width]]), "img_shape"))
    (settings,) = (entry for entry in model.metadata_props if entry.key == "preprocessing")
    padding = {"value": 114.0, "centred": True, "size": [width, height], "size_divisor": 32}
    changes = {"size": [width, height], "turn_size": False, "padding": padding, "clip_boxes": True}
    settings.value = json.dumps(json.loads(settings.value) | changes)
    onnx.save(model, portable.with_name("letterboxed.onnx"))
    return portable.with_name("letterboxed.onnx")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """ONNX Runtime laid out as in its releases: the Python package's library, and the declarations of our tests."""
    folder = tmp_path_factory.mktemp("onnxruntime")
    (folder / "lib").mkdir()
    (folder / "include").symlink_to(HERE.parent / "tests" / "docs" / "include")
    (library,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (folder / "lib" / name).symlink_to(library)
    return folder


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def assert_finds(command, model, *library, masks=False, digits=(1e-4, 0.02), expected_of=MODEL, **options):
    """Compare what a program prints for the demo's images; `digits` are the tolerances of scores and boxes."""
    predictor = Predictor(expected_of, score_threshold=MIN_SCORE)
    for image in IMAGES:
        rows = [line.split() for line in output(*command, model, image, *library, **options).splitlines()]
        expected = predictor(image)
        assert [row[0] for row in rows] == list(expected.names)
        np.testing.assert_allclose([float(row[1]) for row in rows], expected.scores, atol=digits[0])
        np.testing.assert_allclose([list(map(float, row[2:6])) for row in rows], expected.boxes, atol=digits[1])
        if masks:
            areas = [expected.mask(index).sum() for index in range(len(rows))]
            np.testing.assert_allclose([int(row[6]) for row in rows], areas, rtol=0.01, atol=1)


def assert_refuses(command, portable, foreign, **options):
    """A file that is no image, no model, or one that the program does not understand, gives a line and a failure."""
    for arguments in ((portable, __file__), (__file__, IMAGES[0]), (portable,), (foreign, IMAGES[0])):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, **options)
        assert done.returncode > 0
        assert (done.stdout, done.stderr.count("\n")) == ("", 1), done.stderr
    assert "resize" in done.stderr


def test_cpp(tmp_path, runtime, portable, letterboxed, foreign):
    output("cmake", "-S", HERE / "cpp", "-B", tmp_path, f"-DORT={runtime}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
    output("cmake", "--build", tmp_path)
    command = [tmp_path / "detect"]
    assert_finds(command, MODEL, mmort.ort.library_path(), masks=True)
    assert_finds(command, portable, masks=True)
    assert_finds(command, letterboxed, masks=True, expected_of=letterboxed)
    assert_refuses(command, portable, foreign)


def test_node(tmp_path, portable, foreign):
    for name in ("web", "node"):
        shutil.copytree(HERE / name, tmp_path / name, ignore=shutil.ignore_patterns("node_modules"))
    output("npm", "install", "--silent", "--ignore-scripts", cwd=tmp_path / "node")
    command = ["node", tmp_path / "node" / "detect.js"]
    assert_finds(command, portable, masks=True)
    assert_refuses(command, portable, foreign)
    text = tmp_path / "text.onnx"
    text.write_text("text")
    done = subprocess.run([*command, text, IMAGES[0]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"{text}: it is not an ONNX file\n")


def test_java(tmp_path, portable, letterboxed, foreign):
    jar = os.environ["ORT_JAR"]
    output("javac", "-Xlint", "-Werror", "-cp", jar, "-d", tmp_path, HERE / "java" / "Detect.java")
    command = ["java", "-cp", f"{jar}{os.pathsep}{tmp_path}", "Detect"]
    assert_finds(command, MODEL, mmort.ort.library_path(), digits=(0.02, 0.5))
    assert_finds(command, portable, digits=(0.02, 0.5))
    assert_finds(command, letterboxed, digits=(0.02, 0.5), expected_of=letterboxed)
    assert_refuses(command, portable, foreign)


def test_rust(tmp_path, runtime, portable, letterboxed, foreign):
    output("cargo", "build", "--manifest-path", HERE / "rust" / "Cargo.toml", "--target-dir", tmp_path)
    command, environment = (
        [tmp_path / "debug" / "detect"],
        os.environ | {"ORT_DYLIB_PATH": str(runtime / "lib" / "libonnxruntime.so")},
    )
    assert_finds(command, MODEL, mmort.ort.library_path(), digits=(0.02, 0.5), env=environment)
    assert_finds(command, portable, digits=(0.02, 0.5), env=environment)
    assert_finds(command, letterboxed, digits=(0.02, 0.5), expected_of=letterboxed, env=environment)
    assert_refuses(command, portable, foreign, env=environment)
