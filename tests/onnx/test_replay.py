"""Comparison at a file's choices: what rounding decides is followed, any other choice is not."""

import numpy as np
import onnx
import onnx.helper
import pytest
import torch

import mmort.torch
from mmort.onnx.verify.operator_calls import Intercepted
from mmort.onnx.verify.replay import Replay, ReplayingModule, orders_of


def replaying(choices):
    """Return a context manager in which operators that choose follow the choices."""
    return Intercepted(Replay(choices).call)


@pytest.mark.parametrize(
    ("order", "in_order", "expected"),
    [
        ([0, 1, 3], True, True),
        ([1, 0, 3], True, True),  # equal but for rounding
        ([1, 0, 4], True, True),
        ([0, 3, 1], True, False),
        ([0, 3, 1], False, True),
        ([0, 1, 2], False, False),  # 2 is not among the best
        ([0, 1, 1], False, False),
        ([0, 1, 6], False, False),
    ],
)
def test_an_order_of_scores(order, in_order, expected):
    scores = torch.tensor([[4.0, 3.9999998, -torch.inf, 2.0, 1.9999999, -torch.inf]])
    assert orders_of(scores, torch.tensor([order]), in_order=in_order).tolist() == [expected]


def test_a_file_without_an_output_is_not_followed():
    scores = torch.tensor([[[0.9], [0.9]]])
    boxes = torch.tensor([[[0.0, 0, 9, 9], [90, 90, 99, 99]]])
    with replaying([("MultiClassNMS", [torch.tensor([[1, 0]])])]):
        indices = mmort.torch.multiclass_nms(boxes, scores, 0.2, 0.8, max_per_image=2)[2]
    assert indices.tolist() == [[0, 1]]


def test_each_row_is_followed_by_itself():
    scores = torch.tensor([[[2.0, 1.9999999, 1.0]], [[3.0, 2.0, 1.0]]])
    with replaying([("TopK", [torch.tensor([[[1, 0]], [[2, 0]]])])]):
        values, indices = scores.topk(2)
    assert indices.tolist() == [[[1, 0]], [[0, 1]]]
    assert torch.equal(values, scores.gather(2, indices))


def test_what_a_file_computes_once_or_never_moves_no_choice():
    """Torch computes an order that no input decides twice, and another that the file has as a constant."""
    constant, other, scores = torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.9999999, 2.0])
    with replaying([("TopK", [torch.tensor([0, 1])]), ("TopK", [torch.tensor([[0, 1]])])]):
        orders = [constant.sort(descending=True)[1], constant.sort(descending=True)[1], other.sort()[1]]
        indices = scores[None].topk(2).indices
    assert [order.tolist() for order in orders] == [[0, 1], [0, 1], [0, 1, 2]]
    assert indices.tolist() == [[0, 1]]


class Ranking(torch.nn.Module):
    """Ranks its input, after a square root, which is no choice."""

    def forward(self, input):
        return (input.sqrt().topk(3).indices,)


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
    module, scores = Ranking().eval(), torch.tensor([[2.0, 1.0, 1.9999998, 0.0]])
    assert ReplayingModule(module, path)(scores)[0].tolist() == [expected]
    assert module(scores)[0].tolist() == [[0, 2, 1]]


SCORES = torch.tensor([[[0.9, 0.1], [0.5, 0.5000001], [0.4999999, 0.3], [0.2, 0.0]]])


@pytest.mark.parametrize(
    ("passing", "followed"),
    [
        ([(0, 0), (1, 1), (1, 0)], True),  # torch's
        ([(0, 0), (1, 1), (2, 0)], True),
        ([(0, 0), (1, 1), (2, 1)], False),  # 0.3 is not among the three best
        ([(0, 0), (1, 1)], False),  # one is left out
        ([(0, 0), (1, 1), (1, 0), (2, 0)], True),  # those that equal the third pass, too
        ([(0, 0), (1, 1), (1, 0), (2, 0), (2, 1)], False),
    ],
)
def test_scores_that_pass(passing, followed):
    chosen = torch.zeros_like(SCORES)
    for pair in passing:
        chosen[0][pair] = 7.0  # numbers of the file are not taken over
    with replaying([("FilterScores", [chosen])]):
        filtered = mmort.torch.filter_scores(SCORES, 0.25, 3)
    expected = passing if followed else [(0, 0), (1, 1), (1, 0)]
    assert [tuple(pair) for pair in filtered[0].nonzero().tolist()] == sorted(expected)
    assert filtered.max() == torch.tensor(0.9)


