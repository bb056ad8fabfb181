"""Properties that hold for any input, tried on inputs that hypothesis looks for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import mmort
from tests import front_ends
from tests.compare import assert_close, assert_same
from tests.operators.cases import ORACLES
from tests.operators.families import boxes as corner_boxes
from tests.operators.families.deform import deformed
from tests.operators.families.nms import descending
from tests.operators.families.rotated import make_rotated

NUMBERS = st.floats(width=32) | st.integers(0, 8).map(float)
THRESHOLDS = st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(-0.5, 1.5, width=32)
SCORES = st.sampled_from([0.0, -0.0, 0.25, 0.5, np.nan]) | st.floats(width=32)


@st.composite
def any_boxes(draw, elements=NUMBERS, scores=SCORES, max_boxes=40):
    """Draw boxes of any numbers (without area, inside out, NaN, infinite) and scores that tie."""
    n = draw(st.integers(0, max_boxes))
    return draw(hnp.arrays(np.float32, (n, 4), elements=elements)), draw(hnp.arrays(np.float32, n, elements=scores))


@st.composite
def made_boxes(draw):
    """Draw many boxes of one kind, so that every path through a kernel is taken."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(0, 60) | st.integers(1100, 1300))
    kind = draw(st.sampled_from(["scattered", "clustered", "elongated", "scales", "grid"]))
    boxes = corner_boxes.make_boxes(rng, n, kind) * np.float32(10 ** draw(st.integers(-6, 6)))
    strange = rng.random(n) < draw(st.sampled_from([0, 0, 0.1]))
    boxes[strange, rng.integers(0, 4)] = draw(st.sampled_from([np.nan, np.inf, -np.inf, 0, 1e38]))
    return boxes, corner_boxes.make_scores(rng, n, draw(st.sampled_from([0, 3])))


BOXES = any_boxes() | made_boxes()


@given(BOXES, THRESHOLDS, st.integers(0, 1), st.sampled_from([0, 0.25]), st.integers(-1, 20))
def test_nms_is_what_the_oracle_gives(boxes, iou_threshold, offset, score_threshold, max_num):
    attributes = {
        "iou_threshold": iou_threshold,
        "offset": offset,
        "score_threshold": score_threshold,
        "max_num": max_num,
    }
    got = mmort.nms(*boxes, **attributes)
    assert_same(got, ORACLES["nms"](*boxes, **attributes))
    model = front_ends.make_model(
        front_ends.row_of("nms"), front_ends.onnx_attributes("nms", attributes), ["boxes", "scores"]
    )
    assert_same(front_ends.run_session(front_ends.make_session(model), boxes), got[1:])


@given(any_boxes(st.integers(0, 12).map(float), st.floats(0, 1, width=32)) | made_boxes(), THRESHOLDS)
def test_nms_keeps_and_drops_for_a_reason(boxes, iou_threshold):
    boxes, scores = boxes
    threshold = np.float32(iou_threshold)
    dets, kept = mmort.nms(boxes, scores, iou_threshold)
    assert_same([dets], [np.concatenate([boxes, scores[:, None]], axis=1)[kept]])
    assert len(set(kept.tolist())) == len(kept)
    rank = np.empty(len(boxes), np.int64)
    rank[np.lexsort((np.arange(len(boxes)), -scores))] = np.arange(len(boxes))
    assert (np.diff(rank[kept]) > 0).all()
    for rank_of_box, i in enumerate(kept):
        assert not (corner_boxes.iou(boxes[i], boxes[kept[rank_of_box + 1 :]], 0) > threshold).any()
    for i in set(range(len(boxes))) - set(kept.tolist()):
        better = kept[rank[kept] < rank[i]]
        assert (corner_boxes.iou(boxes[better], boxes[i], 0) > threshold).any()


FAR = 1e5 + 100 * np.arange(1100)[:, None] + np.array([0, 0, 8, 8])
"""Enough boxes far from the two under test that the kernel takes its path for many boxes."""


