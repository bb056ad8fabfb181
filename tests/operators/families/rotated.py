"""Rotated boxes: box_iou_rotated and the suppressions that use it."""

import math
from fractions import Fraction
from functools import cache, partial

import numpy as np

from tests.operators.case import INF, NAN, SEED, SIZES, add, given, oracle, refuse, zeros
from tests.operators.families.boxes import make_scores
from tests.operators.families.nms import STRANGE_SCORES, descending

# ---- oracles ---------------------------------------------------------------------------------------------------------


@oracle
def box_iou_rotated(bboxes1, bboxes2, mode="iou", aligned=False, clockwise=True):
    first, second = ([_exact(tuple(box.tolist()), clockwise) for box in boxes] for boxes in (bboxes1, bboxes2))
    if aligned:
        rows = [_rotated_overlap(*pair, mode) for pair in zip(first, second, strict=True)]
        return (np.array(rows, bboxes1.dtype).reshape(len(first)),)
    rows = [[_rotated_overlap(a, b, mode) for b in second] for a in first]
    return (np.array(rows, bboxes1.dtype).reshape(len(first), len(second)),)


class _Rotated:
    """A box in exact arithmetic, except for the sine and cosine of its angle."""

    def __init__(self, box, clockwise):
        x, y, w, h, angle = box
        self.finite = all(map(math.isfinite, box))
        if self.finite:
            self.x, self.y, self.reach = x, y, math.hypot(w, h) / 2
            self.area = max(Fraction(w) * Fraction(h), 0)
            angle = angle if clockwise else -angle
            c, s = Fraction(math.cos(angle)) / 2, Fraction(math.sin(angle)) / 2
            x, y, w, h = (Fraction(number) for number in (x, y, abs(w), abs(h)))
            self.corners = [
                (x + i * c * w - j * s * h, y + i * s * w + j * c * h) for i, j in ((1, 1), (-1, 1), (-1, -1), (1, -1))
            ]


_exact = cache(_Rotated)  # exact arithmetic is slow, and the same boxes come in both precisions


@cache
def _rotated_overlap(a, b, mode):
    if not (a.finite and b.finite):
        return math.nan
    if not (a.area and b.area) or math.hypot(a.x - b.x, a.y - b.y) > 1.001 * (a.reach + b.reach):
        return 0
    shared = _area_of_hull(_common_points(a.corners, b.corners))
    return float(shared / (a.area + b.area - shared if mode == "iou" else a.area))


def _cross(o, a, b):
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])


def _common_points(p, q):
    """Return the corners of either quadrilateral that lie in the other, and the points where their edges cross."""
    points = []
    for corners, other in ((p, q), (q, p)):
        points += [point for point in corners if all(_cross(other[i - 1], other[i], point) >= 0 for i in range(4))]
    for i in range(4):
        for j in range(4):
            a, b, c, d = p[i - 1], p[i], q[j - 1], q[j]
            at_a, at_b, at_c, at_d = _cross(c, d, a), _cross(c, d, b), _cross(a, b, c), _cross(a, b, d)
            if at_a != at_b and at_a * at_b <= 0 and at_c * at_d <= 0:
                part = at_a / (at_a - at_b)
                points.append((a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])))
    return points


def _area_of_hull(points):
    points = sorted(set(points))
    halves = []
    for line in (points, points[::-1]):
        half = []
        for point in line:
            while len(half) > 1 and _cross(half[-2], half[-1], point) <= 0:
                half.pop()
            half.append(point)
        halves += half[:-1]
    return sum(_cross(halves[0], halves[i], halves[i + 1]) for i in range(1, len(halves) - 1)) / Fraction(2)


def _suppress_rotated(boxes, scores, drops, clockwise=True):
    """Return the indices of the kept boxes; `drops` is true for an overlap that suppresses."""
    number = boxes.dtype.type
    rotated = [_exact(tuple(box.tolist()), clockwise) for box in boxes]
    kept = []
    for i in descending(scores):
        if not any(drops(number(_rotated_overlap(rotated[k], rotated[i], "iou"))) for k in kept):
            kept.append(i)
    return kept


