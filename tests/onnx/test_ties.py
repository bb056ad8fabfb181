"""Ties: what equal scores explain is no difference, and nothing else is explained by them."""

import numpy as np
import pytest
import torch

import mmort.onnx
import mmort.torch
from mmort.onnx.verify.detections import DetectionRow, compare, compare_detections
from mmort.onnx.verify.ties import Candidates
from mmort.onnx.verify.values import Exact, Outputs, Reference, Tolerances

# Boxes 0 and 1 suppress each other, 1 also suppresses 2, and 3 and 4 are elsewhere.
BOXES = np.array([[0, 0, 10, 10], [2, 0, 12, 10], [5, 0, 15, 10], [50, 0, 60, 10], [80, 0, 90, 10]], np.float32)
SAME = 0.9, 0.9, 0.8, 0.7, 0.7


SETTINGS = {"score_threshold": 0.05, "iou_threshold": 0.5, "max_per_image": 9, "class_agnostic": False, "offset": 0}


def candidates(rows=(0, 1, 2, 3, 4), scores=SAME, labels=(0, 0, 0, 0, 0), **settings):
    of_classes = np.zeros((len(rows), 2), np.float32)
    for index, row in enumerate(rows):
        of_classes[index, labels[row]] = scores[row]
    return Candidates({**SETTINGS, **settings}, BOXES[list(rows)], of_classes)


RESULTS = [
    ((0, 2, 3, 4), {}, True),  # as computed
    ((1, 3, 4), {}, True),  # the other of two equal scores survives, and suppresses a third box
    ((1, 2, 3, 4), {}, False),  # both boxes overlap
    ((0, 3, 4), {}, False),  # nothing suppresses box 2
    ((0, 2, 3), {}, False),  # nothing suppresses box 4, and the image is not full
    ((0, 2, 3), {"max_per_image": 3}, True),
    ((0, 2, 4), {"max_per_image": 3}, True),  # 3 and 4 are equal
    ((0, 3, 4), {"max_per_image": 3}, False),  # 2 is better
    ((0, 2, 3, 4), {"max_per_image": 3}, False),  # more than the limit
    ((1, 3, 4), {"scores": (0.9, 0.8995, 0.8, 0.7, 0.7)}, True),  # equal within the tolerance
    ((1, 3, 4), {"scores": (0.9, 0.89, 0.8, 0.7, 0.7)}, False),
    ((1, 3, 4), {"labels": (0, 1, 1, 0, 0)}, False),  # other classes do not suppress
    ((1, 3, 4), {"labels": (0, 1, 1, 0, 0), "class_agnostic": True}, True),
]


@pytest.mark.parametrize(("kept", "settings", "expected"), RESULTS)
def test_what_suppression_may_keep(kept, settings, expected):
    assert candidates(**settings).may_be(np.array(kept), Tolerances()) == expected


def with_candidates(dets, labels):
    """Compare detections with those of boxes 0 and 4 alone, which are the candidates."""
    known = candidates((0, 4))
    expected = known.dets[None], known.pairs[1][None]
    reference = Reference(expected, [known])
    outputs = Outputs("-", ("dets", "labels"), (dets[None], labels[None]), reference, Tolerances())
    (row,) = compare(outputs)
    return row


def test_what_is_no_candidate_is_no_tie():
    """A wrong box, label or number beside the right ones, and a detection too many."""
    dets, labels = candidates((0, 4)).dets, np.array([0, 0])
    assert with_candidates(dets, labels).problem == ""
    assert with_candidates(dets[::-1], labels).problem == ""
    assert with_candidates(dets + np.float32([[0] * 5, [5, 0, 5, 0, 0]]), labels).problem == "1 missing, 1 extra"
    assert with_candidates(dets, np.array([0, 1])).problem == "1 missing, 1 extra"
    assert with_candidates(dets + np.float32([[0] * 5, [np.nan] * 5]), labels).problem == "1 missing, 1 extra"
    assert with_candidates(dets[[0, 1, 1]], np.zeros(3, int)).problem == "1 extra"


def at_limit(changed_boxes=(), changed_scores=()):
    """Compare 6 detections, the last three of equal scores, with others of which some are changed."""
    expected = np.zeros((1, 6, 5), np.float32)
    expected[0, :, :4] = np.arange(0, 60, 10)[:, None] + np.float32([0, 0, 5, 5])
    expected[0, :, 4] = 0.9, 0.8, 0.7, 0.6, 0.6, 0.6
    actual = expected.copy()
    for index in changed_boxes:
        actual[0, index, :4] += 3
    for index in changed_scores:
        actual[0, index, 4] -= np.float32(0.1)
    labels = np.zeros((1, 6), int)
    (row,) = compare_detections("-", (actual, labels), (expected, labels), rtol=1e-3, atol=1e-4)
    return row


def test_without_candidates_only_the_last_of_a_full_image_may_be_ties():
    row = at_limit([4])
    assert (row.matched, row.ties, row.missing, row.extra, row.problem) == (5, 1, 0, 0, "")
    assert at_limit([3, 4, 5]).ties == 3
    row = at_limit([2, 4])  # one of them has a higher score
    assert (row.ties, row.problem) == (1, "1 missing, 1 extra")
    assert at_limit([], [5]).problem == "1 missing, 1 extra"
    assert at_limit([2, 3, 4]).problem == "1 missing, 1 extra"


