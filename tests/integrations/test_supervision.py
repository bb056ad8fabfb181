"""Detections as objects of the supervision library."""

import numpy as np
import pytest
import supervision

from mmort import Predictor
from mmort.demo import IMAGES, MODEL

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")  # of supervision itself


def test_equal_arrays():
    detections = Predictor(MODEL, score_threshold=0)(IMAGES[0]).above(0.5)
    converted = detections.to_supervision()
    assert isinstance(converted, supervision.Detections)
    assert len(converted) == len(detections) > 0
    np.testing.assert_array_equal(converted.xyxy, detections.boxes)
    np.testing.assert_array_equal(converted.mask, detections.masks)
    np.testing.assert_array_equal(converted.confidence, detections.scores)
    np.testing.assert_array_equal(converted.class_id, detections.labels)
    assert converted.data["class_name"].tolist() == list(detections.names)
    assert len(detections.above(2).to_supervision()) == 0