@pytest.mark.parametrize("far_boxes", [0, len(FAR)])
@pytest.mark.parametrize("kind", ["scattered", "clustered", "elongated", "scales"])
def test_nms_at_the_threshold(kind, far_boxes, rng):
    """With the IoU of two boxes and the neighbouring floats as threshold: only the lower one drops a box."""
    first = corner_boxes.make_boxes(rng, 200, kind)
    side = first[:, [2, 3, 2, 3]] - first[:, [0, 1, 0, 1]]
    second = (first + side * rng.uniform(-0.3, 0.3, first.shape)).astype(np.float32)
    scores = np.linspace(1, 0.1, 2 + far_boxes, dtype=np.float32)
    tried = 0
    for pair in np.stack([first, second], axis=1):
        (iou,) = corner_boxes.iou(pair[0], pair[1:], 0)
        if iou > 0.05:
            boxes = np.concatenate([FAR[:far_boxes].astype(np.float32), pair])
            for threshold, kept in (
                (np.nextafter(iou, np.float32(0)), 1),
                (iou, 2),
                (np.nextafter(iou, np.float32(2)), 2),
            ):
                assert len(mmort.nms(boxes, scores, float(threshold))[1]) == far_boxes + kept
                tried += 1
    assert tried > 300


@given(
    BOXES,
    THRESHOLDS,
    st.sampled_from([0.0, 0.05, 0.5]),
    st.sampled_from(["naive", "linear", "gaussian"]),
    st.integers(0, 1),
)
def test_soft_nms_is_what_the_oracle_gives(boxes, iou_threshold, min_score, method, offset):
    boxes = tuple(array[:150] for array in boxes)  # the oracle is slow
    attributes = {"iou_threshold": iou_threshold, "min_score": min_score, "method": method, "offset": offset}
    got, wanted = mmort.soft_nms(*boxes, **attributes), ORACLES["soft_nms"](*boxes, **attributes)
    assert_same([got[0][:, :4], got[1]], [wanted[0][:, :4], wanted[1]])
    with np.errstate(all="ignore"):
        assert_close([got[0][:, 4]], [wanted[0][:, 4]])


@given(BOXES, THRESHOLDS, st.data())
def test_batched_nms_is_nms_of_each_class(boxes, iou_threshold, data):
    boxes, scores = boxes
    classes = data.draw(
        hnp.arrays(np.int64, len(boxes), elements=st.sampled_from([-1, 0, 5, 2**40]), fill=st.nothing())
    )
    dets, kept = mmort.batched_nms(boxes, scores, classes, {"type": "nms", "iou_threshold": iou_threshold})
    separately = [np.empty(0, np.int64)]
    for label in np.unique(classes):
        members = np.flatnonzero(classes == label)
        separately.append(members[mmort.nms(boxes[members], scores[members], iou_threshold)[1]])
    assert sorted(kept.tolist()) == sorted(np.concatenate(separately).tolist())
    assert_same([dets[:, :4], dets[:, 4]], [boxes[kept], scores[kept]])
    assert kept.tolist() == sorted(
        kept.tolist(), key=lambda i: (np.isnan(scores[i]), 0 if np.isnan(scores[i]) else -scores[i], i)
    )
    agnostic = mmort.batched_nms(boxes, scores, classes, {"iou_threshold": iou_threshold}, class_agnostic=True)
    assert_same(agnostic, mmort.nms(boxes, scores, iou_threshold))


@given(BOXES, THRESHOLDS)
def test_nms_match_holds_each_box_once(boxes, iou_threshold):
    dets = np.column_stack(boxes)
    groups = mmort.nms_match(dets, iou_threshold)
    assert sorted(np.concatenate([np.empty(0, np.int64), *groups]).tolist()) == list(range(len(dets)))
    assert_same(groups, ORACLES["nms_match"](dets, iou_threshold))


