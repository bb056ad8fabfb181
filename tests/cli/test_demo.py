"""``mmort demo``: the detections are MMDetection's, the sheet shows them, and bad files are refused."""

import re
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

import mmort
import mmort.ort
from tests.cli.running import refused, run

pytest.importorskip("onnxruntime")

from mmort import demo
from mmort.demo import detector, drawing

# Detections of MMDetection itself, in PyTorch, with a score above 0.5, on the images that come with the demo.
MMDETECTION = {
    "digits_05.png": [
        ("4", 1.000, (11.5, 77.5, 25.2, 94.9)),
        ("0", 1.000, (35.4, 1.4, 52.5, 35.1)),
        ("3", 1.000, (34.4, 44.5, 51.0, 68.5)),
        ("2", 0.997, (55.8, 3.2, 89.2, 39.8)),
        ("2", 0.995, (65.1, 40.0, 76.1, 60.1)),
        ("1", 0.993, (101.4, 53.8, 112.1, 80.2)),
    ],
    "digits_27.png": [
        ("9", 0.999, (58.3, 111.3, 73.2, 133.1)),
        ("3", 0.998, (52.5, 3.6, 62.0, 20.2)),
        ("2", 0.992, (10.6, 112.4, 21.0, 128.5)),
        ("5", 0.988, (91.1, 104.3, 110.1, 144.6)),
        ("1", 0.949, (15.1, 31.5, 36.1, 69.5)),
        ("7", 0.849, (46.2, 38.1, 53.8, 52.0)),
    ],
    "digits_63.png": [
        ("6", 1.000, (69.5, 72.3, 92.9, 107.8)),
        ("7", 0.970, (137.6, 21.2, 145.6, 35.0)),
        ("8", 0.883, (16.9, 37.6, 24.7, 50.2)),
        ("5", 0.584, (156.3, 45.6, 164.1, 57.3)),
    ],
    "digits_75.png": [
        ("4", 1.000, (11.0, 52.0, 24.3, 76.9)),
        ("9", 1.000, (15.2, 13.4, 34.7, 41.3)),
        ("0", 1.000, (93.1, 119.8, 107.3, 137.2)),
        ("4", 0.999, (116.6, 116.7, 140.9, 157.3)),
        ("5", 0.997, (80.3, 38.2, 90.6, 55.9)),
        ("6", 0.983, (81.1, 3.3, 104.5, 35.1)),
    ],
}
# MMDetection's export runs the first stage's NMS over all levels at once, PyTorch level by level.
BOX_TOLERANCE, SCORE_TOLERANCE = 2.0, 0.05


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    """Return the output of `mmort demo` on the shipped images, and the sheet that it wrote."""
    output = tmp_path_factory.mktemp("demo") / "digits.png"
    code, out, err = run("demo", "--output", output)
    assert (code, err) == (0, "")
    return out, output


def tables(out):
    """Return {image: [(label, score, box), ...]} as the demo printed it."""
    found = {}
    for line in out.splitlines():
        if match := re.match(r"(\S+\.png), \d+ x \d+ pixels: (\d+) digits?$", line):
            found[match[1]] = rows = []
        elif re.match(r"  \d +\d\.\d+( +-?\d+\.\d){4}$", line):
            label, score, *box = line.split()
            rows.append((label, float(score), tuple(map(float, box))))
    return found


def test_demo_finds_what_mmdetection_finds(demo_run):
    found = tables(demo_run[0])
    assert found.keys() == MMDETECTION.keys()
    for image, expected in MMDETECTION.items():
        confident = [row for row in found[image] if row[1] > 0.5]
        assert sorted(row[0] for row in confident) == sorted(row[0] for row in expected), image
        for label, score, box in expected:
            assert any(
                label == found_label
                and abs(score - found_score) < SCORE_TOLERANCE
                and np.allclose(box, found_box, rtol=0, atol=BOX_TOLERANCE)
                for found_label, found_score, found_box in confident
            ), (image, label, box)


def test_demo_prints_which_custom_nodes_ran(demo_run):
    out = demo_run[0]
    assert re.search(r"^  MMCVRoiAlign +32 +\d+\.\d$", out, re.MULTILINE)  # 4 levels, boxes and masks, 4 images
    assert re.search(r"^  grid_sampler +4 +\d+\.\d$", out, re.MULTILINE)
    assert "NonMaxSuppression" not in out
    stages = dict(re.findall(r"^  ([a-z ]+?) +(\d+\.\d)", out.split("Where the time went")[1], re.MULTILINE))
    assert list(stages) == ["load the model", "read and preprocess", "run", "postprocess", "draw", "total"]
    parts = [float(value) for stage, value in stages.items() if stage != "total"]
    assert sum(parts) == pytest.approx(float(stages["total"]), abs=0.5)


