"""The constants of an exported file are those that its module computes with."""

import onnx.numpy_helper
import onnx.parser
import pytest
import torch

import mmort.torch
from mmort.detect.export.unseen.constants import compare_constants

FILE = """
<ir_version: 8, opset_import: ["" : 18]>
graph (float[N, C] x) => (float[N, K] best, int64[N, K] index)
  <int64[1] limit = {12}, int64 last = {LAST}>
{
  columns = Shape <start = 1> (x)
  count = Min (columns, limit)
  best, indices = TopK (x, count)
  index = Min (indices, last)
}
"""


class Best(torch.nn.Module):
    """The best columns of each row."""

    def forward(self, x):
        best, indices = x.topk(min(12, x.shape[1]))
        return best, indices.clamp(max=8)


@pytest.mark.parametrize(("last", "problems"), [(8, []), (9, ["Min index limits numbers to 9, which torch does not"])])
def test_limits_of_sizes_and_of_indices(last, problems, tmp_path):
    model = onnx.parser.parse_model(FILE.replace("LAST", str(last)))
    onnx.save(model, tmp_path / "model.onnx")
    rows = compare_constants(tmp_path / "model.onnx", Best(), (torch.rand(2, 20),))
    assert [row.problem for row in rows] == problems


SUM = """
<ir_version: 8, opset_import: ["" : 18]>
graph (float[N, 4] x) => (float[N, 4] y) <float[4] constant = {NUMBERS}> { y = Add (x, constant) }
"""


class Sum(torch.nn.Module):
    """The sum with a tensor."""

    def __init__(self, numbers):
        super().__init__()
        self.register_buffer("numbers", torch.tensor(numbers))

    def forward(self, x):
        return x + self.numbers


@pytest.mark.parametrize(
    ("numbers", "of_file", "wrong"),
    [
        ([1.0, 2.0, 3.0, 4.0], "1, 2, 3, 4.00001", 0),  # an exporter's rounding
        ([1.0, 2.0, 3.0, 4.0], "1, 2, 3, 4.001", 1),
        ([1.0, 2.0, 3.0, 4.0], "1.002, 2.004, 3.006, 4.008", 4),
        ([1.0, 2.0, 3.0, 4.0], "1, 2, 4, 3", 0),  # another tensor, which an exporter computes
        ([1.0, 2.0, 3.0, 4e11], "1, 3, 2, 0", 0),  # beside such a number all others are zeros, within rounding
        ([0.0, 0.0, 0.0, 0.0], "0, 0, 0.00001, 0", 1),
        ([0.0, 0.0, 0.0, 0.0], "0, 0, 1, 0", 0),
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_tensors(numbers, of_file, wrong, beside, tmp_path):
    model = onnx.parser.parse_model(SUM.replace("NUMBERS", of_file))
    for tensor in model.graph.initializer:  # only raw data is written beside
        tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name))
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=beside, size_threshold=0)
    assert len(list(tmp_path.iterdir())) == 1 + beside
    rows = compare_constants(tmp_path / "model.onnx", Sum(numbers), (torch.rand(2, 4),))
    problem = f"{wrong} of 4 numbers of the constant constant are not torch's"
    assert [row.problem for row in rows] == [problem] * bool(wrong)


PAIR = """
<ir_version: 8, opset_import: ["" : 18]>
graph (float[N, 2] x) => (float[N, 2] y) <float[2] NAME = {NUMBERS}> { y = Add (x, NAME) }
"""


@pytest.mark.parametrize(
    ("name", "of_file", "wrong"),
    [
        ("numbers", "1, -2", False),
        ("numbers", "1.00001, -2", False),
        ("numbers", "1.002, -2.004", True),
        ("numbers", "1, -2.04", True),
        ("numbers", "1, -3", False),  # computed with more, such as a normalization
        ("others", "1.002, -2.004", False),
    ],
)
def test_two_numbers_are_known_by_their_name(name, of_file, wrong, tmp_path):
    onnx.save(onnx.parser.parse_model(PAIR.replace("NAME", name).replace("NUMBERS", of_file)), tmp_path / "model.onnx")
    rows = compare_constants(tmp_path / "model.onnx", Sum([1.0, -2.0]), (torch.rand(2, 2),))
    assert [row.problem for row in rows] == ["the constant numbers is not torch's"] * wrong