@given(any_boxes(), any_boxes(), st.sampled_from(["iou", "iof"]), st.integers(0, 1))
def test_box_iou_is_what_the_oracle_gives(first, second, mode, offset):
    assert_same(
        [mmort.box_iou(first[0], second[0], mode, offset=offset)],
        ORACLES["box_iou"](first[0], second[0], mode, offset=offset),
    )
    n = min(len(first[0]), len(second[0]))
    pairs = first[0][:n], second[0][:n]
    assert_same([mmort.box_iou(*pairs, mode, True, offset)], [np.diagonal(mmort.box_iou(*pairs, mode, offset=offset))])


# ---- rotated boxes ---------------------------------------------------------------------------------------------

COORDINATES = st.integers(-4, 4).map(float) | st.floats(-20, 20, width=32)
SIDES_OF_BOXES = st.integers(1, 6).map(float) | st.floats(0.0625, 30, width=32)
ANGLES = st.sampled_from([0.0, np.pi / 2, np.pi / 4, -np.pi]) | st.floats(-7, 7, width=32)
ROTATED = st.tuples(COORDINATES, COORDINATES, SIDES_OF_BOXES, SIDES_OF_BOXES, ANGLES)


def iou(first, second, **options):
    return float(
        mmort.box_iou_rotated(np.array([first], np.float64), np.array([second], np.float64), aligned=True, **options)[0]
    )


@given(ROTATED, ROTATED, st.sampled_from(["iou", "iof"]), st.booleans())
def test_rotated_overlap_is_exact(first, second, mode, clockwise):
    boxes = np.array([first], np.float64), np.array([second], np.float64)
    (wanted,) = ORACLES["box_iou_rotated"](*boxes, mode, clockwise=clockwise)
    got = mmort.box_iou_rotated(*boxes, mode, clockwise=clockwise)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-11)
    assert 0 <= got.item() <= 1
    if mode == "iou":
        assert got == mmort.box_iou_rotated(*boxes[::-1], clockwise=clockwise)


@given(
    st.floats(-1e4, 1e4), st.floats(-3, 5), st.floats(-1, 1), ANGLES,
    st.sampled_from([0.0, 1e-16, 1e-12, 1e-9, 1e-6]), st.sampled_from(["x", "y", "size", "angle"]),
)  # fmt: skip
def test_boxes_that_nearly_coincide_overlap_by_nearly_one(position, magnitude, ratio, angle, step, changed):
    """However little they differ, at any angle and of any size."""
    width, height = 10**magnitude, 10 ** (magnitude + ratio)
    position *= min(width, height)  # further off, float64 itself moves the box by more
    box = (position, -position, width, height, angle)
    smaller, larger = sorted((width, height))
    change = {"x": (step * smaller, 0, 0, 0, 0), "y": (0, step * smaller, 0, 0, 0)}
    change |= {"size": (0, 0, step * smaller, -step * smaller, 0), "angle": (0, 0, 0, 0, step * smaller / larger)}
    other = tuple(a + b for a, b in zip(box, change[changed], strict=True))
    assert 1 - 4 * step - 1e-11 <= iou(box, other) <= 1
    x, y, w, h, a = box
    for same in ((x, y, h, w, a + np.pi / 2), (x, y, w, h, a + np.pi), (x, y, -w, -h, a)):
        assert 1 - 1e-11 <= iou(box, same) <= 1


@given(ROTATED, ROTATED, ANGLES, COORDINATES, st.integers(-20, 20))
def test_rotated_overlap_does_not_depend_on_the_view(first, second, turn, shift, power):
    """Two boxes that are moved, scaled, turned and mirrored together overlap as before."""
    c, s = np.cos(turn), np.sin(turn)
    boxes = [(c * x - s * y + shift, s * x + c * y - shift, w, h, a + turn) for x, y, w, h, a in (first, second)]
    assert abs(iou(*boxes) - iou(first, second)) < 1e-11
    boxes = [(*(number * 2.0**power for number in box[:4]), box[4]) for box in (first, second)]
    assert iou(*boxes) == iou(first, second)
    boxes = [(-x, y, w, h, a) for x, y, w, h, a in (first, second)]
    assert abs(iou(*boxes, clockwise=False) - iou(first, second)) < 1e-11


