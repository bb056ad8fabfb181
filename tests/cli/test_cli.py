"""The command line: what `mmort info` and `mmort demo` print, write and refuse."""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import mmort
import mmort.cli
import mmort.ort

pytest.importorskip("onnxruntime")

from mmort import demo
from mmort.demo import detector, drawing

# What MMDetection itself, in PyTorch, finds on the shipped images with a score above 0.5, best first.
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


def run(*arguments):
    """Return exit code, stdout and stderr of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = mmort.cli.main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def refused(*arguments):
    """Run a command that must fail; return the one line that it says."""
    code, _, err = run(*arguments)
    assert code == 1
    assert err.startswith("mmort: error: ")
    assert err.count("\n") == 1
    return err


# --- info


def test_info_lists_versions_and_operators():
    code, out, err = run("info")
    assert (code, err) == (0, "")
    assert re.search(rf"^mmort +{re.escape(mmort.__version__)}$", out, re.MULTILINE)
    assert re.search(rf"^numpy +{re.escape(np.__version__)}$", out, re.MULTILINE)
    assert re.search(rf"^library +{re.escape(mmort.ort.library_path())}$", out, re.MULTILINE)
    assert re.search(rf"^threads +{mmort.get_num_threads()}$", out, re.MULTILINE)
    for operator in mmort.ort.operators():
        row = rf"^{operator['domain']} +{operator['type']} +{operator['kernel']} +{operator['inputs'][0]['name']}"
        assert re.search(row, out, re.MULTILINE), row
    attributes = "iou_threshold=0.3, sigma=0.5, min_score=0.001, method=1, offset=0"
    assert f"boxes, scores; {attributes}" in " ".join(out.split())  # the last column may be wrapped
    for function in mmort.ops.__all__:
        assert re.search(rf"\b{function}\b", out), function
    assert max(map(len, out.splitlines())) <= 120


def test_info_json():
    code, out, _ = run("info", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["operators"] == mmort.ort.operators()
    assert facts["library"] == mmort.ort.library_path()
    assert facts["library_error"] is None
    assert facts["simd"] == mmort.ort.describe()["simd"]


def test_info_without_library(monkeypatch):
    monkeypatch.setattr(mmort.ort, "_NAME", "absent.so")
    code, out, err = run("info")
    assert (code, err) == (0, "")
    assert "WITH_ORT=1 pip install" in re.sub(r"\s+", " ", out)
    assert "MMCVCornerPool" not in out
    assert "corner_pool" in out
    facts = json.loads(run("info", "--json")[1])
    assert facts["library"] is None
    assert "absent.so" in facts["library_error"]


def test_info_without_onnxruntime(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, out, _ = run("info")
    assert code == 0
    assert re.search(r"^onnxruntime +not installed$", out, re.MULTILINE)
    assert json.loads(run("info", "--json")[1])["onnxruntime"] is None


def test_module_runs_and_extras_load_late():
    code = (
        "import runpy, sys; sys.argv = ['mmort', 'info', '--help']\n"
        "try: runpy.run_module('mmort', run_name='__main__')\n"
        "finally: print({'PIL', 'onnxruntime', 'torch', 'onnx'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--json" in result.stdout
    assert result.stdout.endswith("set()\n")


def test_a_reader_may_stop_reading():
    command = [sys.executable, "-m", "mmort", "info"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=buffered) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["info", "extra"],
        ["demo", "--score-threshold", "1.5"],
        ["demo", "--score-threshold", "nan"],
        ["demo", "--score-threshold", "much"],
        ["demo", "--output", "demo.jpg"],
    ],
)
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        mmort.cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: mmort" in capsys.readouterr().err


# --- demo, end to end


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    """Return the output of `mmort demo` on the shipped images, and the picture it wrote."""
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
                label == other[0]
                and abs(score - other[1]) < SCORE_TOLERANCE
                and np.allclose(box, other[2], rtol=0, atol=BOX_TOLERANCE)
                for other in confident
            ), (image, label, box)


def test_demo_tells_which_custom_nodes_ran(demo_run):
    out = demo_run[0]
    assert re.search(r"^  MMCVRoiAlign +32 +\d+\.\d$", out, re.MULTILINE)  # 4 levels, boxes and masks, 4 images
    assert re.search(r"^  grid_sampler +4 +\d+\.\d$", out, re.MULTILINE)
    assert "NonMaxSuppression" not in out
    stages = dict(re.findall(r"^  ([a-z ]+?) +(\d+\.\d)", out.split("Where the time went")[1], re.MULTILINE))
    assert list(stages) == ["load the model", "read and preprocess", "run", "postprocess", "draw", "total"]
    parts = [float(value) for stage, value in stages.items() if stage != "total"]
    assert sum(parts) == pytest.approx(float(stages["total"]), abs=0.5)


def test_demo_picture(demo_run):
    with Image.open(demo_run[1]) as image:
        assert (image.format, image.mode, image.size) == ("PNG", "RGB", (2216, 504))
        pixels = np.asarray(image)
    for label in detector.CLASSES:  # all ten digits are in the images; a tag alone has 500 pixels and more
        colour = [int(drawing.COLOURS[label][i : i + 2], 16) for i in (1, 3, 5)]
        assert (pixels == colour).all(axis=2).sum() > 500, label


def test_demo_score_threshold_is_exclusive(tmp_path):
    _, out, _ = run("demo", demo.IMAGES[2], "--output", tmp_path / "demo.png", "--score-threshold", "0.95")
    assert [row[0] for row in tables(out)["digits_63.png"]] == ["6", "7"]
    _, out, _ = run("demo", demo.IMAGES[2], "--output", tmp_path / "demo.png", "--score-threshold", "1")
    assert "0 digits" in out


def test_demo_many_sizes_in_one_picture(tmp_path):
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
        pytest.skip("the file system takes no such name")
    code, out, _ = run("demo", path, "--output", tmp_path / "demo.png")
    assert code == 0
    assert "\nnew?line.png, 160 x 112 pixels" in out


# --- demo, refusals


def test_demo_refuses_what_is_no_image(tmp_path):
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


def test_demo_output_folder_must_exist(tmp_path):
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


# --- demo, its parts


def gradient():
    """Return an RGB image in which no two pixels of a row, and no two rows, are the same."""
    row, column = np.mgrid[0:48, 0:64]
    return Image.fromarray(np.stack([row * 5, column * 4, row + column], axis=-1).astype(np.uint8))


def read_back(tmp_path, image, **options):
    path = tmp_path / "image.png"
    image.save(path, **options)
    read = detector.read_image(path)
    assert read.mode == "RGB"
    return np.asarray(read).astype(int)


def test_read_image_modes(tmp_path):
    image = gradient()
    colours, grey = np.asarray(image).astype(int), np.asarray(image.convert("L")).astype(int)
    assert (read_back(tmp_path, image) == colours).all()
    assert (read_back(tmp_path, image.convert("L")) == grey[..., None]).all()
    deep = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    assert (read_back(tmp_path, deep) == grey[..., None]).all()


def test_read_image_puts_transparency_on_white(tmp_path):
    image = gradient()
    colours = np.asarray(image).astype(int)
    for alpha in (0, 128, 255):
        read = read_back(tmp_path, Image.merge("RGBA", (*image.split(), Image.new("L", image.size, alpha))))
        np.testing.assert_allclose(read, 255 + (colours - 255) * alpha / 255, rtol=0, atol=1)
    palette = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)).convert("P")
    palette.putpalette([0, 0, 0] * 256)
    read = read_back(tmp_path, palette, transparency=7)
    assert (read == 255).all(axis=2).sum() == 1
    assert (read[0, 7] == 255).all()


def test_read_image_turns_it_upright(tmp_path):
    image, exif = gradient(), Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90 degrees clockwise to show
    read = read_back(tmp_path, image.transpose(Image.Transpose.ROTATE_90), exif=exif)
    assert (read == np.asarray(image)).all()


def test_preprocess_is_the_test_pipeline():
    for size, network_size, padded in (
        ((192, 112), (208, 121), (224, 128)),
        ((192, 128), (208, 139), (224, 160)),
        ((128, 160), (160, 200), (160, 224)),
        ((208, 160), (208, 160), (224, 160)),
        ((4160, 20), (208, 1), (224, 32)),
    ):
        tensor, inner = detector.preprocess(Image.new("RGB", size, (10, 100, 200)))
        assert inner == network_size
        assert tensor.shape == (1, 3, padded[1], padded[0])
        assert tensor.dtype == np.float32
        colour = [(10 - 123.675) / 58.395, (100 - 116.28) / 57.12, (200 - 103.53) / 57.375]
        inside = tensor[0, :, : inner[1], : inner[0]]
        np.testing.assert_allclose(inside, np.broadcast_to(np.reshape(colour, (3, 1, 1)), inside.shape), rtol=1e-5)
        assert not tensor[0, :, inner[1] :].any()
        assert not tensor[0, :, :, inner[0] :].any()


def test_postprocess_returns_to_the_original_pixels():
    # the image is half of the network's input, which has 200 x 100 pixels and padding to 224 x 128
    dets = np.array(
        [[20, 10, 60, 50, 0.8], [10, 10, 50, 50, 0.3], [202, 0, 222, 50, 0.7], [190, 90, 220, 120, 0.9]], np.float32
    )
    masks = np.zeros((4, 128, 224), np.float32)
    masks[0, 20:40, 30:60] = 1
    masks[3, 90:, 190:] = 1
    found = detector.postprocess(dets, np.array([7, 1, 2, 5]), masks, (200, 100), (100, 50), 0.3)
    assert [(one.label, round(one.score, 4), one.box) for one in found] == [
        ("5", 0.9, (95, 45, 100, 50)),
        ("7", 0.8, (10, 5, 30, 25)),
    ]
    assert found[0].mask.all()
    assert found[0].mask.shape == (5, 5)
    expected = np.zeros((20, 20), bool)
    expected[5:15, 5:20] = True  # rows 20:40 are rows 10:20 of the image, and the box begins at row 5
    assert (found[1].mask == expected).all()


def test_postprocess_mask_covers_every_pixel_the_box_touches():
    masks = np.ones((1, 32, 32), np.float32)
    dets = np.array([[1.5, 2.25, 3.25, 2.75, 1]], np.float32)
    (one,) = detector.postprocess(dets, np.array([0]), masks, (32, 32), (32, 32), 0.5)
    assert one.mask.shape == (1, 3)  # columns 1 to 3, row 2


def test_postprocess_nothing_found():
    empty = np.zeros((0, 5), np.float32), np.zeros(0, np.int64), np.zeros((0, 32, 32), np.float32)
    assert detector.postprocess(*empty, (32, 32), (32, 32), 0.5) == []


def test_annotate_draws_mask_box_and_tag():
    mask = np.zeros((50, 60), bool)
    mask[:, :30] = True
    one = detector.Detection("3", 0.75, (20.0, 40.0, 80.0, 90.0), mask)
    panel = np.asarray(drawing.annotate(Image.new("RGB", (100, 100), "black"), [one])).astype(int)
    scale = drawing.PANEL_HEIGHT / 100
    assert panel.shape == (drawing.PANEL_HEIGHT, drawing.PANEL_HEIGHT, 3)
    colour = np.array([int(drawing.COLOURS["3"][i : i + 2], 16) for i in (1, 3, 5)])
    row, middle = round(65 * scale), round(50 * scale)
    np.testing.assert_allclose(panel[row, round(35 * scale)], colour * drawing.MASK_OPACITY, atol=2)
    assert (panel[row, middle - 4 : middle + 4].max(axis=0) > 0.7 * colour).all()  # the mask's outline
    assert not panel[row, round(65 * scale)].any()
    assert (panel[row, [round(20 * scale), round(80 * scale)]] == colour).all()
    assert (panel[: round(40 * scale)] == colour).all(axis=2).sum() > 500  # the tag, above the box


def test_annotate_tags_keep_apart():
    mask = np.ones((20, 30), bool)
    boxes = [detector.Detection(label, 0.9, (40.0, 40.0, 70.0, 60.0), mask) for label in "0123"]
    panel = np.asarray(drawing.annotate(Image.new("RGB", (100, 100), "black"), boxes))
    for label in "0123":
        colour = [int(drawing.COLOURS[label][i : i + 2], 16) for i in (1, 3, 5)]
        assert (panel == colour).all(axis=2).sum() > 500, label
