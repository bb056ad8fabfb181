"""Detections as objects of the supervision library."""

import numpy as np
import pytest
import supervision

from mmort import Predictor
from mmort.demo import IMAGES, MODEL

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")  # of supervision itself


def test_equal_arrays():
    found = Predictor(MODEL)(IMAGES[0]).above(0.5)
    converted = found.to_supervision()
    assert isinstance(converted, supervision.Detections)
    assert len(converted) == len(found) > 0
    np.testing.assert_array_equal(converted.xyxy, found.boxes)
    np.testing.assert_array_equal(converted.mask, found.masks)
    np.testing.assert_array_equal(converted.confidence, found.scores)
    np.testing.assert_array_equal(converted.class_id, found.labels)
    assert converted.data["class_name"].tolist() == list(found.names)
    assert len(found.above(2).to_supervision()) == 0
