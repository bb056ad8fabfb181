"""Detections as tables of pandas."""

import numpy as np
import pandas

from mmort import Detections, Predictor
from mmort.demo import IMAGES, MODEL


def test_equal_columns():
    detections = Predictor(MODEL, score_threshold=0)(IMAGES[0]).above(0.5)
    table = detections.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert list(table) == ["label", "name", "score", "x1", "y1", "x2", "y2"]
    assert len(table) == len(detections) > 0
    np.testing.assert_array_equal(table[["x1", "y1", "x2", "y2"]], detections.boxes)
    np.testing.assert_array_equal(table["score"], detections.scores)
    assert table["name"].tolist() == list(detections.names)
    assert (table["label"].dtype, table["score"].dtype) == (np.int64, np.float32)
    assert table.groupby("name").size().sum() == len(detections)


def test_rotated_boxes_and_nothing():
    ship = Detections.of_rotated([[50, 40, 20, 10, 0.5]], [0.9], [0], ("ship",), (80, 100))
    assert ship.to_pandas()[["x", "y", "width", "height", "angle"]].values.tolist() == [[50, 40, 20, 10, 0.5]]
    assert len(Detections.empty((80, 100)).to_pandas()) == 0
