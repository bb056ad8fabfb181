"""The limits of integers in an exported file are those that its module clips with."""

import onnx.parser
import pytest
import torch

from mmort.detect.export.constants import compare_constants

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
