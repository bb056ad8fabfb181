"""Bound memory: what ONNX Runtime reads and writes is the caller's own, and what does not fit is refused."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import onnx
import onnx.helper
import onnxruntime
import pytest
import torch
from onnx.helper import make_node

import mmort
import mmort.ort

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def make_session(nodes, inputs, outputs):
    values = ([onnx.helper.make_tensor_value_info(*value) for value in group] for group in (inputs, outputs))
    graph = onnx.helper.make_graph(nodes, "graph", *values)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("mmcv", 1)]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return mmort.ort.session(model.SerializeToString(), sess_options=options)


@pytest.fixture(scope="module")
def session():
    """Returns -x and the indices of the elements of x that are not 0; only the run knows their number."""
    nodes = [make_node("Neg", ["x"], ["y"]), make_node("NonZero", ["x"], ["positions"])]
    outputs = [("y", FLOAT, ["N", 3]), ("positions", INT64, [2, None])]
    return make_session(nodes, [("x", FLOAT, ["N", 3])], outputs)


def new(kind, *values, dtype="float32"):
    array = np.array(values, dtype)
    return array if kind == "numpy" else torch.from_numpy(array)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_reads_and_writes_in_place(session, kind):
    x, y = new(kind, [1, 0, 3]), new(kind, [9, 9, 9])
    binding = mmort.ort.Binding(session, {"x": x}, {"y": y})
    first = binding.run()
    assert list(first) == ["y", "positions"]
    assert first["y"] is y
    assert y.tolist() == [[-1, 0, -3]]
    x[0, 0] = 0  # no new array, nothing bound again
    assert binding.run()["y"] is y
    assert y.tolist() == [[0, 0, -3]]


@pytest.fixture(scope="module")
def optional_session():
    """Returns the optional input, or [0] without it."""
    value = onnx.helper.make_tensor_type_proto(INT64, ["N"])
    optional = onnx.helper.make_value_info("x", onnx.helper.make_optional_type_proto(value))
    branches = {
        "then_branch": make_node("OptionalGetElement", ["x"], ["given"]),
        "else_branch": make_node("Constant", [], ["zero"], value_ints=[0]),
    }
    graphs = {
        name: onnx.helper.make_graph(
            [node], name, [], [onnx.helper.make_tensor_value_info(node.output[0], INT64, ["N"])]
        )
        for name, node in branches.items()
    }
    nodes = [make_node("OptionalHasElement", ["x"], ["has"]), make_node("If", ["has"], ["y"], **graphs)]
    output = onnx.helper.make_tensor_value_info("y", INT64, ["N"])
    graph = onnx.helper.make_graph(nodes, "optional", [optional], [output])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    return mmort.ort.session(model.SerializeToString())


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_optional_inputs(optional_session, kind):
    x = new(kind, 1, 2, dtype="int64")
    assert mmort.ort.Binding(optional_session).run()["y"].tolist() == [0]
    binding = mmort.ort.Binding(optional_session, {"x": x})
    assert binding.run()["y"].tolist() == [1, 2]
    x[0] = 5
    assert binding.run()["y"].tolist() == [5, 2]
    with pytest.raises(ValueError, match=r"input x must be int64 \[N\], got float32 \[2\]"):
        binding.bind_input("x", new(kind, 1, 2))


def test_memory_is_the_same(session, monkeypatch):
    """What ONNX Runtime is given and gives back are the arrays' addresses."""
    x, y = np.ones((2, 3), np.float32), torch.empty(2, 3)
    binding = mmort.ort.Binding(session, {"x": x}, {"y": y})
    binding.run()
    value, positions = binding._binding.get_outputs()
    assert value.data_ptr() == y.data_ptr()
    assert binding.run()["positions"].ctypes.data != positions.data_ptr()


def test_outputs_without_memory_are_new_every_time(session):
    x = np.array([[1, 0, 3]], np.float32)
    binding = mmort.ort.Binding(session, {"x": x})
    first = binding.run()
    assert first["positions"].tolist() == [[0, 0], [0, 2]]
    x[:] = [[0, 5, 6]]  # as many positions as before
    second = binding.run()
    x[:] = 0  # fewer
    third = binding.run()
    assert third["positions"].shape == (2, 0)
    assert second["positions"].tolist() == [[0, 0], [1, 2]]
    assert first["positions"].tolist() == [[0, 0], [0, 2]]
    assert first["y"].tolist() == [[-1, 0, -3]]


def test_bound_again_with_another_size(session):
    binding = mmort.ort.Binding(session)
    for rows in (1, 5, 0, 2):
        x, y = np.full((rows, 3), rows, np.float32), np.zeros((rows, 3), np.float32)
        binding.bind_input("x", x)
        binding.bind_output("y", y)
        assert binding.run()["positions"].shape == (2, 3 * rows)
        np.testing.assert_array_equal(y, -x)


def test_size_that_only_the_run_knows(session):
    """ONNX Runtime refuses; the arrays on both sides of it stay as they are, and the binding can be used again."""
    memory = np.full((4, 3), 7, np.float32)
    binding = mmort.ort.Binding(session, {"x": np.ones((2, 3), np.float32)})
    for rows in (slice(1, 2), slice(1, 4)):
        binding.bind_output("y", memory[rows])
        with pytest.raises(Exception, match="shape"):
            binding.run()
        assert (memory == 7).all()
    binding.bind_output("y", memory[1:3])
    binding.run()
    assert memory[:, 0].tolist() == [7, -1, -1, 7]


def test_input_that_is_not_bound(session):
    with pytest.raises(Exception, match="x"):
        mmort.ort.Binding(session).run()


