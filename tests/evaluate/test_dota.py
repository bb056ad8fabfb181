"""Data sets in DOTA's format: annotations, mAP and submission files."""

import math
import os

import numpy as np
import pytest

import mmort.evaluate
from mmort import Detections, demo
from mmort.evaluate import DotaDataset, Evaluation, dataset_of, metric_options, write_results

CLASSES = ("plane", "ship")
QUARTER = math.pi / 2
IMAGES = "P1__100__0___0", "P1__100__60___0", "P2"
LINES = {
    # A ship of 20 x 10 and a plane in the first window, the ship again in the second, 60 pixels to the right.
    "P1__100__0___0": "imagesource:x\ngsd:1\n70 30 90 30 90 40 70 40 ship 0\n10 10 16 10 16 30 10 30 plane 1\n",
    "P1__100__60___0": "10 30 30 30 30 40 10 40 ship 0\n5 5 6 5 6 9 5 9 ship 0\n",
    "P2": "",
}


@pytest.fixture
def folder(tmp_path):
    for part in ("annfiles", "images"):
        (tmp_path / part).mkdir()
    for name in IMAGES:
        (tmp_path / "annfiles" / f"{name}.txt").write_text(LINES[name])
        (tmp_path / "images" / f"{name}.png").touch()
    return tmp_path


@pytest.fixture
def dataset(folder):
    return DotaDataset(folder / "annfiles", folder / "images", CLASSES)


def found(boxes, scores, labels):
    return Detections.of_rotated(boxes, scores, labels, tuple(CLASSES[label] for label in labels), (100, 100))


def test_saved_results_are_scored_again(dataset, folder):
    expected = evaluation(dataset, eval_mode="area")
    write_results(folder / "results.pkl", expected.results, len(CLASSES))
    results = mmort.evaluate.read_results(folder / "results.pkl", dataset)
    assert dataset.score(results, ["mAP"], {"eval_mode": "area"}).figures == expected.metrics().figures


def evaluation(dataset, metrics=("mAP",), **options):
    """The first ship is found turned by a quarter with exchanged sides; one ship is found in a wrong position."""
    result = Evaluation(dataset, metrics, **options)
    first, second, third = dataset.images
    result.add(first, found([[80, 35, 10, 20, QUARTER], [13, 20, 20, 6, 0]], [0.9, 0.8], [1, 0]))
    result.add(second, found([[20, 35.5, 20, 10, 0.0], [80, 80, 9, 9, 0]], [0.7, 0.95], [1, 1]))
    result.add(third, found(np.zeros((0, 5)), [], []))
    return result


def test_mean_average_precision(dataset):
    """The plane's box lies across; of ships, the best is wrong and then two of two objects are found."""
    metrics = evaluation(dataset, eval_mode="area").metrics()
    assert metrics.figures == {"mAP": pytest.approx((2 / 3) / 2), "AP50": pytest.approx((2 / 3) / 2)}
    assert ["ship", "2", "3", "1.000", "0.667"] in [row.split() for row in metrics.tables[0].splitlines()]
    assert evaluation(dataset).metrics().figures["mAP"] == pytest.approx((2 / 3) / 2)
    strict = evaluation(dataset, iou_thr=0.95, eval_mode="area").metrics().figures["mAP"]
    assert strict == pytest.approx((0.5 * 0.5) / 2)


def test_submission_files_merge_windows(dataset, tmp_path):
    folder = tmp_path / "task1"
    assert dataset.write_submission(evaluation(dataset).results, folder) == {folder: "2 files"}
    assert sorted(os.listdir(folder)) == ["Task1_plane.txt", "Task1_ship.txt"]
    lines = [line.split() for line in (folder / "Task1_ship.txt").read_text().splitlines()]
    assert [(line[0], line[1]) for line in lines] == [("P1", "0.9500"), ("P1", "0.9000")]
    corners = np.array(lines[1][2:], float).reshape(4, 2)
    assert (corners.min(0).tolist(), corners.max(0).tolist()) == ([70, 30], [90, 40])


def test_a_submission_replaces_files_with_force_only(monkeypatch, dataset, tmp_path):
    def run(force):
        options = mmort.evaluate.TestOptions(metric_options={"submission_dir": tmp_path}, force=force)
        return mmort.evaluate.test(demo.MODEL, dataset, options=options)

    def predict(predictor, images, *arguments, **options):
        return [found(np.zeros((0, 5)), [], []) for _ in images]

    monkeypatch.setattr(mmort.Predictor, "predict", predict)
    file = tmp_path / "Task1_ship.txt"
    file.write_text("mine")
    with pytest.raises(FileExistsError, match=r"^output file exists: .*Task1_ship\.txt; force=True replaces it$"):
        run(force=False)
    assert file.read_text() == "mine"
    assert run(force=True).written == {tmp_path: "2 files"}
    assert file.read_text() == ""


def test_results_file_has_rotated_boxes(dataset, tmp_path):
    write_results(tmp_path / "results.pkl", evaluation(dataset).results, 2)
    first = np.load(tmp_path / "results.pkl", allow_pickle=True)[0]
    assert [array.shape for array in first] == [(1, 6), (1, 6)]


def test_a_configs_data_set(folder):
    test = {"type": "DOTADataset", "ann_file": "annfiles/", "img_prefix": "images/", "pipeline": []}
    config = {"data": {"test": test}, "evaluation": {"interval": 1, "metric": "mAP", "iou_thr": 0.4}}
    dataset = dataset_of(config, data_root=folder)
    assert len(dataset.classes) == 15
    assert [image.name for image in dataset.images] == [f"{name}.png" for name in IMAGES]
    assert metric_options(config, dataset) == {"iou_thr": 0.4}


def test_images_without_annotations(folder):
    dataset = dataset_of(annotation_file=folder / "images", image_dir=folder / "images", classes=CLASSES)
    assert len(dataset) == 3


def test_upright_boxes_are_refused(dataset):
    result = Evaluation(dataset, ["mAP"])
    for image in dataset.images:
        result.add(image, Detections([[0, 0, 9, 9]], [0.5], [0], ("plane",), (100, 100)))
    with pytest.raises(ValueError, match="needs rotated boxes, but the detector's are upright"):
        result.metrics()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2 3 4 5 6 7 8 car 0", "has the class 'car', but the classes are plane, ship"),
        ("1 2 3 ship 0", "line 1 is not an object"),
    ],
)
def test_broken_annotations(folder, line, message):
    (folder / "annfiles/P2.txt").write_text(line)
    with pytest.raises(ValueError, match=message):
        Evaluation(DotaDataset(folder / "annfiles", folder / "images", CLASSES), ["mAP"])


def test_missing_images_and_options(folder, dataset):
    with pytest.raises(ValueError, match="eval_mode must be 11points or area, got 'all'"):
        Evaluation(dataset, ["mAP"], eval_mode="all")
    (folder / "images/P2.png").unlink()
    with pytest.raises(ValueError, match="has no image for 1 annotations: P2"):
        DotaDataset(folder / "annfiles", folder / "images", CLASSES)
