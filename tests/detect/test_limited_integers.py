"""Integers that a file limits are limited as torch limits the same integers."""

import onnx
import pytest
import torch

from mmort.detect.export.unseen.limited_integers import compare_limited_integers

CELLS = """
<ir_version: 8, opset_import: ["" : 18]>
graph (int64[N] x) => (int64[N] y)
  <int64 low = {LOW}, int64 high = {HIGH}>
{
  raised = Max (x, low)
  y = Min (raised, high)
}
"""


class Cells(torch.nn.Module):
    """Integers of 0 to 50, and other integers from 1 on."""

    def forward(self, x):
        (x + 100).clamp(min=1)
        return x.clamp(0, 50)


@pytest.mark.parametrize(
    ("low", "high", "integers", "wrong"),
    [
        (0, 50, torch.arange(20), []),
        (1, 50, torch.arange(20), ["Max raised limits integers to 1, torch to 0 or 50"]),
        (0, 51, torch.arange(20), ["Min y limits integers to 51, torch to 0 or 50"]),
        (0, 9223372036854775807, torch.arange(20), []),  # no limit
        (1, 50, torch.arange(9), []),  # too few to be told from others
    ],
)
def test_limits(low, high, integers, wrong, tmp_path):
    model = CELLS.replace("LOW", str(low)).replace("HIGH", str(high))
    onnx.save(onnx.parser.parse_model(model), tmp_path / "model.onnx")
    rows = compare_limited_integers(tmp_path / "model.onnx", Cells(), (integers,))
    assert [row.problem for row in rows] == wrong


def test_integers_that_torch_does_not_limit(tmp_path):
    """An exporter limits integers, too: sizes, for instance."""
    model = CELLS.replace("LOW", "7").replace("HIGH", "8")
    onnx.save(onnx.parser.parse_model(model), tmp_path / "model.onnx")
    assert not compare_limited_integers(tmp_path / "model.onnx", torch.nn.Identity(), (torch.arange(20),))
