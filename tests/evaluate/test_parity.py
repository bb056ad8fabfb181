"""Parity: what counts as equal, what is added up over a data set, and the report."""

import base64
import html.parser
import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from mmort import Detections, demo
from mmort.configs import read_config
from mmort.contract import DETECTION
from mmort.evaluate import CocoDataset
from mmort.evaluate.dataset import DatasetImage, Metrics
from mmort.evaluate.parity import (
    Column,
    Comparison,
    Parity,
    ParityOptions,
    compare_image,
    compare_models,
    write_report,
)
from mmort.evaluate.parity import parity as parity_of_networks
from mmort.evaluate.parity.comparison import SCORE_BINS
from mmort.evaluate.parity.histogram import histogram
from mmort.evaluate.parity.image_pairs import MAX_ROWS, image_pair
from mmort.predict import BoxMasks, ImageMasks, OnnxRuntime
from tests import old_export

BOXES = np.array([[10, 10, 30, 40], [50, 5, 70, 45], [20, 60, 60, 90]], np.float32)
SCORES = np.array([0.9, 0.6, 0.1], np.float32)
SIZE = 100, 120


def detections(boxes=BOXES, scores=SCORES, labels=(0, 1, 1), names=None, masks=None):
    boxes = np.asarray(boxes, np.float32)
    stored = None if masks is None else BoxMasks(np.asarray(masks, np.float32), boxes)
    return Detections(boxes, scores, labels, names or tuple(map(str, labels)), SIZE, stored)


def changed(array, index, value):
    array = np.array(array)
    array[index] = value
    return array


def test_rounding_and_order_are_equal():
    candidate = detections(BOXES + 0.02, SCORES + 1e-5, (0, 1, 1))[[2, 0, 1]]
    result = compare_image(detections(), candidate)
    assert result.equal
    assert result.matches.tolist() == [1, 2, 0]
    assert result.max_box_diff == pytest.approx(0.02, abs=1e-5)
    assert result.max_score_diff == pytest.approx(1e-5, abs=1e-7)


@pytest.mark.parametrize(
    ("candidate", "missing", "extra"),
    [
        (detections()[:2], [2], []),
        (detections(changed(BOXES, 0, [10, 10, 31, 40])), [0], [0]),
        (detections(scores=changed(SCORES, 1, 0.59)), [1], [1]),
        (detections(labels=(0, 1, 0)), [2], [2]),
        (detections()[[0, 0, 1, 2]], [], [1]),
        (detections()[:0], [0, 1, 2], []),
    ],
    ids=["fewer", "box", "score", "label", "twice", "none"],
)
def test_differences(candidate, missing, extra):
    result = compare_image(detections(), candidate)
    assert not result.equal
    assert (result.missing.tolist(), result.extra.tolist(), len(result.other_masks)) == (missing, extra, 0)


def test_nothing_and_nothing_are_equal():
    assert compare_image(detections()[:0], detections()[:0]).equal


def test_masks():
    soft = np.full((3, 4, 4), 0.9)
    other = changed(soft, (1, slice(0, 2)), 0.1)
    result = compare_image(detections(masks=soft), detections(masks=other))
    assert (result.other_masks.tolist(), len(result.missing), len(result.extra)) == ([1], 0, 0)
    assert compare_image(detections(masks=soft), detections(masks=soft)).equal
    assert compare_image(detections(masks=soft), detections()).equal  # a file without masks has its boxes compared


def test_a_single_pixel_of_a_mask_is_rounding():
    tiny = [[10, 10, 12, 12]]
    whole, three = np.ones((1, 2, 2)), changed(np.ones((1, 2, 2)), (0, 0, 0), 0)
    one_pixel, two_pixels = (
        detections(tiny, [0.9], [0], masks=masks) for masks in (three, changed(three, (0, 1, 1), 0))
    )
    reference = detections(tiny, [0.9], [0], masks=whole)
    assert (reference.mask(0) ^ one_pixel.mask(0)).sum() == 1
    assert compare_image(reference, one_pixel).equal
    assert not compare_image(reference, two_pixels).equal


