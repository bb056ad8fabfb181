"""Detections compared as sets, image by image, in the report of a detector."""

import json
from dataclasses import replace

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import mmort.onnx
from mmort.contract import WITH_MASKS
from mmort.detections.matching import match_detections, usual_limits
from mmort.onnx.verify import comparators
from mmort.onnx.verify.detections import DetectionRow, compare_detections, require_detections
from mmort.onnx.verify.values import Outputs
from mmort.tolerances import Tolerances

BOXES = np.array([[0, 0, 10, 10], [20, 20, 40, 30], [20, 20, 40, 30], [5, 50, 9, 70]], np.float32)
SCORES = np.array([0.9, 0.8, 0.7, 0.6], np.float32)
LABELS = np.array([1, 2, 3, 1])


def outputs(order=(0, 1, 2, 3), rows=6, masks=False, boxes=BOXES, scores=SCORES, labels=LABELS):
    """Return dets, labels and optionally masks of an image, with unused rows at the end."""
    order = list(order)
    dets = np.zeros((1, rows, 5), np.float32)
    dets[0, : len(order)] = np.column_stack([boxes, scores])[order]
    row_labels = np.full((1, rows), -1)
    row_labels[0, : len(order)] = labels[order]
    if not masks:
        return [dets, row_labels]
    values = np.zeros((1, rows, 4, 4), np.float32)
    values[0, : len(order)] = np.random.default_rng(0).random((4, 4, 4))[order]
    return [dets, row_labels, values]


def compare(actual, expected, **tolerances):
    return compare_detections("-", actual, expected, **{"rtol": 1e-3, "atol": 1e-4, **tolerances})


@pytest.mark.parametrize("masks", [False, True])
def test_neither_order_nor_unused_rows_matter(masks):
    (row,) = compare(outputs([3, 1, 0, 2], rows=5, masks=masks), outputs(masks=masks))
    assert (row.detections, row.matched, row.missing, row.extra, row.ok) == (4, 4, 0, 0, True)
    assert (row.max_box_diff, row.max_score_diff) == (0, 0)
    assert row.min_mask_overlap == (1 if masks else None)


def test_missing_and_extra():
    (row,) = compare(outputs([0, 2]), outputs([0, 1, 3]))
    assert (row.detections, row.matched, row.missing, row.extra) == (3, 1, 2, 1)
    assert row.problem == "2 missing, 1 extra"
    (row,) = compare(outputs([]), outputs([]))
    assert (row.detections, row.ok) == (0, True)
    (row,) = compare(outputs([]), outputs())
    assert row.missing == 4
    (row,) = compare(outputs(), outputs([]))
    assert row.extra == 4


def test_each_detection_is_matched_once():
    (row,) = compare(outputs([0]), outputs([0, 0]))
    assert (row.matched, row.missing, row.extra) == (1, 1, 0)
    (row,) = compare(outputs([0, 0]), outputs([0]))
    assert (row.matched, row.missing, row.extra) == (1, 0, 1)


def test_tolerances():
    """A box has one relative to its largest coordinate; labels must be equal."""
    (row,) = compare(outputs(boxes=BOXES + np.float32([0.009, 0, 0, 0])), outputs())
    assert row.ok
    assert row.max_box_diff == pytest.approx(0.009, rel=1e-3)
    (row,) = compare(outputs(boxes=BOXES + np.float32([0.011, 0, 0, 0])), outputs())
    assert (row.matched, row.missing, row.extra) == (3, 1, 1)  # the box of 10 pixels
    (row,) = compare(outputs(scores=SCORES + np.float32(5e-4)), outputs())
    assert row.ok
    assert row.max_score_diff == pytest.approx(5e-4, rel=1e-3)
    (row,) = compare(outputs(scores=SCORES + np.float32(2e-3)), outputs())
    assert row.missing == row.extra == 4
    (row,) = compare(outputs(labels=LABELS + np.array([0, 0, 0, 1])), outputs())
    assert row.missing == row.extra == 1
    (row,) = compare(outputs(boxes=BOXES * np.nan), outputs())
    assert row.missing == row.extra == 4


def test_masks_overlap():
    actual, expected = outputs(masks=True), outputs(masks=True)
    actual[2][0, 2] *= np.float32(0.995)
    (row,) = compare(actual, expected)
    assert row.ok
    assert row.min_mask_overlap == pytest.approx(0.995)
    actual[2][0, 2] *= np.float32(0.98)
    (row,) = compare(actual, expected)
    assert row.problem == "mask overlap below 0.99"
    actual[2][0, 2], expected[2][0, 2] = 0, 0  # both are empty
    assert compare(actual, expected)[0].ok