def test_scores_at_the_threshold_may_pass_or_not():
    for passing in (False, True):
        chosen = torch.where((0.25 if passing else 0.35) < SCORES, SCORES, 0)
        with replaying([("FilterScores", [chosen])]):
            filtered = mmort.torch.filter_scores(SCORES, 0.3000001, -1)
        assert bool(filtered[0, 2, 1] > 0) is passing


AREAS = torch.tensor([[4.0, 3.9999998, 3.0], [-1.0, -3.0, -2.0], [2.0, 2.0, 1.9]])


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(("kind", "sign"), [("ArgMax", 1), ("ArgMin", -1)])
def test_the_largest_or_smallest_number(kind, sign, keepdim):
    """Of three rows the first and the last have a second number that is as large, but for rounding."""
    for chosen, expected in (
        ([1, 0, 1], [1, 0, 1]),
        ([0, 2, 0], [0, 0, 0]),
        ([2, 1, 2], [0, 0, 0]),
        ([7, -1, 3], [0] * 3),
    ):
        index = torch.tensor(chosen)
        with replaying([(kind, [index[:, None] if keepdim else index])]):
            numbers = sign * AREAS
            actual = numbers.argmax(1, keepdim) if sign == 1 else numbers.argmin(1, keepdim)
        assert actual.shape == ((3, 1) if keepdim else (3,))
        assert actual.flatten().tolist() == expected


def test_probabilities_at_a_threshold_are_above_it_or_not():
    """Of other numbers than probabilities the file's comparison is no choice."""
    logits = torch.tensor([[0.0, 2.0], [0.1, 0.2]])
    for chosen, expected in (
        ([[True, True], [True, True]], [[True, True], [True, True]]),
        ([[False, False], [True, False]], [[False, True], [True, True]]),
    ):
        with replaying([("Greater", [torch.tensor(chosen)])]):
            assert (logits > 0.05).tolist() == [[False, True], [True, True]]
            assert (logits.sigmoid() > 0.5).tolist() == expected


BOXES = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 8], [100, 0, 110, 10], [100, 0, 110, 9], [0, 50, 9, 60]])
"""The first two overlap by 0.8, the next two by 0.9."""


KEPT = [
    ([2, 0, 1, 4], True),  # torch's
    ([2, 0, 4], True),  # the overlap equals the threshold
    ([3, 0, 4], True),  # equal scores
    ([0, 2, 4], False),  # not by descending score
    ([2, 3, 0, 4], False),  # one suppresses another
    ([2, 0], False),  # one is left out
    ([2, 1, 4], False),  # the better of two
    ([2, 0, 1, 4, 5], False),  # there is no such box
]


@pytest.mark.parametrize(("kept", "followed"), KEPT)
@pytest.mark.parametrize("with_labels", [False, True])
def test_rotated_boxes_that_suppression_keeps(kept, followed, with_labels):
    upright, scores = BOXES, torch.tensor([0.6, 0.5, 0.9, 0.9, 0.3])
    sides = upright[:, 2:] - upright[:, :2]
    boxes = torch.cat([(upright[:, :2] + upright[:, 2:]) / 2, sides, torch.zeros(5, 1)], 1)
    labels = torch.zeros(5, dtype=torch.int64) if with_labels else None
    with replaying([("RotatedNonMaxSuppression", [torch.tensor(kept)])]):
        result = mmort.torch.nms_rotated(boxes, scores, 0.8001, labels)[1]
    assert result.tolist() == (kept if followed else [2, 0, 1, 4])


def test_many_rotated_boxes_are_compared_with_their_neighbours_only(monkeypatch):
    """All pairs of a hundred thousand boxes would take gigabytes."""
    generator = torch.Generator().manual_seed(0)
    boxes = torch.rand(3000, 5, generator=generator) * torch.tensor([2000, 500, 40, 40, 3.0])
    scores, labels = torch.rand(3000, generator=generator), torch.arange(3000) % 2
    kept = mmort.torch.nms_rotated(boxes, scores, 0.1, labels)[1]
    compared = []
    overlaps = mmort.box_iou_rotated

    def counting(first, second, **arguments):
        compared.append(len(first) * len(second))
        return overlaps(first, second, **arguments)

    monkeypatch.setattr(mmort, "box_iou_rotated", counting)
    for choice, followed in ((kept, True), (kept.roll(-1), False), (kept[kept != kept[500]], False)):
        with replaying([("RotatedNonMaxSuppression", [choice])]):
            result = mmort.torch.nms_rotated(boxes, scores, 0.1, labels)[1]
        assert torch.equal(result, choice) == followed
    assert 0 < sum(compared) < 0.2 * 3000 * len(kept)