def test_equal_boxes_are_paired_by_their_masks():
    boxes, masks = np.tile(np.float32([4, 4, 12, 12]), (2, 1)), np.zeros((2, 4, 4))
    masks[0, :2], masks[1, 2:] = 1, 1
    reference = detections(boxes, [0.9, 0.9], [0, 0], masks=masks)
    result = compare_image(reference, detections(boxes, [0.9, 0.9], [0, 0], masks=masks[::-1]))
    assert result.equal
    assert result.matches.tolist() == [1, 0]


def test_boxes_of_masks_follow_their_pixels():
    """A pixel moves a box by one; masks of other pixels are told apart, wherever their boxes are."""
    canvas = np.zeros((2, 20, 30), bool)
    canvas[0, 2:18, 2:10], canvas[1, 2:18, 14:28] = True, True

    def found(masks):
        stored = ImageMasks.from_arrays(masks)
        return Detections(stored.boxes, [0.9, 0.9], [0, 0], ("a", "b"), (20, 30), stored)

    result = compare_image(found(canvas), found(changed(canvas, (0, 5, 10), True)[::-1]))
    assert result.equal
    assert result.matches.tolist() == [1, 0]
    moved = compare_image(found(canvas), found(np.roll(canvas, 1, axis=2)))
    assert moved.other_masks.tolist() == [0, 1]


def compared(tmp_path, candidates, name="ONNX", max_examples=12):
    """Compare, for each entry of `others`, the standard detections with it, in an image of its own."""
    comparison = Comparison(name, max_examples)
    for index, other in enumerate(candidates):
        path = tmp_path / f"{index}.png"
        cv2.imwrite(str(path), np.full((*SIZE, 3), 90, np.uint8))
        comparison.add(DatasetImage(index, path, path.name), detections(), other)
    return comparison


def test_totals(tmp_path):
    total = compared(tmp_path, [detections(), detections()[:2], detections(scores=changed(SCORES, 0, 0.95))])
    assert (total.images, total.differing_images) == (3, 2)
    assert (total.expected, total.found, total.matched, total.missing, total.extra) == (9, 8, 7, 2, 1)
    assert total.agreement == 2 * 7 / (9 + 8)
    assert {kind: np.flatnonzero(counts).tolist() for kind, counts in total.scores.items()} == {
        "reference": [2, 12, 18],
        "found": [2, 12, 18, 19],
        "missing": [2, 18],
        "extra": [19],
    }
    assert total.scores["reference"].sum() == 9


def test_detections_of_the_same_object():
    """They are matched whatever the tolerances: by their labels and the IoU of their boxes, each once."""
    moved = detections(BOXES + np.array([[2, 0, 2, 0], [0, 0, 0, 0], [30, 0, 30, 0]]), SCORES - [0.05, 0, 0])
    for order in ([0, 1, 2], [2, 0, 1]):
        result = compare_image(detections(), moved[order])
        assert result.matches.tolist() == [-1, order.index(1), -1]
        assert result.same_object.tolist() == [order.index(0), order.index(1), -1]
    assert compare_image(detections(), detections(labels=(1, 1, 0))).same_object.tolist() == [-1, 1, -1]
    twice = detections(BOXES[[0, 0]], SCORES[:2], (0, 0))
    assert compare_image(twice, detections(BOXES[:1] + 2, SCORES[:1], (0,))).same_object.tolist() == [0, -1]
    assert compare_image(detections(), detections()[:0]).same_object.tolist() == [-1] * 3


def test_rotated_detections_of_the_same_object():
    """By the IoU of the rotated boxes: the boxes around them are all the same."""
    rotated = np.array([[40, 40, 30, 4, 0.8], [70, 40, 30, 4, 0.8]], np.float32)
    reference, turned, other = (
        Detections(BOXES[:2], scores, (0, 0), ("a", "a"), SIZE, rotated_boxes=rotated + np.float32([0, 0, 0, 0, angle]))
        for scores, angle in ((SCORES[:2], 0), (SCORES[:2] / 2, 0.04), (SCORES[:2] / 2, -1.6))
    )
    assert compare_image(reference, turned[[1, 0]]).same_object.tolist() == [1, 0]
    assert compare_image(reference, other).same_object.tolist() == [-1, -1]


