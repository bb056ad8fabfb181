"""`mmort.evaluate.test` returns what ``mmort test`` prints; tests/cli/test_test.py has a test for each option."""

import json
import pickle
from dataclasses import replace
from functools import partial

import pytest

import mmort.evaluate
from mmort import demo
from mmort.configs import read_config
from mmort.detections.drawing import draw_beside
from mmort.evaluate import TestOptions as Options
from mmort.evaluate.parity import compare_models
from mmort.predict import OnnxRuntime, Predictor, read_image
from tests.predict import tiny_detector


@pytest.fixture(scope="module")
def network():
    return OnnxRuntime(demo.MODEL, threads=1)


@pytest.fixture(scope="module")
def digits():
    return mmort.evaluate.CocoDataset(demo.ANNOTATIONS, demo.IMAGES[0].parent)


def test_the_result_has_figures_and_files(network, digits, tmp_path):
    files = {"output": tmp_path / "results.pkl", "metrics_json": tmp_path / "figures.json"}
    options = Options(
        metrics=["bbox"], metric_options={"jsonfile_prefix": str(tmp_path / "digits")}, show_dir=tmp_path, **files
    )
    result = mmort.evaluate.test(network, digits, options=options)
    expected = mmort.evaluate.evaluate(digits, Predictor(network, score_threshold=0).predict, ["bbox"])
    assert result.metrics == expected
    assert json.loads(files["metrics_json"].read_text())["bbox_mAP"] == round(expected.figures["bbox_mAP"], 4)
    assert str(result).endswith(f"bbox_mAP_l: {expected.figures['bbox_mAP_l']:.4f}")
    assert result.not_drawn == ()
    rows = tmp_path / "digits.bbox.json", tmp_path / "digits.segm.json"
    assert result.written == {
        files["output"]: "",
        **dict.fromkeys(rows, ""),
        tmp_path: "4 annotated images",
        files["metrics_json"]: "",
    }
    assert len(pickle.loads(files["output"].read_bytes())) == 4
    assert all(json.loads(file.read_text()) for file in rows)


def test_without_metrics_nothing_is_measured(network, digits):
    result = mmort.evaluate.test(network, digits)
    assert (result.metrics, result.written, str(result)) == (None, {}, "")


def test_the_pipeline_of_the_config_is_used(network, digits):
    config = read_config(demo.CONFIG)
    options = Options(metrics=["bbox"])
    of_file, of_config = (mmort.evaluate.test(network, digits, entries, options) for entries in (None, config))
    assert of_config == of_file
    smaller = read_config(demo.CONFIG, {"data.test.pipeline.1.img_scale": (104, 80)})
    with pytest.warns(mmort.evaluate.PipelineWarning, match="the file was exported with another"):
        result = mmort.evaluate.test(network, digits, smaller, options)
    assert result.metrics.figures["bbox_mAP"] < of_file.metrics.figures["bbox_mAP"] - 0.05


def test_a_pipeline_that_is_not_supported_leaves_the_file_s(network, digits):
    options = Options(metrics=["bbox"])
    unknown = read_config(demo.CONFIG, {"data.test.pipeline.1.transforms.0.type": "Albu"})
    message = "the file's preprocessing is used, as the config's is not supported: .* step Albu"
    with pytest.warns(mmort.evaluate.PipelineWarning, match=message):
        result = mmort.evaluate.test(network, digits, unknown, options)
    assert result == mmort.evaluate.test(network, digits, None, options)


def test_how_boxes_end_is_the_file_s(digits):
    """No test pipeline says it: with a config the same boxes come out."""
    inclusive = OnnxRuntime(demo.MODEL, threads=1)
    inclusive.preprocessing = replace(inclusive.preprocessing, inclusive_boxes=True)
    options = Options(metrics=["bbox"])
    of_file, of_config = (
        mmort.evaluate.test(inclusive, digits, entries, options) for entries in (None, read_config(demo.CONFIG))
    )
    assert of_config == of_file


