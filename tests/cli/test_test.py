"""``mmort test``: a test for each of its arguments, named after it."""

import argparse
import json
import os
import pathlib
import pickle
import re
import sys
from collections import Counter

import cv2
import pytest
import torch

from mmort import cli, demo
from mmort.configs import read_config
from mmort.detect import build
from mmort.detect.network import load_network
from mmort.detections.drawing import MARGIN
from mmort.predict import Predictor, read_image
from tests.cli import voc
from tests.cli.running import misused, refused, run
from tests.detect import text_cases
from tests.detect.small_exports import PIPELINE
from tests.predict import tiny_detector
from tests.predict.tiny_open_vocabulary import VOCABULARY, save_detector, save_encoder

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "test_options.md"
DATA = "--ann", demo.ANNOTATIONS, "--img-dir", demo.IMAGES[0].parent
COMMAND = "test", demo.CONFIG, demo.MODEL, *DATA, "--threads", 1
AP = ["mAP", "mAP_50", "mAP_75", "mAP_s", "mAP_m", "mAP_l"]


def printed(*arguments):
    """Run a command that must succeed; return what it prints."""
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    return out


def figures(text):
    """Return the figures at the end of an output."""
    return {name: float(value) for name, value in re.findall(r"^(\S+): (-?\d\.\d{4})$", text, re.M)}


@pytest.fixture(scope="module")
def boxes():
    """The figures of the whole data set."""
    return figures(printed(*COMMAND, "--eval", "bbox"))


def options():
    """Return the names of all arguments."""
    parser = argparse.ArgumentParser()
    cli.COMMANDS["test"].add_arguments(parser)
    return {(action.option_strings or [action.dest])[-1] for action in parser._actions} - {"--help"}


def test_every_argument_has_a_test_and_a_row_in_the_document():
    tests = {"test_" + option.strip("-").replace("-", "_") for option in options()}
    assert tests <= globals().keys()
    rows = re.findall(r"^\| `(.+?)[` ]", DOCUMENT.read_text(encoding="utf-8"), re.M)
    assert options() <= {row.lower() if row.isupper() else row for row in rows}


def test_published_figures(tmp_path, monkeypatch):
    """Of a config of that name, for the metrics that are measured, on as many images as the published data set has."""
    config = tmp_path / "mask_rcnn_r50_fpn_1x_coco.py"
    config.write_text(demo.CONFIG.read_text())
    command = "test", config, demo.MODEL, *DATA, "--threads", 1, "--eval", "bbox"
    assert "publishes" not in printed(*command)
    monkeypatch.setattr("mmort.evaluate.published.VAL2017", len(demo.IMAGES))
    line = "MMDetection publishes for a config of this name, on COCO's val2017: bbox_mAP 0.382"
    assert printed(*command).endswith(f"\n\n{line}\n")
    assert printed(*command, "segm").endswith(f"\n\n{line}, segm_mAP 0.347\n")
    for changed in (["--classes", "one"], ["--cfg-options", "model.test_cfg.rcnn.score_thr=0.5"]):
        assert "publishes" not in run(*command, *changed)[1]
    assert "publishes" not in printed(*COMMAND, "--eval", "bbox")


def test_config(boxes):
    for name in ("bbox", "BBOX"):
        assert figures(printed("test", demo.MODEL, *DATA, "--threads", 1, "--eval", name)) == boxes
    message = "mask_rcnn.onnx without a CONFIG needs --ann and --img-dir, or --ann data.yaml"
    assert message in misused("test", demo.MODEL, "--eval", "bbox")
    assert "saved results without a CONFIG need --ann" in misused("test", "x.pkl", "--eval", "bbox")
    assert f"MODEL is required after the CONFIG {demo.CONFIG}" in misused("test", demo.CONFIG, "--eval", "bbox")
    message = "--backend torch needs a CONFIG before the checkpoint"
    assert message in misused("test", demo.CHECKPOINT, *DATA, "--backend", "torch", "--eval", "bbox")
    assert "change a CONFIG; give one" in misused("test", demo.MODEL, *DATA, "--data-root", ".", "--eval", "bbox")


