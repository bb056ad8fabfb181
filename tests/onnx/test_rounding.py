"""Comparison by torch's own rounding: what is as good as torch passes at any magnitude, what is not never does."""

import numpy as np
import onnx
import onnx.helper as oh
import pytest
import torch

import mmort.onnx
import mmort.torch
from mmort.onnx.verify import double_precision, numbers, rounding
from mmort.onnx.verify.detections import compare as detections_of
from mmort.onnx.verify.double_precision import in_float64
from mmort.onnx.verify.matching import match_within, usual_limits
from mmort.onnx.verify.rounding import EPSILON, MAX_FACTOR, RoundingRow, compare_by_rounding
from mmort.onnx.verify.values import FURTHER_RUNS, Exact, Outputs, Reference, Tolerances


def arrays(rng, scale=1.0, noise=1e-6, shape=(2, 8, 20, 30)):
    """Return numbers in float64, and two float32 versions of them with noise that is a share of the scale."""
    exact = scale * rng.standard_normal(shape)
    versions = [(exact + noise * scale * rng.standard_normal(shape)).astype(np.float32) for _ in range(3)]
    return exact, *versions


def row_of(actual, expected, exact, rounded):
    return compare_by_rounding("-", "y", actual, expected, exact, rounded)


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1.0, 1e6, 1e20])
@pytest.mark.parametrize("noise", [1e-7, 1e-3])
def test_equally_rounded_numbers_pass_at_any_magnitude(scale, noise, rng):
    exact, actual, expected, rounded = arrays(rng, scale, noise)
    row = row_of(actual, expected, exact, rounded)
    assert not row.problem
    assert 1 < row.factor < MAX_FACTOR / 2


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_a_hundred_times_the_rounding_does_not(scale, rng):
    exact, actual, expected, rounded = arrays(rng, scale)
    actual[0, 1, 2, 3] += np.float32(1e-4 * scale)
    row = row_of(actual, expected, exact, rounded)
    assert row.problem == f"1 of {actual.size} numbers"
    assert row.worst_diff == pytest.approx(1e-4 * scale, rel=0.1)
    assert row.rounding == pytest.approx(1e-6 * scale, rel=2)
    assert row.factor == row.worst_diff / row.rounding > MAX_FACTOR


@pytest.mark.parametrize("part", [(0, 3), (0, slice(None), 2, 7), (1, 1), (0, 1, 9), (slice(None), slice(None), 5)])
def test_large_rounding_elsewhere_hides_nothing(part, rng):
    """In the same image, the same row, the same channel."""
    exact, actual, expected, rounded = arrays(rng)
    expected[part] += 10
    actual[part] += 10
    assert not row_of(actual, expected, exact, rounded).problem
    actual[0, 1, 2, 3] += np.float32(1e-3)
    assert row_of(actual, expected, exact, rounded).problem == f"1 of {actual.size} numbers"


def test_a_small_region_is_found(rng):
    """It is off by three times the largest rounding of all."""
    exact, actual, expected, rounded = arrays(rng, noise=1e-6)
    actual[1, :, 4:6, 4:6] += np.float32(1e-4)
    assert row_of(actual, expected, exact, rounded).problem == f"32 of {actual.size} numbers"


def test_rounding_that_is_a_share_of_the_number(rng):
    """As that of an exponential: the largest numbers are off most, and small ones may not be."""
    exact = np.exp(rng.standard_normal((4, 50, 60)))
    actual, expected, rounded = ((exact * (1 + 1e-6 * rng.standard_normal(exact.shape))).astype("f4") for _ in range(3))
    assert not row_of(actual, expected, exact, rounded).problem
    index = np.unravel_index(exact.argmin(), exact.shape)
    actual[index] *= np.float32(1.01)
    assert row_of(actual, expected, exact, rounded).problem