def test_demo_sheet(demo_run):
    with Image.open(demo_run[1]) as image:
        assert (image.format, image.mode, image.size) == ("PNG", "RGB", (2216, 504))
        pixels = np.asarray(image)
    colours = drawing.class_colours(detector.CLASSES)
    for label in detector.CLASSES:  # all ten digits are in the images; a tag alone has 500 pixels and more
        colour = [int(colours[label][i : i + 2], 16) for i in (1, 3, 5)]
        assert (pixels == colour).all(axis=2).sum() > 500, label


def test_demo_score_threshold_is_exclusive(tmp_path):
    _, out, _ = run("demo", demo.IMAGES[2], "--output", tmp_path / "demo.png", "--score-threshold", "0.95")
    assert [row[0] for row in tables(out)["digits_63.png"]] == ["6", "7"]
    _, out, _ = run("demo", demo.IMAGES[2], "--output", tmp_path / "demo.png", "--score-threshold", "1")
    assert "0 digits" in out


def test_demo_arranges_images_of_many_sizes(tmp_path):
    sizes = {"dot": (1, 1), "wide": (2000, 1), "tall": (1, 2000), "small": (7, 5), "large": (3000, 2000)}
    for name, size in sizes.items():
        Image.new("RGB", size, "navy").save(tmp_path / f"{name}.png")
    code, out, err = run("demo", *(tmp_path / f"{name}.png" for name in sizes), "--output", tmp_path / "demo.png")
    assert (code, err) == (0, "")
    assert all(f"{name}.png, {width} x {height} pixels" in out for name, (width, height) in sizes.items())
    with Image.open(tmp_path / "demo.png") as image:
        image.load()
        assert image.height == 2 * (drawing.PANEL_HEIGHT + drawing.CAPTION) + drawing.MARGIN


def test_demo_prints_odd_file_names(tmp_path):
    path = tmp_path / "new\nline.png"
    try:
        shutil.copy(demo.IMAGES[0], path)
    except OSError:
        pytest.skip("the file system does not allow this name")
    code, out, _ = run("demo", path, "--output", tmp_path / "demo.png")
    assert code == 0
    assert "\nnew?line.png, 160 x 112 pixels" in out


def test_demo_refuses_files_that_are_not_images(tmp_path):
    output = tmp_path / "demo.png"
    text, cut, bomb = tmp_path / "text.png", tmp_path / "cut.png", tmp_path / "bomb.png"
    text.write_text("not a picture")
    cut.write_bytes(demo.IMAGES[0].read_bytes()[:5000])
    Image.new("1", (20000, 9000)).save(bomb)
    assert f"{text}: not an image in a format that Pillow reads" in refused("demo", text, "--output", output)
    assert f"{cut}: " in refused("demo", cut, "--output", output)
    assert f"{bomb}: Image size" in refused("demo", bomb, "--output", output)
    assert f"{tmp_path}: Is a directory" in refused("demo", tmp_path, "--output", output)
    absent = tmp_path / "absent.png"
    assert f"{absent}: No such file" in refused("demo", demo.IMAGES[0], absent, "--output", output)
    assert not output.exists()


def test_demo_never_overwrites_its_input(tmp_path):
    path = tmp_path / "demo.png"
    shutil.copy(demo.IMAGES[0], path)
    assert "is one of the images" in refused("demo", path, "--output", path)
    assert path.read_bytes() == demo.IMAGES[0].read_bytes()


def test_demo_output_directory_must_exist(tmp_path):
    output = tmp_path / "absent" / "demo.png"
    assert str(output) in refused("demo", demo.IMAGES[0], "--output", output)


def test_demo_without_library(monkeypatch, tmp_path):
    monkeypatch.setattr(mmort.ort, "_NAME", "absent.so")
    assert "WITH_ORT=1 pip install" in refused("demo", "--output", tmp_path / "demo.png")


@pytest.mark.parametrize("extra", ["PIL", "onnxruntime"])
def test_demo_without_an_extra(monkeypatch, tmp_path, extra):
    for name in [name for name in sys.modules if name.startswith("mmort.demo")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(mmort, "demo")
    monkeypatch.setitem(sys.modules, extra, None)
    line = refused("demo", "--output", tmp_path / "demo.png")
    assert line == f"mmort: error: mmort demo needs {extra}, which is not installed: pip install 'mmort[demo]'\n"