ROTATED = np.array([[50, 40, 40, 12, 0.5], [90, 60, 30, 10, -0.3]], np.float32)


def rotated(boxes):
    return Detections.of_rotated(boxes, SCORES[:2], (0, 0), ("a", "a"), SIZE)


@pytest.mark.parametrize(
    ("boxes", "missing"),
    [
        (ROTATED + np.float32([0.02, 0, 0, 0, 1e-4]), []),
        (ROTATED[:, [0, 1, 3, 2, 4]] - np.float32([0, 0, 0, 0, np.pi / 2]), []),  # the same corners
        (ROTATED * np.float32([1, 1, 1, 1, -1]), [0, 1]),  # the same upright boxes around them
        (changed(ROTATED, (1, 4), -0.2), [1]),
    ],
    ids=["rounding", "sides exchanged", "mirrored", "angle"],
)
def test_rotated_boxes_are_compared_as_they_are(boxes, missing):
    result = compare_image(rotated(ROTATED), rotated(boxes))
    assert (result.missing.tolist(), result.extra.tolist()) == (missing, missing)
    assert result.max_box_diff < 0.05


def with_keypoints(keypoints, boxes=BOXES[:2]):
    return Detections(boxes, SCORES[:2], (0, 0), ("a", "a"), SIZE, keypoints=np.asarray(keypoints, np.float32))


POSES = np.array([[[20, 20, 0.9], [25, 35, 0.8]], [[55, 10, 0.7], [60, 40, 0.6]]], np.float32)


@pytest.mark.parametrize(
    ("keypoints", "missing"),
    [
        (POSES + np.float32([0.02, -0.02, 1e-5]), []),
        (changed(POSES, (1, 0, 0), 56), [1]),
        (changed(POSES, (0, 1, 2), 0.7), [0]),
        (POSES[:, :1], [0, 1]),
    ],
    ids=["rounding", "position", "score", "fewer"],
)
def test_keypoints_are_compared(keypoints, missing):
    result = compare_image(with_keypoints(POSES), with_keypoints(keypoints))
    assert (result.missing.tolist(), result.extra.tolist()) == (missing, missing)


def test_equal_boxes_are_paired_by_their_keypoints():
    boxes, scores = BOXES[[0, 0]], SCORES[[0, 0]]
    reference, other = (
        Detections(boxes, scores, (0, 0), ("a", "a"), SIZE, keypoints=poses) for poses in (POSES, POSES[::-1])
    )
    assert compare_image(reference, other).matches.tolist() == [1, 0]


def test_drift(tmp_path):
    """Quantiles over all images: the median, 95 % and the largest difference."""
    moves = np.arange(1, 7) / 2
    candidates = [detections(BOXES + np.float32(move), SCORES + np.float32(0.01)) for move in moves]
    total = compared(tmp_path, candidates)
    assert (total.matched, total.same_object) == (0, 18)
    assert total.box_drift == pytest.approx(np.quantile(moves.repeat(3), [0.5, 0.95, 1]), abs=1e-5)
    assert total.score_drift == pytest.approx([0.01] * 3, abs=1e-6)
    text = str(parity(total))
    assert "18 of 18 detections show the same object (same class, IoU of 0.5 or more); their boxes moved by" in text
    assert "boxes moved by 1.8, 3, 3 px, their scores by 0.01, 0.01, 0.01 (median, 95%, largest)." in text
    assert compared(tmp_path, [detections()]).box_drift == (0, 0, 0)
    assert "same object" not in str(parity(compared(tmp_path, [detections()])))
    assert "0 of 3 detections show the same object" in str(parity(compared(tmp_path, [detections()[:0]])))


