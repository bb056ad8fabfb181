"""Portable models without functions: the definitions are in the graph, and inputs are of plain types."""

import json

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import mmort
import mmort.cli
from mmort.onnx import Coverage, make_portable
from mmort.onnx.graph.optional_inputs import make_optional
from tests.onnx.test_portable import OPSET, corner_pools, grid_samplers, stock_session, suppressions


def assert_standard(model):
    """Assert that a model has no functions, and imports the standard operators only."""
    assert not model.functions
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", OPSET)]
    onnx.checker.check_model(model)


def test_nodes_may_need_different_definitions(rng):
    model = grid_samplers(0, 1, 0)
    names = "sample0", "sample1", "sample2"
    assert make_portable(model, form="inlined") == [Coverage("mmcv::grid_sampler", names, None)]
    assert_standard(model)
    x = rng.standard_normal((1, 1, 4, 4)).astype(np.float32)
    grid = rng.uniform(-2, 2, (1, 2, 2, 2)).astype(np.float32)
    outputs = stock_session(model).run(None, {"x": x, "grid": grid})
    for output, mode in zip(outputs, ("zeros", "border", "zeros"), strict=True):
        expected = mmort.grid_sample(x, grid, padding_mode=mode, align_corners=False)
        np.testing.assert_allclose(output, expected, atol=1e-6)


def test_functions_are_inlined_too(rng):
    """Those of mmort, in a model that is portable already, and those of the model itself."""
    model = corner_pools(0, 1)
    make_portable(model)
    call = oh.make_node("Twice", [model.graph.output[0].name], ["twice"], domain="own")
    double = oh.make_node("Add", ["a", "a"], ["b"])
    model.functions.append(oh.make_function("own", "Twice", ["a"], ["b"], [double], [oh.make_opsetid("", OPSET)]))
    model.opset_import.append(oh.make_opsetid("own", 1))
    model.graph.node.append(call)
    model.graph.output[0].name = "twice"
    make_portable(model, form="inlined")
    assert_standard(model)
    x = rng.standard_normal((1, 1, 4, 4)).astype(np.float32)
    (outputs,) = stock_session(model).run(None, {"x0": x})
    np.testing.assert_array_equal(outputs, 2 * mmort.corner_pool(mmort.corner_pool(x, "top"), "bottom"))


def test_what_has_no_definition_stays():
    model = corner_pools(0)
    attributes = {"output_height": 2, "output_width": 2, "spatial_scale": -1.0}
    node = oh.make_node("MMCVRoiAlign", ["x0", "rois"], ["aligned"], "align", domain="mmcv", **attributes)
    model.graph.node.append(node)
    missing = [coverage.operator for coverage in make_portable(model, form="inlined") if coverage.missing]
    assert missing == ["mmcv::MMCVRoiAlign"]
    assert [opset.domain for opset in model.opset_import] == ["", "mmcv"]
    assert model.graph.node[-1] == node


def test_an_optional_input_becomes_an_initializer():
    x = oh.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])
    shape = oh.make_tensor_value_info("shape", onnx.TensorProto.INT64, ["n", 2])
    y = oh.make_tensor_value_info("y", onnx.TensorProto.INT64, ["n", 2])
    graph = oh.make_graph([oh.make_node("Neg", ["shape"], ["y"])], "graph", [x, shape], [y])
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", OPSET)], ir_version=8)
    make_optional(model, "shape", portable=False)
    assert make_portable(model) == []
    assert_standard(model)
    session = stock_session(model)
    assert [argument.name for argument in session.get_overridable_initializers()] == ["shape"]
    feeds = {"x": np.zeros((2, 3), np.float32)}
    np.testing.assert_array_equal(session.run(None, feeds)[0], [[0, 0], [0, 0]])
    np.testing.assert_array_equal(session.run(None, feeds | {"shape": np.array([[1, 2]])})[0], [[-1, -2], [-1, -2]])


def test_form_is_checked():
    with pytest.raises(ValueError, match="make_portable: form must be 'functions' or 'inlined', got 'inline'"):
        make_portable(corner_pools(0), form="inline")


def test_command(tmp_path, capsys):
    source = tmp_path / "model.onnx"
    onnx.save(suppressions({"method": "nms"}, {"method": "soft_nms_linear"}), source)
    assert mmort.cli.main(["portable", str(source), "--output", str(tmp_path / "a.onnx"), "--portable=functions"]) == 1
    assert "2 nodes still need the library" in capsys.readouterr().err
    target = tmp_path / "b.onnx"
    assert mmort.cli.main(["portable", "--portable=inlined", str(source), "--output", str(target)]) == 0
    assert_standard(onnx.load(target))
    runs_on = {}
    for path in (source, target):
        capsys.readouterr()
        mmort.cli.main(["info", str(path), "--json"])
        runs_on[path] = json.loads(capsys.readouterr().out)["runs_on"]
    assert "with mmort's library" in runs_on[source]
    assert runs_on[target].endswith("and OpenVINO")
