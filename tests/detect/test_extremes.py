"""The largest and smallest numbers of images in an exported file are those of its module."""

import onnx
import onnx.parser
import pytest
import torch

from mmort.detect.export.unseen.extremes import compare_extremes

FILE = """
<ir_version: 8, opset_import: ["" : 18]>
graph (float[2, C, 3] x) => (float[2] widest, float[2, C] rows)
  <int64[1] last = {-1}, int64[1] columns = {1}>
{
  rows = REDUCE <keepdims = 0> (x, last)
  widest = ReduceMax <keepdims = 0> (rows, columns)
}
"""
X = torch.tensor([[[1.0, 4.0, 2.0], [3.0, 2.0, 9.0]], [[5.0, 8.0, 6.0], [7.0, 1.0, 2.0]]])


class Widest(torch.nn.Module):
    """The largest number of each image, and of each of its rows."""

    def forward(self, x):
        rows = x.amax(2)
        return rows.amax(1), rows


@pytest.mark.parametrize(
    ("reduce", "problems"),
    [
        ("ReduceMax", []),
        ("ReduceMin", ["widest is [2. 5.], which torch's is not"]),
    ],
)
def test_numbers_of_images(reduce, problems, tmp_path):
    model = onnx.parser.parse_model(FILE.replace("REDUCE", reduce))
    onnx.save(model, tmp_path / "model.onnx")
    rows = compare_extremes(tmp_path / "model.onnx", Widest(), (X,))
    assert [row.problem for row in rows] == problems
    rows = compare_extremes(tmp_path / "model.onnx", torch.nn.Softmax(2), (X,))  # an exporter reduces for that, too
    assert not rows


AREAS = """
<ir_version: 8, opset_import: ["" : 18]>
graph (float[2, C, 3] x) => (float[2, C] areas)
  <int64[1] last = {-1}, float one = {1}>
{
  sides = SIDES (x, one)
  areas = ReduceProd <keepdims = 0> (sides, last)
}
"""


class Areas(torch.nn.Module):
    """The products of rows."""

    def forward(self, x):
        return (x - 1).prod(-1)


@pytest.mark.parametrize(("sides", "problems"), [("Sub", []), ("Add", ["areas is [ 75. 213.], which torch's is not"])])
def test_products(sides, problems, tmp_path):
    onnx.save(onnx.parser.parse_model(AREAS.replace("SIDES", sides)), tmp_path / "model.onnx")
    rows = compare_extremes(tmp_path / "model.onnx", Areas(), (X,))
    assert [row.problem for row in rows] == problems


def test_rounding(tmp_path):
    model = onnx.parser.parse_model(FILE.replace("REDUCE", "ReduceMax"))
    onnx.save(model, tmp_path / "model.onnx")

    class Nearly(Widest):
        def forward(self, x):
            return super().forward(x * 1.001)

    assert not compare_extremes(tmp_path / "model.onnx", Nearly(), (X,))
