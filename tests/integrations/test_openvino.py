"""`Predictor` with OpenVINO: the detections of ONNX Runtime, refusals, and the command line."""

import pickle

import numpy as np
import onnx
import onnx.helper as oh
import openvino
import pytest

import mmort
from mmort import Predictor
from mmort.demo import IMAGES, MODEL
from mmort.onnx import make_portable
from mmort.predict import OpenVino
from mmort.predict.engines.openvino import _compile
from tests.cli.running import misused, run

BFLOAT16 = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


@pytest.fixture(scope="module")
def inlined(tmp_path_factory):
    path = tmp_path_factory.mktemp("openvino") / "inlined.onnx"
    make_portable(MODEL, path, "inlined")
    return path


@pytest.fixture(scope="module")
def predictor(inlined):
    """Two batches at the same time, from a pickle."""
    return pickle.loads(pickle.dumps(Predictor(OpenVino(inlined, threads=2, parallel=2), score_threshold=0)))


def assert_same(actual, expected):
    np.testing.assert_array_equal(actual.labels, expected.labels)
    np.testing.assert_allclose(actual.boxes, expected.boxes, rtol=0, atol=1e-3)
    np.testing.assert_allclose(actual.scores, expected.scores, rtol=0, atol=1e-5)
    assert (actual.masks != expected.masks).mean() < 1e-4


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_same_detections(predictor, batch_size):
    """Pictures of a batch are padded, and boxes end at the pictures' borders."""
    expected = Predictor(MODEL, score_threshold=0)
    assert (predictor.classes, predictor.preprocessing) == (expected.classes, expected.preprocessing)
    pairs = zip(predictor.predict(IMAGES, batch_size), expected.predict(IMAGES, batch_size), strict=True)
    for actual, other in pairs:
        assert len(other) > 4
        assert_same(actual.above(0.05), other.above(0.05))