def test_numbers_that_torch_has_exactly_still_have_a_last_place():
    exact = np.array([1.0, 2.0, 4.0])
    expected = exact.astype(np.float32)
    near, far = expected * np.float32(1 + 4 * EPSILON), expected * np.float32(1 + 100 * EPSILON)
    assert not row_of(near, expected, exact, expected).problem
    assert row_of(far, expected, exact, expected).problem == "3 of 3 numbers"
    zeros = np.zeros(3)
    assert not row_of(zeros.astype("f4"), zeros.astype("f4"), zeros, zeros.astype("f4")).problem
    assert row_of(np.float32([0, 1e-30, 0]), zeros.astype("f4"), zeros, zeros.astype("f4")).problem == "1 of 3 numbers"


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("actual", "expected", "exact", "ok"),
    [
        ([NAN, INF, -INF, 1], [NAN, INF, -INF, 1], [NAN, INF, -INF, 1], True),
        ([INF, 1], [INF, 1], [1e39, 1], True),  # float32 has no such number
        ([NAN, 1], [2, 1], [2, 1], False),
        ([INF, 1], [2, 1], [2, 1], False),
        ([2, 1], [NAN, 1], [NAN, 1], False),
        ([2, 1], [NAN, 1], [2, 1], True),
        ([2, 1], [INF, 1], [INF, 1], False),
        ([INF, 1], [-INF, 1], [-INF, 1], False),
        ([], [], [], True),
    ],
)
def test_special_numbers(actual, expected, exact, ok):
    actual, expected, exact = np.array(actual, "f4"), np.array(expected, "f4"), np.array(exact, "f8")
    assert row_of(actual, expected, exact, expected).problem == ("" if ok else "1 of 2 numbers")


@pytest.mark.parametrize(
    ("stride", "dilation", "padding", "groups"), [(1, 1, 1, 1), (2, 1, 0, 1), (2, 2, 2, 2), (3, 1, 1, 4)]
)
def test_convolutions_in_strips(stride, dilation, padding, groups, monkeypatch):
    monkeypatch.setattr(double_precision, "MAX_COLUMNS", 500)
    module = torch.nn.Conv2d(4, 8, 3, stride, padding, dilation, groups)
    image = torch.randn(2, 4, 23, 17)
    with torch.no_grad():
        with in_float64():
            result = module(image.double())
        assert result.dtype == torch.float64
        assert torch.allclose(result, module.double()(image.double()), rtol=1e-13, atol=1e-13)