def test_masks_may_be_logits():
    actual, expected = outputs(masks=True), outputs(masks=True)
    actual[2][0, :4], expected[2][0, :4] = 8 * actual[2][0, :4] - 4, 8 * expected[2][0, :4] - 4
    assert compare(actual, expected)[0].min_mask_overlap == 1
    actual[2][0, 2, 0, 0] *= -1
    (row,) = compare(actual, expected)
    assert 0.5 < row.min_mask_overlap < 0.99
    assert row.problem


@pytest.mark.parametrize("index", [0, 3])
def test_masks_of_nan_overlap_nothing(index):
    actual = outputs(masks=True)
    actual[2][0, index, 1, 1] = np.nan
    (row,) = compare(actual, outputs(masks=True))
    assert (row.min_mask_overlap, row.problem) == (0, "mask overlap below 0.99")
    assert "DIFFERS" in str(mmort.onnx.Report((row,)))


def test_equal_boxes_are_told_apart_by_their_masks():
    """Two queries without a box; a really wrong mask differs all the same."""
    twins = {"boxes": BOXES[[0, 1, 1, 3]], "scores": SCORES[[0, 1, 1, 3]], "labels": LABELS[[0, 1, 1, 3]]}
    expected, actual = outputs(masks=True, **twins), outputs([2, 1, 0, 3], masks=True, **twins)
    (row,) = compare(actual, expected)
    assert (row.matched, row.min_mask_overlap, row.ok) == (4, 1, True)
    actual[2][0, 1] = 1 - actual[2][0, 1]
    assert compare(actual, expected)[0].problem == "mask overlap below 0.99"


@pytest.mark.parametrize(
    ("cells", "other", "overlap"),
    [
        ([1, 1, 1, 0], [1, 1, 0, 0], 1),  # one cell, which is what rounding at the threshold makes
        ([1, 1, 1, 0], [1, 0, 0, 0], 1 / 3),
        ([1, 1, 0, 0], [1, 0, 1, 0], 1 / 3),
        ([1, 0, 0, 0], [0, 0, 0, 0], 0),  # nothing confirms the mask
        ([0.9, 0.9, 0.9, 0], [0.9, 0.9, 0, 0], 2 / 3),  # of probabilities no cell may differ
        ([1e-5, 1e-5, 0, 0], [2e-5, 1e-5, 0, 0], 0.99999),  # both are empty
        ([1e-5, 1e-5, 0, 0], [0.1, 0, 0, 0], 0.9),
    ],
)
def test_masks_of_few_cells(cells, other, overlap):
    actual, expected = outputs([0], masks=True), outputs([0], masks=True)
    actual[2][0, 0], expected[2][0, 0] = 0, 0
    actual[2][0, 0, 0], expected[2][0, 0, 0] = cells, other
    assert compare(actual, expected)[0].min_mask_overlap == pytest.approx(overlap, abs=1e-6)


def test_overlaps_are_printed_rounded_down():
    """Never as the limit that they are below."""
    actual, expected = outputs(masks=True), outputs(masks=True)
    actual[2][0, 2] *= np.float32(0.98996)
    (row,) = compare(actual, expected)
    assert (row.cells()[-1], row.problem) == ("0.9899", "mask overlap below 0.99")


def test_each_image_has_a_row():
    first, second = outputs(), outputs([0, 3])
    actual = [np.concatenate(both) for both in zip(first, second, strict=True)]
    expected = [np.concatenate(both) for both in zip(first, first, strict=True)]
    assert [(row.image, row.missing) for row in compare(actual, expected)] == [(0, 0), (1, 2)]


def test_matches_take_a_tolerance_for_each_expected_detection():
    """The nearest that is left and within the tolerances matches, by descending score."""
    expected = np.column_stack([BOXES, SCORES])
    moved = expected[::-1] + np.float32([0.5, 0, 0, 0, 0])
    tolerance = np.array([0.4, 0.6, 0.6, 0.6])  # of boxes 3, 2, 1, 0 in `moved`
    matches = match_detections(moved, LABELS[::-1], expected, LABELS, box_tolerance=tolerance, score_tolerance=0.01)
    assert matches.tolist() == [-1, 2, 1, 0]
    twice = np.concatenate([expected[:1], expected[:1] + np.float32([0.1, 0, 0, 0, 0])])
    settings = {"box_tolerance": 1, "score_tolerance": 0.01}
    assert match_detections(twice, LABELS[[0, 0]], expected, LABELS, **settings).tolist() == [0, -1, -1, -1]
    rivals = np.concatenate([expected[:1] - np.float32([0, 0, 0, 0, 0.1]), expected[:1]])  # the better one comes last
    settings["score_tolerance"] = 0.2
    assert match_detections(expected[:1], LABELS[:1], rivals, LABELS[[0, 0]], **settings).tolist() == [-1, 0]
    assert match_detections(expected[:0], LABELS[:0], expected, LABELS, **settings).tolist() == [-1] * 4


