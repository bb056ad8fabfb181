"""``mmort parity``: export, comparison on the data set, table, report, exit code."""

import re
import shutil

import numpy as np
import onnx
import pytest

import mmort.detect.export
from mmort import demo
from mmort.cli import main
from mmort.cli.parity import _named
from tests import old_export
from tests.cli import voc
from tests.cli.running import misused, refused, run

DATA = "--ann", demo.ANNOTATIONS, "--img-dir", demo.IMAGES[0].parent


@pytest.fixture
def exported(monkeypatch):
    """The calls of the exporter, which is slow: the shipped file is copied instead."""
    calls = []

    def export_network(network, config, output_file, options, *, progress):
        calls.append((network, config, options))
        shutil.copyfile(demo.MODEL, output_file)
        progress("exporting")
        progress(f"wrote {output_file}, 1.0 MB")

    monkeypatch.setattr(mmort.detect.export, "export_network", export_network)
    return calls


def test_the_exported_file_equals_torch(exported, tmp_path):
    report, file = tmp_path / "report.html", tmp_path / "kept.onnx"
    overrides = "model.test_cfg.rcnn.score_thr=0.05"
    arguments = *DATA, "--batch-size", 2, "--report", report, "--output-file", file, "--cfg-options", overrides
    code, out, _ = run("parity", demo.CONFIG, demo.CHECKPOINT, *arguments)
    assert code == 0, out
    lines = out.splitlines()
    assert lines[:2] == ["exporting", f"wrote {file}, 1.0 MB"]
    assert lines[2].split() == ["torch", "ONNX", "difference"]
    assert {line.split()[0] for line in lines if "mAP" in line.split()[0]} >= {"bbox_mAP", "segm_mAP"}
    assert lines[-3].startswith("ONNX equals torch: bbox_mAP is 0.")
    assert lines[-2:] == [f"wrote {file}", f"wrote {report}"]
    text = report.read_text(encoding="utf-8")
    for fact in ("Mask R-CNN, checkpoint.pth, on 4 images", "No image differs", overrides, "onnxruntime 1."):
        assert fact in text
    assert file.read_bytes() == demo.MODEL.read_bytes()
    ((network, config, options),) = exported
    assert options == mmort.detect.export.ExportOptions()
    thresholds = network.detector.roi_head.test_cfg
    assert config["model"]["test_cfg"]["rcnn"]["score_thr"] == thresholds.score_thr == 0.05


def test_another_file_differs(exported, tmp_path):
    report = tmp_path / "report.html"
    arguments = *DATA, "--eval", "bbox", "--against", old_export.MODEL, "--report", report
    code, out, err = run("parity", demo.CONFIG, demo.CHECKPOINT, *arguments)
    assert code == 1
    assert err == "mmort: error: these differ from torch: mask_rcnn.onnx\n"
    assert "\nONNX equals torch: " in out
    assert "\nmask_rcnn.onnx differs from torch: " in out
    assert "segm" not in out
    assert report.read_text(encoding="utf-8").count("<figure>") == 8


def test_voc(exported, tmp_path):
    """With the batch size of the config, which is 4."""
    data = voc.write(tmp_path)
    options = "--cfg-options", "data.test.samples_per_gpu=4"
    code, out, _ = run("parity", demo.CONFIG, demo.CHECKPOINT, *data, *options, "--report", tmp_path / "report.html")
    assert code == 0, out
    assert out.splitlines()[0] == "exporting"  # the file that was written is deleted
    assert out.splitlines()[2].split() == ["mAP", *["1.0000"] * 2, "0.0000"]
    assert "ONNX equals torch: mAP is 1.0000, and no metric differs. " in out
    assert "<dt>Batch size</dt><dd>4</dd>" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("data", [(demo.IMAGES[0].parent,), DATA])