class Constants(torch.nn.Module):
    """Has a parameter, a buffer, tensors that are neither, and dtypes in its code."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(3)
        self.register_buffer("shift", torch.tensor([0.1, 0.2, 0.3]))
        self.plain = torch.tensor(0.7)

    def forward(self, x):
        x = self.norm(x) + self.shift[:, None, None] * self.plain
        x = x + torch.arange(x.shape[3], dtype=torch.float32) / 3
        x = torch.cat([x, x.new_ones(x.shape) * torch.tensor(1 / 3)], 1)
        return x.float().exp().to(torch.float32)


def test_constants_of_all_kinds_follow():
    module, x = Constants().eval(), torch.randn(2, 3, 4, 5)
    with torch.no_grad():
        with in_float64():
            wide = module(x.double())
        narrow = module(x)
        assert (wide.dtype, narrow.dtype) == (torch.float64, torch.float32)
        assert torch.allclose(wide, narrow.double(), rtol=1e-5)
        assert (wide != narrow.double()).float().mean() > 0.9
        assert module.shift.dtype == torch.float32


def file_of(path, op_type, **attributes):
    x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy")
    graph = oh.make_graph([oh.make_node(op_type, ["x"], ["y"], **attributes)], "one", [x], [y])
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 20)], ir_version=10), path)
    return path


def test_the_smallest_inputs_decide_and_others_if_need_be(tmp_path):
    """A difference of 1e-4 is within the tolerances, which are asked first for larger inputs."""
    path = file_of(tmp_path / "file.onnx", "Exp")
    small, large = [torch.randn(3, 4)], [torch.randn(5, 4)]
    report = mmort.onnx.verify(path, torch.exp, [large, small])
    assert [type(row).__name__ for row in report.rows] == ["NumbersRow", "RoundingRow"]
    assert report.ok
    report = mmort.onnx.verify(path, lambda x: torch.exp(x) * 1.0001, [large, small])
    assert [bool(row.problem) for row in report.rows] == [False, True]
    report = mmort.onnx.verify(path, lambda x: torch.exp(x) * 1.01, [large, small])
    assert [(type(row), bool(row.problem)) for row in report.rows] == [(RoundingRow, True)] * 2
    assert mmort.onnx.verify(path, lambda x: torch.exp(x) * 1.0001, [small], rtol=1e-3).ok


def test_large_rounding_is_no_false_alarm(tmp_path):
    """Sines of large numbers: the tolerances are exceeded, at all inputs, by rounding alone."""
    numbers = {"fifth": 0.2, "rest": 0.8}
    x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy")
    nodes = [
        oh.make_node("Mul", ["x", "fifth"], ["a"]),
        oh.make_node("Mul", ["x", "rest"], ["b"]),
        oh.make_node("Add", ["a", "b"], ["d"]),
        oh.make_node("Sin", ["d"], ["y"]),
    ]
    constants = [onnx.numpy_helper.from_array(np.float32(value), name) for name, value in numbers.items()]
    graph = oh.make_graph(nodes, "sine", [x], [y], constants)
    path = tmp_path / "file.onnx"
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 20)], ir_version=10), path)
    inputs = [[1e5 * torch.rand(n, 50)] for n in (40, 60)]
    report = mmort.onnx.verify(path, lambda x: (x * 0.7 + x * 0.3).sin(), inputs)
    assert report.ok
    assert all(isinstance(row, RoundingRow) and row.max_abs_diff > 5e-3 for row in report.rows)
    assert not mmort.onnx.verify(path, lambda x: (x * 0.7 + x * 0.3).sin() + 0.9, inputs).ok


def test_tiny_sigmoids_are_no_false_alarm(tmp_path):
    """ONNX Runtime's are off by up to 1.4e-7 whatever their size, which is all that such a sigmoid is."""
    x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy")
    nodes = [
        oh.make_node(op, [input], [output])
        for op, (input, output) in zip(("Sigmoid", "Sqrt", "Sqrt"), ("xp", "pr", "ry"), strict=True)
    ]
    path = tmp_path / "file.onnx"
    onnx.save(oh.make_model(oh.make_graph(nodes, "g", [x], [y]), ir_version=10), path)
    inputs = [[torch.linspace(-17.5, -15, 1000)[None]]]
    report = mmort.onnx.verify(path, lambda x: x.sigmoid().sqrt().sqrt(), inputs)
    assert report.ok
    assert isinstance(report.rows[0], RoundingRow)
    assert report.rows[0].max_abs_diff > 5e-3
    assert not mmort.onnx.verify(path, lambda x: x.sigmoid().sqrt().sqrt() + 0.1, inputs).ok


class Only(torch.autograd.Function):
    """Takes float32 only."""

    @staticmethod
    def forward(ctx, x):
        if x.dtype != torch.float32:
            raise TypeError("only float32 is implemented")
        return x.exp()


def test_a_model_without_float64_is_compared_by_the_tolerance_and_the_report_says_so(tmp_path):
    path, x = file_of(tmp_path / "file.onnx", "Exp"), torch.randn(3, 4)
    report = mmort.onnx.verify(path, Only.apply, [[x]])
    assert report.ok
    assert "ok: by the tolerance, as the model does not run in float64: only float32 is implemented" in str(report)
    numbers = torch.exp(x).numpy()
    report = mmort.onnx.verify(path, lambda x: numbers, [[x]])
    assert "ok: by the tolerance, as the model computes it in float32 only" in str(report)