def test_the_most_severe_images_are_kept(tmp_path):
    candidates = [detections()[:2], detections()[1:], detections(), detections()[[0, 2]], detections()[:2]]
    examples = compared(tmp_path, candidates, max_examples=3).examples
    assert [example.image.name for example in examples] == ["1.png", "3.png", "0.png"]


FIGURES = {"bbox_mAP": 0.5, "bbox_mAP_50": 0.8, "bbox_mAP_l": -1.0}


def parity(comparison, *, figures=FIGURES):
    differences = {name: figures[name] - value for name, value in FIGURES.items()}
    return Parity("torch", FIGURES, (Column(figures, differences, comparison),))


@pytest.mark.parametrize(
    ("figures", "ok", "summary"),
    [
        ({}, True, "bbox_mAP is 0.5000, and no metric differs. 3 of 3 detections are equal."),
        ({"bbox_mAP": 0.50049}, True, "bbox_mAP is 0.5000, and no metric differs."),
        ({"bbox_mAP": 0.4994, "bbox_mAP_50": 0.81}, False, "2 of 3 metrics differ, bbox_mAP_50 by +0.0100."),
    ],
)
def test_verdict_on_metrics(tmp_path, figures, ok, summary):
    result = parity(compared(tmp_path, [detections()]), figures=FIGURES | figures)
    assert result.ok is ok
    assert result.summary(result.columns[0]).startswith(summary)
    assert f"ONNX {'equals' if ok else 'differs from'} torch: {summary}" in str(result)


def test_verdict_on_detections(tmp_path):
    result = parity(compared(tmp_path, [detections()] * 199 + [detections()[:2]]))
    assert result.ok  # 599 of 600, and of 599
    result = parity(compared(tmp_path, [detections()] * 100 + [detections()[:2]]))
    assert not result.ok
    assert result.summary(result.columns[0]).endswith("(99.83%), 1 missing, 0 extra. 99.9% are required.")


def test_nothing_found_proves_nothing(tmp_path):
    comparison = Comparison("ONNX")
    comparison.add(DatasetImage(0, tmp_path, "0.png"), detections()[:0], detections()[:0])
    result = parity(comparison)
    assert not result.ok
    assert "torch found nothing" in str(result)


def test_equal_metrics_of_0_prove_nothing(tmp_path):
    note = "torch and ONNX find none of the data set's objects, which proves nothing: are its classes"
    for value in (0.0, -1.0):
        figures = dict.fromkeys(FIGURES, value)
        total = compared(tmp_path, [detections()])
        result = Parity("torch", figures, (Column(figures, dict.fromkeys(figures, 0.0), total),))
        assert note in str(result)
        write_report(result, tmp_path / "report.html", subject="", facts={})
        assert note in Page(tmp_path / "report.html").text
    assert note not in str(parity(total))


def test_table(tmp_path):
    table = str(parity(compared(tmp_path, [detections()[:2]]), figures=FIGURES | {"bbox_mAP": 0.51}))
    assert table.splitlines()[:5] == [
        "             torch   ONNX    difference",
        "bbox_mAP     0.5000  0.5100  +0.0100",
        "bbox_mAP_50  0.8000  0.8000  0.0000",
        "bbox_mAP_l   -       -       -",
        "detections   3       2       2 equal",
    ]


class Dataset:
    """Two images, and a metric: the mean score."""

    images = (DatasetImage(7, Path("7.png"), "7.png"), DatasetImage(9, Path("9.png"), "9.png"))
    classes, task, max_figure = ("0", "1"), DETECTION, 1.0

    def __len__(self):
        return len(self.images)

    def check(self, metrics, options):
        assert metrics == ["mean"]

    def score(self, results, metrics, options):
        return Metrics({"mean": float(np.mean([result.scores.mean() for result in results]))})


def test_models_run_in_step_over_the_images():
    calls = []

    def model(name, candidate):
        def predict(paths):
            for path in paths:
                calls.append((name, path))
                yield candidate

        return predict

    models = {"same": model("same", detections()), "fewer": model("fewer", detections()[:1])}
    result = compare_models(Dataset(), {"torch": model("torch", detections()), **models}, ["mean"], progress=False)
    assert calls == [(name, path) for path in (Path("7.png"), Path("9.png")) for name in ("torch", "same", "fewer")]
    same, fewer = result.columns
    assert (same.equal, fewer.equal) == (True, False)
    assert fewer.differences == pytest.approx({"mean": 0.9 - SCORES.mean()})
    assert (fewer.comparison.matched, fewer.comparison.missing) == (2, 4)


