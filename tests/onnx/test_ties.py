"""Ties: which of several equal scores are the last ones of a full list is no difference, and nothing else is a tie."""

import numpy as np
import pytest

from mmort.onnx.verify.detections import compare_detections


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


def test_only_the_last_of_a_full_image_may_be_ties():
    row = at_limit([4])
    assert (row.matched, row.ties, row.missing, row.extra, row.problem) == (5, 1, 0, 0, "")
    assert at_limit([3, 4, 5]).ties == 3
    row = at_limit([2, 4])  # one of them has a higher score
    assert (row.ties, row.problem) == (1, "1 missing, 1 extra")
    assert at_limit([], [5]).problem == "1 missing, 1 extra"
    assert at_limit([2, 3, 4]).problem == "1 missing, 1 extra"


@pytest.mark.parametrize("full", ["actual", "expected"])
def test_nothing_is_a_tie_where_a_list_is_not_full(full):
    """Then no limit drops anything."""
    expected, labels = np.zeros((1, 3, 5), np.float32), np.zeros((1, 3), int)
    expected[0] = (0, 0, 5, 5, 0.9), (10, 10, 15, 15, 0.6), (20, 20, 25, 25, 0.6)
    actual = expected + np.float32([[0] * 5, [0] * 5, [3, 0, 3, 0, 0]])
    runs = {"actual": [actual, labels], "expected": [expected, labels]}
    (row,) = compare_detections("-", *runs.values(), rtol=1e-3, atol=1e-4)
    assert (row.ties, row.problem) == (1, "")
    runs[full] = [np.pad(runs[full][0], ((0, 0), (0, 1), (0, 0))), np.pad(labels, ((0, 0), (0, 1)), constant_values=-1)]
    (row,) = compare_detections("-", *runs.values(), rtol=1e-3, atol=1e-4)
    assert (row.ties, row.problem) == (0, "1 missing, 1 extra")


def test_more_ties_than_matches_differ():
    """Of boxes that nothing confirms, most would otherwise be called ties."""
    expected = np.zeros((1, 3, 5), np.float32)
    expected[0] = (0, 0, 5, 5, 1), (10, 10, 15, 15, 1), (20, 20, 25, 25, 1)
    labels = np.zeros((1, 3), int)
    actual = expected + np.float32([0, 0, 3, 0, 0]) * np.float32([0, 1, 1])[:, None]
    (row,) = compare_detections("-", (actual, labels), (expected, labels), rtol=1e-3, atol=1e-4)
    assert row.problem == "2 missing, 2 extra"
