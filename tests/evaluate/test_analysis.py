"""Errors of a detector by kind, class, pair of classes and image; and the report that shows them."""

import json

import cv2
import numpy as np
import pytest

import mmort
from mmort import demo
from mmort.evaluate import CocoDataset, DotaDataset, Evaluation, VocDataset, analyze, collect, score_results
from mmort.evaluate import TestOptions as Options
from mmort.evaluate.analysis import Kind, write_report
from mmort.evaluate.analysis.report import MAX_IMAGES, MAX_MATRIX_CLASSES
from mmort.evaluate.coco_truth import CocoTruth
from mmort.evaluate.dataset import Dataset, DatasetImage
from mmort.evaluate.image_objects import ImageObjects
from mmort.evaluate.results import ImageResult
from mmort.evaluate.unlabelled import UnlabelledDataset
from tests.evaluate.test_parity import Page

CAT, DOG = 0, 1
OBJECTS = [[10, 10, 50, 50], [100, 10, 140, 50], [200, 10, 240, 50]]
"""A cat, a dog, and a crowd of dogs."""


class Boxes(Dataset):
    """Objects in images that need not exist."""

    metric_names = ()
    classes = "cat", "dog"

    def __init__(self, objects, classes=classes):
        self.images = tuple(DatasetImage(index, f"{index}.png", f"{index}.png") for index in range(len(objects)))
        self.classes, self._objects = classes, objects

    def objects(self):
        return self._objects

    def score(self, results, metrics, options):
        raise NotImplementedError


def objects(boxes=OBJECTS, labels=(CAT, DOG, DOG), crowds=(False, False, True)):
    crowds = np.array(crowds, bool)
    return ImageObjects(np.array(boxes, float).reshape(-1, 4), np.array(labels, np.int64), crowds, crowds)


def result(*rows):
    boxes, scores, labels = zip(*rows, strict=True) if rows else ((), (), ())
    return ImageResult(
        np.array(boxes, np.float32).reshape(-1, 4), np.array(scores, np.float32), np.array(labels, np.int64)
    )


def moved(box, pixels):
    return [box[0] + pixels, box[1], box[2] + pixels, box[3]]


@pytest.mark.parametrize(
    ("box", "label", "kind"),
    [
        (OBJECTS[0], CAT, Kind.RIGHT),
        (moved(OBJECTS[0], 13), CAT, Kind.RIGHT),  # an IoU of 27 / 53
        (moved(OBJECTS[0], 14), CAT, Kind.BOX),  # 26 / 54
        (moved(OBJECTS[0], 32), CAT, Kind.BOX),  # 8 / 72
        (moved(OBJECTS[0], 33), CAT, Kind.BACKGROUND),  # 7 / 73
        (OBJECTS[0], DOG, Kind.CLASS),
        (moved(OBJECTS[0], 14), DOG, Kind.CLASS_AND_BOX),
        (moved(OBJECTS[0], 33), DOG, Kind.BACKGROUND),
        ([205, 15, 210, 20], DOG, Kind.IGNORED),  # inside the crowd
        ([205, 15, 210, 20], CAT, Kind.BACKGROUND),
    ],
)
def test_a_detection_is_right_or_an_error_of_a_kind(box, label, kind):
    analysis = analyze(Boxes([objects()]), [result((box, 0.9, label))])
    assert Kind(int(analysis.images[0].errors.kinds[0])) is kind
    assert analysis.kinds[label, kind] == analysis.kinds.sum() == 1
    assert analysis.missed.tolist() == [int(kind is not Kind.RIGHT), 1]  # the crowd is not missed


def test_the_second_detection_of_an_object_is_a_duplicate():
    found = result((OBJECTS[0], 0.5, CAT), (moved(OBJECTS[0], 5), 0.9, CAT), (OBJECTS[0], 0.2, CAT))
    analysis = analyze(Boxes([objects()]), [found])
    assert analysis.images[0].errors.kinds.tolist() == [Kind.DUPLICATE, Kind.RIGHT, Kind.DUPLICATE]
    assert analysis.images[0].wrong.tolist() == [True, False, False]  # the third is below the threshold
    assert analyze(Boxes([objects()]), [found], score_threshold=0.1).kinds[CAT, Kind.DUPLICATE] == 2
    assert analyze(Boxes([objects()]), [found], score_threshold=0.95).missed.tolist() == [1, 1]


def test_a_detection_takes_the_object_that_it_overlaps_most_among_those_not_taken():
    pair = objects([[0, 0, 40, 40], [4, 0, 44, 40]], (CAT, CAT), (False, False))
    analysis = analyze(Boxes([pair]), [result(([3, 0, 43, 40], 0.9, CAT), ([4, 0, 44, 40], 0.8, CAT))])
    assert analysis.images[0].errors.matches.tolist() == [1, 0]