@pytest.mark.parametrize(("kept", "followed"), KEPT)
@pytest.mark.parametrize("of_classes", [False, True])
def test_boxes_that_suppression_keeps(kept, followed, of_classes):
    boxes, scores = BOXES[None], torch.tensor([[[0.6], [0.5], [0.9], [0.9], [0.3]]])
    if of_classes:  # the second class has boxes far away and no scores
        boxes = torch.stack([boxes, boxes + 1000], 2)
        scores = torch.cat([scores, torch.zeros_like(scores)], 2)
    indices = torch.tensor([kept + [-1] * (6 - len(kept))])
    labels = torch.where(indices < 0, -1, 0)
    with replaying([("MultiClassNMS", [labels, indices])]):
        dets, labels, indices = mmort.torch.multiclass_nms(boxes, scores, 0.2, 0.8, max_per_image=6)
    expected = kept if followed else [2, 0, 1, 4]
    assert indices[0, labels[0] >= 0].tolist() == expected
    torch.testing.assert_close(dets[0, : len(expected)], torch.cat([BOXES, scores[0, :, :1]], 1)[expected])
    assert not dets[0, len(expected) :].any()


def test_only_as_many_boxes_as_allowed():
    scores = torch.tensor([[[0.6], [0.5], [0.9], [0.9], [0.59999]]])
    for kept, followed in (([2, 4], True), ([2, 0], True), ([2, 1], False)):
        chosen = [torch.zeros(1, 2, dtype=torch.int64), torch.tensor([kept])]
        with replaying([("MultiClassNMS", chosen)]):
            indices = mmort.torch.multiclass_nms(BOXES[None], scores, 0.2, 0.85, max_per_image=2)[2]
        assert (indices[0].tolist() == kept) is followed


SOFT = [
    ([2, 0, 4, 1, 3], True),  # torch's: 0.9, 0.6, 0.3, 0.1 and 0.09
    ([3, 0, 4, 1, 2], True),  # equal scores
    ([0, 2, 4, 1, 3], False),  # not by descending score
    ([2, 0, 4, 3, 1], False),
    ([2, 3, 0, 4, 1], False),  # not by descending score after the decay
    ([2, 0, 4, 1], False),  # one is left out
    ([2, 0, 4, 1, 1], False),
    ([2, 0, 4, 1, 5], False),  # there is no such box
]


@pytest.mark.parametrize(("kept", "followed"), SOFT)
@pytest.mark.parametrize("variant", ["plain", "of_classes", "agnostic"])
def test_boxes_in_the_order_of_soft_suppression(kept, followed, variant):
    boxes, scores = BOXES[None], torch.tensor([[[0.6], [0.5], [0.9], [0.9], [0.3]]])
    if variant == "of_classes":  # the second class has boxes far away and no scores
        boxes = torch.stack([boxes, boxes + 1000], 2)
        scores = torch.cat([scores, torch.zeros_like(scores)], 2)
    options = {"method": "soft_nms_linear", "max_per_image": 6, "class_agnostic": variant == "agnostic"}
    indices = torch.tensor([kept + [-1] * (6 - len(kept))])
    with replaying([("MultiClassNMS", [torch.where(indices < 0, -1, 0), indices])]):
        dets, labels, indices = mmort.torch.multiclass_nms(boxes, scores, 0.2, 0.3, **options)
    assert labels.tolist() == [[0, 0, 0, 0, 0, -1]]
    assert indices[0, :5].tolist() == (kept if followed else [2, 0, 4, 1, 3])
    torch.testing.assert_close(dets[0, :5, 4], torch.tensor([0.9, 0.6, 0.3, 0.1, 0.09]))
    torch.testing.assert_close(dets[0, :5, :4], BOXES[indices[0, :5]])