def test_a_comparison_needs_two_models_and_as_many_results_as_images():
    with pytest.raises(ValueError, match="two or more, got 1"):
        compare_models(Dataset(), {"torch": lambda paths: iter(())}, ["mean"])
    with pytest.raises(ValueError, match="metrics must not be empty"):
        compare_models(Dataset(), dict.fromkeys("ab", lambda paths: iter(())), [])
    with pytest.raises(ValueError, match="shorter"):
        compare_models(Dataset(), dict.fromkeys("ab", lambda paths: [detections()]), ["mean"], progress=False)


# ---- parity, the function of the command --------------------------------------------------------------------------


def digits():
    return CocoDataset(demo.ANNOTATIONS, demo.IMAGES[0].parent)


def test_networks_are_compared_by_the_metrics_of_what_they_find(tmp_path):
    networks = {"file": OnnxRuntime(demo.MODEL), "other": OnnxRuntime(demo.MODEL)}
    options = ParityOptions(report=tmp_path / "x.html", facts={"Files": "two"}, batch_size=2)
    result = parity_of_networks(networks, digits(), options=options)
    assert result.ok
    assert {"bbox_mAP", "segm_mAP"} <= set(result.metrics)
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    for fact in (
        "file, on 4 images",
        "<dd>two</dd>",
        "<dt>Batch size</dt><dd>2</dd>",
        "onnxruntime 1.",
        "4 with 10 cl",
    ):
        assert fact in text
    assert "torch" not in text


def test_arguments_are_checked_before_an_iterator_goes_on():
    """Such as one that exports a file."""

    def networks():
        yield "file", OnnxRuntime(demo.MODEL)
        pytest.fail("the second network was taken")

    with pytest.raises(ValueError, match="metric 'mAP' is not one of this data set"):
        parity_of_networks(networks(), digits(), options=ParityOptions(metrics=["mAP"]))
    with pytest.raises(FileNotFoundError, match="output directory does not exist: none"):
        ParityOptions(report="none/x.html")


def test_other_classes_are_told():
    """Without the warning, a report of missing detections would not show their cause."""
    networks = {"file": OnnxRuntime(demo.MODEL), "other": OnnxRuntime(demo.MODEL)}
    networks["other"].classes = *networks["other"].classes[:9], "ten"
    with pytest.warns(UserWarning, match="other has other classes than file, .*: label 9 is 'ten' rather than 'nine'$"):
        parity_of_networks(networks, digits())
    networks["other"].classes = *networks["file"].classes, "ten"
    with pytest.warns(UserWarning, match="label 10 is 'ten' rather than None$"):
        parity_of_networks(networks, digits())


def test_with_a_config_all_networks_are_fed_like_the_reference():
    """A file without metadata takes part."""
    config = read_config(demo.CONFIG, {"data.test.samples_per_gpu": 4})
    networks = {"file": OnnxRuntime(demo.MODEL), "bare": OnnxRuntime(old_export.MODEL)}
    with pytest.raises(ValueError, match="has no preprocessing in its metadata"):
        parity_of_networks(networks, digits())
    result = parity_of_networks(networks, digits(), config, ParityOptions(metrics=["bbox"]))
    assert result.columns[0].comparison.images == 4