def test_img_shape_is_an_input(predictor):
    """OpenVINO takes its default for a constant."""
    image = predictor._prepare(IMAGES[0])
    input, shape = predictor.preprocessing.batch([image])
    (whole, *_), (part, *_) = (predictor.network(input, size) for size in (shape, shape // 2))
    assert whole[..., 2].max() > shape[0, 1] // 2 >= part[..., 2].max()


def test_regions_without_pixels():
    """OpenVINO's RoiAlign divides by their number of samples, which is 0."""
    node = oh.make_node(
        "MMCVRoiAlign", ["input", "rois"], ["output"], domain="mmcv", output_height=2, output_width=2, aligned=1
    )
    shapes = {"input": ["N", 1, "H", "W"], "rois": ["R", 5], "output": ["R", 1, 2, 2]}
    tensors = {name: oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    graph = oh.make_graph([node], "graph", [tensors["input"], tensors["rois"]], [tensors["output"]])
    opsets = [oh.make_opsetid("", 18), oh.make_opsetid("mmcv", 1)]
    model = oh.make_model(graph, opset_imports=opsets, ir_version=8)
    make_portable(model, form="inlined")
    image = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
    rois = np.array([[0, 0, 0, 0, 0], [0, 1, 1, 3, 3], [0, 2, 2, 1, 3], [0, 1, 2, 3, 2]], np.float32)
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU")
    expected = mmort.roi_align(image, rois, (2, 2), aligned=True)
    assert (expected[1] > 0).all()
    np.testing.assert_allclose(compiled([image, rois])[0], expected, rtol=1e-2)


def test_bfloat16(inlined):
    """The same objects, at about the same positions; on a processor without bfloat16 a refusal, no float32."""
    if not BFLOAT16:
        with pytest.raises(ValueError, match="this processor has no bfloat16"):
            Predictor(OpenVino(inlined, precision="bfloat16"), score_threshold=0)
        return
    fast = pickle.loads(pickle.dumps(Predictor(OpenVino(inlined, precision="bfloat16"), score_threshold=0.5)))
    exact = Predictor(MODEL, score_threshold=0.5)
    largest = 0
    for detections, expected in zip(fast.predict(IMAGES), exact.predict(IMAGES), strict=True):
        order, other = np.argsort(detections.boxes[:, 0]), np.argsort(expected.boxes[:, 0])
        np.testing.assert_array_equal(detections.labels[order], expected.labels[other])
        np.testing.assert_allclose(detections.boxes[order], expected.boxes[other], rtol=0, atol=2)
        largest = max(largest, np.abs(detections.boxes[order] - expected.boxes[other]).max())
    assert largest > 0.01  # it is not float32


def test_pictures_that_become_larger(tmp_path):
    """Memory moves then; OpenVINO's conversion of a Loop's result to bfloat16 reads where it was."""
    rng = np.random.default_rng(0)
    constants = {
        "weight": (rng.normal(size=(8, 8)) / 3).astype(np.float32),
        "value_shape": np.array([0, 0, 2, 4]),
        "last": np.array([-1]),
        "location_shape": np.array([1, 5, 2, 1, 2, 2]),
        "start": np.array([0]),
    }
    nodes = [
        oh.make_node("MatMul", ["input", "weight"], ["hidden"]),
        oh.make_node("MatMul", ["hidden", "weight"], ["projected"]),
        oh.make_node("Reshape", ["projected", "value_shape"], ["value"]),
        oh.make_node("MatMul", ["queries", "weight"], ["hidden_queries"]),
        oh.make_node("MatMul", ["hidden_queries", "weight"], ["offsets"]),
        oh.make_node("Sigmoid", ["offsets"], ["positions"]),
        oh.make_node("Reshape", ["positions", "location_shape"], ["locations"]),
        oh.make_node("ReduceMax", ["locations", "last"], ["attention"], keepdims=0),
        oh.make_node(
            "MultiScaleDeformableAttention",
            ["value", "size", "start", "locations", "attention"],
            ["attended"],
            domain="mmort",
        ),
        oh.make_node("MatMul", ["attended", "weight"], ["update"]),
        oh.make_node("Add", ["hidden_queries", "update"], ["sum"]),
        oh.make_node("MatMul", ["sum", "weight"], ["output"]),
    ]
    inputs = [
        oh.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("input", onnx.TensorProto.FLOAT, ["images", "pixels", 8]),
            ("queries", onnx.TensorProto.FLOAT, ["images", "queries", 8]),
            ("size", onnx.TensorProto.INT64, [1, 2]),
        )
    ]
    outputs = [oh.make_tensor_value_info("output", onnx.TensorProto.FLOAT, ["images", "queries", 8])]
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    opsets = [oh.make_opsetid("", 18), oh.make_opsetid("mmort", 1)]
    graph = oh.make_graph(nodes, "graph", inputs, outputs, initializers)
    path = tmp_path / "attention.onnx"
    make_portable(oh.make_model(graph, opset_imports=opsets, ir_version=8), path, "inlined")
    lowest = "bfloat16" if BFLOAT16 else "float32"
    fast, exact = (_compile(str(path), 1, 1, precision) for precision in (lowest, "float32"))
    for side in (4, 4, 8, 32):  # the number of queries stays
        feeds = {
            "input": np.tile(rng.normal(size=(1, 1, 8)), (1, side * side, 1)).astype(np.float32),
            "queries": rng.normal(size=(1, 5, 8)).astype(np.float32),
            "size": np.array([[side, side]]),
        }
        actual, expected = (network(feeds)[0] for network in (fast, exact))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=0.05 * np.abs(expected).max())
        assert (actual != expected).any() == BFLOAT16


def test_processors_without_bfloat16(inlined, monkeypatch):
    monkeypatch.setattr(openvino.Core, "get_property", lambda core, device, name: ["FP32"])
    with pytest.raises(ValueError, match="this processor has no bfloat16, and OpenVINO would compute in float32"):
        OpenVino(inlined, precision="bfloat16")
    OpenVino(inlined)


def test_refusals(tmp_path, inlined):
    with pytest.raises(ValueError, match=r"this one has operators of mmcv, mmort; make one: mmort portable .*inlined"):
        OpenVino(MODEL)
    node = oh.make_node("NoSuchOperator", ["input"], ["dets"])
    tensors = [oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 3, 8, 8]) for name in ("input", "dets")]
    graph = oh.make_graph([node], "graph", tensors[:1], tensors[1:])
    path = tmp_path / "unknown.onnx"
    path.write_bytes(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)]).SerializeToString())
    with pytest.raises(ValueError, match=r"OpenVINO cannot load this file: .*NoSuchOperator"):
        OpenVino(path)
    path.write_bytes(b"text")
    with pytest.raises(ValueError, match="is not an ONNX model"):
        OpenVino(path)
    with pytest.raises(ValueError, match="parallel must be positive, got 0"):
        OpenVino(inlined, parallel=0)
    with pytest.raises(ValueError, match="precision must be 'float32' or 'bfloat16', got 'bf16'"):
        OpenVino(inlined, precision="bf16")


def test_commands(inlined, tmp_path):
    arguments = "predict", IMAGES[0], "--threads", 1, "--score-thr", 0.5
    (code, actual, _), (_, expected, _) = (
        run(*arguments[:1], model, *arguments[1:], "--engine", engine)
        for model, engine in ((inlined, "openvino"), (MODEL, "onnxruntime"))
    )
    assert (code, actual) == (0, expected)
    message = misused("predict", inlined, IMAGES[0], "--engine", "openvino", "--provider", "CUDAExecutionProvider")
    assert "--provider is for --engine onnxruntime, got CUDAExecutionProvider for --engine openvino" in message