def reversing(path, names=("dets", "labels")):
    """Write a model that reverses the order of its detections."""
    values = [("d", onnx.TensorProto.FLOAT, ["n", "k", 5]), ("l", onnx.TensorProto.INT64, ["n", "k"])]
    bounds = [oh.make_tensor(name, onnx.TensorProto.INT64, [1], [value]) for name, value in BOUNDS.items()]
    nodes = [oh.make_node("Slice", [value[0], *BOUNDS], [name]) for value, name in zip(values, names, strict=True)]
    result = [
        oh.make_tensor_value_info(name, kind, shape) for name, (_, kind, shape) in zip(names, values, strict=True)
    ]
    graph = oh.make_graph(nodes, "example", [oh.make_tensor_value_info(*value) for value in values], result, bounds)
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8), path)
    return path


BOUNDS = {"first": -1, "last": -99, "axis": 1, "step": -1}


def test_verify_reports_detections(tmp_path):
    path = reversing(tmp_path / "detector.onnx")
    report = mmort.onnx.verify(path, lambda dets, labels: (dets, labels), [outputs()])
    assert report.ok
    (row,) = report.rows
    assert (row.inputs, row.image, row.matched) == ("1x6x5, 1x6", 0, 4)
    head, line = str(report).splitlines()[:2]
    assert head.split("  ")[0] == "inputs"
    assert "missing  extra" in head
    assert line.endswith("ok")
    report = mmort.onnx.verify(path, lambda dets, labels: (dets + 1, labels), [outputs()])
    assert not report.ok
    assert str(report).endswith("DIFFERS: 4 missing, 4 extra")
    saved = json.loads(report.to_json())
    assert (saved["ok"], saved["rows"][0]["missing"], saved["rows"][0]["ok"]) == (False, 4, False)


def test_detecting_nothing_proves_nothing(tmp_path):
    path = reversing(tmp_path / "detector.onnx")

    def verify(*inputs, **limits):
        return mmort.onnx.verify(path, lambda *tensors: tensors, inputs, **limits)

    report = verify(outputs([]), outputs([]))
    assert not report.ok
    assert str(report).count("UNDECIDED: nothing detected, which proves nothing") == 2
    assert verify(outputs([]), outputs([0])).ok


def test_ties_alone_prove_nothing():
    tie = DetectionRow("-", 0, 4, 0, 4, 0, 0, 0.0, 0.0, None)
    match, nothing = replace(tie, matched=1), replace(tie, detections=0, ties=0)
    problems = [row.problem for row in require_detections([tie, nothing])]
    assert problems == ["only ties, which proves nothing", "nothing detected, which proves nothing"]
    assert all(row.ok for row in require_detections([tie, match, nothing]))


def test_other_outputs_are_compared_number_by_number(tmp_path):
    path = reversing(tmp_path / "other.onnx", ("boxes", "labels"))
    report = mmort.onnx.verify(path, lambda dets, labels: (dets, labels), [outputs()])
    assert [row.output for row in report.rows] == ["boxes", "labels"]
    assert not report.ok


def test_a_model_that_is_not_a_detector_differs(tmp_path):
    path = reversing(tmp_path / "detector.onnx")
    report = mmort.onnx.verify(path, lambda dets, labels: (dets[..., :4], labels), [outputs()])
    assert report.rows[0].problem == "shape 1x6x5, the model gives 1x6x4"
    report = mmort.onnx.verify(path, lambda dets, labels: (dets.repeat(2, 1, 1), labels.repeat(2, 1)), [outputs()])
    assert report.rows[0].problem == "shape 1x6x5, the model gives 2x6x5"


def test_masks_of_another_size_and_other_dtypes_differ():
    """As with any other output; broadcasting would hide the size."""
    actual = outputs(masks=True)

    def problems(*expected):
        compared = Outputs("-", WITH_MASKS, actual, expected, Tolerances())
        return [row.problem for row in comparators.compare_outputs(compared) if row.problem]

    dets, labels, masks = outputs(masks=True)
    assert not problems(dets, labels, masks)
    assert problems(dets, labels, masks[..., :1]) == ["shape 1x6x4x4, the model gives 1x6x4x1"]
    assert problems(dets, labels.astype(np.int32), masks) == ["int64, the model gives int32"]


ROTATED = np.array([[50, 40, 20, 8, 0.3], [10, 90, 6, 4, -1.2]], np.float32)


def rotated_outputs(boxes):
    return [np.column_stack([boxes, [0.9, 0.8]]).astype(np.float32)[None], np.array([[1, 2]])]