def test_saved_results(boxes, tmp_path):
    """Saved results instead of a detector: its own, and those of MMDetection; images are not read."""
    printed(*COMMAND, "--out", tmp_path / "results.pkl")
    ann = "--ann", demo.ANNOTATIONS
    json_file, prefix = tmp_path / "figures.json", f"jsonfile_prefix={tmp_path / 'again'}"
    again = "test", tmp_path / "results.pkl", *ann
    assert figures(printed(*again, "--eval", "bbox", "--metrics-json", json_file)) == boxes
    assert json.loads(json_file.read_text()) == boxes
    printed(*again, "--format-only", "--eval-options", prefix)
    assert figures(printed("test", tmp_path / "again.bbox.json", *ann, "--eval", "bbox")) == boxes
    assert figures(printed("test", demo.CONFIG, tmp_path / "results.pkl", *ann, "--eval", "bbox")) == boxes
    assert "are for a detector" in misused(*again, "--eval", "bbox", "--backend", "torch")
    message = "and --img-dir for --report, --show and --show-dir"
    assert message in misused(*again, "--show-dir", tmp_path / "shown")
    printed(*again, *DATA, "--show-dir", tmp_path / "saved")
    printed(*COMMAND, "--show-dir", tmp_path / "shown")
    for path in demo.IMAGES:
        of_file, of_detector = (read_image(tmp_path / folder / path.name) for folder in ("saved", "shown"))
        assert (of_file != of_detector).mean() < 1e-3  # masks of run lengths are the same; boxes may be rounded
    assert "saved results without a CONFIG need --ann" in misused(*again[:2], "--eval", "bbox")
    assert "segm needs masks" not in printed(*again, "--eval", "segm")


def test_import(tmp_path):
    (tmp_path / "heads.py").write_text("raise ValueError('was run')")
    refusal = refused(
        *("test", demo.CONFIG, demo.CHECKPOINT, *DATA, "--backend", "torch", "--eval", "bbox"),
        *("--import", tmp_path / "heads.py"),
    )
    assert "was run" in refusal


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A small detector of what words describe: its config, its checkpoint, and a command that tests it in torch."""
    folder = tmp_path_factory.mktemp("words")
    settings = text_cases.config() | {"test_pipeline": PIPELINE, "test_dataloader": {"dataset": {}}}
    (folder / "config.json").write_text(json.dumps(settings))
    detector = build(settings)
    text_cases.fill(detector)
    torch.save({"state_dict": detector.state_dict(), "meta": {}}, folder / "model.pth")
    return folder, ("test", folder / "config.json", folder / "model.pth", *DATA, "--backend", "torch")


def test_texts(words, tmp_path):
    folder, command = words
    prefix = f"jsonfile_prefix={tmp_path / 'results'}"
    printed(*command, "--format-only", "--eval-options", prefix, "--texts", "zero . three")
    rows = json.loads((tmp_path / "results.bbox.json").read_text())
    categories = {
        category["name"]: category["id"] for category in json.loads(demo.ANNOTATIONS.read_text())["categories"]
    }
    config = read_config(folder / "config.json")
    loaded = load_network(config, folder / "model.pth", texts=["zero", "three"])
    predictor = Predictor(loaded, classes=loaded.classes, preprocessing=loaded.preprocessing, score_threshold=0)
    names = [name for detections in predictor.predict(demo.IMAGES) for name in detections.names]
    assert set(names) == {"zero", "three"}
    assert Counter(row["category_id"] for row in rows) == Counter(categories[name] for name in names)
    refusal = refused("test", demo.CONFIG, demo.MODEL, *DATA, "--eval", "bbox", "--texts", "zero")
    assert "texts must not be set: what this detector finds was fixed by its export" in refusal


@pytest.mark.filterwarnings("always::mmort.evaluate.PipelineWarning")
def test_texts_of_a_file(tmp_path):
    """Labels are matched with the data set's by name; by default the texts are the classes of the config."""
    save_detector(tmp_path / "detector.onnx")
    save_encoder(tmp_path / "detector.texts.onnx", max_tokens=40, max_text_len=40)
    command = "test", tmp_path / "detector.onnx", "--ann", demo.ANNOTATIONS, "--img-dir", demo.IMAGES[0].parent
    output = "--format-only", "--eval-options", f"jsonfile_prefix={tmp_path / 'results'}"
    assert "texts must be set" in refused(*command, *output)
    categories = json.loads(demo.ANNOTATIONS.read_text())["categories"]
    digits = {category["id"]: category["name"] for category in categories}

    def scores():
        rows = json.loads((tmp_path / "results.bbox.json").read_text())
        assert set(Counter(row["category_id"] for row in rows).values()) == {len(demo.IMAGES)}
        return {digits[row["category_id"]]: round(row["score"], 3) for row in rows}

    printed(*command, *output, "--texts", "zero . three")
    assert scores() == {name: VOCABULARY.index(name) / 1000 for name in ("zero", "three")}
    data_set = {"type": "CocoDataset", "metainfo": {"classes": [*digits.values()][::-1]}, "pipeline": PIPELINE}
    (tmp_path / "config.json").write_text(json.dumps({"model": {}, "test_dataloader": {"dataset": data_set}}))
    (tmp_path / "results.bbox.json").unlink()
    assert run("test", tmp_path / "config.json", *command[1:], *output)[0] == 0
    assert scores() == {name: VOCABULARY.index(name) / 1000 for name in digits.values()}


