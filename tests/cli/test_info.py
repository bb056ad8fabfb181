"""``mmort info``: what it prints, with and without the library and ONNX Runtime."""

import json
import re
import sys
import tracemalloc

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import mmort
import mmort.ort
from mmort.onnx.describe import report
from tests.cli.running import refused, run

onnxruntime = pytest.importorskip("onnxruntime")


def test_info_lists_versions_and_operators():
    code, out, err = run("info")
    assert (code, err) == (0, "")
    assert re.search(rf"^mmort +{re.escape(mmort.__version__)}$", out, re.MULTILINE)
    assert re.search(rf"^numpy +{re.escape(np.__version__)}$", out, re.MULTILINE)
    assert re.search(rf"^library +{re.escape(mmort.ort.library_path())}$", out, re.MULTILINE)
    assert re.search(rf"^threads +{mmort.get_num_threads()}$", out, re.MULTILINE)
    for operator in mmort.ort.operators():
        row = rf"^{operator['domain']} +{operator['type']} +{operator['kernel']} +{operator['inputs'][0]['name']}"
        assert re.search(row, out, re.MULTILINE), row
    attributes = "iou_threshold=0.3, sigma=0.5, min_score=0.001, method=1, offset=0"
    assert f"boxes, scores; {attributes}" in " ".join(out.split())  # the last column may be wrapped
    for function in mmort.ops.__all__:
        assert re.search(rf"\b{function}\b", out), function
    assert max(map(len, out.splitlines())) <= 120


def test_info_json():
    code, out, _ = run("info", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["operators"] == mmort.ort.operators()
    assert facts["library"] == mmort.ort.library_path()
    assert facts["library_error"] is None
    assert facts["simd"] == mmort.ort.describe()["simd"]


def test_info_without_library(monkeypatch):
    monkeypatch.setattr("mmort.ort.library._NAME", "absent.so")
    code, out, err = run("info")
    assert (code, err) == (0, "")
    assert "WITH_ORT=1 pip install" in re.sub(r"\s+", " ", out)
    assert "MMCVCornerPool" not in out
    assert "corner_pool" in out
    facts = json.loads(run("info", "--json")[1])
    assert facts["library"] is None
    assert "absent.so" in facts["library_error"]


def test_info_without_onnxruntime(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, out, _ = run("info")
    assert code == 0
    assert re.search(r"^onnxruntime +not installed$", out, re.MULTILINE)
    assert json.loads(run("info", "--json")[1])["onnxruntime"] is None


def model_of(tmp_path, *nodes, functions=(), opset=18):
    graph = oh.make_graph(nodes, "g", [], [])
    imports = [oh.make_opsetid(name, version) for name, version in (("", opset), ("mmcv", 1), ("other", 2))]
    model = oh.make_model(graph, opset_imports=imports, ir_version=8, functions=functions)
    oh.set_model_props(model, {"family": "FCOS"})
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "model.onnx"


def test_of_a_file(tmp_path):
    relu = oh.make_node("Relu", ["x"], ["r"])
    cummax = oh.make_node("cummax", ["r"], ["y", "i"], domain="mmcv", dim=0)
    unknown = oh.make_node("Strange", ["y"], ["z"], domain="other")
    fused = oh.make_node("FusedConv", ["x", "w"], ["f"], domain="com.microsoft")
    function = oh.make_function("mmcv", "cummax", ["input"], ["output", "indices"], [], [oh.make_opsetid("", 18)])
    for nodes, functions, provider, runs_on in (
        ([relu], [], None, "every runtime of its opset"),
        ([relu, cummax], [], "mmort", "ONNX Runtime 1.16 or later with mmort's library"),
        ([relu, cummax], [function], "definition in the file", "every runtime of its opset"),
        ([cummax, unknown], [], "mmort", "ONNX Runtime with a library that has other::Strange, which mmort does not"),
        ([relu, fused], [], None, "ONNX Runtime only"),
    ):
        path = model_of(tmp_path, *nodes, functions=functions)
        facts = json.loads(run("info", path, "--json")[1])
        assert facts["operators"].get("mmcv::cummax", {}).get("provider") == provider
        assert facts["runs_on"].startswith(runs_on)
        assert (facts["opsets"]["ai.onnx"], facts["metadata"]) == (18, {"family": "FCOS"})
    for opset, version in ((19, "1.16 or later"), (20, "1.17 or later"), (99, "of a version that has opset 99,")):
        path = model_of(tmp_path, cummax, opset=opset)
        assert f"ONNX Runtime {version} with mmort's library" in run("info", path)[1]
    attributes = {"output_height": 2, "output_width": 2, "spatial_scale": -1.0}
    align = oh.make_node("MMCVRoiAlign", ["x", "r"], ["p"], domain="mmcv", **attributes)
    for node, opset, elsewhere in (
        (cummax, 16, "; or anywhere after mmort portable, in OpenVINO with --portable=inlined"),
        (cummax, 11, "; or anywhere after mmort upgrade and mmort portable, in OpenVINO with --portable=inlined"),
        (align, 18, "; nowhere else: no definition of mmcv::MMCVRoiAlign node 'p': spatial_scale -1"),
        (
            oh.make_node("cummax", ["r"], ["y", "i"], domain="mmcv"),
            18,
            "; nowhere else: mmcv::cummax node 'y, i': attribute dim (INT) is missing",
        ),
    ):
        assert run("info", model_of(tmp_path, node, opset=opset))[1].endswith(f"{elsewhere}\n")
    path = model_of(tmp_path, cummax, unknown)
    text = run("info", path)[1]
    assert "mmcv::cummax     1 node, mmort" in text
    assert "other::Strange   1 node, of an unknown library" in text
    (tmp_path / "model.onnx").write_bytes(b"no model")
    assert "is not an ONNX model" in refused("info", path)


def test_of_a_files_inputs_and_outputs(tmp_path):
    """They come first: names, types, shapes, and whether sizes are fixed; weights that are listed as inputs do not."""
    tensor, float32 = oh.make_tensor_value_info, onnx.TensorProto.FLOAT
    optional = oh.make_value_info(
        "c", oh.make_optional_type_proto(oh.make_tensor_type_proto(onnx.TensorProto.INT64, [2]))
    )
    sequence = oh.make_value_info("s", oh.make_sequence_type_proto(oh.make_tensor_type_proto(float32, None)))
    inputs = [tensor("a", float32, [1, 3, 0]), tensor("b", onnx.TensorProto.BFLOAT16, ["n", None]), optional, sequence]
    weight = onnx.numpy_helper.from_array(np.zeros(2, np.float32), "w")
    listed, default = tensor("w", float32, [2]), onnx.numpy_helper.from_array(np.zeros(2, np.float32), "d")
    outputs = [tensor("y", float32, None)]
    path = tmp_path / "model.onnx"

    def write(inputs, initializers):
        graph = oh.make_graph([oh.make_node("Relu", ["a"], ["y"])], "g", inputs, outputs, initializers)
        path.write_bytes(oh.make_model(graph, ir_version=8).SerializeToString())
        return run("info", path)[1].splitlines()[1:], json.loads(run("info", path, "--json")[1])

    lines, facts = write([*inputs, listed], [weight])
    assert [line.split(None, 1) for line in lines[:5]] == [
        ["input", "a  float32    [1, 3, 0]     fixed"],
        ["input", "b  bfloat16   [n, ?]        dynamic"],
        ["input", "c  int64      [2]           fixed, may be left out"],
        ["input", "s  no tensor  of any shape  dynamic"],
        ["output", "y  float32  of any shape  dynamic"],
    ]
    assert facts["inputs"][1] == {
        "name": "b",
        "type": "bfloat16",
        "shape": ["n", None],
        "dynamic": True,
        "optional": False,
    }
    lines, _ = write([inputs[0], tensor("d", float32, [2])], [weight, default])
    assert [line.split() for line in lines[:2]] == [
        ["input", "a", "float32", "[1,", "3,", "0]", "fixed"],
        ["input", "d", "float32", "[2]", "fixed,", "may", "be", "left", "out"],
    ]


def test_parameters(tmp_path):
    """Numbers in initializers, by type, also in subgraphs."""
    weights = {"w": np.zeros((7, 3), np.float32), "q": np.zeros(5, np.int8), "i": np.zeros(2, np.int64)}
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy")
    condition = oh.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])
    more = onnx.numpy_helper.from_array(np.ones(2, np.float32), "more")
    branches = [
        oh.make_graph([oh.make_node("Add", ["x", "more"], ["y"])], name, [], [y], [more]) for name in ("then", "else")
    ]
    node = oh.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    graph = oh.make_graph([node], "g", [x, condition], [y], tensors)
    (tmp_path / "model.onnx").write_bytes(oh.make_model(graph, ir_version=8).SerializeToString())
    facts = json.loads(run("info", tmp_path / "model.onnx", "--json")[1])
    assert facts["parameters"] == {"float32": 25, "int8": 5, "int64": 2}
    lines = run("info", tmp_path / "model.onnx")[1].splitlines()
    assert ["parameters", "25 float32, 5 int8, 2 int64"] in [line.split(maxsplit=1) for line in lines]