@oracle
def nms_rotated(dets, scores, iou_threshold, labels=None, clockwise=True, suppress_equal=True):
    exceeds, threshold = np.greater_equal if suppress_equal else np.greater, dets.dtype.type(iou_threshold)
    labels = np.zeros(len(dets), np.int64) if labels is None else np.array(labels)
    kept = []
    for label in set(labels.tolist()):
        members = np.flatnonzero(labels == label)
        kept += members[
            _suppress_rotated(dets[members], scores[members], lambda iou: exceeds(iou, threshold), clockwise)
        ].tolist()
    keep = np.array([i for i in descending(scores) if i in kept], np.int64)
    return np.concatenate([dets[keep], scores[keep, None]], axis=1), keep


@oracle
def nms_rotated_indices(boxes, scores, iou_threshold, score_threshold):
    number = boxes.dtype.type
    rows = []
    for image in range(len(scores)):
        for label in range(scores.shape[1]):
            kept = _suppress_rotated(boxes[image], scores[image, label], lambda iou: iou > number(iou_threshold))
            rows += [(image, label, i) for i in kept if scores[image, label, i] > number(score_threshold)]
    return (np.array(rows, np.int64).reshape(-1, 3),)


@oracle
def multiclass_nms_rotated(
    boxes, scores, max_output_boxes_per_class=1000, iou_threshold=0.1, score_threshold=0.05, pre_top_k=-1, keep_top_k=-1
):
    images, count, classes = scores.shape
    detections = []
    for image in range(images):
        best = np.array([max((s for s in row if s == s), default=-np.inf) for row in scores[image]], scores.dtype)
        chosen = sorted(descending(best)[:pre_top_k]) if pre_top_k > 0 else range(count)
        rows = []
        for label in range(classes):
            result = scores[image, list(chosen), label]
            (indices,) = nms_rotated_indices(
                boxes[[image]][:, list(chosen)], result[None, None], iou_threshold, score_threshold
            )
            kept = [chosen[i] for i in indices[:, 2]]
            if max_output_boxes_per_class > 0:
                kept = kept[:max_output_boxes_per_class]
            rows += [([*boxes[image, i], scores[image, i, label]], label) for i in kept]
        rows.sort(key=lambda row: -row[0][5])
        detections.append(rows[:keep_top_k] if keep_top_k > 0 else rows)
    length = max(map(len, detections), default=0)
    dets, labels = np.zeros((images, length, 6), boxes.dtype), np.full((images, length), -1, np.int64)
    for image, rows in enumerate(detections):
        for i, (row, label) in enumerate(rows):
            dets[image, i], labels[image, i] = row, label
    return dets, labels


# ---- cases -----------------------------------------------------------------------------------------------------------


def make_rotated(rng, n, kind="clustered"):
    """Return boxes [n, 5]; "upright" boxes have integer sides and angles of 0, "near" ones almost coincide."""
    if kind == "upright":
        return np.column_stack([rng.integers(0, 12, (n, 2)), 2 * rng.integers(1, 5, (n, 2)), np.zeros(n)]).astype(
            np.float32
        )
    centre = {"clustered": 10 * rng.integers(0, 3, (n, 2)) + rng.normal(0, 1, (n, 2))}.get(
        kind, rng.uniform(0, 100, (n, 2))
    )
    size = {
        "clustered": rng.uniform(4, 9, (n, 2)),
        "scattered": rng.uniform(5, 40, (n, 2)),
        "elongated": np.where(rng.random((n, 1)) < 0.5, [[90, 1]], [[1, 90]]) * rng.uniform(0.3, 3, (n, 2)),
        "scales": 10 ** rng.uniform(-3, 3, (n, 1)) * rng.uniform(0.8, 1.2, (n, 2)),
        "near": np.full((n, 2), [7, 3]),
    }[kind]
    angle = rng.uniform(-4, 4, n)
    if kind == "near":
        centre, angle = np.full((n, 2), 50) + rng.normal(0, 1e-5, (n, 2)), 0.3 + rng.normal(0, 1e-6, n)
    return np.column_stack([centre, size, angle]).astype(np.float32)