def test_vocabulary(words, tmp_path):
    _, command = words
    vocabulary = (text_cases.BERT / "vocab.txt").read_text()
    (tmp_path / "vocab.txt").write_text(vocabulary + "more\n")
    more = "--eval", "bbox", "--texts", "zero", "--vocabulary", tmp_path / "vocab.txt"
    assert "vocabulary must have as many tokens as the language model" in refused(*command, *more)
    refusal = misused("test", demo.CONFIG, demo.MODEL, *DATA, "--eval", "bbox", "--vocabulary", "vocab.txt")
    assert "--vocabulary is for checkpoints" in refusal


def test_model():
    assert "model file does not exist: nowhere.onnx" in refused("test", demo.CONFIG, "nowhere.onnx", "--eval", "bbox")


def test_out(tmp_path):
    assert f"wrote {tmp_path}/results.pkl" in printed(*COMMAND, "--out", tmp_path / "results.pkl")
    results = pickle.loads((tmp_path / "results.pkl").read_bytes())
    assert [(len(of_boxes), len(of_masks)) for of_boxes, of_masks in results] == [(10, 10)] * 4
    assert sum(len(of_class) for of_boxes, _ in results for of_class in of_boxes) > 20
    assert "output must end in .pkl, got results.json" in refused(*COMMAND, "--out", "results.json")
    assert "output directory does not exist" in refused(*COMMAND, "--out", tmp_path / "nowhere" / "results.pkl")


def test_force(tmp_path):
    file = tmp_path / "results.pkl"
    file.write_bytes(b"precious")
    assert f"output file exists: {file}; --force replaces it" in refused(*COMMAND, "-o", file)
    assert file.read_bytes() == b"precious"
    printed(*COMMAND, "--output", file, "--force")
    assert len(pickle.loads(file.read_bytes())) == 4


def test_format_only(tmp_path):
    prefix = tmp_path / "digits"
    assert "nothing to do: give at least one of --output, --eval, --format-only" in misused(*COMMAND)
    assert "--eval and --format-only exclude" in misused(*COMMAND, "--format-only", "--eval", "bbox")
    assert "needs --eval-options jsonfile_prefix=PREFIX" in misused(*COMMAND, "--format-only")
    out = printed(*COMMAND, "--format-only", "--eval-options", f"jsonfile_prefix={prefix}")
    assert out == f"wrote {prefix}.bbox.json\nwrote {prefix}.segm.json\n"
    rows = json.loads((tmp_path / "digits.segm.json").read_text())
    ids = [image["id"] for image in json.loads(demo.ANNOTATIONS.read_text())["images"]]
    assert {row["image_id"] for row in rows} == set(ids)
    assert rows[0].keys() == {"image_id", "category_id", "score", "segmentation"}
    nowhere = f"jsonfile_prefix={tmp_path}/nowhere/digits"
    assert "output directory does not exist" in refused(*COMMAND, "--format-only", "--eval-options", nowhere)