@pytest.mark.parametrize(
    ("score", "kept", "followed"),
    [(0.599998, [2, 4], True), (0.599998, [2, 0], True), (0.599998, [2, 1], False), (0.5999, [2, 4], False)],
)
def test_only_as_many_boxes_as_soft_suppression_may_keep(score, kept, followed):
    scores = torch.tensor([[[0.6], [0.45], [0.9], [0.9], [score]]])
    options = {"method": "soft_nms_gaussian", "max_per_image": 2, "sigma": 0.5}
    chosen = [torch.zeros(1, 2, dtype=torch.int64), torch.tensor([kept])]
    with replaying([("MultiClassNMS", chosen)]):
        indices = mmort.torch.multiclass_nms(BOXES[None], scores, 0.2, 0.3, **options)[2]
    assert (indices[0].tolist() == kept) is followed


def test_a_score_that_is_no_number_allows_no_other_order_of_soft_suppression():
    scores = torch.tensor([[[0.6], [0.5], [torch.nan], [0.9], [0.3]]])
    chosen = [torch.zeros(1, 2, dtype=torch.int64), torch.tensor([[0, 3]])]
    with replaying([("MultiClassNMS", chosen)]):
        results = mmort.torch.multiclass_nms(BOXES[None], scores, 0.2, 0.3, method="soft_nms_linear", max_per_image=2)
    assert results[2].tolist() == [[3, 0]]


@pytest.mark.parametrize(
    ("highest", "kept", "followed"),
    [
        (0.9, [2, 0, 4], True),
        (0.9, [3, 0, 4], True),
        (0.9, [3, 0], False),
        (0.9, [3, 0, 4, 2], False),  # lower than any that is kept
        (0.1, [2], True),
        (0.1, [3], True),
        (0.1, [], False),  # the best box is kept whatever its score
    ],
)
def test_the_lowest_score_that_soft_suppression_keeps(highest, kept, followed):
    scores = torch.tensor([[[0.6], [0.5], [0.9], [0.9], [0.3]]]) * highest / 0.9
    options = {"method": "soft_nms_linear", "max_per_image": 6, "min_score": 0.2}
    indices = torch.tensor([kept + [-1] * (6 - len(kept))])
    with replaying([("MultiClassNMS", [torch.where(indices < 0, -1, 0), indices])]):
        indices = mmort.torch.multiclass_nms(BOXES[None], scores, 0.01, 0.3, **options)[2]
    assert [index for index in indices[0].tolist() if index >= 0] == (
        kept if followed else [2, 0, 4] if highest > 0.2 else [2]
    )


class Attending(torch.nn.Module):
    """Compares probabilities twice, as Mask2Former's layers do, and something else in between."""

    def forward(self, logits):
        first = logits.sigmoid() < 0.5
        other = logits < 0.5
        return first, other, (-logits).sigmoid() < 0.5


@pytest.mark.parametrize(("shifts", "followed"), [([0, -1e-6, 0], True), ([0, 0, 5], False), ([0, -1e-6, 5], False)])
def test_pixels_that_a_query_attends_to(shifts, followed, tmp_path):
    """The file adds `shifts` to the logits, the second of which is a rounding error above 0."""
    constants = {"shifts": np.array(shifts, np.float32), "half": np.array(0.5, np.float32)}
    nodes = [
        onnx.helper.make_node("Add", ["input", "shifts"], ["logits"]),
        onnx.helper.make_node("Sigmoid", ["logits"], ["probabilities"]),
        onnx.helper.make_node("Less", ["probabilities", "half"], ["first"]),
        onnx.helper.make_node("Less", ["logits", "half"], ["other"]),
        onnx.helper.make_node("Neg", ["logits"], ["negative"]),
        onnx.helper.make_node("Sigmoid", ["negative"], ["others"]),
        onnx.helper.make_node("Less", ["others", "half"], ["second"]),
    ]
    input, *outputs = (
        onnx.helper.make_tensor_value_info(name, kind, [1, 3])
        for name, kind in (
            ("input", onnx.TensorProto.FLOAT),
            *((name, onnx.TensorProto.BOOL) for name in ("first", "other", "second")),
        )
    )
    initializers = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = onnx.helper.make_graph(nodes, "attention", [input], outputs, initializers)
    path = tmp_path / "file.onnx"
    onnx.save(onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 20)]), path)
    module, logits = Attending().eval(), torch.tensor([[2.0, 1e-7, -1.0]])
    first, other, second = (result.tolist() for result in ReplayingModule(module, path)(logits))
    assert first == [[False, followed, True]]
    assert other == [[False, True, True]]
    assert second == [[True, False, False]]
    assert module(logits)[0].tolist() == [[False, False, True]]