def test_choices_are_the_same_in_float64(tmp_path):
    """In float64 the second score is the largest; the file and torch chose the first."""
    module = torch.nn.Module()
    module.forward = lambda x: ((x + 1e8).argmax(1), x.sum(1))
    reference = mmort.onnx.verify.__globals__["reference"](module.forward, ())([torch.tensor([[1.0, 2.0]])], True)
    wide, rounded = reference.exact.outputs()
    assert wide[0].tolist() == rounded[0].tolist() == reference.outputs[0].tolist() == [0]
    assert wide[1].dtype == np.float64


def test_no_slice_of_few_numbers_counts(monkeypatch):
    """A row of three numbers may be exact by accident."""
    array = np.ones((8, 3))
    array[2] = 0
    assert np.broadcast_to(rounding.around(array), array.shape)[2, 0] > 0.5
    monkeypatch.setattr(rounding, "MIN_SLICE", 3)
    assert np.broadcast_to(rounding.around(array), array.shape)[2, 0] == 0


def test_tiny_numbers_of_a_mask_may_differ_by_rounding_of_its_largest():
    """As the logistic function of ONNX Runtime does far outside an object; elsewhere in the mask nothing more may."""
    exact = np.full((1, 8, 8), 1e-12)
    exact[0, 4:] = 0.9
    expected = exact.astype(np.float32)
    for index, difference, ok in (((0, 0, 0), 1e-9, True), ((0, 0, 0), 1e-3, False), ((0, 5, 5), 1e-3, False)):
        actual = expected.copy()
        actual[index] += difference
        largest = exact.max((1, 2), keepdims=True)
        assert compare_by_rounding("-", "masks", actual, expected, exact, expected, magnitude=largest).ok is ok
    actual = expected.copy()
    actual[0, 0, 0] += 1e-9
    assert not compare_by_rounding("-", "maps", actual, expected, exact, expected).ok


def judged(actual, expected, exact, rounded, *, decides=True, mask_threshold=None):
    """Return which outputs of a detector agree, by name, and the row of its detections; all arrays are float64."""
    names = "dets", "labels", "masks"
    single = [
        [array.astype(np.float32) if array.dtype == np.float64 else array for array in run]
        for run in (actual, expected, rounded)
    ]
    reference = Reference(single[1], exact=Exact(lambda: exact, lambda seed: single[2], decides=decides))
    outputs = Outputs("-", names[: len(actual)], single[0], reference, Tolerances(), mask_threshold)
    row, *rows = detections_of(outputs)
    return {row.output: row.ok for row in rows}, row


@pytest.mark.parametrize(("wrong", "judged_again"), [(1, 1), (2, 0)])
def test_a_number_that_torch_has_exactly_twice_is_judged_by_further_runs(wrong, judged_again, rng):
    """Of a thousand numbers one may be an accident, two are none."""
    exact = rng.uniform(1, 2, 1000)
    expected, rounded, further = (exact + 1e-6 * rng.standard_normal((3, 1000))).astype(np.float32)
    actual = expected.copy()
    for array, moved in ((expected, 0), (rounded, 0), (further, 1e-4), (actual, 1e-4)):
        array[:wrong] = exact[:wrong] + moved
    seeds = []

    def round_otherwise(seed):
        seeds.append(seed)
        return [further if seed else rounded]

    reference = Reference([expected], exact=Exact(lambda: [exact], round_otherwise, decides=True))
    outputs = Outputs("-", ["maps"], [actual], reference, Tolerances())
    (row,) = numbers.compare(outputs)
    assert row.problem == ("" if judged_again else "2 of 1000 numbers")
    assert seeds == [0, *range(1, 1 + judged_again * FURTHER_RUNS)]
    actual[0] = exact[0] + 1e-2
    assert not numbers.compare(outputs)[0].ok