def test_eval(boxes):
    both = figures(printed(*COMMAND, "--eval", "segm", "proposal"))
    recalls = ["AR@100", "AR@300", "AR@1000", "AR_s@1000", "AR_m@1000", "AR_l@1000"]
    assert list(both) == [f"segm_{name}" for name in AP] + recalls
    assert list(boxes) == [f"bbox_{name}" for name in AP]
    assert min(boxes["bbox_mAP"], both["segm_mAP"], both["AR@100"]) > 0.5
    assert "CocoDataset has bbox, segm, proposal" in refused(*COMMAND, "--eval", "mAP")


def test_show(monkeypatch):
    shown = []
    monkeypatch.setattr(cv2, "imshow", lambda title, picture: shown.append((title, picture.shape[:2])))
    for name in ("waitKey", "destroyWindow"):
        monkeypatch.setattr(cv2, name, lambda *_: None)
    assert printed(*COMMAND, "--show") == ""
    sizes = [read_image(path).shape[:2] for path in demo.IMAGES]
    assert shown == [  # the ground truth, and beside it the detections
        (path.name, (height, 2 * width + MARGIN)) for path, (height, width) in zip(demo.IMAGES, sizes, strict=True)
    ]

    def fail(title, picture):
        raise cv2.error("not implemented")

    monkeypatch.setattr(cv2, "imshow", fail)
    assert "--show needs a display, and opencv-python" in refused(*COMMAND, "--show")


def test_what_is_of_another_kind():
    assert "--show-dir must be a folder, got a.png" in misused(*COMMAND, "--show-dir", "a.png")
    message = misused(*COMMAND, "--eval", "bbox", "--backend", "torch")
    assert f"--backend torch runs a checkpoint, got {demo.MODEL}; leave it out for an ONNX file" in message
    flags = "--eval-options", "classwise=no"
    assert "evaluate: classwise must be True or False, got 'no'" in refused(*COMMAND, "--eval", "bbox", *flags)


def test_a_file_without_metadata_needs_its_config(tmp_path):
    model = tiny_detector.write(tmp_path / "old.onnx", metadata={})
    assert "old.onnx has no preprocessing in its metadata; give its CONFIG" in refused(
        "test", model, *DATA, "--eval", "bbox"
    )


def test_show_dir(tmp_path):
    wrote = f"wrote {tmp_path}/new/pictures ({len(demo.IMAGES)} annotated images)\n"
    assert printed(*COMMAND, "--show-dir", tmp_path / "new" / "pictures") == wrote
    for path in demo.IMAGES:
        drawn, image = read_image(tmp_path / "new" / "pictures" / path.name), read_image(path)
        truth, detections = drawn[:, : image.shape[1]], drawn[:, -image.shape[1] :]
        assert drawn.shape == (image.shape[0], 2 * image.shape[1] + MARGIN, 3)
        assert (truth != image).mean() > 0.05
        assert (detections != image).mean() > 0.05
        assert 0.01 < (truth != detections).mean() < 0.5


