"""`mmort predict`: what it prints and writes, resuming, and broken pictures."""

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

import mmort.predict
from mmort import Predictor
from mmort.cli import engines
from mmort.cli import predict as predict_command
from mmort.demo import CONFIG, IMAGES, MODEL
from mmort.predict import (
    AnnotatedImages,
    Detections,
    OnnxRuntime,
    PredictOptions,
    Record,
    Windows,
    list_images,
    read_image,
)
from tests.cli.running import misused, refused, run
from tests.predict import tiny_detector

NAMES = [path.name for path in IMAGES]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with four pictures in the folder `photos`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for path in IMAGES:
        shutil.copy(path, tmp_path / "photos")
    return tmp_path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A detector that finds the same object in every picture; lines differ in the pictures' sizes."""
    return tiny_detector.write(tmp_path_factory.mktemp("model") / "tiny.onnx")


def predict(model, *arguments):
    return run("predict", model, "--threads", 1, *arguments)


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_prints_a_line_for_each_picture(folder):
    code, out, err = predict(MODEL, "photos")
    assert (code, err) == (0, "")
    first = Predictor(MODEL, score_threshold=0.3)(IMAGES[0])
    lines = out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"photos/{name}" for name in NAMES]
    text = ", ".join(f"{name} {score:.2f}" for name, score in zip(first.names, first.scores, strict=True))
    assert lines[0] == f"photos/{NAMES[0]}: {text}"


def test_windows(folder, tiny):
    """The detector finds an object in the upper left quarter of each window."""
    height, width = read_image(IMAGES[0]).shape[:2]
    size = min(height, width) - 20
    code, out, err = predict(tiny, f"photos/{NAMES[0]}", "--window", size, "--overlap", 10, "--json")
    assert (code, err) == (0, "")
    assert len(json.loads(out)["detections"]) == len(Windows(size, 10).positions(height, width))
    message = misused("predict", tiny, "photos", "--window", size, "--engine", "ray")
    assert message == "mmort: error: predict: --window runs in this process only; leave out --engine ray\n"
    message = misused("predict", tiny, "photos", "--overlap", 10)
    assert message == "mmort: error: predict: --overlap needs --window, the size of the windows\n"
    message = misused("predict", tiny, "photos", "--window", 128, "--overlap", 128)
    assert message == "mmort: error: predict: --overlap must be less than --window, 128, got 128\n"
    message = misused("predict", tiny, "photos", "--window", 200)
    assert "--window 200 needs --overlap, how many pixels neighbours share: fewer than the window's" in message


@pytest.mark.parametrize("option", ["--out-dir", "--show-dir"])
def test_a_file_is_no_output_directory(folder, tiny, option):
    (folder / "file").touch()
    for path in ("file", "file/below"):
        assert refused("predict", tiny, "photos", option, path) == (
            "mmort: error: output directory must not be a file, got file\n"
        )


def test_writes_lines_and_pictures(folder):
    code, out, err = predict(MODEL, "photos", "--out-dir", "out/a", "--show-dir", "show/b", "--batch-size", 3)
    wrote = f"wrote out/a/detections.jsonl ({len(NAMES)} images)\nwrote show/b ({len(NAMES)} annotated images)\n"
    assert (code, out, err) == (0, wrote, "")
    lines = records(folder / "out/a/detections.jsonl")
    assert [line["image"] for line in lines] == [f"photos/{name}" for name in NAMES]
    expected = list(Predictor(OnnxRuntime(MODEL, threads=1), score_threshold=0.3).predict(IMAGES, 3))
    assert [
        {"image": line["image"], **detections.to_dict()} for line, detections in zip(lines, expected, strict=True)
    ] == lines
    assert sorted(os.listdir("show/b")) == NAMES
    for path in IMAGES:
        image, drawn = read_image(path), read_image(folder / "show/b" / path.name)
        assert image.shape == drawn.shape
        assert (image != drawn).any()