def test_pairs_are_counted_by_class():
    rows = (OBJECTS[0], 0.9, CAT), (OBJECTS[0], 0.8, DOG), ([0, 100, 9, 109], 0.7, DOG), (OBJECTS[0], 0.1, DOG)
    analysis = analyze(Boxes([objects(), objects()]), [result(*rows), result()])
    assert analysis.confusion.tolist() == [[1, 1, 1], [0, 0, 2], [0, 1, 0]]


def test_curves_are_those_of_the_class():
    found = result((OBJECTS[0], 0.9, CAT), ([0, 100, 9, 109], 0.8, CAT), (OBJECTS[1], 0.6, DOG))
    second = result((OBJECTS[0], 0.7, CAT))
    analysis = analyze(Boxes([objects(), objects()]), [found, second])
    cat, dog = analysis.curves
    assert (cat.scores.round(3).tolist(), cat.objects) == ([0.9, 0.8, 0.7], 2)
    assert (cat.precisions.tolist(), cat.recalls.tolist()) == ([1, 1 / 2, 2 / 3], [1 / 2, 1 / 2, 1])
    assert cat.at(0.75) == (1 / 2, 1 / 2)
    assert cat.at(0.95) == (0, 0)
    assert cat.best_f1() == pytest.approx((0.8, 0.7))
    assert cat.average_precision == pytest.approx((51 * 1 + 50 * 2 / 3) / 101)
    assert dog.average_precision == pytest.approx(51 / 101)
    nothing = analyze(Boxes([objects()]), [result()]).curves[CAT]
    assert (nothing.average_precision, nothing.best_f1()) == (0, (0, 1))
    assert analyze(Boxes([objects([], (), ())]), [found]).curves[CAT].average_precision == -1


@pytest.fixture(scope="module")
def evaluation():
    evaluation = Evaluation(CocoDataset(demo.ANNOTATIONS, demo.IMAGES[0].parent), masks=True)
    collect(evaluation, mmort.Predictor(demo.MODEL, score_threshold=0).predict)
    return evaluation


def blurred(evaluation, rng):
    """Return the results with other boxes, labels and scores, so that all kinds of errors occur."""
    for of_image in evaluation.results:
        count = len(of_image.scores)
        boxes = of_image.boxes + rng.normal(0, 3, (count, 4)).astype(np.float32)
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)  # COCO's tool ignores negative areas
        labels = np.where(rng.random(count) < 0.3, rng.integers(0, 10, count), of_image.labels)
        yield ImageResult(boxes, rng.random(count).astype(np.float32), labels)


@pytest.mark.parametrize("seed", range(3))
def test_average_precision_of_curves_is_that_of_coco(evaluation, seed, tmp_path):
    annotations = json.loads(demo.ANNOTATIONS.read_text())
    for entry in annotations["annotations"][::7]:
        entry["iscrowd"] = 1
    (tmp_path / "crowds.json").write_text(json.dumps(annotations))
    dataset = CocoDataset(tmp_path / "crowds.json", demo.IMAGES[0].parent)
    results = list(blurred(evaluation, np.random.default_rng(seed)))
    expected = dataset.score(results, ["bbox"], {"classwise": True}).classwise["bbox"]
    curves = analyze(dataset, results).curves
    assert {name: curve.average_precision for name, curve in zip(dataset.classes, curves, strict=True)} == {
        name: pytest.approx(figures["mAP_50"], abs=1e-12) for name, figures in expected.items()
    }
    assert 0.05 < np.mean([curve.average_precision for curve in curves]) < 0.9


def test_the_report_shows_what_is_wrong(evaluation, tmp_path):
    rng = np.random.default_rng(0)
    rows = evaluation.dataset.rows([*blurred(evaluation, rng)], masks=False)
    (tmp_path / "r.bbox.json").write_text(json.dumps(rows))
    report = tmp_path / "report.html"
    options = Options(metrics=["bbox"], report=report, show_score_thr=0.4)
    outcome = score_results(tmp_path / "r.bbox.json", evaluation.dataset, options=options)
    assert (outcome.written, outcome.not_drawn) == ({report: ""}, ())
    page = Page(report)
    analysis = analyze(evaluation.dataset, [*blurred(evaluation, np.random.default_rng(0))], score_threshold=0.4)
    wrong, missed = sum(image.wrong.sum() for image in analysis.images), analysis.missed.sum()
    assert f"4 images with 22 objects: {22 - missed} found, {missed} missed; {wrong} detections are wrong" in page.text
    source = report.read_text(encoding="utf-8")
    assert f"<td>bbox_mAP</td><td>{outcome.metrics.figures['bbox_mAP']:.4f}</td>" in source
    assert len(page.addresses) == 8  # each image twice
    assert all(address.startswith("data:image/jpeg") for address in page.addresses)
    assert source.count("<polyline") == 11
    assert source.count('<rect class="extra"') == wrong
    assert source.count('<rect class="missing"') == missed
    assert not {"script", "link"} & set(page.tags)