@pytest.mark.parametrize(("of_file", "wrong"), [("1, 1, 1, 1", 0), ("1, 1.02, 1, 1", 1), ("0, 0, 0.00002, 0", 1)])
def test_group_normalization(of_file, wrong, tmp_path):
    onnx.save(onnx.parser.parse_model(SUM.replace("NUMBERS", of_file)), tmp_path / "model.onnx")
    rows = compare_constants(tmp_path / "model.onnx", torch.nn.GroupNorm(4, 8), (torch.rand(2, 8, 3),))
    assert [row.problem for row in rows] == [f"{wrong} of 4 numbers of the constant constant are not torch's"] * wrong


SCALE = """
<ir_version: 8, opset_import: ["" : 18]>
graph (float[N, 4] x) => (float[N, 4] y) <float finest = {FINEST}, float largest = {4.1}>
{
  scaled = Div (x, finest)
  limited = LIMITED
  y = Exp (limited)
}
"""


class Scale(torch.nn.Module):
    """The exponential of a limited scale."""

    def forward(self, x):
        scaled = x / 56
        return (scaled.clamp(max=4.1).exp() + scaled.clamp(max=4.1).exp()) / 2  # a file computes it once


@pytest.mark.parametrize(
    ("finest", "limited", "problems"),
    [
        ("56", "Min (scaled, largest)", []),
        ("57", "Min (scaled, largest)", ["Div scaled computes with 57, torch with 56"]),
        ("5600", "Min (scaled, largest)", []),  # another number, which an exporter computes
        ("0.69314718", "Min (scaled, largest)", []),  # of a logarithm
        ("56", "Identity (scaled)", ["0 operators limit numbers to 4.1, 1 of torch do"]),
    ],
)
def test_single_numbers(finest, limited, problems, tmp_path):
    model = SCALE.replace("FINEST", finest).replace("LIMITED", limited)
    onnx.save(onnx.parser.parse_model(model), tmp_path / "model.onnx")
    rows = compare_constants(tmp_path / "model.onnx", Scale(), (torch.rand(2, 4),))
    assert [row.problem for row in rows] == problems


FILLED = """
<ir_version: 8, opset_import: ["" : 18]>
graph (float[N, 4] x) => (float[N, 4] y) <float zero = {0}, float number = {NUMBER}>
{
  positive = Greater (x, zero)
  y = Where (positive, x, number)
}
"""


class Filled(torch.nn.Module):
    """Positive numbers; the others are replaced by a constant."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, x):
        return torch.where(x > 0, x, self.number)


@pytest.mark.parametrize(
    ("number", "of_file", "problems"),
    [
        (0.0, "0", []),
        (0.0, "0.00002", ["Where y computes with 2e-05, torch with 0"]),
        (2e-5, "0.00002", []),
        (0.0, "0.5", []),  # another number, which an exporter computes
    ],
)
def test_small_numbers_that_replace_others(number, of_file, problems, tmp_path):
    onnx.save(onnx.parser.parse_model(FILLED.replace("NUMBER", of_file)), tmp_path / "model.onnx")
    rows = compare_constants(tmp_path / "model.onnx", Filled(number), (torch.randn(2, 4),))
    assert [row.problem for row in rows] == problems


SIZE = """
<ir_version: 8, opset_import: ["" : 18]>
graph (float[N, C] x) => (float[N, C] y)
{
  columns = Shape <start = 1> (x)
  last = CastLike (columns, x)
  y = LIMITED
}
"""


class InSize(torch.nn.Module):
    """Numbers limited to the input's size."""

    def forward(self, x):
        return x.clamp(max=x.shape[1])