def scored_rotated(n, kind="clustered", levels=0, labels=None):
    optional = () if labels is None else (np.array(labels, np.int64),)
    return lambda rng: (make_rotated(rng, n, kind), make_scores(rng, n, levels), *optional)


STRANGE_ROTATED = {
    "zero_area": [[5, 5, 0, 0, 0], [5, 5, 0, 0, 1], [5, 5, 10, 10, 0], [5, 5, 0, 4, 0.5], [5, 5, 4, 0, 0.5]],
    "negative": [[5, 5, -4, 4, 0], [5, 5, 4, -4, 0], [5, 5, -4, -4, 0], [5, 5, 4, 4, 0], [5, 5, 4, 5, 0]],
    "nan": [
        [5, 5, 4, 4, 0],
        [NAN, 5, 4, 4, 0],
        [5, NAN, 4, 4, 0],
        [5, 5, NAN, 4, 0],
        [5, 5, 4, 4, NAN],
        [5, 5, 4, 4, 0.1],
    ],
    "inf": [
        [5, 5, 4, 4, 0],
        [INF, 5, 4, 4, 0],
        [5, -INF, 4, 4, 0],
        [5, 5, INF, 4, 0],
        [5, 5, 4, 4, INF],
        [5, 5, 4, 4, 0.1],
    ],
    "huge": [
        [0, 0, 3e38, 3e38, 0],
        [0, 0, 3e38, 3e38, 1],
        [1e38, 0, 3e38, 3e38, 1],
        [0, 0, 1, 1, 0],
        [-3e38, 3e38, 1, 1, 0],
    ],
    "tiny": [[0, 0, 1e-20, 1e-20, 0], [0, 0, 1e-20, 1e-20, 1], [0, 0, 1e-25, 1e-25, 0], [0, 0, 1e-4, 1e-4, 0.5]],
    "identical": [[5.5, 1.5, 2.1, 1.4, 0.1]] * 5,
    "turned": [[5, 5, 8, 2, angle] for angle in (0, np.pi / 2, np.pi, -np.pi / 2, 2 * np.pi, 1000, -1e6)],
    "touching": [[0, 0, 2, 2, 0], [2, 0, 2, 2, 0], [0, 2, 2, 2, 0], [2, 2, 2, 2, 0], [1, 1, 2, 2, 0]],
}

for clockwise in (True, False):
    for mode in ("iou", "iof"):
        ending = f"{mode}_c{clockwise:d}"
        attributes = {"mode": mode, "clockwise": clockwise}
        for n, m in ((0, 0), (0, 3), (3, 0), (1, 1), (7, 16)):
            build = partial(lambda rng, n, m: (make_rotated(rng, n), make_rotated(rng, m, "scattered")), n=n, m=m)
            add("box_iou_rotated", f"{n}x{m}_{ending}", build, "close", **attributes)
        for kind in ("clustered", "elongated", "scales", "near", "upright"):
            build = partial(lambda rng, kind: (make_rotated(rng, 9, kind), make_rotated(rng, 9, kind)), kind=kind)
            add("box_iou_rotated", f"{kind}_{ending}", build, "close", **attributes)
            add("box_iou_rotated", f"{kind}_aligned_{ending}", build, "close", aligned=True, **attributes)
        for name, boxes in STRANGE_ROTATED.items():
            add("box_iou_rotated", f"{name}_{ending}", given(boxes, boxes), "close", **attributes)
add("box_iou_rotated", "aligned0", lambda rng: (make_rotated(rng, 0), make_rotated(rng, 0)), "close", aligned=True)
add(
    "box_iou_rotated",
    "many",
    lambda rng: (make_rotated(rng, 60, "scales"), make_rotated(rng, 60, "scattered")),
    "close",
)

for n in SIZES:
    add("nms_rotated", f"n{n}", scored_rotated(n), iou_threshold=0.4)