def test_json_on_stdout_equals_the_file(folder):
    code, out, _ = predict(MODEL, "photos", "--json", "--out-dir", "out", "--score-thr", 0.9)
    assert code == 0
    assert out == (folder / "out/detections.jsonl").read_text()
    scores = [entry["score"] for line in out.splitlines() for entry in json.loads(line)["detections"]]
    assert 0.9 <= min(scores) < max(scores)


# ---- resuming --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_left", [0.0, 0.3, 0.999])
def test_half_a_line_is_dropped_and_nothing_repeated(tiny, folder, bytes_left):
    predict(tiny, "photos", "--out-dir", "out")
    path = folder / "out/detections.jsonl"
    whole = path.read_text()
    first, second, *_ = whole.splitlines(keepends=True)
    path.write_text(first + second[: int(bytes_left * len(second))])
    before = os.stat(path).st_ino
    assert predict(tiny, "photos", "--out-dir", "out", "--json") == (0, whole[len(first) :], "")
    assert path.read_text() == whole
    assert os.stat(path).st_ino == before
    assert predict(tiny, "photos", "--out-dir", "out", "--json") == (0, "", "")
    assert path.read_text() == whole


def test_a_killed_run_continues(tiny, folder):
    """The process ends without any clean-up while it works on the third of twelve pictures."""
    for number in range(2):
        for path in IMAGES:
            shutil.copy(path, folder / "photos" / f"{number}{path.name}")
    code = f"""if True:
        import os, mmort.cli, mmort.predict
        add = mmort.predict.Record.add
        def dying(self, image, detections):
            if len(self) == 2:
                self._file.append(b"{{")
                os._exit(9)
            add(self, image, detections)
        mmort.predict.Record.add = dying
        mmort.cli.main(["predict", {str(tiny)!r}, "photos", "--out-dir", "out", "--show-dir", "show"])"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    assert (folder / "out/detections.jsonl").read_text().count("\n") == 2
    assert predict(tiny, "photos", "--out-dir", "out", "--show-dir", "show")[0] == 0
    images = [line["image"] for line in records(folder / "out/detections.jsonl")]
    assert images == [str(path) for path in list_images("photos")]
    assert len(os.listdir("show")) == len(images) == 12


def test_missing_annotated_pictures_are_drawn_without_repeating_lines(tiny, folder):
    predict(tiny, "photos", "--out-dir", "out")
    lines = (folder / "out/detections.jsonl").read_text()
    wrote = f"wrote out/detections.jsonl ({len(NAMES)} images, {len(NAMES)} of them by an earlier run)\n"
    wrote += f"wrote show ({len(NAMES)} annotated images)\n"
    assert predict(tiny, "photos", "--out-dir", "out", "--show-dir", "show") == (0, wrote, "")
    assert sorted(os.listdir("show")) == NAMES
    assert (folder / "out/detections.jsonl").read_text() == lines


def test_results_of_different_runs_are_not_mixed(tiny, folder):
    predict(tiny, "photos", "--out-dir", "out")
    message = refused("predict", tiny, "photos", "--out-dir", "out", "--score-thr", 0.5)
    assert "detections.jsonl is of a run with another score threshold; give another directory, or delete" in message
    os.remove("out/run.json")
    for text in (None, "", "[]", '{"model": "', "[" * 100_000, "{}"):
        if text is not None:
            (folder / "out/run.json").write_text(text)
        message = refused("predict", tiny, "photos", "--out-dir", "out")
        assert "run.json cannot be read, so that the settings behind out/detections.jsonl are unknown" in message


def test_a_record_that_is_none_is_left_alone(tmp_path):
    Record(tmp_path, {}).close()
    for text in ("1\n", "{}\n", "\xff\n", '{"image": "a"}\n\n{}\n'):
        (tmp_path / "detections.jsonl").write_text(text, encoding="latin-1")
        with pytest.raises(ValueError, match=r"line [12]: not an image's results; delete the file"):
            Record(tmp_path, {})
        assert (tmp_path / "detections.jsonl").read_text(encoding="latin-1") == text


def test_one_run_at_a_time_has_a_record(tiny, folder):
    with contextlib.closing(Record("out", {})):
        assert refused("predict", tiny, "photos", "--out-dir", "out") == (
            "mmort: error: out/detections.jsonl: another run is writing to it; wait for its end, or give another "
            "directory\n"
        )
    assert (folder / "out/detections.jsonl").read_bytes() == b""
    assert predict(tiny, "photos", "--out-dir", "out")[0] == 0


def test_an_empty_record_is_removed_before_another_run_can_have_it(tmp_path, monkeypatch):
    unlink, refusals = Path.unlink, []

    def racing(path, **options):
        with pytest.raises(ValueError, match="another run is writing to it"):
            Record(tmp_path / "new", {})
        refusals.append(path.name)
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", racing)
    with pytest.raises(KeyboardInterrupt), Record(tmp_path / "new", {}):
        raise KeyboardInterrupt
    assert (refusals, os.listdir(tmp_path)) == (["run.json", "detections.jsonl"], [])


def test_a_record_that_another_run_removed_is_made_again(tmp_path, monkeypatch):
    """Between opening the file and having its lock."""
    flock, removals = fcntl.flock, iter([True])

    def late(file, operation):
        if next(removals, False):
            (tmp_path / "detections.jsonl").unlink()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with Record(tmp_path, {}) as record:
        record.add("a.png", none(4, 5))
    assert [line["image"] for line in records(record.path)] == ["a.png"]


def test_an_image_is_recorded_once_by_whatever_path(tiny, folder, monkeypatch):
    (folder / "linked").symlink_to("photos")
    assert predict(tiny, "photos", "photos/../photos", folder / "photos", "linked", "--out-dir", "out")[0] == 0
    before = (folder / "out/detections.jsonl").read_bytes()
    assert [line["image"] for line in records(folder / "out/detections.jsonl")] == [f"photos/{name}" for name in NAMES]
    for images in (folder / "photos", "linked", f"photos/../photos/{NAMES[0]}"):
        assert predict(tiny, images, "--out-dir", "out")[0] == 0
    monkeypatch.chdir(folder / "photos")  # where relative paths are others
    assert predict(tiny, ".", "--out-dir", "../out")[0] == 0
    assert (folder / "out/detections.jsonl").read_bytes() == before
    shutil.copy(NAMES[0], "a.png")
    assert predict(tiny, ".", "--out-dir", "../out")[0] == 0
    assert records(folder / "out/detections.jsonl")[-1]["image"] == str(folder / "photos/a.png")
    monkeypatch.chdir(folder.parent)
    folder.rename(folder.with_name("moved"))
    monkeypatch.chdir(folder.with_name("moved"))
    count = len(records(folder.with_name("moved") / "out/detections.jsonl"))
    assert predict(tiny, "photos", "--out-dir", "out")[0] == 0
    # Only the absolute path leads elsewhere now.
    assert len(records(folder.with_name("moved") / "out/detections.jsonl")) == count + 1


def test_a_run_killed_before_its_first_line_continues(tiny, folder):
    (folder / "out").mkdir()
    for settings, lines in (("", ""), ('{"mod', ""), ("", '{"image": "pho')):
        (folder / "out/run.json").write_text(settings)
        (folder / "out/detections.jsonl").write_text(lines)
        assert predict(tiny, "photos", "--out-dir", "out")[0] == 0
        assert len(records(folder / "out/detections.jsonl")) == len(NAMES)


def test_links_and_devices_are_no_records(tiny, folder):
    (folder / "out").mkdir()
    (folder / "elsewhere").write_text("mine")
    for name in ("detections.jsonl", "run.json"):
        for target in ("../elsewhere", "/dev/full"):
            (folder / "out" / name).symlink_to(target)
            assert "is a link; remove it" in refused("predict", tiny, "photos", "--out-dir", "out")
            (folder / "out" / name).unlink()
    (folder / "out/detections.jsonl").unlink()
    os.mkfifo(folder / "out/detections.jsonl")
    assert "must be a regular file" in refused("predict", tiny, "photos", "--out-dir", "out")
    assert (folder / "elsewhere").read_text() == "mine"


def test_a_line_that_could_not_be_written_is_removed(tmp_path, monkeypatch):
    record = Record(tmp_path, {})
    record.add("a.png", none(4, 5))
    whole = record.path.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))
    with pytest.raises(OSError, match=r"only 7 of \d+ bytes of a line could be written"):
        record.add("b.png", none(4, 5))
    monkeypatch.undo()
    assert (record.path.read_bytes(), "b.png" in record) == (whole, False)
    record.add("b.png", none(4, 5))
    record.close()
    assert [line["image"] for line in records(record.path)] == ["a.png", "b.png"]


# ---- broken pictures -------------------------------------------------------------------------------------------


def test_broken_pictures_are_named_and_skipped(tiny, folder):
    (folder / "photos/a.png").write_bytes(b"?")
    code, out, err = predict(tiny, "photos", "none.png", "--out-dir", "out", "--batch-size", 2)
    assert code == 1
    assert out == f"wrote out/detections.jsonl ({len(NAMES)} images)\n"
    assert err.splitlines() == [
        "mmort: photos/a.png: not an image in a format that OpenCV reads, or cut short",
        "mmort: none.png: no such file or directory",
        "mmort: error: 2 of 6 images could not be processed",
    ]
    assert [line["image"] for line in records(folder / "out/detections.jsonl")] == [f"photos/{name}" for name in NAMES]
    shutil.copy(IMAGES[0], folder / "photos/a.png")  # repaired
    os.remove("photos/" + NAMES[0])
    assert predict(tiny, "photos", "--out-dir", "out", "--batch-size", 2)[0] == 0
    assert records(folder / "out/detections.jsonl")[-1]["image"] == "photos/a.png"


def test_pictures_that_cannot_be_drawn_are_skipped(tiny, folder, monkeypatch):
    """A name is too long with .png after it, and a picture has gone before it is drawn."""
    long = "b" * 250 + ".jpg2"
    shutil.copy(IMAGES[0], folder / "photos" / long)
    shutil.copy(IMAGES[0], folder / "photos" / "c.png")
    draw = AnnotatedImages.write

    def gone(self, image, detections):
        if image.name == "c.png":
            image.unlink()
        draw(self, image, detections)

    monkeypatch.setattr(AnnotatedImages, "write", gone)
    code, out, err = predict(tiny, "photos", f"photos/{long}", "--out-dir", "out", "--show-dir", "show")
    wrote = f"wrote out/detections.jsonl ({len(NAMES) + 2} images)\nwrote show ({len(NAMES)} annotated images)\n"
    assert (code, out) == (1, wrote)
    assert [("c.png" in line, "file name too long" in line) for line in err.splitlines()] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert sorted(os.listdir("show")) == NAMES


def test_names_that_are_not_utf8(tiny, folder):
    os.rename(folder / "photos" / NAMES[0], os.fsencode(folder) + b"/photos/\xff\n\x1b.png")
    command = [sys.executable, "-m", "mmort", "predict", tiny, "photos", "--threads", "1"]
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    lines = subprocess.run(command, capture_output=True, env=strict, check=True).stdout.splitlines()
    assert lines[-1] == rb"photos/\udcff\n\x1b.png: b 0.50"
    for _ in range(2):
        assert predict(tiny, "photos", "--out-dir", "out")[0] == 0
    text = (folder / "out/detections.jsonl").read_text(encoding="ascii")
    assert text.count("\n") == len(NAMES)
    assert r"photos/\\xff\n\u001b.png" in text


@pytest.mark.parametrize("option", [(), ("--window", 300)])
def test_pipes_and_devices_are_no_pictures(tiny, folder, option):
    os.mkfifo(folder / "photos/pipe.png")
    code, _, err = predict(tiny, "photos/pipe.png", "/dev/zero", *option)
    assert (code, err.count("must be a regular file, got a pipe or a device")) == (1, 2)


# ---- annotated pictures ----------------------------------------------------------------------------------------


def none(height, width):
    return Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0), (), (height, width))


def test_annotated_pictures_have_the_names_of_the_pictures(tmp_path):
    names = ["a/1.JPG", "a/1.png", "a/sub/1.png", "b/1.pgm", "b/1.webp", "b/unnamed"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        suffix = name[name.index(".") :] if "." in name else ".png"
        pixels = np.zeros((4, 5), np.uint8) if suffix == ".pgm" else np.zeros((4, 5, 3), np.uint8)
        (tmp_path / name).write_bytes(cv2.imencode(suffix, pixels)[1])
    images = [tmp_path / name for name in names]
    annotated = AnnotatedImages(tmp_path / "show", images)
    assert (len(annotated), images[0] in annotated) == (0, False)
    for path in images:
        annotated.write(path, none(4, 5))
    for drawn in (annotated, AnnotatedImages(tmp_path / "show", images)):  # the next run counts what this one wrote
        assert (len(drawn), images[0] in drawn) == (6, True)
    written = [path.relative_to(tmp_path / "show").as_posix() for path in (tmp_path / "show").rglob("*.*")]
    assert sorted(written) == ["a/1.JPG", "a/1.png", "a/sub/1.png", "b/1.pgm.png", "b/1.webp", "b/unnamed.png"]
    assert read_image(tmp_path / "show/b/1.pgm.png").shape == (4, 5, 3)


def test_pictures_are_not_replaced(tiny, folder):
    assert f"the annotated image of {folder}/photos/{NAMES[0]} would replace it" in refused(
        "predict", tiny, "photos", "--show-dir", "../" + folder.name + "/photos"
    )


def test_annotated_pictures_of_another_run_are_not_replaced(tiny, folder):
    (folder / "show").mkdir()
    drawn = folder / "show" / NAMES[1]
    drawn.write_text("mine")
    message = f"mmort: error: annotated image exists: show/{NAMES[1]}; --force replaces it\n"
    for output in ([], ["-o", "out"]):
        assert refused("predict", tiny, "photos", *output, "--show-dir", "show") == message
        assert (os.listdir("show"), drawn.read_text()) == ([NAMES[1]], "mine")
    with pytest.raises(FileExistsError, match=r"; force=True replaces it$"):
        mmort.predict.predict(Predictor(tiny), "photos", PredictOptions(show_dir="show"))
    assert predict(tiny, "photos", "-o", "out", "--show-dir", "show", "--force")[0] == 0
    assert read_image(drawn).shape == read_image(IMAGES[1]).shape
    drawn.write_text("mine")  # the record says whose it is
    wrote = f"wrote show ({len(NAMES)} annotated images, {len(NAMES)} of them by an earlier run)\n"
    assert predict(tiny, "photos", "-o", "out", "--show-dir", "show")[1].endswith(wrote)
    assert drawn.read_text() == "mine"
    out = predict(tiny, "photos", "-o", "out", "--show-dir", "show", "--force")[1]
    assert out.endswith(f"wrote show ({len(NAMES)} annotated images)\n")
    assert read_image(drawn).shape == read_image(IMAGES[1]).shape
    assert len(records(folder / "out/detections.jsonl")) == len(NAMES)


@pytest.mark.filterwarnings("always::mmort.predict.image_files.LeftOutWarning")
def test_annotated_pictures_stay_in_their_directory(tiny, folder, monkeypatch):
    (folder / "other").mkdir()
    (folder / "photos/other").mkdir()
    shutil.copy(folder / "photos" / NAMES[0], folder / "other/b.png")
    (folder / "photos/other/b.png").write_text("mine")
    monkeypatch.chdir(folder / "photos")
    code, _, err = predict(tiny, ".", "../other", "--show-dir", "out")
    assert (code, err.count("left out other")) == (0, 1)
    assert (folder / "photos/other/b.png").read_text() == "mine"
    written = [path.relative_to(folder / "photos/out").as_posix() for path in (folder / "photos/out").rglob("*.png")]
    assert sorted(written) == ["other/b.png", *(f"photos/{name}" for name in NAMES)]


def test_links_in_the_directory_are_not_followed(tiny, folder):
    (folder / "show").mkdir()
    (folder / "victim.png").write_text("mine")
    for name in (f".unfinished-{NAMES[0]}", NAMES[0]):
        (folder / "show" / name).symlink_to("../victim.png")
    assert f"show/{NAMES[0]} is a link; remove it" in refused("predict", tiny, "photos", "--show-dir", "show")
    (folder / "show" / NAMES[0]).unlink()
    assert predict(tiny, "photos", "--show-dir", "show")[0] == 0
    (folder / "show2").mkdir()
    (folder / "show2/photos").symlink_to("../photos")
    shutil.copy(IMAGES[0], folder / "a.png")
    assert "show2/photos is a link" in refused("predict", tiny, "photos", "a.png", "--show-dir", "show2")
    assert (folder / "victim.png").read_text() == "mine"


def test_annotated_pictures_of_the_same_name(folder):
    images = [folder / "a.pgm", folder / "a.pgm.png"]
    with pytest.raises(ValueError, match=r"of .*/a\.pgm and .*/a\.pgm\.png would both be show/a\.pgm\.png"):
        AnnotatedImages("show", images)


# ---- files without metadata, and wrong arguments ---------------------------------------------------------------


def test_a_config_without_class_names_leaves_the_files(folder):
    (folder / "config.py").write_text(f"_base_ = {str(CONFIG)!r}\ndata = dict(test=dict(classes=None))\n")
    assert predict(MODEL, "photos", "--config", "config.py") == predict(MODEL, "photos")


def test_files_without_metadata_take_a_config(folder):
    model = tiny_detector.write(folder / "old.onnx", metadata={})
    message = "has no preprocessing in its metadata; pass --config CONFIG, which has it, or adopt the file: mmort adopt"
    assert message in refused("predict", model, "photos")
    code, out, _ = predict(model, "photos", "--config", CONFIG)
    assert code == 0
    assert out == "".join(f"photos/{name}: one 0.50\n" for name in NAMES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.onnx", IMAGES[0]], "model file does not exist: none.onnx"),
        ([MODEL, "*.gif"], "no image matches *.gif"),
        ([MODEL, IMAGES[0], "--threads", str(2**31)], "threads must be at most 1024, got 2147483648"),
        ([MODEL, IMAGES[0], "--parallel", "1000000"], "parallel must be at most 1024, got 1000000"),
        ([MODEL, IMAGES[0], "--out-dir", ""], "output directory must have a name, got ''"),
        ([MODEL, IMAGES[0], "--show-dir", ""], "output directory must have a name, got ''"),
        ([MODEL, ""], "no such file, folder or pattern: ''"),
        ([MODEL, IMAGES[0], "--provider", "GPUProvider"], "provider GPUProvider is not available in this ONNX Runtime"),
        ([IMAGES[0], IMAGES[0]], "model must be an ONNX file, before images and data sets, got the image"),
    ],
)
def test_wrong_arguments(arguments, message):
    assert message in refused("predict", *arguments)


def test_a_file_is_no_folder_for_results(tmp_path):
    file = tmp_path / "a.json"
    message = misused("predict", MODEL, IMAGES[0], "--output", file)
    assert message == f"mmort: error: --output must be a folder, got {file}; a file: --json > {file}\n"
    message = misused("predict", MODEL, IMAGES[0], "--show-dir", "a.PNG")
    assert message == "mmort: error: --show-dir must be a folder, got a.PNG\n"
    (tmp_path / "a.png").mkdir()
    assert predict(MODEL, IMAGES[0], "--show-dir", tmp_path / "a.png")[0] == 0


@pytest.mark.parametrize(
    ("options", "parallel"),
    [
        (["--threads", "2"], 2),
        (["--threads", "1"], 1),
        (["--threads", "4", "--parallel", "3"], 3),
        (["--threads", "4", "--engine", "ray"], 2),
        (["--engine", "ray"], 1),
        (["--threads", "2", "--provider", "CPUExecutionProvider"], 1),
    ],
)
def test_two_batches_run_at_a_time_by_default(options, parallel):
    parser = argparse.ArgumentParser()
    predict_command.add_arguments(parser)
    arguments = parser.parse_args([str(MODEL), "photos", *options])
    assert engines.load(arguments, arguments.providers).parallel == parallel


def test_missing_libraries_are_named(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert "mmort predict needs tqdm: pip install 'mmort[predict]'" in refused("predict", tiny, IMAGES[0])
