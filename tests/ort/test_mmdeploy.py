"""A file that MMDeploy 1.3.1 made of MMRotate's Oriented R-CNN: mmort detects what MMDeploy's own library detected.

It has nodes ``mmdeploy::MMCVRoIAlignRotated`` and ``mmdeploy::NMSRotated`` (``tests/tools/record_mmdeploy.py``).  Its
boxes have areas: those without one overlap nothing here, while MMDeploy's kernel takes any box to lie within them.
"""

import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest

import mmort.ort
from tests.detect import query_cases

DATA = pathlib.Path(__file__).parents[1] / "data"
RECORD, MASK_RCNN = DATA / "mmdeploy_rotated.npz", DATA / "mmdeploy_mask_rcnn.npz"


def images():
    """Return inputs by name: what the file was traced with, a batch, and another size."""
    batch = query_cases.batch()[0].numpy()
    return {"traced": batch[:1], "batch": batch, "wider": np.concatenate([batch[:1], batch[1:]], 3)}


@pytest.fixture(scope="module")
def record():
    with np.load(RECORD) as file:
        return dict(file)


def test_operators(record):
    nodes = onnx.load_from_string(record["model"].tobytes()).graph.node
    custom = [f"{node.domain}::{node.op_type}" for node in nodes if node.domain]
    assert custom == ["mmdeploy::MMCVRoIAlignRotated"] * 2 + ["mmdeploy::NMSRotated"]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_rotated_detector_of_mmdeploy(record, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = mmort.ort.session(record["model"].tobytes(), sess_options=options)
    for name, image in images().items():
        dets, labels = session.run(None, {"input": image})
        assert (labels >= 0).sum() > 15 * len(image)
        np.testing.assert_array_equal(labels, record[f"{name}.labels"])
        np.testing.assert_allclose(dets, record[f"{name}.dets"], rtol=1e-4, atol=1e-4)