# ---- report ----------------------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.addresses, self.text, self.open = [], [], "", []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("href", "src", "action", "data")]
        if tag not in ("meta", "rect", "line", "image", "br", "i"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data


def report(tmp_path, comparison, **arguments):
    path = tmp_path / "report.html"
    arguments = {"subject": "A detector on 3 images", "facts": {"Config": "config.py"}} | arguments
    write_report(parity(comparison), path, **arguments)
    return path


def test_report_of_equal_models(tmp_path):
    page = Page(report(tmp_path, compared(tmp_path, [detections()] * 3)))
    for text in ("A detector on 3 images", "ONNX equals torch", "No image differs: in all 3 images", "0.5000"):
        assert text in page.text
    assert "differs from" not in page.text
    assert "image" not in page.tags


def test_report_shows_both_versions_of_the_images_that_differ_most(tmp_path):
    comparison = compared(tmp_path, [detections()[:2]] * 3 + [detections()], max_examples=2)
    path = report(tmp_path, comparison)
    page = Page(path)
    assert "ONNX differs from torch" in page.text
    assert "The 2 of 3 images that differ most" in page.text
    assert "torch: 3 detections, 1 of them without an equal one" in page.text
    assert "ONNX: 2 detections, none of them without an equal one" in page.text
    assert len(page.addresses) == 4
    for address in page.addresses:
        kind, data = address.split(",")
        assert kind == "data:image/jpeg;base64"
        drawn = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)
        assert drawn.shape[:2] == (667, 800)
    # the box that only torch found is outlined, at its position in the image
    text = path.read_text(encoding="utf-8")
    assert text.count('<rect class="missing" x="20.0" y="60.0" width="40.0" height="30.0"/>') == 2


def test_without_metrics_there_is_no_table_of_them(tmp_path):
    total = compared(tmp_path, [detections()])
    for figures in (FIGURES, {}):
        result = Parity("torch", figures, (Column(figures, dict.fromkeys(figures, 0.0), total),))
        write_report(result, tmp_path / "report.html", subject="", facts={})
        assert ("Metrics" in Page(tmp_path / "report.html").text) == bool(figures)


def test_all_detections_above_a_score_are_drawn(tmp_path):
    """Those that differ too, if they are too many to be listed: otherwise they would look missed by both."""
    many = 3 * MAX_ROWS
    corners = np.linspace(0, 80, many)
    scores = np.linspace(0.9, 0.4, many)
    boxes = np.stack([corners, corners, corners + 15, corners + 15], 1)
    path = tmp_path / "0.png"
    cv2.imwrite(str(path), np.full((*SIZE, 3), 90, np.uint8))
    comparison = Comparison("ONNX")
    comparison.add(DatasetImage(0, path, "0.png"), detections(boxes, scores, [0] * many), detections()[:0])
    (example,) = comparison.examples
    side = image_pair(example, "torch", "ONNX").sides[0]
    assert len(side.boxes) == MAX_ROWS
    drawn = cv2.imdecode(np.frombuffer(base64.b64decode(side.uri.partition(",")[2]), np.uint8), cv2.IMREAD_COLOR)
    last = round(94.9 * 800 / SIZE[1])
    assert np.abs(drawn[last - 8 : last + 3, last - 8 : last + 3].astype(int) - 90).max() > 50


def test_differing_detections_are_drawn_whatever_their_score(tmp_path):
    (example,) = compared(tmp_path, [detections()[:2]]).examples
    images = []
    for side in image_pair(example, "torch", "ONNX").sides:
        data = base64.b64decode(side.uri.partition(",")[2])
        images.append(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))
    scale = 800 / SIZE[1]
    left_edge = slice(round(70 * scale), round(80 * scale)), round(20 * scale)
    differences = [np.abs(image[left_edge].astype(int) - 90).max() for image in images]
    assert differences[0] > 50 > differences[1]  # its score is 0.1, and only torch found it


def test_the_differing_detections_with_the_highest_scores_are_listed(tmp_path):
    path = tmp_path / "0.png"
    cv2.imwrite(str(path), np.zeros((*SIZE, 3), np.uint8))
    comparison = Comparison("ONNX")
    corners = np.arange(12)
    many = detections(np.stack([corners, corners, corners + 20, corners + 20], 1), 1 - corners / 20, [0] * 12)
    comparison.add(DatasetImage(0, path, "0.png"), detections(masks=np.ones((3, 4, 4))), many)
    (example,) = comparison.examples
    pair = image_pair(example, "torch", "ONNX")
    assert [(row.found_by, round(row.score, 2)) for row in pair.rows] == [
        *(("ONNX", 1.0), ("ONNX", 0.95), ("torch", 0.9), ("ONNX", 0.9), ("ONNX", 0.85), ("ONNX", 0.8), ("ONNX", 0.75)),
        *(("ONNX", 0.7), ("ONNX", 0.65), ("torch", 0.6), ("ONNX", 0.6)),
    ]
    assert pair.more == 15 - 11
    assert [len(side.boxes) for side in pair.sides] == [2, 9]