for kind in ("clustered", "scattered", "elongated", "scales", "upright", "near"):
    for threshold in (-1, 0, 0.05, 0.3, 0.7, 1):
        add(
            "nms_rotated",
            f"{kind}_t{threshold}",
            scored_rotated(20 if kind == "near" else 40, kind),
            iou_threshold=threshold,
        )
    add("nms_rotated", f"{kind}_counter", scored_rotated(20, kind), iou_threshold=0.3, clockwise=False)
    add("nms_rotated", f"{kind}_above", scored_rotated(40, kind), iou_threshold=0.5, suppress_equal=False)
    labels = np.random.default_rng(SEED).integers(-2, 2, 40)
    add("nms_rotated", f"{kind}_labels", scored_rotated(40, kind, 8, labels), iou_threshold=0.2)
for name, boxes in STRANGE_ROTATED.items():
    for threshold in (-1, 0, 0.5, 1):
        add(
            "nms_rotated",
            f"{name}_t{threshold}",
            given(boxes, np.linspace(0.9, 0.1, len(boxes))),
            iou_threshold=threshold,
        )
        build = given([boxes], [[np.linspace(0.9, 0.1, len(boxes))]])
        add("nms_rotated_indices", f"{name}_t{threshold}", build, iou_threshold=threshold, score_threshold=0.2)
for name, scores in STRANGE_SCORES.items():
    boxes = [[5, 5, 9, 4, 0.5], [5, 5, 9, 4, 0.6], [50, 50, 9, 4, 0]]
    add("nms_rotated", f"scores_{name}", given(boxes + boxes[::-1], scores + scores), iou_threshold=0.5)
    for score_threshold in (-INF, 0, 0.5):
        build = given([boxes + boxes[::-1]], [[scores + scores]])
        add(
            "nms_rotated_indices",
            f"scores_{name}_above{score_threshold}",
            build,
            iou_threshold=0.5,
            score_threshold=score_threshold,
        )
add("nms_rotated", "labels0", scored_rotated(0, labels=[]), iou_threshold=0.5)
add("nms_rotated", "far_labels", scored_rotated(9, labels=[-(2**62), 2**62, 0] * 3), iou_threshold=0.2)
labels = np.random.default_rng(SEED).integers(0, 4, 300)
add("nms_rotated", "many", scored_rotated(300, "scattered", labels=labels), iou_threshold=0.2)


def classes_of_boxes(b, c, k, kind="clustered", levels=0):
    def build(rng):
        boxes = np.stack([make_rotated(rng, k, kind) for _ in range(b)]) if b else np.zeros((0, k, 5), np.float32)
        return boxes, make_scores(rng, b * c * k, levels).reshape(b, c, k)

    return build


def transposed(build):
    def classes_last(rng):
        boxes, scores = build(rng)
        return boxes, np.ascontiguousarray(scores.transpose(0, 2, 1))

    return classes_last


for b, c, k in ((0, 2, 3), (2, 0, 3), (2, 3, 0), (1, 1, 1), (2, 3, 7), (1, 4, 33), (3, 2, 17)):
    for iou_threshold in (0, 0.3):
        attributes = {"iou_threshold": iou_threshold, "score_threshold": 0.25}
        add("nms_rotated_indices", f"{b}x{c}x{k}_t{iou_threshold}", classes_of_boxes(b, c, k, levels=5), **attributes)
    for options in (
        {}, {"iou_threshold": 0.5, "score_threshold": 0.5}, {"pre_top_k": 5}, {"keep_top_k": 3},
        {"max_output_boxes_per_class": 2},
        {"pre_top_k": 6, "keep_top_k": 5, "max_output_boxes_per_class": 3, "score_threshold": -1.0},
    ):  # fmt: skip
        build = transposed(classes_of_boxes(b, c, k, levels=5))
        add("multiclass_nms_rotated", f"{b}x{c}x{k}_{'_'.join(options) or 'default'}", build, **options)