@pytest.mark.parametrize("put", ["inputs", "outputs"])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_arrays_are_kept_alive(session, put, kind):
    array = new(kind, [1, 2, 3])
    alive = weakref.ref(array)
    name = {"inputs": "x", "outputs": "y"}[put]
    binding = mmort.ort.Binding(session, **{put: {name: array}})
    del array
    gc.collect()
    assert alive() is not None
    if put == "inputs":
        assert binding.run()["y"].tolist() == [[-1, -2, -3]]
        binding.bind_input("x", new(kind, [1, 2, 3]))
    else:
        binding.bind_output("y", new(kind, [1, 2, 3]))
    gc.collect()
    assert alive() is None, "an array that is no longer bound is kept"


REFUSED = {
    "no array": ([[1.0, 2.0, 3.0]], TypeError, "{what} must be a numpy array or a torch tensor, got list"),
    "dtype": (np.zeros((1, 3)), ValueError, r"{what} must be float32 \[N, 3\], got float64 \[1, 3\]"),
    "byte order": (np.zeros((1, 3), ">f4"), ValueError, r"{what} must be float32 \[N, 3\], got >f4 \[1, 3\]"),
    "tensor's dtype": (
        torch.zeros(1, 3).double(),
        ValueError,
        r"{what} must be float32 \[N, 3\], got float64 \[1, 3\]",
    ),
    "size": (np.zeros((1, 4), "f4"), ValueError, r"{what} must be float32 \[N, 3\], got float32 \[1, 4\]"),
    "rank": (torch.zeros(3), ValueError, r"{what} must be float32 \[N, 3\], got float32 \[3\]"),
    "columns": (np.zeros((3, 3), "f4").T, ValueError, "{what} must be contiguous in C order"),
    "steps": (np.zeros((4, 3), "f4")[::2], ValueError, "{what} must be contiguous in C order"),
    "tensor's columns": (torch.zeros(3, 3).T, ValueError, "{what} must be contiguous in C order"),
    "device": (torch.zeros(1, 3, device="meta"), ValueError, "{what} must be on the CPU.*got a tensor on meta"),
}


@pytest.mark.parametrize("put", ["inputs", "outputs"])
@pytest.mark.parametrize("case", REFUSED)
def test_refused(session, put, case):
    array, error, text = REFUSED[case]
    name = {"inputs": "x", "outputs": "y"}[put]
    text = text.format(what=f"{put[:-1]} {name}")
    with pytest.raises(error, match=rf"^mmort\.ort\.Binding: {text}"):
        mmort.ort.Binding(session, **{put: {name: array}})


def test_read_only_memory_is_an_input_only(session):
    x = np.ones((1, 3), np.float32)
    x.flags.writeable = False
    binding = mmort.ort.Binding(session, {"x": x})
    assert binding.run()["y"].tolist() == [[-1, -1, -1]]
    with pytest.raises(ValueError, match=r"^mmort\.ort\.Binding: output y must be writeable"):
        binding.bind_output("y", x)


@pytest.mark.parametrize(("put", "known"), [("inputs", "x"), ("outputs", "y, positions")])
def test_unknown_name(session, put, known):
    with pytest.raises(ValueError, match=rf"^mmort\.ort\.Binding: {put[:-1]} must be one of {known}, got z$"):
        mmort.ort.Binding(session, **{put: {"z": np.zeros((1, 3), np.float32)}})


TYPES = {
    "float16": onnx.TensorProto.FLOAT16,
    "float64": onnx.TensorProto.DOUBLE,
    "bfloat16": onnx.TensorProto.BFLOAT16,
    "bool": onnx.TensorProto.BOOL,
} | {name: getattr(onnx.TensorProto, name.upper()) for name in ("int8", "int16", "int32", "uint8", "uint16", "uint64")}


@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
@pytest.mark.parametrize("name", TYPES)
def test_types_and_shapes(name, shape):
    """Reshape copies bytes of any type; shapes of no dimensions and of no elements are ordinary."""
    sizes = [f"D{d}" for d in range(len(shape))]
    nodes = [make_node("Shape", ["x"], ["shape"]), make_node("Reshape", ["x", "shape"], ["y"])]
    ends = ([(end, TYPES[name], sizes)] for end in "xy")
    x = (torch.arange(6) % 2).reshape(2, 3).to(getattr(torch, name))
    x = (x[1, 0] if shape == () else x[: shape[0], : shape[1]]).contiguous()
    y = torch.zeros_like(x)
    mmort.ort.Binding(make_session(nodes, *ends), {"x": x}, {"y": y}).run()
    assert torch.equal(x, y)
    assert x.shape == shape


def test_input_handed_through():
    """An output that is an input comes to lie in its own memory too."""
    session = make_session([make_node("Identity", ["x"], ["y"])], [("x", FLOAT, ["N"])], [("y", FLOAT, ["N"])])
    x, y = np.array([1, 2], np.float32), np.zeros(2, np.float32)
    mmort.ort.Binding(session, {"x": x}, {"y": y}).run()
    assert y.tolist() == [1, 2]


def test_operators_of_mmort_write_in_place():
    """Also those whose output's size is known only after the run."""
    node = make_node("NonMaxSuppression", ["boxes", "scores"], ["indices"], domain="mmcv", iou_threshold=0.5)
    session = make_session([node], [("boxes", FLOAT, ["N", 4]), ("scores", FLOAT, ["N"])], [("indices", INT64, [None])])
    boxes = np.array([[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]], np.float32)
    scores, indices = np.array([0.8, 0.9, 0.7], np.float32), torch.zeros(2, dtype=torch.int64)
    mmort.ort.Binding(session, {"boxes": boxes, "scores": scores}, {"indices": indices}).run()
    assert indices.tolist() == [1, 2]


def test_torch_is_not_needed():
    code = "import sys, mmort.ort; assert mmort.ort.Binding; assert not {'torch', 'onnxruntime'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