def test_an_image_that_cannot_be_drawn_counts(network, digits, tmp_path, monkeypatch):
    def failing(image, versions):
        if image.shape == first:
            raise ValueError("no room")
        return draw_beside(image, versions)

    first = read_image(demo.IMAGES[0]).shape
    assert all(read_image(path).shape != first for path in demo.IMAGES[1:])
    monkeypatch.setattr("mmort.predict.output.draw_beside", failing)
    result = mmort.evaluate.test(network, digits, options=Options(metrics=["bbox"], show_dir=tmp_path))
    assert result.not_drawn == (f"{demo.IMAGES[0]}: no room",)
    assert result.written == {tmp_path: "3 annotated images"}
    assert result.metrics.figures["bbox_mAP_50"] > 0.9


class Counting(OnnxRuntime):
    """The shipped detector, with the number of images in each of its batches."""

    def __init__(self):
        super().__init__(demo.MODEL, threads=1)
        self.batches = []

    def __call__(self, input, img_shape, ori_shape=None):
        self.batches.append(len(input))
        return super().__call__(input, img_shape, ori_shape)


def test_batch_size(digits):
    network = Counting()
    mmort.evaluate.test(network, digits, options=Options(batch_size=3))
    assert network.batches == [3, 1]


def test_errors_come_before_the_detector_runs(digits, tmp_path):
    network = Counting()
    for options, message in (
        (Options(metric_options={"submission_dir": "x"}), "submission_dir is for one data set in DOTA's format"),
        (Options(metrics=["PQ"]), "metric 'PQ' is not one of this data set"),
        (Options(classes=["cat"]), "the detector has no class cat"),
    ):
        with pytest.raises(ValueError, match=message):
            mmort.evaluate.test(network, digits, options=options)
    model = tiny_detector.write(tmp_path / "model.onnx", metadata={})
    with pytest.raises(ValueError, match=r"model\.onnx has no preprocessing in its metadata"):
        mmort.evaluate.test(model, digits)
    for wrong, message in (
        ({"output": "results.json"}, r"output must end in \.pkl"),
        ({"metrics_json": "figures.json"}, "metrics_json needs metrics"),
    ):
        with pytest.raises(ValueError, match=message):
            Options(**wrong)
    with pytest.raises(FileNotFoundError, match="output directory does not exist"):
        Options(output=tmp_path / "nowhere" / "results.pkl")
    assert network.batches == []


def test_files_are_replaced_with_force_only(network, digits, tmp_path):
    for name in ("a.pkl", "a.json", "a.segm.json"):
        (tmp_path / name).write_text("mine")
    for files in ({"output": tmp_path / "a.pkl"}, {"metrics": ["bbox"], "metrics_json": tmp_path / "a.json"}):
        with pytest.raises(FileExistsError, match=r"^output file exists: .*; force=True replaces it$"):
            Options(**files)
    rows = {"metric_options": {"jsonfile_prefix": tmp_path / "a"}}
    with pytest.raises(FileExistsError, match=r"^output file exists: .*a\.segm\.json; force=True replaces it$"):
        mmort.evaluate.test(network, digits, options=Options(**rows))
    mmort.evaluate.test(network, digits, options=Options(**rows, output=tmp_path / "a.pkl", force=True))
    assert json.loads((tmp_path / "a.segm.json").read_text())
    assert (tmp_path / "a.json").read_text() == "mine"


def test_a_predictor_stands_for_its_method(network, digits):
    predictor = Predictor(network, score_threshold=0)
    figures = [mmort.evaluate.evaluate(digits, predict, ["bbox"]) for predict in (predictor, predictor.predict)]
    assert figures[0] == figures[1]


def test_a_threshold_is_warned_of(network, digits):
    predictor = Predictor(network)
    with pytest.warns(UserWarning, match="below 0.3"):
        mmort.evaluate.evaluate(digits, predictor, ["bbox"])
    for predict in (predictor.predict, partial(predictor.predict, batch_size=2)):
        with pytest.warns(UserWarning, match=r"scores below 0.3, which metrics count; make it with score_threshold=0"):
            mmort.evaluate.evaluate(digits, predict, ["bbox"])
    with pytest.warns(UserWarning, match="below 0.3"):
        compare_models(digits, {"one": predictor.predict, "two": predictor.predict}, ["bbox"], progress=False)
