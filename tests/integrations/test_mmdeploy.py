"""MMDeploy's own library in the same process: each in a session of its own, and what is said of both in one."""

import importlib.util
import pathlib

import numpy as np
import onnxruntime
import pytest

import mmort.ort
from tests import front_ends

(FOLDER,) = importlib.util.find_spec("mmdeploy").submodule_search_locations  # importing it would need torch
LIBRARY = str(pathlib.Path(FOLDER) / "lib" / "libmmdeploy_onnxruntime_ops.so")

ROW = next(row for row in front_ends.ROWS if (row["domain"], row["type"]) == ("mmdeploy", "grid_sampler"))
MODEL = front_ends.make_model(ROW, {"interpolation_mode": 0, "padding_mode": 0, "align_corners": 0})


def options_with_mmdeploy():
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(LIBRARY)
    return options


def test_each_in_its_own_session():
    rng = np.random.default_rng(0)
    inputs = [rng.random((2, 3, 8, 9), np.float32), rng.uniform(-1.2, 1.2, (2, 5, 6, 2)).astype(np.float32)]
    model = MODEL.SerializeToString()
    theirs = onnxruntime.InferenceSession(model, options_with_mmdeploy(), providers=["CPUExecutionProvider"])
    ours = mmort.ort.session(model)
    for _ in range(2):
        (got,), (expected,) = (front_ends.run_session(session, inputs) for session in (ours, theirs))
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_both_in_one_session():
    with pytest.raises(ValueError, match=r"^mmort\.ort\.session: sess_options must not have a library .*MMDeploy"):
        mmort.ort.session(MODEL.SerializeToString(), sess_options=options_with_mmdeploy())