@pytest.mark.parametrize(
    ("moved", "equal"),
    [(0, False), (1e-6, False), (1e-5, True), (2e-2, True), (np.nan, False)],
)
def test_equal_scores_at_the_limit_are_those_that_rounding_may_swap(moved, equal):
    """Scores of a crowd are all within the tolerance of 1: the file's last box has one that is 4e-5 lower."""
    expected, labels = np.zeros((1, 3, 5), np.float32), np.zeros((1, 3), int)
    expected[0] = (0, 0, 5, 5, 1), (10, 10, 15, 15, 1), (20, 20, 25, 25, 0.99996)
    actual = expected + np.float32([[0] * 5, [0] * 5, [0, 0, 3, 0, -4e-5]])
    rounded = expected + np.float32([[0] * 5, [0, 0, 0, 0, moved], [0] * 5])
    if np.isnan(moved):  # the run has none of these detections
        rounded = expected + np.float32([500, 500, 500, 500, 0])
    runs = Exact(lambda: (expected, labels), lambda seed: (rounded, labels), decides=True)
    outputs = Outputs(
        "-", ("dets", "labels"), (actual, labels), Reference((expected, labels), exact=runs), Tolerances()
    )
    row = compare(outputs)[0]
    assert (row.ties, row.problem) == ((1, "") if equal else (0, "1 missing, 1 extra"))


def test_more_ties_than_matches_differ():
    """Of boxes that nothing confirms, most would otherwise be called ties."""
    expected = np.zeros((1, 3, 5), np.float32)
    expected[0] = (0, 0, 5, 5, 1), (10, 10, 15, 15, 1), (20, 20, 25, 25, 1)
    labels = np.zeros((1, 3), int)
    actual = expected + np.float32([0, 0, 3, 0, 0]) * np.float32([0, 1, 1])[:, None]
    (row,) = compare_detections("-", (actual, labels), (expected, labels), rtol=1e-3, atol=1e-4)
    assert row.problem == "2 missing, 2 extra"


class Saturated(torch.nn.Module):
    """Suppresses boxes whose scores are all 1 but for the last one's, in an order that tiny `noise` decides."""

    def __init__(self, noise, error=0.0, every=3, iou_threshold=0.5):
        super().__init__()
        self.register_buffer("noise", noise)
        self.error, self.every, self.iou_threshold = error, every, iou_threshold
        self.eval()

    def forward(self, boxes):
        return self.select(boxes)[:2]

    def select(self, boxes):
        boxes = boxes + self.error * (torch.arange(boxes.shape[1]) % self.every == 0)[:, None]
        scores = torch.ones(*boxes.shape[:2], 2) - self.noise
        scores[:, -1:] += 1
        return mmort.torch.multiclass_nms(boxes, scores, 0.5, self.iou_threshold, 30)


@pytest.fixture
def boxes():
    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(2, 60, 2, generator=generator) * 100
    return torch.cat([corners, corners + 20 + torch.rand(2, 60, 2, generator=generator) * 10], 2)


@pytest.mark.parametrize(
    ("change", "ok"),
    [
        ({}, True),
        ({"error": 1.0}, False),
        ({"error": 1.0, "every": 60}, False),
        ({"iou_threshold": 0.6}, False),
        ({"noise": 0.01}, False),
    ],
)
def test_real_errors_do_not_hide_among_ties(change, ok, boxes, tmp_path):
    """A third of the boxes moved by a pixel, one box moved, another threshold, and scores that are no longer equal."""
    path, order = tmp_path / "detector.onnx", torch.arange(120).reshape(60, 2) / 120
    noise = order * change.pop("noise", 1e-6)
    file = Saturated(noise, **change)
    mmort.onnx.export(file, (boxes,), path, exporter="legacy", output_names=["dets", "labels"], verify=False)
    report = mmort.onnx.verify(path, Saturated(noise.max() - order * 1e-6), [(boxes,)])
    print(report)
    assert report.ok == ok
    if ok:
        rows = [row for row in report.rows if isinstance(row, DetectionRow)]
        assert all(row.ties > 10 and row.matched for row in rows)
        assert "ties" in str(report)


def _is_kept(network, boxes, index):
    """Whether a network's suppression keeps a box of the first image."""
    dets, labels, _ = network(boxes)
    return bool((dets[0, labels[0] >= 0, :4] == boxes[0, index]).all(1).any())


class Masked(Saturated):
    """Makes a mask for each box that is kept; that of one box is `wrong`."""

    def __init__(self, noise, wrong=-1):
        super().__init__(noise)
        self.wrong = wrong

    def forward(self, boxes):
        dets, labels, indices = self.select(boxes)
        masks = torch.where(indices == self.wrong, 1, 0)[..., None] + dets[..., :4] / 200
        return dets, labels, masks[..., None]


def test_masks_of_ties_are_compared(boxes, tmp_path):
    """With those that the model makes if its suppression chooses as the file's."""
    order = torch.arange(120).reshape(60, 2) / 120
    file, model = Masked(order * 1e-6), Masked((order.max() - order) * 1e-6)
    kept = [np.flatnonzero([_is_kept(network, boxes, index) for index in range(60)]) for network in (file, model)]
    only_in_file = np.setdiff1d(*kept)
    path = tmp_path / "masked.onnx"
    names = ["dets", "labels", "masks"]
    mmort.onnx.export(file, (boxes,), path, exporter="legacy", output_names=names, verify=False)
    for wrong, ok in ((-1, True), (int(only_in_file[0]), False)):
        model.wrong = wrong
        report = mmort.onnx.verify(path, model, [(boxes,)])
        assert any(row.ties for row in report.rows)
        assert report.ok == ok
        assert ("mask overlap below 0.99" in str(report)) != ok