@given(ROTATED, ROTATED)
def test_upright_boxes_overlap_as_corner_boxes(first, second):
    corners = [[[x - w / 2, y - h / 2, x + w / 2, y + h / 2]] for x, y, w, h, _ in (first, second)]
    upright = [(*box[:4], 0.0) for box in (first, second)]
    assert abs(iou(*upright) - mmort.box_iou(*corners).item()) < 1e-12


@st.composite
def rotated_boxes(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, kind = draw(st.integers(0, 150)), draw(st.sampled_from(["scattered", "clustered", "elongated", "scales"]))
    boxes = make_rotated(rng, n, kind)
    boxes[:, :4] *= np.float32(10 ** draw(st.integers(-6, 6)))
    strange = rng.random(n) < draw(st.sampled_from([0, 0, 0.1]))
    boxes[strange, rng.integers(0, 5)] = draw(st.sampled_from([np.nan, np.inf, -np.inf, 0, 1e38]))
    return boxes, corner_boxes.make_scores(rng, n, draw(st.sampled_from([0, 3]))), rng.integers(0, 3, n)


@given(rotated_boxes(), THRESHOLDS, st.booleans())
def test_nms_rotated_keeps_and_drops_for_a_reason(boxes, iou_threshold, clockwise):
    """The overlaps are those of box_iou_rotated, to the last bit."""
    boxes, scores, labels = boxes
    dets, keep = mmort.nms_rotated(boxes, scores, iou_threshold, labels, clockwise)
    assert_same([dets], [np.concatenate([boxes, scores[:, None]], axis=1)[keep]])
    reaches = mmort.box_iou_rotated(boxes, boxes, clockwise=clockwise) >= np.float32(iou_threshold)
    reaches &= labels[:, None] == labels
    kept = []
    for i in descending(scores):
        if not reaches[kept, i].any():
            kept.append(i)
    assert keep.tolist() == kept


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("direction", [1, -1])
def test_nms_of_a_chain_keeps_every_second_box(direction, threads):
    """Each box depends on the next, which scores higher: a chain longer than the part of a thread."""
    n = 20_001
    left = np.stack([3 * np.arange(n), np.zeros(n)], axis=1, dtype=np.float32)  # neighbours overlap by 7 / 13
    before = mmort.get_num_threads()
    mmort.set_num_threads(threads)
    try:
        _, indices = mmort.nms(
            np.concatenate([left, left + 10], axis=1), direction * np.arange(n, dtype=np.float32), 0.5
        )
        _, some = mmort.nms(
            np.concatenate([left, left + 10], axis=1), direction * np.arange(n, dtype=np.float32), 0.5, max_num=500
        )
    finally:
        mmort.set_num_threads(before)
    assert indices.tolist() == list(range(0, n, 2))[::-direction]
    assert some.tolist() == indices[:500].tolist()


@pytest.mark.parametrize("iou_threshold", [0.02, 0.3, 0.7])
@pytest.mark.parametrize("kind", ["scattered", "elongated", "scales"])
def test_nms_rotated_of_many_boxes_compares_all_pairs_in_effect(kind, iou_threshold):
    """There are enough boxes for a grid, a few of them odd, and each has a double, larger by some part."""
    rng = np.random.default_rng(int(100 * iou_threshold))
    boxes = np.tile(make_rotated(rng, 500, kind), (2, 1))
    boxes[:, :2] = 30 * boxes[:, :2] + boxes[:, 2:4].min(1, keepdims=True) * rng.normal(0, 0.2, (1000, 2))
    boxes[500:, 2:4] *= rng.uniform(0.9, 1.2, (500, 2))
    boxes[::100, rng.integers(0, 5)] = rng.choice([0, -3, np.nan, np.inf, 1e38], 10)
    overlaps, scores = mmort.box_iou_rotated(boxes, boxes), -np.arange(1000, dtype=np.float32)
    for suppress_equal in (True, False):
        reaches = (np.greater_equal if suppress_equal else np.greater)(overlaps, np.float32(iou_threshold))
        kept = []
        for i in range(1000):
            if not reaches[kept, i].any():
                kept.append(i)
        _, keep = mmort.nms_rotated(boxes, scores, iou_threshold, suppress_equal=suppress_equal)
        assert keep.tolist() == kept
        assert 256 < len(kept) < 990


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nms_rotated_of_pairs_decides_by_their_overlap(dtype):
    """Of most pairs a bound of the overlap decides; each is a class of its own here."""
    rng, count = np.random.default_rng(8), 30_000
    firsts = np.empty((count, 5))
    firsts[:, :2], firsts[:, 2:4] = rng.uniform(-50, 50, (count, 2)), np.exp(rng.uniform(-2, 4, (count, 2)))
    firsts[:, 4] = rng.uniform(-4, 4, count)
    seconds = firsts.copy()
    seconds[:, :2] += firsts[:, 2:4] * rng.normal(0, 1, (count, 2)) * rng.choice([0, 0.05, 0.3, 0.6], (count, 1))
    seconds[:, 2:4] *= np.exp(rng.normal(0, 1, (count, 2)) * rng.choice([0, 0.1, 0.5, 1.5], (count, 1)))
    seconds[:, 4] += rng.choice([0, 0.05, 0.5, 1, np.pi / 2], count)
    firsts, seconds = firsts.astype(dtype), seconds.astype(dtype)
    boxes, scores = np.stack([firsts, seconds], axis=1).reshape(-1, 5), np.tile(np.array([1, 0], dtype), count)
    overlaps = mmort.box_iou_rotated(firsts, seconds, aligned=True).ravel()
    for iou_threshold in (0.05, 0.2, 0.5, 0.8, float(np.median(overlaps))):
        _, keep = mmort.nms_rotated(boxes, scores, iou_threshold, np.repeat(np.arange(count), 2))
        is_kept = np.isin(np.arange(1, 2 * count, 2), keep)
        assert_same([is_kept], [overlaps < dtype(iou_threshold)])
        assert 0.1 < is_kept.mean() < 0.99


@pytest.mark.parametrize(("scale", "offset"), [(2.0**-160, 0), (2.0**140, 0), (1, 2.0**24)])
def test_nms_rotated_of_tiny_huge_and_distant_boxes(scale, offset):
    """Boxes in a grid are also compared in float32, which does not have these numbers, or has them rounded."""
    rng = np.random.default_rng(0)
    boxes = np.tile(make_rotated(rng, 500, "elongated"), (2, 1)).astype(np.float64)
    boxes[:, :2] = 30 * boxes[:, :2] + boxes[:, 2:4].min(1, keepdims=True) * rng.normal(0, 0.2, (1000, 2))
    boxes[:, :2] = np.round(1024 * boxes[:, :2]) / 1024  # the offset changes no difference
    scores = -np.arange(1000.0)
    _, wanted = mmort.nms_rotated(boxes, scores, 0.3)
    boxes[:, :2] += offset
    boxes[:, :4] *= scale
    _, keep = mmort.nms_rotated(boxes, scores, 0.3)
    assert keep.tolist() == wanted.tolist()
    assert 256 < len(keep) < 990


@given(rotated_boxes(), THRESHOLDS, st.sampled_from([-1.0, 0.3]), st.integers(1, 3))
def test_nms_rotated_indices_is_nms_of_each_class(boxes, iou_threshold, score_threshold, classes):
    boxes, scores, _ = boxes
    scores = np.stack([np.roll(scores, 7 * i) for i in range(classes)])
    above = mmort.box_iou_rotated(boxes, boxes) > np.float32(iou_threshold)
    rows = []
    for label in range(classes):
        kept = []
        for i in descending(scores[label]):
            if not above[kept, i].any():
                kept.append(i)
        rows += [[0, label, i] for i in kept if scores[label, i] > np.float32(score_threshold)]
    arrays, attributes = (
        (boxes[None], scores[None]),
        {"iou_threshold": iou_threshold, "score_threshold": score_threshold},
    )
    got = mmort.nms_rotated_indices(*arrays, **attributes)
    assert got.tolist() == rows
    session = front_ends.make_session(front_ends.make_model(front_ends.row_of("nms_rotated_indices"), attributes))
    assert_same(front_ends.run_session(session, arrays), (got,))


REAL = hnp.integer_dtypes(endianness="=") | hnp.unsigned_integer_dtypes(endianness="=") | hnp.boolean_dtypes()


@given(
    hnp.arrays(
        REAL | hnp.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
        hnp.array_shapes(max_dims=4, min_side=0, max_side=20),
    ),
    st.data(),
)
def test_scans_are_numpys(array, data):
    dim = data.draw(st.integers(-array.ndim, array.ndim - 1))
    for scan, accumulate in ((mmort.cummax, np.maximum.accumulate), (mmort.cummin, np.minimum.accumulate)):
        values, indices = scan(array, dim)
        np.testing.assert_array_equal(values, accumulate(array, axis=dim))
        assert values.dtype == array.dtype
        np.testing.assert_array_equal(np.take_along_axis(array, indices, axis=dim), values)
        assert (np.diff(indices, axis=dim) >= 0).all()


@given(
    hnp.arrays(
        np.float32, hnp.array_shapes(min_dims=4, max_dims=4, min_side=0, max_side=12), elements=st.floats(width=32)
    )
)
def test_corner_pool_is_a_cumulative_maximum(array):
    for mode, axis, step in (("top", 2, -1), ("bottom", 2, 1), ("left", 3, -1), ("right", 3, 1)):
        lines = np.moveaxis(array, axis, 0)[::step]
        expected = np.moveaxis(np.maximum.accumulate(lines, axis=0)[::step], 0, axis)
        np.testing.assert_array_equal(mmort.corner_pool(array, mode), expected)


SIDES = st.integers(1, 12)


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 20), SIDES, SIDES),
    st.tuples(SIDES, SIDES),
    st.sampled_from(["bilinear", "nearest", "bicubic"]),
    st.sampled_from(["zeros", "border", "reflection"]),
    st.booleans(),
    st.data(),
)
def test_grid_sample_is_what_the_oracle_gives(shape, points, mode, padding_mode, align_corners, data):
    input = np.random.default_rng(data.draw(st.integers(0, 2**32))).standard_normal(shape).astype(np.float32)
    positions = st.floats(width=32) | st.floats(-2, 2, width=32)
    grid = data.draw(hnp.arrays(np.float32, (shape[0], *points, 2), elements=positions))
    attributes = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    assert_close([mmort.grid_sample(input, grid, **attributes)], ORACLES["grid_sample"](input, grid, **attributes))