def test_a_score_that_torch_has_exactly_twice_is_judged_by_further_runs():
    expected = boxes_from(*range(10, 30))
    further, actual = ([expected[0].copy(), expected[1]] for _ in range(2))
    further[0][0, 0, 4] += 1e-5
    actual[0][0, 0, 4] += 2e-5
    exact = Exact(lambda: expected, lambda seed: further if seed else expected, decides=True)
    single = [[dets.astype(np.float32), labels] for dets, labels in (actual, expected)]
    outputs = Outputs("-", ("dets", "labels"), single[0], Reference(single[1], exact=exact), Tolerances())
    assert all(row.ok for row in detections_of(outputs))
    actual[0][0, 0, 4] += 5e-4
    single[0][0] = actual[0].astype(np.float32)
    assert not all(row.ok for row in detections_of(outputs))


@pytest.mark.parametrize(("moved", "masks_ok"), [(0, True), (1e-4, False)])
def test_instances_with_the_same_box_are_told_apart_by_their_masks(moved, masks_ok, rng):
    """As those of a network that begins training: the nearest box is another instance's, within rounding."""
    exact = [np.full((1, 12, 5), 80.0), np.zeros((1, 12), np.int64), rng.uniform(0.2, 0.8, (1, 1, 8, 8)).repeat(12, 1)]
    exact[0][..., 4] = 0.4
    exact[2] += 1e-3 * rng.standard_normal((1, 12, 1, 1))
    runs = []
    for _ in range(3):
        dets, labels, masks = (array.copy() for array in exact)
        dets += 1e-4 * rng.standard_normal(dets.shape)
        runs.append([dets, labels, masks + 1e-7 * rng.standard_normal(masks.shape)])
    actual, expected, rounded = runs
    actual[2][0, 3, :4] += moved
    assert judged(actual, expected, exact, rounded)[0] == {"boxes": True, "scores": True, "masks": masks_ok}


@pytest.mark.parametrize(("box_moved", "masks_ok"), [(True, True), (False, False)])
def test_a_mask_may_be_as_much_farther_off_as_its_box(box_moved, masks_ok, rng):
    """As where torch computes a narrow box well by accident; with a box that is as near as torch's it may not."""
    dets = np.concatenate([rng.uniform(100, 150, (20, 4)), rng.uniform(0.2, 0.9, (20, 1))], 1)
    slopes = rng.uniform(0.01, 0.03, (20, 8, 8))
    slopes[0] *= 10
    shifts = {run: 1e-3 * rng.standard_normal(20) for run in ("actual", "expected", "rounded")}
    shifts["exact"] = np.zeros(20)
    for shift in shifts.values():
        shift[0] *= 1e-2
    runs = {}
    for run, shift in shifts.items():
        runs[run] = [dets[None].copy(), np.zeros((1, 20), np.int64), (0.5 + slopes * shift[:, None, None])[None]]
        runs[run][0][0, :, 0] += shift
    runs["actual"][2][0, 0] = 0.5 + 5e-3 * slopes[0]
    if box_moved:
        runs["actual"][0][0, 0, 0] = dets[0, 0] + 5e-3
    outcome, row = judged(**runs)
    assert row.ok
    assert outcome == {"boxes": True, "scores": True, "masks": masks_ok}


def boxes_from(*x1):
    """Return a detector's outputs: boxes with these left edges, and an unused row."""
    dets = [[x, 10 * index, 90, 10 * index + 9, 0.8] for index, x in enumerate(x1)]
    return [np.array([[*dets, [0] * 5]], float), np.array([[1] * len(x1) + [-1]])]


@pytest.mark.parametrize(
    ("actual", "matched"),
    [((0, 50), 2), ((30, 50), 2), ((0, 70), 2), ((30, 70), 2), ((0, 60), 1), ((0,), 1), ((0, 50, 20), 2)],
)
def test_each_detection_may_be_that_of_either_of_torchs_runs(actual, matched):
    """Both boxes are elsewhere in float64.  A third position, a box less and a box more are wrong."""
    expected, exact = boxes_from(0, 50), boxes_from(30, 70)
    _, row = judged(boxes_from(*actual), expected, exact, exact, decides=False)
    assert row.matched == matched
    assert row.ok is (matched == len(actual) == 2)


