"""Comparison at a file's ranks: an order of equal scores is followed, any other one is not."""

from contextlib import nullcontext

import numpy as np
import onnx
import onnx.helper
import pytest
import torch

from mmort.detect.detector import Detector
from mmort.detect.export.ranks import Following, is_order_of
from mmort.onnx import VerificationError
from mmort.onnx.export.options import Options
from mmort.onnx.export.pipeline import export_model


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([0, 1, 3], True),
        ([1, 0, 3], True),  # equal but for rounding
        ([1, 0, 4], True),
        ([0, 3, 1], False),
        ([0, 1, 2], False),  # 2 is not among the best
        ([0, 1, 1], False),
    ],
)
def test_an_order_of_scores(order, expected):
    scores = torch.tensor([[4.0, 3.9999998, 1.0, 2.0, 1.9999999]])
    assert is_order_of(scores, torch.tensor([order])) is expected


class Ranking(Detector):
    """A detector that returns the ranks of its input."""

    depends_on_ranks = True

    def ranked(self, scores):
        return scores.topk(3).indices

    def forward(self, input, img_shape=None):
        return (self.ranked(input),)


@pytest.mark.parametrize(("shifts", "expected"), [([0, 0, 1e-6, 0], [2, 0, 1]), ([0, 0, 0, 5], [0, 2, 1])])
def test_torch_follows_the_file(shifts, expected, tmp_path):
    """The file adds `shifts` to the scores; that of cell 2 is a rounding error below that of cell 0."""
    shifts = onnx.numpy_helper.from_array(np.array(shifts, np.float32), "shifts")
    count = onnx.numpy_helper.from_array(np.array([3]), "count")
    nodes = [
        onnx.helper.make_node("Add", ["input", "shifts"], ["scores"]),
        onnx.helper.make_node("TopK", ["scores", "count"], ["best", "ranks"]),
    ]
    input, best = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, size])
        for name, size in (("input", 4), ("best", 3))
    )
    graph = onnx.helper.make_graph(nodes, "ranks", [input], [best], [shifts, count])
    path = tmp_path / "file.onnx"
    onnx.save(onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 20)]), path)
    detector = Ranking().eval()
    scores = torch.tensor([[2.0, 1.0, 1.9999998, 0.0]])
    assert Following(detector, detector, path)(scores)[0].tolist() == [expected]
    assert detector(scores)[0].tolist() == [[0, 2, 1]]


class Shifted(torch.nn.Module):
    """Adds a number, and another one when it is exported."""

    def __init__(self, shift, exported):
        super().__init__()
        self.shift, self.exported = shift, exported

    def forward(self, x):
        return x + (self.exported if torch.onnx.is_in_onnx_export() else self.shift)


@pytest.mark.parametrize("shift", [2.0, 3.0])
def test_a_draft_that_differs_is_compared_again(shift, tmp_path):
    """With the model that the option returns: the draft adds 2."""
    drafts = []

    def reference(draft):
        drafts.append(draft.exists())
        return Shifted(shift, 2.0).eval()

    path, options = tmp_path / "file.onnx", Options(reference=reference, exporter="legacy")  # the faster one
    with pytest.raises(VerificationError) if shift == 3.0 else nullcontext():
        export_model(Shifted(1.0, 2.0).eval(), (torch.ones(2),), path, options)
    assert drafts == [True]
    assert path.exists() == (shift == 2.0)