@given(
    st.tuples(st.integers(1, 2), st.integers(1, 3), SIDES, SIDES),
    st.integers(1, 9),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(*[st.integers(1, 3), st.integers(0, 2), st.integers(1, 2)] * 2),
    st.integers(1, 2),
    st.integers(1, 2),
    st.data(),
)
def test_deform_conv2d_is_what_the_oracle_gives(shape, outputs, kernel, numbers, groups, deform_groups, data):
    attributes = dict(zip(("stride", "padding", "dilation"), zip(numbers[:3], numbers[3:], strict=True), strict=True))
    attributes |= {"groups": groups, "deform_groups": deform_groups}
    shape = shape[0], shape[1] * groups * deform_groups, *shape[2:]
    build = deformed(shape, outputs * groups, kernel, **attributes)
    input, offset, mask, weight, bias = build(np.random.default_rng(data.draw(st.integers(0, 2**32))))
    positions = st.floats(width=32) | st.floats(-2, 2, width=32) | st.integers(-3, 3).map(float)
    offset = data.draw(hnp.arrays(np.float32, offset.shape, elements=positions))
    for operator, arrays in (
        ("deform_conv2d", (input, offset, weight)),
        ("modulated_deform_conv2d", (input, offset, mask, weight, bias)),
    ):
        got = getattr(mmort, operator)(*arrays, **attributes)
        assert_close([got], ORACLES[operator](*arrays, **attributes))