def test_a_report_of_many_classes_and_images_is_cut(tmp_path):
    count = MAX_MATRIX_CLASSES + 10
    names = tuple(f"class{label:02}" for label in range(count))
    dataset = Boxes([objects([OBJECTS[0]], [label], [False]) for label in range(count)], names)
    image = tmp_path / "image.png"
    cv2.imwrite(str(image), np.zeros((60, 90, 3), np.uint8))
    dataset.images = tuple(DatasetImage(label, image, f"{label}.png") for label in range(count))
    results = [result((OBJECTS[0], 0.9, max(label, 1))) for label in range(count)]  # the first is confused
    analysis = analyze(dataset, results)
    assert write_report(analysis, dataset, tmp_path / "r.html", subject="a <b>", facts={}) == ()
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert f"The {MAX_MATRIX_CLASSES} classes with the most errors" in text
    assert "a &lt;b&gt;" in text
    assert "The image with errors" in text
    assert text.count("data:image") == 2
    worse = analyze(dataset, [result() for _ in range(count)])
    write_report(worse, dataset, tmp_path / "r.html", subject="", facts={})
    assert (tmp_path / "r.html").read_text(encoding="utf-8").count("data:image") == 2 * MAX_IMAGES
    image.unlink()
    assert len(write_report(worse, dataset, tmp_path / "r.html", subject="", facts={})) == MAX_IMAGES


def test_what_has_no_objects_has_no_report(tmp_path):
    images = UnlabelledDataset([demo.IMAGES[0]], ("cat",))
    with pytest.raises(ValueError, match="report needs objects with boxes, which this UnlabelledDataset does not have"):
        mmort.evaluate.test(demo.MODEL, images, options=Options(report=tmp_path / "r.html"))
    with pytest.raises(ValueError, match="errors need objects with boxes, which this UnlabelledDataset"):
        analyze(images, [result()])


def test_objects_of_a_category_with_two_labels_have_the_first():
    entry = {"image_id": 1, "category_id": 5, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0}
    truth = CocoTruth.of({"images": [{"id": 2}, {"id": 1}], "annotations": [entry]}, [7, 5, 5])
    empty, only = truth.objects()
    assert (only.labels.tolist(), only.boxes.tolist(), empty.labels.tolist()) == ([1], [[1, 2, 4, 6]], [])


def test_difficult_objects_of_voc_are_ignored(tmp_path):
    (tmp_path / "Annotations").mkdir()
    corners = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax></bndbox>"
    text = "".join(
        f"<object><name>{name}</name><difficult>{difficult}</difficult>{corners}</object>"
        for name, difficult in (("dog", 0), ("yak", 0), ("cat", 1))
    )
    (tmp_path / "Annotations" / "a.xml").write_text(f"<annotation>{text}</annotation>")
    (tmp_path / "test.txt").write_text("a\n")
    dataset = VocDataset(tmp_path / "test.txt", tmp_path, ("cat", "dog"))
    analysis = analyze(dataset, [result(([0, 1, 29, 39], 0.9, CAT))])
    assert (analysis.images[0].errors.kinds.tolist(), analysis.missed.tolist()) == ([Kind.IGNORED], [0, 1])


def test_rotated_boxes_of_dota_overlap_as_such(tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((60, 90, 3), np.uint8))
    (tmp_path / "labels").mkdir()
    dataset = DotaDataset(tmp_path / "labels", tmp_path, ("cat", "dog"))
    assert dataset.objects() is None
    (tmp_path / "labels" / "a.txt").write_text("30 10 50 30 30 50 10 30 dog 0\n")  # a square on its corner
    upright = ImageResult(np.array([[10, 10, 50, 50]], np.float32), np.ones(1, np.float32), np.array([DOG]))
    with pytest.raises(ValueError, match="objects have rotated boxes, but those of the detections are upright"):
        analyze(dataset, [upright])
    # Around the same upright box, this diamond overlaps that square by all of itself, and its upright box by half.
    side = 40 / np.sqrt(2)
    for angle, kind in ((np.pi / 4, Kind.RIGHT), (0, Kind.RIGHT)):
        rotated = np.array([[30, 30, side, side, angle]], np.float32)
        found = ImageResult(upright.boxes, upright.scores, upright.labels, rotated_boxes=rotated)
        analysis = analyze(dataset, [found])
        overlap = analysis.images[0].errors.overlaps[0, 0]
        assert (analysis.images[0].errors.kinds[0], overlap) == (kind, pytest.approx(1 if angle else 0.707, abs=0.01))
    write_report(analysis, dataset, tmp_path / "r.html", subject="", facts={})