def test_two_files(data, tmp_path):
    other = tmp_path / "other.onnx"
    shutil.copyfile(demo.MODEL, other)
    report = tmp_path / "report.html"
    code, out, _ = run("parity", demo.MODEL, other, *data, "--report", report)
    assert code == 0, out
    counts = [line.split() for line in out.splitlines() if line.startswith("detections")]
    assert counts == [["detections", "66", "66", "66", "equal"]]
    assert ("bbox_mAP" in out) == ("--ann" in data)
    assert "other.onnx equals mask_rcnn.onnx: " in out
    text = report.read_text(encoding="utf-8")
    assert "mask_rcnn.onnx, on 4 images" in text
    assert "torch" not in text
    again = "parity", demo.MODEL, other, demo.IMAGES[0], "--report", report
    assert f"output file exists: {report}; --force replaces it" in refused(*again)
    assert run(*again, "--force")[0] == 0
    assert "on 1 image" in report.read_text(encoding="utf-8")


def test_a_file_is_not_compared_with_itself():
    error = misused("parity", demo.MODEL, demo.MODEL, demo.IMAGES[0])
    assert f"parity compares different files, got {demo.MODEL} twice" in error


def test_two_files_that_differ(tmp_path):
    model = onnx.load(demo.MODEL)
    (weights,) = [tensor for tensor in model.graph.initializer if tensor.name.endswith("bbox_head.fc_cls.bias")]
    weights.CopyFrom(
        onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weights) + np.float32(np.arange(11)), weights.name)
    )
    onnx.save(model, tmp_path / "other.onnx")
    files = demo.MODEL, tmp_path / "other.onnx", *demo.IMAGES
    code, out, err = run("parity", *files, "--report", tmp_path / "report.html")
    assert code == 1
    assert re.search(r"other.onnx differs from mask_rcnn.onnx: \d+ of 66 detections in 4 images are equal", out)
    assert err == "mmort: error: these differ from mask_rcnn.onnx: other.onnx\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([demo.MODEL, demo.CHECKPOINT, *DATA], "got one ONNX file"),
        ([demo.CONFIG, demo.CHECKPOINT, *demo.IMAGES], "images are for two ONNX files"),
        ([demo.CONFIG, demo.CHECKPOINT, "x.onnx"], "--against x.onnx compares another file with torch, too"),
        ([demo.MODEL, demo.MODEL], "needs images, or a data set"),
        ([demo.MODEL, demo.MODEL, *demo.IMAGES, *DATA], "needs images, or a data set"),
        ([demo.MODEL, demo.MODEL, *demo.IMAGES, "--eval", "bbox"], "are for a data set, which --ann names"),
        ([demo.MODEL, demo.MODEL, *demo.IMAGES, "--output", "x.onnx"], "exports nothing: leave out"),
    ],
)
def test_arguments_that_exclude_each_other(arguments, message):
    assert message in misused("parity", *arguments)


def test_files_of_the_same_name_are_shown_with_their_paths():
    assert _named(["a/x.onnx", "a/y.onnx"]) == {"x.onnx": "a/x.onnx", "y.onnx": "a/y.onnx"}
    assert _named(["a/x.onnx", "b/x.onnx"]) == {"a/x.onnx": "a/x.onnx", "b/x.onnx": "b/x.onnx"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--report", "none/report.html"], "output directory does not exist: none"),
        (["--report", "."], "output file is a directory: ."),
        (["--eval", "mAP"], "metric 'mAP' is not one of this data set"),
        (["--against", "none.onnx"], "model file does not exist: none.onnx"),
        (["--ann", "none.json"], "none.json"),
    ],
)
def test_refused_before_the_export(exported, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused("parity", demo.CONFIG, demo.CHECKPOINT, *DATA, *arguments)
    assert exported == []


def test_texts_of_files(tmp_path):
    files = "parity", demo.MODEL, shutil.copy(demo.MODEL, tmp_path / "other.onnx"), demo.IMAGES[0]
    message = "texts must not be set: what this detector finds was fixed by its export; mmort export --open-vocabulary"
    assert message in refused(*files, "--texts", "cat")
    assert "--vocabulary is for checkpoints" in misused(*files, "--vocabulary", "vocab.txt")


def test_texts_of_a_detector_without_a_language_model(exported):
    message = "texts must not be set for Mask R-CNN, which has no language model"
    assert message in refused("parity", demo.CONFIG, demo.CHECKPOINT, *DATA, "--texts", "cat")


def test_images_are_not_required(capsys):
    with pytest.raises(SystemExit):
        main(["parity", "config.py"])
    assert "error: the following arguments are required: CHECKPOINT\n" in capsys.readouterr().err
