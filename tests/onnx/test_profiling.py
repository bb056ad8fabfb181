"""Multiply-adds are those that torch counts; times are those of the operators that ran."""

import numpy as np
import onnx.helper as oh
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import mmort.onnx
from mmort.onnx.profiling import OperatorTime, count_multiply_adds, operator_times, time_table
from tests.cli.running import misused, run


class Network(torch.nn.Module):
    """Layers whose products differ by their formula."""

    def __init__(self):
        super().__init__()
        self.grouped = torch.nn.Conv2d(6, 8, 3, stride=2, groups=2)
        self.transposed = torch.nn.ConvTranspose2d(8, 4, 3, stride=2, groups=2)
        self.linear = torch.nn.Linear(4, 5)

    def forward(self, image):
        x = self.transposed(self.grouped(image).relu()).flatten(2)
        attention = (x.transpose(1, 2) @ x).softmax(-1)
        return self.linear((x @ attention).transpose(1, 2)), self.linear(x.mean(-1))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    sizes = {"image": dict.fromkeys((0, 2, 3), torch.export.Dim.DYNAMIC)}
    mmort.onnx.export(Network().eval(), (torch.zeros(2, 6, 9, 11),), path, dynamic_shapes=sizes, verify=False)
    return path


@pytest.mark.parametrize("size", [(2, 6, 9, 11), (1, 6, 24, 15)])
def test_products_are_those_that_torch_counts(file, size):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        Network()(torch.zeros(size))
    assert 2 * count_multiply_adds(file, [np.zeros(size, np.float32)]) == counter.get_total_flops() > 0


def model_of(tmp_path, node, inputs, output):
    """Write a model of one node."""
    formal = [oh.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    graph = oh.make_graph([node], "g", formal, [oh.make_tensor_value_info("y", *output)])
    imports = [oh.make_opsetid("", 18), oh.make_opsetid("mmcv", 1)]
    path = tmp_path / "model.onnx"
    path.write_bytes(oh.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())
    return path


FLOAT = 1


@pytest.mark.parametrize(
    ("op_type", "shapes", "attributes", "count"),
    [
        ("MMCVDeformConv2d", [[1, 4, 6, 6], [1, 18, 6, 6], [8, 2, 3, 3]], {"groups": 2, "deform_groups": 1}, 5184),
        (
            "MMCVModulatedDeformConv2d",
            [[1, 4, 6, 6], [1, 18, 6, 6], [1, 9, 6, 6], [8, 2, 3, 3]],
            {"groups": 2, "deform_groups": 1},
            5184,
        ),
    ],
)
def test_deformable_convolutions_count_as_others(tmp_path, op_type, shapes, attributes, count):
    names = [f"x{index}" for index in range(len(shapes))]
    settings = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], **attributes}
    node = oh.make_node(op_type, names, ["y"], domain="mmcv", **settings)
    path = model_of(tmp_path, node, {n: (FLOAT, s) for n, s in zip(names, shapes, strict=True)}, (FLOAT, [1, 8, 6, 6]))
    assert count_multiply_adds(path, [np.zeros(shape, np.float32) for shape in shapes]) == count == 8 * 36 * 2 * 9


def test_a_transposed_matrix_counts_once(tmp_path):
    node = oh.make_node("Gemm", ["a", "b"], ["y"], transA=1)
    path = model_of(tmp_path, node, {"a": (FLOAT, [5, 3]), "b": (FLOAT, [5, 7])}, (FLOAT, [3, 7]))
    assert count_multiply_adds(path, [np.zeros((5, 3), np.float32), np.zeros((5, 7), np.float32)]) == 105
    node = oh.make_node("Gemm", ["a", "b"], ["y"])
    path = model_of(tmp_path, node, {"a": (FLOAT, ["n", 3]), "b": (FLOAT, [3, 7])}, (FLOAT, ["n", 7]))
    assert count_multiply_adds(path, [np.zeros((0, 3), np.float32), np.zeros((3, 7), np.float32)]) == 0


def test_operators_are_timed(file):
    times = operator_times(file, [np.zeros((1, 6, 64, 64), np.float32)])
    nodes = {operator.operator: operator.nodes for operator in times}
    assert (nodes["ConvTranspose"], nodes["Softmax"]) == (1, 1)
    seconds = [operator.seconds for operator in times]
    assert seconds == sorted(seconds, reverse=True)
    assert 0 < sum(seconds) < 10


def test_operators_below_a_share_are_one_row():
    times = [OperatorTime("Conv", 9, 0.99), OperatorTime("Relu", 3, 0.006), OperatorTime("Add", 2, 0.004)]
    assert [line.split() for line in time_table(times).splitlines()[1:]] == [
        ["Conv", "9", "990.00", "99.0", "%"],
        ["others", "5", "10.00", "1.0", "%"],
    ]


def test_command(file):
    code, out, _ = run("info", file, "--sizes", "1x6x24x15", "--profile")
    assert code == 0
    assert "G at 1x6x24x15\n" in out
    assert "ConvTranspose" in out.split("operator ")[1]
    message = "--profile of a file whose inputs have no fixed size needs --sizes or --image"
    assert message in misused("info", file, "--profile")
    assert "--sizes must be those of one run, got 2" in misused("info", file, "--sizes", "1x6x9x9,1x6x8x8")
    assert "--sizes, --image and --profile are for a file" in misused("info", "--profile")
    assert "info: the file does not run on these inputs" in run("info", file, "--sizes", "1x5x24x15")[2]