add("nms_rotated_indices", "many", classes_of_boxes(2, 3, 100, "scattered"), iou_threshold=0.1, score_threshold=0.05)
with_nan = transposed(
    lambda rng: (
        make_rotated(rng, 6)[None],
        np.float32([[[NAN, 0.5, 0.6, NAN, 0.5, 0.7], [0.5, NAN, 0.2, NAN, 0.6, 0.7]]]),
    )
)
for pre_top_k in (-1, 3, 5):
    add("multiclass_nms_rotated", f"nan_{pre_top_k}", with_nan, pre_top_k=pre_top_k)

# ---- refusals --------------------------------------------------------------------------------------------------------

BOXES_5, BOXES_K = zeros(3, 5), zeros(2, 3, 5)
refuse("nms_rotated", "dets must be [N, 5], got [3, 4]", zeros(3, 4), zeros(3), iou_threshold=0.5)
refuse("nms_rotated", "dets must be [N, 5], got [0, 6]", zeros(0, 6), zeros(0), iou_threshold=0.5)
refuse("nms_rotated", "scores must be [N] with N = 3, got [2]", BOXES_5, zeros(2), iou_threshold=0.5)
refuse("nms_rotated", "scores must be [N], got [3, 1]", BOXES_5, zeros(3, 1), iou_threshold=0.5)
for labels in ([0, 1], [0, 1, 2, 3], []):
    text = f"labels must be [N] with N = 3, got [{len(labels)}]"
    refuse("nms", text.replace("labels", "idxs"), zeros(3, 4), zeros(3), np.array(labels, np.int64), iou_threshold=0.5)
refuse(
    "nms_rotated", "labels must be [N], got [3, 1]", BOXES_5, zeros(3), np.zeros((3, 1), np.int64), iou_threshold=0.5
)
refuse("nms_rotated", "iou_threshold must be a number, got nan", BOXES_5, zeros(3), iou_threshold=NAN)
refuse("nms_rotated", "iou_threshold must be a number, got nan", zeros(0, 5), zeros(0), iou_threshold=NAN)
refuse("box_iou_rotated", "bboxes1 must be [N, 5], got [3, 4]", zeros(3, 4), BOXES_5)
refuse("box_iou_rotated", "bboxes2 must be [M, 5], got [5]", BOXES_5, zeros(5))
refuse("box_iou_rotated", "bboxes2 must be [N, 5] with N = 3, got [2, 5]", BOXES_5, zeros(2, 5), aligned=True)
THRESHOLDS = {"iou_threshold": 0.5, "score_threshold": 0.0}
refuse("nms_rotated_indices", "boxes must be [B, K, 5], got [3, 5]", BOXES_5, zeros(1, 1, 3), **THRESHOLDS)
refuse("nms_rotated_indices", "boxes must be [B, K, 5], got [2, 3, 4]", zeros(2, 3, 4), zeros(2, 1, 3), **THRESHOLDS)
refuse(
    "nms_rotated_indices", "scores must be [B, C, K] with K = 3, got [2, 1, 4]", BOXES_K, zeros(2, 1, 4), **THRESHOLDS
)
refuse(
    "nms_rotated_indices", "scores must be [B, C, K] with B = 2, got [1, 1, 3]", BOXES_K, zeros(1, 1, 3), **THRESHOLDS
)
refuse("nms_rotated_indices", "scores must be [B, C, K], got [2, 3]", BOXES_K, zeros(2, 3), **THRESHOLDS)
for name in THRESHOLDS:
    text = f"{name} must be a number, got nan"
    refuse("nms_rotated_indices", text, BOXES_K, zeros(2, 1, 3), **THRESHOLDS | {name: NAN})
    refuse("multiclass_nms_rotated", text, BOXES_K, zeros(2, 3, 1), **{name: NAN})
refuse("multiclass_nms_rotated", "boxes must be [B, K, 5], got [3, 5]", BOXES_5, zeros(1, 3, 1))
refuse("multiclass_nms_rotated", "scores must be [B, K, C] with B = 2, K = 3, got [2, 1, 3]", BOXES_K, zeros(2, 1, 3))