@pytest.mark.parametrize(
    ("limited", "problems"),
    [("Min (x, last)", []), ("Identity (x)", ["0 operators limit numbers to 20, 1 of torch do"])],
)
def test_a_file_computes_limits_that_torch_has_as_numbers(limited, problems, tmp_path):
    onnx.save(onnx.parser.parse_model(SIZE.replace("LIMITED", limited)), tmp_path / "model.onnx")
    rows = compare_constants(tmp_path / "model.onnx", InSize(), (torch.rand(2, 20),))
    assert [row.problem for row in rows] == problems


POOLING = """
<ir_version: 8, opset_import: ["" : 18]>
graph (float[N, 2, H, W] x) => (float[N, 2, I, J] y)
{ y = MaxPool <kernel_shape = [3, 3]ATTRIBUTES> (x) }
"""


@pytest.mark.parametrize(
    ("pool", "attributes", "wrong"),
    [
        (torch.nn.MaxPool2d(3, 1, 1), ", pads = [1, 1, 1, 1]", ""),
        (torch.nn.MaxPool2d(3, 1, 1), ", pads = [2, 1, 0, 1]", "pads"),
        (
            torch.nn.MaxPool2d(3, 1, 1),
            ", pads = [1, 1, 1, 1], dilations = [1, 2], ceil_mode = 1",
            "dilations and ceil_mode",
        ),
        (torch.nn.MaxPool2d(3), ", strides = [3, 3]", ""),
        (torch.nn.MaxPool2d(3), "", "strides"),
        (torch.nn.MaxPool2d((3, 2)), ", strides = [3, 2]", "kernel_shape"),
        (torch.nn.AvgPool2d(3), "", ""),  # not compared
    ],
)
def test_poolings(pool, attributes, wrong, tmp_path):
    model = onnx.parser.parse_model(POOLING.replace("ATTRIBUTES", attributes))
    onnx.save(model, tmp_path / "model.onnx")
    rows = compare_constants(tmp_path / "model.onnx", pool, (torch.rand(2, 2, 6, 6),))
    assert [row.problem for row in rows] == [f"MaxPool y has another {wrong} than torch's calls"] * bool(wrong)


ALIGNED = """
<ir_version: 8, opset_import: ["" : 18, "mmdeploy" : 1]>
graph (float[N, 2, 8, 8] x, float[K, 5] rois) => (float[K, 2, 4, 3] first, float[K, 2, 4, 3] second)
{
  first = mmdeploy.MMCVRoiAlign <output_height = 4, output_width = 3, spatial_scale = 0.1, sampling_ratio = 2> (x, rois)
  second = mmdeploy.MMCVRoiAlign <output_height = 4, output_width = 3ATTRIBUTES> (x, rois)
}
"""


class Aligned(torch.nn.Module):
    """Features of regions, at two scales."""

    def forward(self, x, rois):
        return tuple(mmort.torch.roi_align(x, rois, (4, 3), scale, sampling_ratio=2) for scale in (0.1, 0.05))


@pytest.mark.parametrize(
    ("attributes", "wrong"),
    [
        (", spatial_scale = 0.05, sampling_ratio = 2", ""),
        (", spatial_scale = 0.051, sampling_ratio = 2", "spatial_scale"),
        (", spatial_scale = 0.05, sampling_ratio = 2, aligned = 0", "aligned"),
    ],
)
def test_operators(attributes, wrong, tmp_path):
    model = onnx.parser.parse_model(ALIGNED.replace("ATTRIBUTES", attributes))
    onnx.save(model, tmp_path / "model.onnx")
    args = torch.rand(1, 2, 8, 8), torch.tensor([[0, 1.0, 2.0, 60.0, 70.0]])
    rows = compare_constants(tmp_path / "model.onnx", Aligned(), args)
    assert [row.problem for row in rows] == [f"MMCVRoiAlign second has another {wrong} than torch's calls"] * bool(
        wrong
    )