@pytest.mark.parametrize(
    ("actual", "ok"),
    [((5, 0), True), ((5, 30), True), ((5, 60), True), ((5, 90), False), ((5,), False), ((0, 30), False)],
)
def test_each_detection_may_be_that_of_any_of_torchs_runs(actual, ok):
    """The first box is in all of them, and the second one elsewhere in each."""
    runs = [boxes_from(5, x) for x in (0, 30, 60)]
    assert judged(boxes_from(*actual), *runs, decides=False)[1].ok is ok


@pytest.mark.parametrize(("last", "ok"), [(4, True), (3, True), (1, True), (5, False)])
def test_a_detection_whose_box_is_that_of_its_mask_is_its_mask(last, ok):
    """All have one box, and scores that are hardly apart.  The last one of two is another in each run."""
    masks = np.eye(6).reshape(1, 6, 2, 3).repeat(4, 2)

    def run(*indices):
        dets = [[[0, 0, 9, 9, 0.8 + 0.01 * index] for index in indices]]
        return [np.array(dets, float), np.ones((1, len(indices)), int), masks[:, indices]]

    runs = [run(2, index) for index in (last, 4, 3, 1)]
    assert judged(*runs, decides=False, mask_threshold=0.5)[1].ok is ok


@pytest.mark.parametrize(
    ("exact", "rounded", "actual", "ok"),
    [(8, 20, 30, True), (8, 20, -30, True), (8, 20, 40, False), (2, 20, 30, False), (8, 8, 30, False)],
)
def test_a_box_of_three_positions_may_have_a_fourth(exact, rounded, actual, ok):
    """It may be eight times as far away as the nearest two are apart, and 400 times the tolerance of 0.09 pixels."""
    runs = [boxes_from(x, *range(10, 30)) for x in (actual, 0, exact, rounded)]
    assert judged(*runs)[1].ok is ok
    assert not judged(boxes_from(actual, 11, *range(11, 30)), *runs[1:])[1].ok


def test_the_mask_of_a_box_that_is_elsewhere_is_compared_by_overlap_only():
    runs = [[*boxes_from(x, *range(10, 30)), np.full((1, 22, 8, 8), 0.5)] for x in (30, 0, 8, 20)]
    runs[0][2][0, 0] = np.linspace(0.5, 0.501, 64).reshape(8, 8)
    outcome, row = judged(*runs)
    assert row.ok
    assert outcome == {"boxes": True, "scores": True, "masks": True}
    runs[0][2][0, 1] = runs[0][2][0, 0]
    assert judged(*runs)[0]["masks"] is False
    runs[0][2][0, 0] = 0.6
    assert judged(*runs)[1].problem.startswith("mask overlap below")


@pytest.mark.parametrize(("off", "ok"), [(1.5, True), (5, False)])
def test_coordinates_that_float32_does_not_hold_are_infinite(off, ok):
    """Those of the same box that it holds may be off by eight times as much as rounding moves them, half a percent."""
    runs = [boxes_from(0, 50) for _ in range(4)]
    for run, x, y in zip(runs, (1 + off / 100, 1, 1.005, 1), (np.inf, np.inf, 1e40, np.inf), strict=True):
        run[0][0, 0, :4] = -1e20 * x, -y, 1e20 * x, y
    assert judged(*runs)[1].ok is ok


def test_a_detection_may_be_off_by_what_moves_most():
    """Torch's runs agree on the second score by accident, and not on the others."""
    scores = np.array([0.3, 0.4, 0.5, 0.6])
    runs = [boxes_from(*range(4)) for _ in range(4)]
    for run, moved in zip(runs, ([0, 5e-3, 0, 0], [0] * 4, [1e-3, 0, 1e-3, 1e-3], [0] * 4), strict=True):
        run[0][0, :4, 4] = scores + moved
    assert judged(*runs, decides=False)[1].ok
    runs[0][0][0, 1, 4] += 4e-3
    assert judged(*runs, decides=False)[1].missing == 1
    runs[2][0][0, :2, 4] = scores[:2]  # most do not move now
    runs[0][0][0, 1, 4] = scores[1] + 5e-3
    runs[2][0][0, 2, 4] = scores[2]
    assert judged(*runs, decides=False)[1].missing == 1


