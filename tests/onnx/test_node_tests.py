"""ONNX's own tests of single nodes, of the operators that mmort has nodes for: its nodes give what they state."""

import importlib

import numpy as np
import onnx
import onnx.backend.test.case.node as node_tests
import pytest

from mmort.onnx.accelerate import accelerate_file
from mmort.onnx.accelerate.measuring import run_once
from mmort.onnx.graph import files
from tests.front_ends import make_session

OPERATORS = ("deformconv", "gridsample", "nonmaxsuppression", "roialign")
LEFT = {
    "its input has 5 dimensions, mmort's 4",
    "ONNX Runtime's maximum is that of weighted corner values, mmort's that of samples",
}
"""Why nodes are left as they are."""


def cases():
    """Return the tests by name; a module makes them when it is imported, all modules together in seconds."""
    for operator in OPERATORS:
        importlib.import_module(f"onnx.backend.test.case.node.{operator}")
    kinds = {"DeformConv", "GridSample", "NonMaxSuppression", "RoiAlign"}
    return {case.name: case for case in node_tests._NodeTestCases if case.model.graph.node[0].op_type in kinds}


CASES = cases()


def runnable(model):
    """Return a copy of the model in an opset that ONNX Runtime has; later ones only add types to these operators."""
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    changed.opset_import[0].version = min(changed.opset_import[0].version, 21)
    return changed


def with_constant_limits(model, arrays):
    """Return the model whose third and further inputs, the limits of NonMaxSuppression, are constants."""
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    for info, array in list(zip(changed.graph.input, arrays, strict=True))[2:]:
        changed.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
    del changed.graph.input[2:]
    return changed


def test_there_are_tests():
    assert len(CASES) >= 30


@pytest.mark.parametrize("name", CASES)
def test_nodes_give_what_onnx_states(name, tmp_path):
    case = CASES[name]
    ((inputs, outputs),) = case.data_sets
    model = runnable(case.model)
    if model.graph.node[0].op_type == "NonMaxSuppression":
        model, inputs = with_constant_limits(model, inputs), inputs[:2]
    onnx.save(model, tmp_path / "model.onnx")
    named = files.load_whole(tmp_path / "model.onnx")
    edited = accelerate_file.edit(named, run_once(named, inputs), accelerate_file.RULES)
    if not edited.replaced:
        assert {reason for _, reason in edited.left} <= LEFT
        pytest.skip("the node is left as it is")
    feeds = dict(zip([info.name for info in model.graph.input], inputs, strict=True))
    for result, stated in zip(make_session(edited.model).run(None, feeds), outputs, strict=True):
        assert result.dtype == stated.dtype
        np.testing.assert_allclose(result, stated, case.rtol, case.atol)