def test_a_rotated_box_is_the_same_after_half_a_turn_and_with_exchanged_sides():
    boxes = ROTATED.copy()
    boxes[0, 4] += np.pi
    boxes[1] = 10, 90, 4, 6, -1.2 + np.pi / 2
    (row,) = compare(rotated_outputs(boxes), rotated_outputs(ROTATED))
    assert (row.matched, row.missing, row.extra) == (2, 0, 0)
    assert row.max_box_diff < 1e-4


@pytest.mark.parametrize(("column", "change"), [(0, 0.2), (3, 0.4), (4, 0.02), (4, 2 * np.pi), (5, 0.01)])
def test_rotated_boxes_differ_by_corners_angles_and_scores(column, change):
    actual = rotated_outputs(ROTATED)
    actual[0][0, 0, column] += change
    (row,) = compare(actual, rotated_outputs(ROTATED))
    assert (row.matched, row.missing, row.extra) == (1, 1, 1)


MAP = np.zeros((1, 20, 20), np.int32)
MAP[:, :10], MAP[:, 10:15], MAP[0, 18, :10] = 1003, 2003, 7


def compare_maps(change=None, names=(*WITH_MASKS[:2], "panoptic")):
    """Compare a detector's outputs, the last one a panoptic map, with those in which the map is changed."""
    actual = MAP.copy()
    if change is not None:
        actual = change(actual)
    rows = comparators.compare_outputs(Outputs("-", names, [*outputs(), actual], [*outputs(), MAP], Tolerances()))
    assert isinstance(rows[0], DetectionRow)
    assert len(rows) == 2
    return rows[1]


def edited(where, value):
    def change(map):
        map[where] = value
        return map

    return change


def test_panoptic_maps():
    """One pixel may differ, or 1 % of a segment; ids of instances may be exchanged."""
    row = compare_maps()
    assert (row.output, row.shape, row.tolerance, row.problem) == ("panoptic", "1x20x20", "overlap 0.99", "")
    assert compare_maps(edited((0, 9, 0), 2003)).problem == ""
    assert compare_maps(edited((0, 18, 0), 0)).problem == ""  # of ten
    assert compare_maps(lambda map: np.where(map == 1003, 2003, np.where(map == 2003, 1003, map))).problem == ""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (edited((0, 9, slice(2)), 2003), "2 of 5 segments"),  # two pixels of 200, and of 100
        (edited(MAP == 7, 6), "2 of 5 segments"),
        (edited(MAP == 7, 0), "3 of 5 segments"),
        (edited((0, slice(16, 17), slice(10)), 3003), "3 of 6 segments"),
        (lambda map: map[:, ::-1], "8 of 8 segments"),
        (lambda map: map.astype(np.int64), "int64, the model gives int32"),
        (lambda map: map[:, :19], "shape 1x19x20, the model gives 1x20x20"),
    ],
)
def test_wrong_panoptic_maps(change, problem):
    assert compare_maps(change).problem == problem


def test_other_outputs_of_detectors_are_compared_by_numbers():
    row = compare_maps(edited(MAP == 7, 6), (*WITH_MASKS[:2], "semantic"))
    assert (row.output, row.problem) == ("semantic", "10 of 400 numbers")


def test_boxes_at_the_origin_have_a_tenth_of_the_images_tolerance():
    """Their coordinates are small differences of numbers as large as the image."""
    expected = np.array([[[0, 0, 0, 1.7, 0.9], [0, 0, 100, 50, 0.8]]]), np.array([[0, 1]])
    for shift, missing in ((0.009, 0), (0.011, 1)):
        actual = expected[0].copy()
        actual[0, 0, 3] += shift
        (row,) = compare_detections("-", (actual, expected[1]), expected, rtol=1e-3, atol=1e-4)
        assert row.missing == missing


def test_equal_infinite_boxes_match():
    """They make no other box uncertain."""
    dets = np.array([[0, 0, np.inf, 9, 0.9], [0, 0, 9, 9, 0.8]])
    labels, limits = np.zeros(2, int), usual_limits(dets, Tolerances())
    tolerances = {"box_tolerance": limits.box, "score_tolerance": limits.score}
    assert match_detections(dets, labels, dets, labels, **tolerances).tolist() == [0, 1]
    other = dets + np.array([[0] * 5, [0, 0, 1, 0, 0]])
    assert match_detections(other, labels, dets, labels, **tolerances).tolist() == [0, -1]


def test_a_huge_box_is_no_excuse_for_the_others():
    dets = np.array([[[0, 0, 9, 9, 0.9], [0, 0, 8, 5, 0.8], [0, 0, 1e6, 9, 0.7]]])
    actual = dets + np.array([[0] * 5, [0, 0, 0.1, 0, 0], [0, 0, 100, 0, 0]])
    labels = np.zeros((1, 3), int)
    (row,) = compare((actual, labels), (dets, labels))
    assert (row.matched, row.problem) == (2, "1 missing, 1 extra")
