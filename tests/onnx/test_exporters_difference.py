"""How the tools compare detections with another exporter's: what may differ, and what may not."""

import numpy as np

from mmort import Detections
from tests.tools.exporters.exporter import Exporter, difference

EXPORTER = Exporter(lambda folder: folder, lambda path, image: (), iou_threshold=0.5)
SCORES, LABELS = np.array([0.9, 0.8, 0.7], np.float32), np.array([0, 0, 0])


def detections(rows, **more):
    """Return detections of the first rows."""
    count = len(rows)
    return Detections(
        rows[:, :4].astype(np.float32), SCORES[:count], LABELS[:count], ("owl",) * count, (100, 100), **more
    )


def test_an_upright_box_at_the_threshold_may_be_missing():
    """Its IoU is that before boxes are clipped."""
    before = np.array([[-20, 0, 20, 10], [0, 0, 20, 10], [50, 50, 60, 60]], float)
    boxes = before.clip(0)
    expected, mine = (boxes, SCORES, LABELS), detections(boxes)
    candidates = [detections(boxes) for boxes in (before, before + np.array([[0, 0, 1, 0], [0] * 4, [0] * 4]))]
    assert not difference(mine, expected, EXPORTER)
    assert not difference(mine[[0, 2]], expected, EXPORTER, lambda: candidates[0])
    assert not difference(mine, tuple(rows[[0, 2]] for rows in expected), EXPORTER, lambda: candidates[0])
    assert difference(mine[[0, 2]], expected, EXPORTER, lambda: candidates[1])
    assert difference(mine[[1, 2]], expected, EXPORTER, lambda: candidates[0])
    assert difference(mine[[0, 2]], expected, EXPORTER)


def test_of_equal_boxes_that_with_the_same_score_is_the_same():
    scores = np.array([0.50005, 0.5, 0.2], np.float32)
    boxes = np.array([[0, 0, 20, 10], [0, 0, 20, 10], [50, 50, 60, 60]], float)
    before = np.array([[-20, 0, 20, 10], [0, 0, 60, 10], [50, 50, 60, 60], [0, 0, 20, 10]], float)
    candidates = Detections(before, np.float32([*scores, 0.9]), np.zeros(4, int), ("owl",) * 4, (100, 100))
    mine = Detections(boxes.astype(np.float32), scores, LABELS, ("owl",) * 3, (100, 100))
    assert not difference(mine, (boxes[1:], scores[1:], LABELS[1:]), EXPORTER, lambda: candidates)


def test_a_rotated_box_may_not():
    """Its numbers, read as corners, may have such an IoU by chance."""
    rows = np.array([[0, 0, 10, 10, 0], [0, 0, 10, 5, 0], [50, 50, 60, 60, 0]], float)
    mine = detections(rows, rotated_boxes=rows.astype(np.float32))
    assert not difference(mine, (rows, SCORES, LABELS), EXPORTER)
    assert difference(mine[[0, 2]], (rows, SCORES, LABELS), EXPORTER, lambda: mine)
