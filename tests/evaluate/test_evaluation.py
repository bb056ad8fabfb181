"""Detections are collected in order, kept as run lengths, and written in MMDetection's layouts."""

import json
import pickle

import numpy as np
import pytest

from mmort.evaluate import CocoDataset, Evaluation, collect, evaluate, write_results
from mmort.predict import BoxMasks, Detections


def detections(labels, *, masks=True, shift=0.0):
    """Return squares in a row, with full masks."""
    count = len(labels)
    left = 20.0 * np.arange(count)[:, None] + shift
    boxes = np.concatenate([left, np.zeros((count, 1)), left + 10, np.full((count, 1), 10)], axis=1)
    stored = BoxMasks(np.ones((count, 4, 4), np.float32), boxes.astype(np.float32)) if masks else None
    return Detections(boxes, np.linspace(0.9, 0.5, count), labels, tuple(map(str, labels)), (12, 64), stored)


@pytest.fixture
def dataset(tmp_path):
    """Two images; the first has a cat and a dog where `detections` puts the first two."""
    images = [{"id": number, "file_name": f"{number}.png", "height": 12, "width": 64} for number in (4, 2)]
    objects = [
        {"id": 1 + column, "image_id": 4, "category_id": category, "bbox": [20 * column, 0, 10, 10], "area": 100,
         "segmentation": [[20 * column, 0, 20 * column + 10, 0, 20 * column + 10, 10, 20 * column, 10]]}
        for column, category in enumerate((17, 18))
    ]  # fmt: skip
    categories = [{"id": 17, "name": "cat"}, {"id": 18, "name": "dog"}, {"id": 19, "name": "emu"}]
    path = tmp_path / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": objects, "categories": categories}))
    return CocoDataset(path, tmp_path)


def test_evaluate(dataset):
    seen = []

    def predict(paths):
        seen.extend(paths)
        return iter([detections([0, 1]), detections([])])

    metrics = evaluate(dataset, predict, ["bbox", "segm"], metric_items=["mAP"])
    assert metrics.figures == pytest.approx({"bbox_mAP": 1.0, "segm_mAP": 1.0})
    assert seen == [image.path for image in dataset.images]


@pytest.mark.parametrize("count", [1, 3])
def test_as_many_results_as_images(dataset, count):
    with pytest.raises(ValueError, match="zip"):
        collect(Evaluation(dataset), lambda paths: [detections([])] * count)


def test_masks_are_kept_if_they_are_needed(dataset):
    for evaluation, kept in [
        (Evaluation(dataset, ["bbox"]), False),
        (Evaluation(dataset, ["segm"]), True),
        (Evaluation(dataset, masks=True), True),
    ]:
        evaluation.add(dataset.images[1], detections([]))
        evaluation.add(dataset.images[0], detections([0]))
        assert [result.masks is not None for result in evaluation.results] == [kept, kept]
        assert [len(result.boxes) for result in evaluation.results] == [1, 0]


def test_a_detector_that_does_not_fit_is_refused_at_the_first_image(dataset):
    with pytest.raises(ValueError, match=r"found label 3 in .*4\.png, but the data set has 3 classes: cat, dog, emu"):
        Evaluation(dataset).add(dataset.images[0], detections([0, 3]))
    with pytest.raises(ValueError, match="found label -1 in "):
        Evaluation(dataset).add(dataset.images[0], detections([0, -1]))
    with pytest.raises(ValueError, match="segm needs masks, but the detector makes none"):
        Evaluation(dataset, ["bbox", "segm"]).add(dataset.images[0], detections([0], masks=False))


def test_missing_results(dataset):
    evaluation = Evaluation(dataset, ["bbox"])
    evaluation.add(dataset.images[0], detections([0]))
    with pytest.raises(ValueError, match=r"no detections were added for 1 images: .*2\.png"):
        evaluation.metrics()


def test_results_file(dataset, tmp_path):
    evaluation = Evaluation(dataset, masks=True)
    collect(evaluation, lambda paths: [detections([2, 0, 2]), detections([])])
    write_results(tmp_path / "results.pkl", evaluation.results, 3)
    first, second = pickle.loads((tmp_path / "results.pkl").read_bytes())
    boxes, masks = first
    assert [array.shape for array in boxes] == [(1, 5), (0, 5), (2, 5)]
    assert {array.dtype for array in boxes} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(boxes[2], np.array([[0, 0, 10, 10, 0.9], [40, 0, 50, 10, 0.5]], np.float32))
    assert [len(of_class) for of_class in masks] == [1, 0, 2]
    assert masks[2][0] == {"size": [12, 64], "counts": detections([2]).rle()[0]["counts"].encode()}
    assert [array.shape for array in second[0]] == [(0, 5)] * 3

    evaluation = Evaluation(dataset)
    collect(evaluation, lambda paths: [detections([1], masks=False), detections([], masks=False)])
    write_results(tmp_path / "results.pkl", evaluation.results, 3)
    first, _ = pickle.loads((tmp_path / "results.pkl").read_bytes())
    assert [array.shape for array in first] == [(0, 5), (1, 5), (0, 5)]


def test_one_metric_is_a_list(dataset):
    with pytest.raises(TypeError, match=r"^evaluate: metrics must be a sequence, such as \['bbox'\], got 'bbox'$"):
        evaluate(dataset, print, "bbox")


def test_coco_files(dataset, tmp_path):
    evaluation = Evaluation(dataset, masks=True)
    collect(evaluation, lambda paths: [detections([2, 0, 2], shift=0.5), detections([])])
    paths = dataset.write_submission(evaluation.results, str(tmp_path / "results"))
    assert [path.name for path in paths] == ["results.bbox.json", "results.segm.json"]
    boxes, masks = (json.loads(path.read_text()) for path in paths)
    assert [(row["image_id"], row["category_id"]) for row in boxes] == [(4, 17), (4, 19), (4, 19)]
    assert [row["bbox"] for row in boxes] == [[20.5, 0, 10, 10], [0.5, 0, 10, 10], [40.5, 0, 10, 10]]
    assert boxes[1].keys() == {"image_id", "category_id", "bbox", "score"}
    assert [row["segmentation"]["size"] for row in masks] == [[12, 64]] * 3