def test_other_masks_are_called_so(tmp_path):
    path = tmp_path / "0.png"
    cv2.imwrite(str(path), np.zeros((*SIZE, 3), np.uint8))
    soft = np.full((3, 4, 4), 0.9)
    comparison = Comparison("ONNX")
    result = detections(masks=changed(soft, (1, slice(0, 2)), 0.1))
    comparison.add(DatasetImage(0, path, "0.png"), detections(masks=soft), result)
    (example,) = comparison.examples
    rows = image_pair(example, "torch", "ONNX").rows
    assert [(row.found_by, row.box) for row in rows] == [
        ("torch, other mask", "50.0, 5.0, 70.0, 45.0"),
        ("ONNX, other mask", "50.0, 5.0, 70.0, 45.0"),
    ]


def test_report_needs_no_network_and_no_script(tmp_path):
    path = report(tmp_path, compared(tmp_path, [detections()[:2]]))
    page, text = Page(path), path.read_text(encoding="utf-8")
    assert "The image that differs" in page.text
    assert not {"script", "link", "iframe", "img", "object"} & set(page.tags)
    assert all(address.startswith("data:") for address in page.addresses)
    assert "url(" not in text
    assert not re.search(r"(?<!data:image/jpeg;base64,)\bhttps?:", text)
    assert page.open == []


def test_text_from_files_is_escaped(tmp_path):
    evil = "<script>alert('&\"')</script>"
    comparison = Comparison(evil)
    path = tmp_path / "0.png"
    cv2.imwrite(str(path), np.zeros((*SIZE, 3), np.uint8))
    comparison.add(DatasetImage(0, path, evil), detections(names=(evil,) * 3), detections(names=(evil,) * 3)[:1])
    page = Page(report(tmp_path, comparison, subject=evil, facts={evil: evil}))
    assert "script" not in page.tags
    assert page.text.count(evil) > 8


def test_histogram():
    counts = {kind: np.zeros(SCORE_BINS, np.int64) for kind in ("reference", "found", "missing", "extra")}
    counts["reference"][[0, 19]] = counts["found"][[0, 19]] = 999, 9
    chart = histogram(counts, "torch", "ONNX")
    tall, short = (
        [(bar.series, round(bar.height, 6)) for bar in chart.bars if bar.height][index : index + 2] for index in (0, 2)
    )
    assert tall == [("reference", 150), ("found", 150)]
    assert short == [("reference", 50), ("found", 50)]  # log(10) is a third of log(1000)
    assert [tick.text for tick in chart.counts] == ["0", "1", "10", "100"]
    assert chart.differing is None
    assert chart.bars[-1].title == "score 0.95 to 1.00: 9 of ONNX"

    counts["missing"][19], counts["extra"][0] = 1, 1
    chart = histogram(counts, "torch", "ONNX")
    missing, extra = ([bar for bar in chart.bars if bar.series == series] for series in ("missing", "extra"))
    assert [bar.y + bar.height for bar in missing] == [chart.differing]
    assert [bar.y for bar in extra] == [chart.differing]
    assert [label.text for label in chart.labels] == ["1", "1"]
    assert all(bar.x + bar.width <= chart.width and bar.y + bar.height < chart.height for bar in chart.bars)


def test_histogram_of_nothing():
    counts = {kind: np.zeros(SCORE_BINS, np.int64) for kind in ("reference", "found", "missing", "extra")}
    assert not any(bar.height for bar in histogram(counts, "torch", "ONNX").bars)