def test_a_long_entry_of_metadata_is_not_split_into_words():
    """109 MB of class names took 970 MB."""
    facts = {"file": "a", "inputs": [], "outputs": [], "format": 8, "opsets": {}, "nodes": 0, "operators": {}}
    text = "ab \n" * 10**6
    tracemalloc.start()
    shown = report({**facts, "metadata": {"classes": text, "short": " a\n b "}, "runs_on": ""})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    lines = shown.splitlines()
    assert lines[-1] == "--json prints the metadata in full"
    assert lines[-4:-2] == [f"metadata classes  {('ab ' * 30)[:77]}...", "metadata short    a b"]
    assert peak < 10**6


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("types", [(1, 1), (1, 11), (11, 11)])
def test_sampling_that_onnx_runtime_refuses(tmp_path, opset, types):
    image, grid = (
        oh.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in zip("xg", types, ([1, 1, 4, 4], [1, 3, 3, 2]), strict=True)
    )
    node = oh.make_node("GridSample", ["x", "g"], ["y"], name="sample")
    graph = oh.make_graph([node], "g", [image, grid], [oh.make_tensor_value_info("y", types[0], [1, 1, 3, 3])])
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)], ir_version=8)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    runs_on = json.loads(run("info", tmp_path / "model.onnx", "--json")[1])["runs_on"]
    try:
        onnxruntime.InferenceSession(tmp_path / "model.onnx")
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        assert runs_on == "no ONNX Runtime so far, which has no GridSample of float64, such as sample"
    else:
        assert runs_on.startswith("every runtime of its opset")