@pytest.mark.parametrize(("changed", "cells", "ok"), [(0, 3, True), (0, 9, False), (1, 3, False)])
def test_masks_may_differ_as_far_as_rounding_changes_them(changed, cells, ok):
    """A cell of 50 changes in torch's other run: eight may in the file; of another mask, which does not, none may."""
    runs = [[*boxes_from(0, 30, 60), np.full((1, 4, 50, 2), [0.9, 0.1])] for _ in range(4)]
    runs[0][2][0, changed, :cells, 0] = 0
    runs[3][2][0, 0, :1, 0] = 0
    row = judged(*runs, decides=False)[1]
    assert row.matched == 3
    assert row.problem == ("" if ok else f"mask overlap below {row.mask_overlap_limit:g}")


def test_equal_infinite_boxes_match():
    """They make no other box uncertain."""
    dets = np.array([[0, 0, np.inf, 9, 0.9], [0, 0, 9, 9, 0.8]])
    labels = np.zeros(2, int)
    limits = usual_limits(dets, Tolerances())
    assert match_within(dets, labels, dets, labels, limits).tolist() == [0, 1]
    other = dets + np.array([[0] * 5, [0, 0, 1, 0, 0]])
    assert match_within(other, labels, dets, labels, limits).tolist() == [0, -1]


@pytest.mark.parametrize(("off", "ok"), [(0.0039, True), (0.0041, False)])
def test_a_detection_may_be_off_by_what_rounding_moves_it(off, ok):
    """Its score by eight times that; another one, which it does not move, by the tolerance only."""
    labels = np.array([[1, 2, 3]])
    expected = np.array([[[0, 0, 9, 9, 0.9], [20, 0, 40, 9, 0.8], [0, 20, 9, 40, 0.7]]], np.float32)
    exact, actual = expected.astype(np.float64), expected.copy()
    exact[0, 0, 4] += 5e-4
    actual[0, 0, 4] += off
    runs = Exact(lambda: (exact, labels), lambda seed: (expected, labels), decides=False)
    reference = Reference((expected, labels), exact=runs)
    (row,) = detections_of(Outputs("-", ("dets", "labels"), (actual, labels), reference, Tolerances()))
    assert (row.matched, row.missing, row.extra) == ((3, 0, 0) if ok else (2, 1, 1))
    actual[0, 1, 4] += off
    (row,) = detections_of(Outputs("-", ("dets", "labels"), (actual, labels), reference, Tolerances()))
    assert row.missing == row.extra == (1 if ok else 2)
    stated = Tolerances.stated(1e-3, None)
    (row,) = detections_of(Outputs("-", ("dets", "labels"), (actual, labels), reference, stated))
    assert row.missing == 2


def test_a_huge_box_is_no_excuse_for_the_others(rng):
    """Its rounding is a thousand times theirs; one of them is off by hundreds of times its own."""
    corners = rng.uniform(10, 100, (40, 4))
    corners[7] *= 1000
    exact = np.concatenate([corners, rng.uniform(0.3, 0.9, (40, 1))], 1)[None]
    labels = np.arange(40)[None]
    expected, rounded = ((exact * (1 + 1e-6 * rng.standard_normal(exact.shape))).astype(np.float32) for _ in range(2))
    actual = expected.copy()
    runs = Exact(lambda: (exact, labels), lambda seed: (rounded, labels), decides=True)
    reference = Reference((expected, labels), exact=runs)
    outputs = Outputs("-", ("dets", "labels"), (actual, labels), reference, Tolerances())
    assert [row.problem for row in detections_of(outputs)] == ["", "", ""]
    actual[0, 3, 0] += 0.03
    assert [row.problem for row in detections_of(outputs)] == ["", "1 of 40 numbers", ""]