@given(
    st.tuples(st.integers(1, 2), st.integers(1, 10), SIDES, SIDES),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from([0.0625, 0.3, 1.0]),
    st.integers(0, 3),
    st.sampled_from(["avg", "max"]),
    st.booleans(),
    st.data(),
)
def test_roi_align_is_what_the_oracle_gives(shape, size, spatial_scale, sampling_ratio, pool_mode, aligned, data):
    input = np.random.default_rng(data.draw(st.integers(0, 2**32))).standard_normal(shape).astype(np.float32)
    k = data.draw(st.integers(0, 5))
    corners = data.draw(hnp.arrays(np.float32, (k, 4), elements=st.floats(-20, 40, width=32)))
    images = data.draw(hnp.arrays(np.float32, (k, 1), elements=st.integers(0, shape[0] - 1).map(float)))
    rois = np.concatenate([images, corners], axis=1)
    attributes = {"output_size": size, "spatial_scale": spatial_scale, "sampling_ratio": sampling_ratio}
    attributes |= {"pool_mode": pool_mode, "aligned": aligned}
    assert_close([mmort.roi_align(input, rois, **attributes)], ORACLES["roi_align"](input, rois, **attributes))


@given(
    st.tuples(st.integers(1, 2), st.integers(1, 40), SIDES, SIDES),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.sampled_from([0.0625, 0.3, 1.0]),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_roi_align_rotated_is_what_the_oracle_gives(
    shape, size, spatial_scale, sampling_ratio, aligned, clockwise, data
):
    input = np.random.default_rng(data.draw(st.integers(0, 2**32))).standard_normal(shape)
    k = data.draw(st.integers(0, 4))
    positions = data.draw(hnp.arrays(np.float64, (k, 4), elements=st.floats(-20, 40)))
    angles = data.draw(hnp.arrays(np.float64, (k, 1), elements=st.floats(-7, 7)))
    images = data.draw(hnp.arrays(np.float64, (k, 1), elements=st.integers(0, shape[0] - 1).map(float)))
    rois = np.concatenate([images, positions, angles], axis=1)
    attributes = {"output_size": size, "spatial_scale": spatial_scale, "sampling_ratio": sampling_ratio}
    attributes |= {"aligned": aligned, "clockwise": clockwise}
    assert_close(
        [mmort.roi_align_rotated(input, rois, **attributes)], ORACLES["roi_align_rotated"](input, rois, **attributes)
    )


@given(st.tuples(st.integers(1, 2), st.integers(1, 40), SIDES, SIDES), st.integers(1, 5), st.data())
def test_rotated_feature_align_is_what_the_oracle_gives(shape, points, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    positions = st.floats(-10, 20, width=32) | st.sampled_from([-1.0, 1e38, np.inf, -np.inf])
    boxes = data.draw(hnp.arrays(np.float32, (shape[0], *shape[2:], 5), elements=positions))
    arrays = rng.standard_normal(shape).astype(np.float32), boxes
    attributes = {"spatial_scale": 0.5, "points": points}
    assert_close(
        [mmort.rotated_feature_align(*arrays, **attributes)], ORACLES["rotated_feature_align"](*arrays, **attributes)
    )