def test_tta(first, tmp_path):
    """A detector that finds the same box in each view finds two in an image."""
    annotations = json.loads(first.read_text())
    annotations["categories"] = [{"id": number, "name": name} for number, name in enumerate("ab")]
    annotations["annotations"] = []
    (tmp_path / "a.json").write_text(json.dumps(annotations))
    steps = [{"type": "LoadImageFromFile"}, {"type": "Resize", "scale": (32, 16), "keep_ratio": True}]
    data_set = {"type": "CocoDataset", "ann_file": "a.json", "pipeline": [*steps, {"type": "PackDetInputs"}]}
    config = {"model": {"data_preprocessor": {"pad_size_divisor": 16}}, "test_dataloader": {"dataset": data_set}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = tiny_detector.write(tmp_path / "tiny.onnx", metadata={"classes": '["a", "b"]'})
    out = tmp_path / "r.pkl"
    command = "test", tmp_path / "config.json", model, "--ann", tmp_path / "a.json", *DATA[2:], "--out", out, "--force"
    counts = []
    for option in ((), ("--tta",)):
        code, _, err = run(*command, *option)
        assert code == 0, err
        (boxes,) = pickle.loads(out.read_bytes())
        counts.append(list(map(len, boxes)))
    assert counts == [[0, 1], [0, 2]]
    message = "--tta is for a CONFIG and a detector that runs on this machine"
    assert message in misused("test", model, "--ann", tmp_path / "a.json", *DATA[2:], "--out", out, "--tta")


def test_report(tmp_path):
    report = tmp_path / "report.html"
    assert printed(*COMMAND, "--report", report) == f"wrote {report}\n"
    text = report.read_text(encoding="utf-8")
    assert "<h1>mask_rcnn.onnx</h1>" in text
    assert "4 images with 22 objects: 22 found, 0 missed; 2 detections are wrong" in text
    assert refused(*COMMAND, "--report", report) == f"mmort: error: output file exists: {report}; --force replaces it\n"
    printed(*COMMAND, "--report", report, "--show-score-thr", 0.9, "--force")
    assert "Detections count from a score of 0.9" in report.read_text(encoding="utf-8")
    torch_command = "test", demo.CONFIG, demo.CHECKPOINT, *DATA, "--backend", "torch"
    printed(*torch_command, "--report", report, "--force")
    assert "<h1>Mask R-CNN</h1>" in report.read_text(encoding="utf-8")


def test_results_in_cocos_format_are_replaced_with_force_only(tmp_path):
    file = tmp_path / "mine.segm.json"
    file.write_text("mine")
    command = *COMMAND, "--format-only", "--eval-options", f"jsonfile_prefix={tmp_path / 'mine'}"
    assert refused(*command) == f"mmort: error: output file exists: {file}; --force replaces it\n"
    assert file.read_text() == "mine"
    assert f"wrote {file}" in printed(*command, "--force")


def test_show_dir_replaces_with_force_only(tmp_path):
    drawn = tmp_path / demo.IMAGES[2].name
    drawn.write_text("mine")
    message = f"mmort: error: annotated image exists: {drawn}; --force replaces it\n"
    assert refused(*COMMAND, "--show-dir", tmp_path) == message
    assert (os.listdir(tmp_path), drawn.read_text()) == ([drawn.name], "mine")
    printed(*COMMAND, "--show-dir", tmp_path, "--force")
    assert len(read_image(drawn)) == len(read_image(demo.IMAGES[2]))


def test_show_dir_never_overwrites_an_image(first, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for number, image in enumerate((images / "0.png", images / "1.png")):
        image.write_bytes(demo.IMAGES[0].read_bytes())
        annotations = json.loads(first.read_text())
        annotations["images"][0]["file_name"] = str(image) if number else "../images/0.png"
        first.write_text(json.dumps(annotations))
        printed(*COMMAND, "--ann", first, "--img-dir", images, "--show-dir", tmp_path / "shown")
        assert image.read_bytes() == demo.IMAGES[0].read_bytes()
    assert len(list((tmp_path / "shown").rglob("*.png"))) == 2
    message = refused(*COMMAND, "--ann", first, "--img-dir", images, "--show-dir", images)
    assert "would replace it; do not write to" in message


def test_show_score_thr(tmp_path):
    printed(*COMMAND, "--show-dir", tmp_path, "--show-score-thr", 1)
    for path in demo.IMAGES:
        image = read_image(path)
        assert (read_image(tmp_path / path.name)[:, -image.shape[1] :] == image).all()


@pytest.fixture
def first(tmp_path):
    """An annotation file of the first picture alone."""
    annotations = json.loads(demo.ANNOTATIONS.read_text())
    annotations["images"] = annotations["images"][:1]
    objects = [entry for entry in annotations["annotations"] if entry["image_id"] == annotations["images"][0]["id"]]
    file = tmp_path / "first.json"
    file.write_text(json.dumps(annotations | {"annotations": objects}))
    return file


def test_backend(first):
    by_default = torch.get_num_threads()
    data = *DATA, "--ann", first, "--eval", "bbox"
    boxes = figures(printed("test", demo.CONFIG, demo.MODEL, *data, "--threads", 1))
    command = "test", demo.CONFIG, demo.CHECKPOINT, *data, "--backend", "torch"
    try:
        assert figures(printed(*command, "--threads", by_default + 1)) == pytest.approx(boxes, abs=2e-4)
        assert torch.get_num_threads() == by_default + 1
    finally:
        torch.set_num_threads(by_default)
    message = refused(*COMMAND, "--eval", "bbox", "--backend", "tensorrt")
    assert re.search("TensorrtExecutionProvider is not available .* has: .*CPUExecutionProvider", message)


@pytest.mark.filterwarnings("always::mmort.evaluate.PipelineWarning")
def test_cfg_options(boxes):
    size = "data.test.pipeline.1.img_scale=(104,80)"
    code, out, err = run(*COMMAND, "--eval", "bbox", "--cfg-options", size)
    warning = "the config's test pipeline is used; the file was exported with another"
    assert (code, err) == (0, f"mmort: warning: {warning}\n")
    assert figures(out)["bbox_mAP"] < boxes["bbox_mAP"] - 0.05
    classes = refused(*COMMAND, "--eval", "bbox", "--cfg-options", "data.test.classes=a,b")
    assert "detector: zero, one, two, three, four, five, six, seven, eight, nine; data set: a, b" in classes


def test_cfg_options_that_do_nothing(boxes):
    """A misspelt entry is refused; what changes the network is named, as a file has its network already."""
    wrong = refused(*COMMAND, "--eval", "bbox", "--cfg-options", "evaluaton.classwise=True")
    assert "got evaluaton.classwise: it has no evaluaton (did you mean evaluation?)" in wrong
    options = "--cfg-options", "model.test_cfg.rcnn.score_thr=0.9", "evaluation.interval=2"
    code, out, err = run(*COMMAND, "--eval", "bbox", *options)
    assert (code, figures(out)) == (0, boxes)
    assert err == "note: model.test_cfg.rcnn.score_thr does nothing: the file is what was exported\n"


def test_other_files(tmp_path):
    assert "model must be an ONNX file, got the checkpoint" in refused(
        "test", demo.CONFIG, demo.CHECKPOINT, *DATA, "--eval", "bbox"
    )
    command = "test", demo.CONFIG, demo.MODEL, "--eval", "bbox"
    assert "/instances_val2017.json; give --data-root, or --ann" in refused(*command)
    assert refused(*command, "--ann", "x.json") == "mmort: error: annotation file does not exist: x.json\n"


@pytest.mark.parametrize(
    ("scope", "entries"),
    [
        ("mmseg", {"type": "CityscapesDataset", "data_prefix": {"img_path": "val", "seg_map_path": "maps"}}),
        ("mmpretrain", {"type": "ImageNet", "split": "val"}),
    ],
)
def test_data_sets_whose_folder_is_missing(tmp_path, scope, entries):
    path, root = tmp_path / "config.py", tmp_path / "data"
    data_set = entries | {"data_root": str(root)}
    path.write_text(f"default_scope = {scope!r}\ntest_dataloader = dict(dataset={data_set})\n")
    message = refused("test", path, demo.MODEL, "--eval", "mIoU")
    assert message == f"mmort: error: directory does not exist: {root}/val; give --data-root, or --ann and --img-dir\n"


def test_eval_options(boxes, tmp_path):
    options = "--eval-options", "classwise=True", "metric_items=mAP_50,AR@100"
    out = printed(*COMMAND, "--eval", "bbox", *options, "--metrics-json", tmp_path / "metrics.json")
    assert list(figures(out)) == ["bbox_mAP_50", "bbox_AR@100"]
    rows = {row.split()[0]: row.split() for row in re.findall(r"^[a-z]+(?: +-?\d\.\d{3}){6}$", out, re.M)}
    assert tuple(rows) == Predictor(demo.MODEL, score_threshold=0).classes
    written = json.loads((tmp_path / "metrics.json").read_text())
    assert list(written) == ["bbox_mAP_50", "bbox_AR@100", "classwise"]
    for name, values in written["classwise"]["bbox"].items():
        assert list(values) == AP
        assert [float(cell) for cell in rows[name][1:]] == pytest.approx(list(values.values()), abs=6e-4)
    out = printed(*COMMAND, "--eval", "bbox", "--cfg-options", "evaluation.metric_items=[mAP_75]")
    assert figures(out) == {"bbox_mAP_75": boxes["bbox_mAP_75"]}
    assert "unknown option thr; options: classwise" in refused(*COMMAND, "--eval", "bbox", "--eval-options", "thr=1")


def test_data_root(boxes, tmp_path):
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "instances_val2017.json").symlink_to(demo.ANNOTATIONS)
    (tmp_path / "val2017").symlink_to(demo.IMAGES[0].parent)
    command = "test", demo.CONFIG, demo.MODEL, "--threads", 1, "--data-root", tmp_path, "--eval", "bbox"
    assert figures(printed(*command)) == boxes


def test_ann(first, tmp_path):
    out = printed(*COMMAND, "--ann", first, "--eval", "bbox", "--show-dir", tmp_path)
    assert list(figures(out)) == [f"bbox_{name}" for name in AP]
    assert [path.name for path in tmp_path.glob("*.png")] == [demo.IMAGES[0].name]


def test_img_dir(tmp_path):
    message = refused(*COMMAND, "--img-dir", tmp_path, "--eval", "bbox")
    assert str(tmp_path / demo.IMAGES[0].name) in message


def test_classes(tmp_path):
    content = json.loads(demo.ANNOTATIONS.read_text())
    content["categories"] = [entry for entry in content["categories"][::-1] if entry["name"] in ("three", "seven")]
    kept = {entry["id"] for entry in content["categories"]}
    content["annotations"] = [entry for entry in content["annotations"] if entry["category_id"] in kept]
    (tmp_path / "some.json").write_text(json.dumps(content))
    options = "--eval", "bbox", "--eval-options", "classwise=True", "--metrics-json"
    printed(*COMMAND, *options, tmp_path / "all.json")
    expected = json.loads((tmp_path / "all.json").read_text())["classwise"]["bbox"]
    some = ("test", demo.MODEL, "--ann", tmp_path / "some.json", "--img-dir", demo.IMAGES[0].parent)
    assert "mmort test --classes NAME ... evaluates some" in refused(*some, "--eval", "bbox")
    printed(*some, *options, tmp_path / "some_figures.json", "--classes", "three", "seven")
    selected = json.loads((tmp_path / "some_figures.json").read_text())["classwise"]["bbox"]
    assert selected == {name: expected[name] for name in ("three", "seven")}
    content["categories"].append({"id": 99, "name": "cat"})
    (tmp_path / "some.json").write_text(json.dumps(content))
    assert "has no class cat; its classes: zero, one" in refused(*some, "--eval", "bbox", "--classes", "cat")


def test_metrics_json(boxes, tmp_path):
    file = tmp_path / "metrics.json"
    printed(*COMMAND, "--eval", "bbox", "--metrics-json", file)
    assert json.loads(file.read_text()) == boxes
    assert f"output file exists: {file}; --force" in refused(*COMMAND, "--eval", "bbox", "--metrics-json", file)
    directory = refused(*COMMAND, "--eval", "bbox", "--metrics-json", tmp_path)
    assert f"output file is a directory: {tmp_path}" in directory
    assert "metrics_json needs metrics" in refused(*COMMAND, "--show", "--metrics-json", "m.json")


def test_parallel(boxes):
    assert figures(printed(*COMMAND, "--eval", "bbox", "--parallel", 2)) == boxes
    assert "--parallel is for ONNX files" in misused(
        "test", demo.CONFIG, demo.CHECKPOINT, *DATA, "--eval", "bbox", "--backend", "torch", "--parallel", 2
    )


def test_batch_size(boxes):
    of_four = figures(printed(*COMMAND, "--eval", "bbox", "--batch-size", 4))
    assert of_four == pytest.approx(boxes, abs=0.05)
    assert of_four != boxes
    of_config = "--cfg-options", "data.test.samples_per_gpu=4"
    assert figures(printed(*COMMAND, "--eval", "bbox", *of_config)) == of_four
    assert figures(printed(*COMMAND, "--eval", "bbox", *of_config, "--batch-size", 1)) == boxes


def test_threads(boxes):
    assert figures(printed(*COMMAND, "--eval", "bbox", "--threads", 2)) == boxes


def test_engine(boxes, monkeypatch):
    """Ray itself is installed for tests/integrations only."""
    assert figures(printed(*COMMAND, "--eval", "bbox", "--engine", "onnxruntime")) == boxes
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "engine ray needs Ray: pip install 'mmort[ray]'" in refused(*COMMAND, "--eval", "bbox", "--engine", "ray")


def test_precision():
    message = misused(*COMMAND, "--eval", "bbox", "--precision", "bfloat16")
    assert "precision is for --engine openvino, got bfloat16 for --engine onnxruntime" in message


def test_voc(tmp_path):
    """The same pictures and digits in PASCAL VOC's format."""
    command = "test", demo.MODEL, *voc.write(tmp_path), "--threads", 1
    result = figures(printed(*command, "--eval", "mAP", "recall", "--eval-options", "iou_thr=0.5,0.75"))
    assert list(result)[:3] == ["mAP", "AP50", "AP75"]
    assert result["mAP"] == pytest.approx((result["AP50"] + result["AP75"]) / 2, abs=1e-4)
    assert result["AP50"] > 0.95
    assert result["recall@100@0.5"] == 1
    prefix = "--eval-options", f"jsonfile_prefix={tmp_path / 'x'}"
    assert "is for one data set in COCO's format" in refused(*command, "--format-only", *prefix)


def test_split(tmp_path):
    """An entry of data.yaml: the demo's images, in which one object has a label."""
    (tmp_path / "images").symlink_to(demo.IMAGES[0].parent)
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / f"{demo.IMAGES[0].stem}.txt").write_text("0 0.5 0.5 0.2 0.2")
    names = Predictor(demo.MODEL, score_threshold=0).classes
    (tmp_path / "data.yaml").write_text(json.dumps({"val": "nowhere", "test": "images", "names": names}))
    command = "test", demo.MODEL, "--ann", tmp_path / "data.yaml", "--eval", "bbox"
    assert "bbox_mAP" in figures(printed(*command, "--split", "test"))
    assert "val in" in refused(*command)


@pytest.mark.filterwarnings("always::mmort.evaluate.DatasetWarning")
def test_skip_wrong_labels(tmp_path):
    (tmp_path / "images").symlink_to(demo.IMAGES[0].parent)
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / f"{demo.IMAGES[0].stem}.txt").write_text("0 0.5 0.5 0.2 0.2\n0 0.5 0.5 7 0.2\n")
    names = Predictor(demo.MODEL, score_threshold=0).classes
    (tmp_path / "data.yaml").write_text(json.dumps({"val": "images", "names": names}))
    command = "test", demo.MODEL, "--ann", tmp_path / "data.yaml", "--eval", "bbox"
    assert f"{demo.IMAGES[0].stem}.txt, line 2 must be a label below 10" in refused(*command)
    code, out, err = run(*command, "--skip-wrong-labels")
    assert code == 0
    assert "bbox_mAP" in figures(out)
    assert re.fullmatch(r"mmort: warning: .*data\.yaml: 1 line of labels left out, the first: .*\n", err)
