"""Another library with a domain of ours in the same process: neighbour.c registers one as MMCV's and MMDeploy's did."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnx.helper
import onnxruntime
import pytest

import mmort.build
import mmort.ort
from tests import front_ends

SOURCE = pathlib.Path(__file__).with_name("neighbour.c")
X = np.array([[[[1, 0, 2, 1]]]], np.float32)
OURS = front_ends.make_model(front_ends.row_of("corner_pool"), {"mode": 3}).SerializeToString()

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the library is compiled for Linux")


@pytest.fixture(scope="module", params=["mmcv", "mmdeploy"])
def neighbour(request, tmp_path_factory):
    library = tmp_path_factory.mktemp("neighbour") / "neighbour.so"
    options = ["-std=c11", "-shared", "-fPIC", f'-DDOMAIN="{request.param}"', f"-I{mmort.build.get_include()}"]
    subprocess.run([os.environ.get("CC", "cc"), *options, SOURCE, "-o", library], check=True)
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 1, 4]) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Twice", ["x"], ["y"], domain=request.param)], "twice", values[:1], values[1:]
    )
    opsets = [onnx.helper.make_opsetid(request.param, 1)]
    return str(library), onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def options_with(*libraries):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for library in libraries:
        options.register_custom_ops_library(library)
    return options


def test_in_a_session_of_its_own(neighbour):
    library, model = neighbour
    theirs = onnxruntime.InferenceSession(model, options_with(library), providers=["CPUExecutionProvider"])
    ours = mmort.ort.session(OURS)
    for _ in range(2):
        np.testing.assert_array_equal(theirs.run(None, {"x": X})[0], 2 * X)
        np.testing.assert_array_equal(front_ends.run_session(ours, [X])[0], [[[[1, 1, 2, 2]]]])


def test_in_the_same_session(neighbour):
    library, _ = neighbour
    text = "^mmort.ort.session: sess_options must not have a library for the domains mmcv, mmdeploy or mmort .*MMDeploy"
    with pytest.raises(ValueError, match=text):
        mmort.ort.session(OURS, sess_options=options_with(library))


def test_without_our_function(neighbour):
    """ONNX Runtime's own words, in docs/old_models.md; both registrations succeed, so no library can say more."""
    library, _ = neighbour
    for libraries in ((library, mmort.ort.library_path()), (mmort.ort.library_path(), library)):
        options = options_with(*libraries)
        with pytest.raises(front_ends.ORT_ERRORS, match="Domain already set in registry"):
            onnxruntime.InferenceSession(OURS, options, providers=["CPUExecutionProvider"])
