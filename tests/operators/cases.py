"""The cases: one list, which every operator's oracle and every door is run on, and one of what every door refuses.

A case is a builder of arrays and the public function's other arguments.  A new row reaches all front_ends.
"""

import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal

import numpy as np

SEED = int(os.environ.get("TEST_SEED", "0"))
SIZES = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 33)
"""Around the widths of vectors and the lengths of unrolled loops."""

Builder = Callable[[np.random.Generator], tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Case:
    operator: str
    name: str
    build: Builder
    attributes: dict[str, Any] = field(default_factory=dict)
    tolerance: Literal["exact", "close"] = "exact"

    def __str__(self):
        return f"{self.operator}-{self.name}"

    @property
    def arrays(self):
        return _arrays(str(self), self.build)


@cache
def _arrays(name, build):
    arrays = build(np.random.default_rng([SEED, zlib.crc32(name.encode())]))
    for array in arrays:
        array.flags.writeable = False  # they are shared by all tests
    return arrays


CASES: list[Case] = []


def add(operator, name, build, tolerance="exact", **attributes):
    CASES.append(Case(operator, name, build, attributes, tolerance))


def of(operator):
    return [case for case in CASES if case.operator == operator]


def ordinary(operator, count=None):
    """A case of an operator with something in every array; it has `count` arrays, or all that there may be."""
    full = [case for case in of(operator) if all(array.size for array in case.arrays)]
    count = count or max(len(case.arrays) for case in full)
    return next(case for case in full if len(case.arrays) == count)


@dataclass(frozen=True)
class Refusal:
    """Arguments of an operator and the whole text of the error behind the operator's name."""

    operator: str
    text: str
    arrays: tuple[np.ndarray, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self):
        return f"{self.operator}-{self.text}"


REFUSALS: list[Refusal] = []


def refuse(operator, text, *arrays, **attributes):
    REFUSALS.append(Refusal(operator, text, arrays, attributes))


def given(*arrays, dtype=np.float32):
    """A builder of these very values."""
    made = tuple(np.array(array, dtype) for array in arrays)
    return lambda rng: tuple(array.copy() for array in made)


# ---- boxes -----------------------------------------------------------------------------------------------------


def make_boxes(rng, n, kind="scattered"):
    """[n, 4]; "scales" holds sizes from 1e-2 to 1e4, "grid" integers (whose IoUs are often just a threshold)."""
    if kind == "grid":
        corner = rng.integers(0, 12, (n, 2))
        return np.concatenate([corner, corner + rng.integers(1, 9, (n, 2))], axis=1).astype(np.float32)
    centre = {"clustered": 10 * rng.integers(0, 4, (n, 2)) + rng.normal(0, 0.6, (n, 2))}.get(
        kind, rng.uniform(0, 100, (n, 2))
    )
    size = {
        "scattered": rng.uniform(5, 40, (n, 2)),
        "clustered": rng.uniform(6, 9, (n, 2)),
        "elongated": np.where(rng.random((n, 1)) < 0.5, [[300, 0.3]], [[0.3, 300]]) * rng.uniform(0.3, 3, (n, 2)),
        "scales": 10 ** rng.uniform(-2, 4, (n, 1)) * rng.uniform(0.8, 1.2, (n, 2)),
    }[kind]
    return np.concatenate([centre - size / 2, centre + size / 2], axis=1).astype(np.float32)


def make_scores(rng, n, levels=0):
    """[n]; distinct, or of a few `levels` so that many tie."""
    if levels:
        return (rng.integers(0, levels, n) / levels).astype(np.float32)
    return (rng.permutation(n) / max(n, 1)).astype(np.float32)


def scored(n, kind="scattered", levels=0):
    return lambda rng: (make_boxes(rng, n, kind), make_scores(rng, n, levels))


def at_threshold(rng):
    """Pairs of boxes far from one another; the IoU of the first pair is the threshold of the cases (see below)."""
    boxes = np.tile(np.array([[0, 0, 10, 10]], np.float32), (34, 1))
    boxes[1::2, 3] = 5
    boxes += np.repeat(np.arange(17), 2)[:, None].astype(np.float32) * 32
    return boxes, make_scores(rng, 34)


HALF, ULP_LESS, ULP_MORE = 0.5, float(np.nextafter(np.float32(0.5), 0)), float(np.nextafter(np.float32(0.5), 1))

TRIO = [[0, 0, 10, 10], [1, 0, 11, 10], [50, 50, 60, 60]]
NAN, INF = np.nan, np.inf
STRANGE_BOXES = {
    "zero_area": [[5, 5, 5, 5], [5, 5, 5, 5], [0, 0, 10, 10], [5, 5, 5, 9], [5, 0, 5, 10]],
    "inverted": [[10, 10, 0, 0], [0, 0, 10, 10], [10, 10, 0, 0], [10, 0, 0, 10], [0, 10, 10, 0]],
    "nan": [
        [0, 0, 10, 10],
        [NAN, 0, 10, 10],
        [0, NAN, 10, 10],
        [0, 0, NAN, 10],
        [0, 0, 10, NAN],
        [NAN] * 4,
        [0, 0, 10, 10],
    ],
    "inf": [[0, 0, 10, 10], [-INF, 0, 10, 10], [0, -INF, INF, INF], [-INF] * 4, [INF] * 4, [-INF, -INF, INF, INF]],
    "huge": [
        [-1e19, -1e19, 1e19, 1e19],
        [0, 0, 3e38, 3e38],
        [-3e38, -3e38, 3e38, 3e38],
        [0, 0, 1e19, 1e19],
        [0, 0, 1, 1],
    ],
    "tiny": [[0, 0, 1e-20, 1e-20], [0, 0, 1e-20, 1e-20], [0, 0, 1e-25, 1e-25], [1, 1, 1.0000001, 1.0000001]],
    "far": [
        [1e7, 1e7, 1e7 + 1, 1e7 + 1],
        [1e7, 1e7, 1e7 + 2, 1e7 + 2],
        [-1e7, 1e7, -1e7 + 2, 1e7 + 2],
        [1e7, 1e7, 1e7, 1e7],
    ],
    "identical": [[1, 2, 3, 4]] * 9,
    "touching": [[0, 0, 10, 10], [10, 0, 20, 10], [0, 10, 10, 20], [10, 10, 20, 20], [20, 20, 30, 30]],
}
STRANGE_SCORES = {
    "equal": [0.5, 0.5, 0.5],
    "zeros": [0.0, -0.0, 0.0],
    "nan": [NAN, 0.9, NAN],
    "inf": [-INF, INF, -INF],
    "negative": [-3, -1, -2],
}


def strange_scores(scores):
    """Three boxes for each three scores, in two orders."""
    return given(TRIO + TRIO[::-1], scores + scores)


for n in SIZES:
    add("nms", f"n{n}", scored(n, "clustered"), iou_threshold=0.4)
for kind in ("scattered", "clustered", "elongated", "scales", "grid"):
    for threshold in (-1, 0, 0.05, 0.3, 0.5, 0.7, 0.95, 1):
        for offset in (0, 1):
            add("nms", f"{kind}300_t{threshold}_o{offset}", scored(300, kind), iou_threshold=threshold, offset=offset)
    for threshold in (0.05, 0.5, 0.95):
        add("nms", f"{kind}3000_t{threshold}", scored(3000, kind), iou_threshold=threshold)
    for threshold in (0.04, 0.3, 0.7, 1):
        add("nms", f"{kind}1200_t{threshold}_o1", scored(1200, kind, 50), iou_threshold=threshold, offset=1)
    add("nms", f"{kind}1200_most300", scored(1200, kind, 50), iou_threshold=0.6, max_num=300, score_threshold=0.03)
for levels in (1, 4):
    for n in (17, 33, 300):
        add("nms", f"levels{levels}_n{n}", scored(n, "clustered", levels), iou_threshold=0.5)
for name, boxes in STRANGE_BOXES.items():
    for threshold in (-1, 0, 0.5, 1):
        for offset in (0, 1):
            build = given(boxes, np.linspace(0.9, 0.1, len(boxes)))
            add("nms", f"{name}_t{threshold}_o{offset}", build, iou_threshold=threshold, offset=offset)
for name, scores in STRANGE_SCORES.items():
    add("nms", f"scores_{name}", strange_scores(scores), iou_threshold=0.5)
    add("nms", f"scores_{name}_above0.3", strange_scores(scores), iou_threshold=0.5, score_threshold=0.3)
for name, threshold in (("at", HALF), ("below", ULP_LESS), ("above", ULP_MORE)):
    add("nms", f"threshold_{name}", at_threshold, iou_threshold=threshold)
    add("nms_match", f"threshold_{name}", lambda rng: (np.column_stack(at_threshold(rng)),), iou_threshold=threshold)
    for method in ("naive", "linear"):
        add("soft_nms", f"threshold_{name}_{method}", at_threshold, iou_threshold=threshold, method=method)
for threshold in (2, INF, -INF):
    add("nms", f"t{threshold}", scored(33, "clustered"), iou_threshold=threshold)
for score_threshold in (-1, 0, 0.3, 0.5, 1):
    for max_num in (-1, 0, 1, 7, 1000):
        attributes = {"iou_threshold": 0.5, "score_threshold": score_threshold, "max_num": max_num}
        add("nms", f"above{score_threshold}_most{max_num}", scored(60, "clustered", 4), **attributes)

for n in SIZES:
    for method in ("naive", "linear", "gaussian"):
        tolerance = "close" if method == "gaussian" else "exact"
        add("soft_nms", f"n{n}_{method}", scored(n, "clustered"), tolerance, method=method)
for method in ("naive", "linear", "gaussian"):
    tolerance = "close" if method == "gaussian" else "exact"
    for kind in ("scattered", "clustered", "elongated", "grid"):
        add("soft_nms", f"{kind}300_{method}", scored(300, kind), tolerance, method=method)
        add("soft_nms", f"{kind}100_{method}_o1", scored(100, kind), tolerance, method=method, offset=1, min_score=0.2)
    for name, boxes in STRANGE_BOXES.items():
        build = given(boxes, np.linspace(0.9, 0.1, len(boxes)))
        for offset in (0, 1):
            add("soft_nms", f"{name}_{method}_o{offset}", build, tolerance, method=method, offset=offset)
    for name, scores in STRANGE_SCORES.items():
        add("soft_nms", f"scores_{name}_{method}", strange_scores(scores), tolerance, method=method)
    add("soft_nms", f"ties_{method}", scored(100, "clustered", 4), tolerance, method=method)
    add("soft_nms", f"all_below_{method}", scored(20, "clustered"), tolerance, method=method, min_score=2.0)
    add("soft_nms", f"none_below_{method}", scored(40, "clustered"), tolerance, method=method, min_score=-1.0)
for sigma in (0.0, -0.5, 1e-3, 1e3):
    add("soft_nms", f"sigma{sigma}", scored(20, "clustered"), "close", method="gaussian", sigma=sigma)

for n in SIZES:
    add("nms_match", f"n{n}", lambda rng, n=n: (np.column_stack(scored(n, "clustered")(rng)),), iou_threshold=0.4)
for kind in ("scattered", "clustered", "elongated", "grid"):
    for threshold in (-1, 0, 0.3, 0.5, 0.95, 1):
        build = partial(lambda rng, kind: (np.column_stack(scored(300, kind, 20)(rng)),), kind=kind)
        add("nms_match", f"{kind}300_t{threshold}", build, iou_threshold=threshold)
for name, boxes in STRANGE_BOXES.items():
    for threshold in (0, 0.5, 1):
        build = given(np.column_stack([boxes, np.linspace(0.9, 0.1, len(boxes))]))
        add("nms_match", f"{name}_t{threshold}", build, iou_threshold=threshold)
for name, scores in STRANGE_SCORES.items():
    add("nms_match", f"scores_{name}", given(np.column_stack([TRIO + TRIO[::-1], scores + scores])), iou_threshold=0.5)

for mode in ("iou", "iof"):
    for offset in (0, 1):
        for n, m in ((0, 0), (0, 3), (3, 0), (1, 1), (7, 33), (33, 8), (17, 16)):
            build = partial(lambda rng, n, m: (make_boxes(rng, n), make_boxes(rng, m, "scales")), n=n, m=m)
            add("box_iou", f"{n}x{m}_{mode}_o{offset}", build, mode=mode, offset=offset)
        for n in SIZES:
            build = partial(lambda rng, n: (make_boxes(rng, n, "grid"), make_boxes(rng, n, "grid")), n=n)
            add("box_iou", f"aligned{n}_{mode}_o{offset}", build, mode=mode, offset=offset, aligned=True)
        for name, boxes in STRANGE_BOXES.items():
            add("box_iou", f"{name}_{mode}_o{offset}", given(boxes, boxes), mode=mode, offset=offset)


def classed(n, kind, levels=0, classes=3):
    def build(rng):
        return make_boxes(rng, n, kind), make_scores(rng, n, levels), rng.integers(0, classes, n)

    return build


for n in (0, 1, 2, 17, 300):
    add("nms", f"classes_n{n}", classed(n, "clustered", 8), iou_threshold=0.3)
    add("nms", f"far_classes_n{n}", classed(n, "clustered", classes=2**62), iou_threshold=0.2, max_num=9)
    for class_agnostic in (False, True):
        for name, config in (
            ("none", None),
            ("nms", {"iou_threshold": 0.5}),
            ("capped", {"type": "nms", "iou_threshold": 0.3, "max_num": 5, "score_threshold": 0.2}),
            ("offset", {"type": "nms", "iou_threshold": 0.5, "offset": 1}),
            ("linear", {"type": "soft_nms", "iou_threshold": 0.3, "min_score": 0.05}),
            ("naive_capped", {"type": "soft_nms", "method": "naive", "max_num": 7}),
            ("high", {"type": "soft_nms", "min_score": 0.95}),
        ):
            attributes = {"nms_cfg": config, "class_agnostic": class_agnostic}
            add("batched_nms", f"{name}_n{n}_agnostic{class_agnostic}", classed(n, "clustered", 8), **attributes)
for threshold in (0.3, 0.7):
    add("batched_nms", f"many_t{threshold}", classed(5000, "scattered", 900), nms_cfg={"iou_threshold": threshold})
add("batched_nms", "many_classes", classed(60, "scattered", classes=2**62), nms_cfg={"iou_threshold": 0.2})
for name, scores in STRANGE_SCORES.items():
    for kind in ("nms", "soft_nms"):
        build = partial(lambda rng, scores: (*strange_scores(scores)(rng), np.array([0, 1, 0, 1, 0, 1])), scores=scores)
        add("batched_nms", f"scores_{name}_{kind}", build, nms_cfg={"type": kind, "iou_threshold": 0.5})


def batch(images, n, classes, levels=0, each=False, kind="clustered"):
    """Boxes [B, N, 4], or with `each` [B, N, C, 4], and scores [B, N, C]."""

    def build(rng):
        many = images * n * (classes if each else 1)
        boxes = make_boxes(rng, many, kind).reshape((images, n, classes, 4) if each else (images, n, 4))
        return boxes, make_scores(rng, images * n * classes, levels).reshape(images, n, classes)

    return build


METHODS = ("nms", "soft_nms_naive", "soft_nms_linear", "soft_nms_gaussian")

for n in SIZES:
    for method in METHODS:
        add("multiclass_nms", f"n{n}_{method}", batch(2, n, 3), method=method, iou_threshold=0.3)
    add("multiclass_nms", f"classes{n}", batch(1, 9, n, levels=6), max_per_image=20)
    add("multiclass_nms", f"each{n}", batch(2, n, 17, each=True), score_threshold=0.5)
for method in METHODS:
    for agnostic in (False, True):
        for pre in (-1, 7):
            for most in (-1, 5, 400):
                add("multiclass_nms", f"{method}_agnostic{agnostic:d}_pre{pre}_most{most}", batch(2, 33, 18, levels=9),
                    method=method, class_agnostic=agnostic, nms_pre=pre, max_per_image=most, iou_threshold=0.4,
                    sigma=0.3, min_score=0.05)  # fmt: skip
add("multiclass_nms", "no_images", batch(0, 4, 3))
add("multiclass_nms", "no_images_no_limit", batch(0, 4, 3), max_per_image=-1)
add("multiclass_nms", "no_classes", batch(2, 4, 0), class_agnostic=True)
add("multiclass_nms", "nothing_above", batch(2, 9, 3), score_threshold=1.0, max_per_image=-1)
add("multiclass_nms", "offset", batch(1, 33, 3, kind="grid"), offset=1, iou_threshold=0.2)
add("multiclass_nms", "many", batch(2, 1500, 3, kind="scattered"), score_threshold=0.3, max_per_image=300)
add("multiclass_nms", "many_agnostic", batch(1, 700, 20, kind="scattered"), class_agnostic=True, nms_pre=100)
for name, boxes in STRANGE_BOXES.items():
    n = len(boxes)
    build = partial(lambda rng, boxes, n: (np.array([boxes], np.float32), batch(1, n, 2)(rng)[1]), boxes=boxes, n=n)
    for method in METHODS:
        add("multiclass_nms", f"boxes_{name}_{method}", build, method=method)


def pairs(images, n, classes, iou_threshold, score_threshold, levels=0, kind="clustered"):
    thresholds = np.array([iou_threshold], np.float32), np.array([score_threshold, 9], np.float32)
    return lambda rng: (
        make_boxes(rng, images * n, kind).reshape(images, n, 4),
        make_scores(rng, images * n * classes, levels).reshape(images, classes, n),
        *(array.copy() for array in thresholds),
    )


for n in SIZES:
    add("nms_match_pairs", f"n{n}", pairs(2, n, 3, 0.3, 0.2))
    add("nms_match_pairs", f"grid{n}", pairs(1, n, 2, 0.5, 0.0, kind="grid"))
for iou_threshold in (-1, 0, 0.5, 1):
    for score_threshold in (-INF, 0, 0.5):
        add("nms_match_pairs", f"iou{iou_threshold}_score{score_threshold}",
            pairs(2, 33, 4, iou_threshold, score_threshold, levels=5))  # fmt: skip
add("nms_match_pairs", "no_images", pairs(0, 4, 3, 0.5, 0))
add("nms_match_pairs", "no_classes", pairs(2, 4, 0, 0.5, 0))
add("nms_match_pairs", "many", pairs(2, 400, 5, 0.5, 0.1))
for name, boxes in STRANGE_BOXES.items():
    n = len(boxes)
    build = partial(
        lambda rng, boxes, n: (np.array([boxes], np.float32), *pairs(1, n, 2, 0.5, 0)(rng)[1:]), boxes=boxes, n=n
    )
    add("nms_match_pairs", f"boxes_{name}", build)

# ---- attention -------------------------------------------------------------------------------------------------


def maps(images=2, queries=5, heads=2, channels=3, points=4, sizes=((3, 4), (2, 2), (1, 3)), low=-0.3, high=1.3, gap=0):
    """Values of maps of these sizes, with `gap` unused pixels before each, and points in [low, high)."""

    def build(rng):
        areas = np.array([height * width + gap for height, width in sizes], np.int64)
        starts = np.concatenate([[0], np.cumsum(areas)[:-1]]).astype(np.int64)[: len(sizes)] + gap
        shape = images, queries, heads, len(sizes), points
        return (
            rng.standard_normal((images, int(areas.sum()), heads, channels)).astype(np.float32),
            np.array(sizes, np.int64).reshape(-1, 2),
            starts,
            rng.uniform(low, high, (*shape, 2)).astype(np.float32),
            rng.uniform(0, 1, shape).astype(np.float32),
        )

    return build


def strange_points(rng):
    value, shapes, starts, locations, weights = maps()(rng)
    locations.reshape(-1)[::7] = np.resize([NAN, INF, -INF, 1e30, -1e30, 0, 1], locations.reshape(-1)[::7].shape)
    return value, shapes, starts, locations, weights


for n in SIZES:
    add("multi_scale_deformable_attention", f"channels{n}", maps(channels=n), "close")
    add("multi_scale_deformable_attention", f"queries{n}", maps(queries=n), "close")
    add("multi_scale_deformable_attention", f"points{n}", maps(points=n, queries=2), "close")
for name, options in {
    "no_images": {"images": 0},
    "no_heads": {"heads": 0},
    "no_levels": {"sizes": ()},
    "a_map_without_pixels": {"sizes": ((0, 3), (2, 2))},
    "gaps": {"gap": 3},
    "one_pixel": {"sizes": ((1, 1),)},
    "wide_blocks": {"channels": 65},
    "many": {"queries": 300, "heads": 8, "channels": 32, "sizes": ((20, 30), (10, 15))},
}.items():
    add("multi_scale_deformable_attention", name, maps(**options), "close")
add("multi_scale_deformable_attention", "strange_points", strange_points, "close")

# ---- rotated boxes ---------------------------------------------------------------------------------------------


def make_rotated(rng, n, kind="clustered"):
    """[n, 5]; "upright" boxes have integer sides and angles of 0, "near" ones all but coincide."""
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
    others = () if labels is None else (np.array(labels, np.int64),)
    return lambda rng: (make_rotated(rng, n, kind), make_scores(rng, n, levels), *others)


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
    lambda rng: (make_rotated(rng, 90, "scales"), make_rotated(rng, 90, "scattered")),
    "close",
)

for n in SIZES:
    add("nms_rotated", f"n{n}", scored_rotated(n), iou_threshold=0.4)
for kind in ("clustered", "scattered", "elongated", "scales", "upright", "near"):
    for threshold in (-1, 0, 0.05, 0.3, 0.7, 1):
        add(
            "nms_rotated",
            f"{kind}_t{threshold}",
            scored_rotated(20 if kind == "near" else 60, kind),
            iou_threshold=threshold,
        )
    add("nms_rotated", f"{kind}_counter", scored_rotated(20, kind), iou_threshold=0.3, clockwise=False)
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
many = np.random.default_rng(SEED).integers(0, 4, 300)
add("nms_rotated", "many", scored_rotated(300, "scattered", labels=many), iou_threshold=0.2)


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

# ---- rotated regions -------------------------------------------------------------------------------------------


def rotated_pyramid(k, shape=(2, 3, 13, 17), scale=4.0, largest=0.8):
    """A feature map [N, C, H, W] and k rotated RoIs in units `scale` times finer; some reach over the border."""

    def build(rng):
        extent = np.array([shape[3], shape[2]]) * scale
        images = rng.integers(0, max(shape[0], 1), k)
        parts = (
            images,
            rng.uniform(-0.2, 1.2, (k, 2)) * extent,
            rng.uniform(0, largest, (k, 2)) * extent,
            rng.uniform(-4, 4, k),
        )
        return rng.standard_normal(shape).astype(np.float32), np.column_stack(parts).astype(np.float32)

    return build


def map_and_rotated_rois(rois):
    return lambda rng: (rng.standard_normal((1, 2, 6, 5)).astype(np.float32), np.array(rois, np.float32))


def outside_of_nan(rng):
    pixels = np.ones((1, 1, 4, 4), np.float32)
    pixels[0, 0, 0, 0] = NAN
    return pixels, np.array([[0, 20, 20, 2, 2, 0]], np.float32)


for aligned in (True, False):
    for clockwise in (True, False):
        for sampling_ratio in (-1, 0, 1, 3):
            attributes = {
                "output_size": (3, 2),
                "sampling_ratio": sampling_ratio,
                "aligned": aligned,
                "clockwise": clockwise,
            }
            ending = f"a{aligned:d}_c{clockwise:d}_s{sampling_ratio}"
            add(
                "roi_align_rotated", f"ordinary_{ending}", rotated_pyramid(5), "close", spatial_scale=0.25, **attributes
            )
            add(
                "roi_align_rotated",
                f"tiny_{ending}",
                rotated_pyramid(5, largest=0.02),
                "close",
                spatial_scale=0.25,
                **attributes,
            )
            rois = [
                [0, 2, 3, 0, 0, 0], [0, 2, 3, 4, 0, 1], [0, 2, 3, -3, -2, 1], [0, 40, 3, 5, 5, 0],
                [0, -1, -1, 0.5, 0.5, 0], [0.9, 2, 2, 3, 3, 7], [-0.5, 2, 2, 3, 3, 1e4], [0, 2.5, 3, 5, 6, 0],
                [0, 2, 3, 1e3, 1e-3, 0.5], [0, 2, 3, -3, 2, 0],
            ]  # fmt: skip
            add("roi_align_rotated", f"edges_{ending}", map_and_rotated_rois(rois), "close", **attributes)
for k in SIZES:
    add(
        "roi_align_rotated",
        f"k{k}",
        rotated_pyramid(k, (2, 2, 9, 8)),
        "close",
        output_size=(2, 3),
        spatial_scale=0.25,
        sampling_ratio=2,
    )
for c in SIZES:
    for k in (1, 4):
        build = rotated_pyramid(k, (1, c, 9, 8))
        add("roi_align_rotated", f"c{c}_k{k}", build, "close", output_size=(2, 3), spatial_scale=0.25, sampling_ratio=2)
    add("roi_align_rotated", f"w{c}", rotated_pyramid(3, (1, 5, 4, c)), "close", output_size=(2, 2), spatial_scale=0.25)
    add("roi_align_rotated", f"h{c}", rotated_pyramid(3, (1, 5, c, 4)), "close", output_size=(2, 2), spatial_scale=0.25)
for kind, largest in (("many", 0.8), ("many_small", 0.05)):
    build = rotated_pyramid(40, (2, 33, 40, 40), largest=largest)
    add("roi_align_rotated", kind, build, "close", output_size=(3, 3), spatial_scale=0.25, sampling_ratio=2)
add(
    "roi_align_rotated",
    "long_bins",
    rotated_pyramid(2, (1, 5, 40, 40)),
    "close",
    output_size=(1, 1),
    spatial_scale=0.25,
)
add("roi_align_rotated", "no_images", rotated_pyramid(0, (0, 2, 4, 4)), "close", output_size=(2, 2))
add("roi_align_rotated", "outside_of_nan", outside_of_nan, "close", output_size=(2, 2), sampling_ratio=2)


def map_and_best_boxes(shape=(2, 3, 5, 6), scale=8.0):
    def build(rng):
        extent = np.array([shape[2], shape[3]]) * scale
        boxes = np.concatenate([
            rng.uniform(-0.3, 1.3, (shape[0], *shape[2:], 2)) * extent, rng.uniform(-5, 60, (shape[0], *shape[2:], 2)),
            rng.uniform(-4, 4, (shape[0], *shape[2:], 1)),
        ], axis=-1)  # fmt: skip
        return rng.standard_normal(shape).astype(np.float32), boxes.astype(np.float32)

    return build


def infinite_boxes(rng):
    boxes = rng.uniform(0, 5, (1, 3, 5, 5)).astype(np.float32)
    for i, value in enumerate((INF, -INF, 3e38)):
        boxes[0, i, np.arange(5), np.arange(5)] = value
    return rng.standard_normal((1, 9, 3, 5)).astype(np.float32), boxes


for points in range(1, 6):
    add("rotated_feature_align", f"ordinary_p{points}", map_and_best_boxes(), "close", points=points)
    add("rotated_feature_align", f"s1_p{points}", map_and_best_boxes(scale=1), "close", points=points, spatial_scale=1)
    add("rotated_feature_align", f"infinite_p{points}", infinite_boxes, "close", points=points, spatial_scale=1.0)
for n in SIZES:
    add("rotated_feature_align", f"c{n}", map_and_best_boxes((1, n, 4, 5)), "close", points=5)
    add("rotated_feature_align", f"w{n}", map_and_best_boxes((2, 5, 2, n)), "close", points=5)
    add("rotated_feature_align", f"h{n}", map_and_best_boxes((1, 2, n, 3)), "close", points=5)
add("rotated_feature_align", "many", map_and_best_boxes((2, 33, 20, 23)), "close", points=5)
add("rotated_feature_align", "no_images", map_and_best_boxes((0, 3, 4, 5)), "close")

# ---- RoIAlign --------------------------------------------------------------------------------------------------


def with_holes(build, share=0.1):
    """The same with NaN and infinities in the map, which must not leak to places that do not read them."""

    def holed(rng):
        pixels, *others = build(rng)
        for value in (NAN, INF, -INF):
            pixels[rng.random(pixels.shape) < share / 3] = value
        return pixels, *others

    return holed


def pyramid(k, shape=(2, 3, 13, 17), scale=4.0, kind="ordinary"):
    """A feature map [N, C, H, W] and k RoIs in units `scale` times finer; most kinds reach over the border."""

    def build(rng):
        batches, _, height, width = shape
        rois = np.zeros((k, 5), np.float32)
        if batches:
            rois[:, 0] = rng.integers(0, batches, k)
        extent = np.array([width, height]) * scale
        reach, *sizes = {"ordinary": (0.7, 0.02, 0.8), "tiny": (0.7, 0, 0.02), "inside": (0.2, 0.1, 0.3)}[kind]
        centre = rng.uniform(0.5 - reach, 0.5 + reach, (k, 2)) * extent
        size = rng.uniform(*sizes, (k, 2)) * extent
        rois[:, 1:] = np.concatenate([centre - size / 2, centre + size / 2], axis=1)
        return rng.standard_normal(shape).astype(np.float32), rois

    return build


def map_and_rois(rois, shape=(1, 2, 6, 5)):
    return lambda rng: (rng.standard_normal(shape).astype(np.float32), np.array(rois, np.float32).reshape(-1, 5))


for pool_mode in ("avg", "max"):
    for aligned in (True, False):
        for sampling_ratio in (0, 1, 2, 3):
            attributes = {"output_size": (3, 2), "spatial_scale": 0.25, "sampling_ratio": sampling_ratio}
            attributes |= {"pool_mode": pool_mode, "aligned": aligned}
            ending = f"{pool_mode}_a{aligned:d}_s{sampling_ratio}"
            add("roi_align", f"ordinary_{ending}", pyramid(9), "close", **attributes)
            add("roi_align", f"tiny_{ending}", pyramid(5, kind="tiny"), "close", **attributes)
            rois = [
                [0, 1, 1, 1, 1],
                [0, 1, 1, 4, 1],
                [0, 3, 3, 1, 1],
                [0, -1, -1, 5, 6],
                [0, -9, -9, -5, -5],
                [0, 4, 5, 9, 9],
                [0, -0.5, -0.5, 4.5, 5.5],
                [0.9, 0, 0, 3, 3],
                [-0.5, 0, 0, 3, 3],
                [0, -1, -1, -1, -1],
                [0, 3, 1, 1, 3],
            ]
            edges = {**attributes, "spatial_scale": 1.0, "output_size": (2, 2)}
            add("roi_align", f"edges_{ending}", map_and_rois(rois), "close", **edges)
for k in SIZES:
    add(
        "roi_align",
        f"k{k}",
        pyramid(k, (2, 2, 9, 8)),
        "close",
        output_size=(2, 3),
        spatial_scale=0.25,
        sampling_ratio=2,
    )
for c in SIZES:
    add(
        "roi_align",
        f"c{c}",
        pyramid(3, (1, c, 9, 8)),
        "close",
        output_size=(2, 3),
        spatial_scale=0.25,
        sampling_ratio=2,
    )
for width in SIZES:
    add("roi_align", f"w{width}", pyramid(3, (1, 2, 4, width)), "close", output_size=(2, 2), spatial_scale=0.25)
    attributes = {"output_size": (2, 2), "spatial_scale": 0.25, "pool_mode": "max"}
    add("roi_align", f"h{width}_max", pyramid(3, (1, 2, width, 4)), "close", **attributes)
for size in ((1, 1), (7, 7), (1, 9), (14, 2)):
    add("roi_align", f"out{size[0]}x{size[1]}", pyramid(4), "close", output_size=size, spatial_scale=0.25)
add(
    "roi_align", "many", pyramid(40, (2, 33, 40, 40)), "close", output_size=(7, 7), spatial_scale=0.25, sampling_ratio=2
)
add(
    "roi_align",
    "no_images",
    lambda rng: (np.zeros((0, 2, 4, 4), np.float32), np.zeros((0, 5), np.float32)),
    "close",
    output_size=(2, 2),
)
add(
    "roi_align",
    "far_below_zero",  # MMCV's maximum starts at -10000
    lambda rng: (np.full((1, 1, 4, 4), -1e6, np.float32), np.array([[0, 1, 1, 2, 2]], np.float32)),
    "close",
    output_size=(2, 2),
    sampling_ratio=2,
    pool_mode="max",
)
for pool_mode in ("avg", "max"):
    attributes = {"output_size": (5, 5), "sampling_ratio": 2, "spatial_scale": 0.25, "pool_mode": pool_mode}
    # inside, as at the border MMCV multiplies infinities by 0, which mmort does not
    build = with_holes(pyramid(9, (2, 33, 9, 11), kind="inside"))
    add("roi_align", f"holes_{pool_mode}", build, "close", **attributes)

# ---- grid sampling ---------------------------------------------------------------------------------------------


def map_and_grid(shape=(2, 3, 7, 9), points=(5, 6), reach=1.5):
    def build(rng):
        grid = rng.uniform(-reach, reach, (shape[0], *points, 2)).astype(np.float32)
        return rng.standard_normal(shape).astype(np.float32), grid

    return build


def on_the_pixels(rng):
    """Coordinates at and right between pixel centres and at the border, for both values of align_corners."""
    places = np.concatenate([np.linspace(-1, 1, 17), np.linspace(-0.875, 0.875, 8), np.linspace(-1.125, 1.125, 10)])
    grid = np.stack(np.meshgrid(places, places), axis=-1)[None].astype(np.float32)
    return rng.standard_normal((1, 2, 9, 8)).astype(np.float32), grid


def not_finite(rng):
    places = np.array([NAN, INF, -INF, 1e10, -1e10, 3e38, -3e38, 1e-40, 0.3], np.float32)
    grid = np.stack(np.meshgrid(places, places), axis=-1)[None].astype(np.float32)
    return rng.standard_normal((1, 2, 4, 5)).astype(np.float32), grid


for mode in ("bilinear", "nearest", "bicubic"):
    for padding_mode in ("zeros", "border", "reflection"):
        for align_corners in (False, True):
            attributes = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
            ending = f"{mode}_{padding_mode}_a{align_corners:d}"
            add("grid_sample", f"ordinary_{ending}", map_and_grid(), "close", **attributes)
            add("grid_sample", f"far_{ending}", map_and_grid(reach=20), "close", **attributes)
            add("grid_sample", f"pixels_{ending}", on_the_pixels, "close", **attributes)
            add("grid_sample", f"not_finite_{ending}", not_finite, "close", **attributes)
            add("grid_sample", f"holes_{ending}", with_holes(on_the_pixels), "close", **attributes)
            for images, channels in ((4, 9), (1, 33)):
                build = map_and_grid((images, channels, 5, 6), (7, 19))
                add("grid_sample", f"{images}x{channels}_{ending}", build, "close", **attributes)
                add("grid_sample", f"{images}x{channels}_holes_{ending}", with_holes(build), "close", **attributes)
            for side in (1, 2, 3):
                build = map_and_grid((1, 2, side, 4 - side), (3, 17), reach=3)
                add("grid_sample", f"{side}x{4 - side}_{ending}", build, "close", **attributes)
    for n in SIZES:
        add("grid_sample", f"w{n}_{mode}", map_and_grid(points=(2, n)), "close", mode=mode)
        add("grid_sample", f"c{n}_{mode}", map_and_grid((1, n, 5, 4)), "close", mode=mode, padding_mode="border")
    for channels in (1, 3, 33):
        add("grid_sample", f"many{channels}_{mode}", map_and_grid((2, channels, 40, 40), (50, 60)), "close", mode=mode)
add("grid_sample", "no_rows", map_and_grid(points=(0, 6)), "close")
add("grid_sample", "no_images", map_and_grid((0, 3, 7, 9)), "close")
add("grid_sample", "no_pixels_no_points", map_and_grid((1, 3, 0, 0), points=(0, 6)), "close")

for shape in ((2, 5, 2), (2, 3, 4, 2), (2, 0, 2), (2, 33, 2)):
    build = partial(
        lambda rng, shape: (map_and_grid()(rng)[0], rng.uniform(-0.2, 1.2, shape).astype(np.float32)), shape=shape
    )
    for options in ({}, {"align_corners": True}, {"mode": "nearest", "padding_mode": "border"}):
        add("point_sample", f"{'x'.join(map(str, shape))}_{'_'.join(options) or 'default'}", build, "close", **options)

# ---- deformable convolution ------------------------------------------------------------------------------------


def deformed(shape, outputs, kernel=(3, 3), reach=1.5, biased=True, stride=1, padding=0, dilation=1, groups=1,
             deform_groups=1):  # fmt: skip
    """Map, offsets, mask, weight and bias that fit together; places read are up to about `reach` pixels moved."""
    images, channels, *sides = shape
    stride, padding, dilation = (np.broadcast_to(one, 2) for one in (stride, padding, dilation))
    size = [max(0, (sides[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1) for i in (0, 1)]
    taps = deform_groups * kernel[0] * kernel[1]

    def build(rng):
        shapes = [shape, (images, 2 * taps, *size), (images, taps, *size), (outputs, channels // groups, *kernel)]
        arrays = [rng.standard_normal(one).astype(np.float32) for one in [*shapes, (outputs,)]]
        arrays[1] *= np.float32(reach)
        return tuple(arrays if biased else arrays[:-1])

    return build


def without_mask(build):
    def unmodulated(rng):
        input, offset, _, weight, _ = build(rng)
        return input, offset, weight

    return unmodulated


def offsets_among(values, build):
    """The same with each offset one of a few values."""

    def chosen(rng):
        input, offset, *others = build(rng)
        return input, rng.choice(np.float32(values), offset.shape), *others

    return chosen


def add_convolutions(name, build, tolerance="exact", **attributes):
    add("deform_conv2d", name, without_mask(build), tolerance, **attributes)
    add("modulated_deform_conv2d", name, build, tolerance, **attributes)


for name, shape, outputs, options in (
    ("ordinary", (1, 4, 6, 7), 5, {}),
    ("smaller", (1, 3, 4, 5), 2, {}),
    ("larger", (2, 5, 9, 8), 3, {}),
    ("padded", (2, 3, 6, 7), 5, {"padding": 1}),
    ("asymmetric", (1, 2, 9, 8), 3, {"stride": (2, 1), "padding": (2, 0), "dilation": (1, 2)}),
    ("strided", (1, 2, 10, 11), 3, {"stride": 3, "padding": 2}),
    ("dilated", (1, 2, 7, 7), 3, {"dilation": 2, "padding": 2}),
    ("groups2", (1, 6, 5, 6), 4, {"groups": 2}),
    ("depthwise", (1, 6, 5, 6), 6, {"groups": 6}),
    ("deform_groups2", (2, 6, 5, 6), 4, {"deform_groups": 2}),
    ("groups2_deform_groups3", (2, 6, 5, 6), 4, {"groups": 2, "deform_groups": 3}),
    ("groups3_deform_groups6", (1, 6, 5, 6), 3, {"groups": 3, "deform_groups": 6}),
    ("groups2_deform_groups2", (1, 8, 5, 6), 4, {"groups": 2, "deform_groups": 2, "padding": 1}),
    ("does_not_fit", (1, 2, 2, 5), 3, {}),
    ("does_not_fit_at_all", (1, 2, 1, 1), 3, {"stride": 2}),
    ("no_images", (0, 2, 5, 6), 3, {}),
    ("no_channels", (1, 0, 5, 6), 3, {}),
    ("no_pixels", (1, 2, 0, 6), 3, {"padding": 2}),
    ("no_outputs", (1, 2, 5, 6), 0, {}),
    ("many", (1, 33, 30, 41), 19, {"padding": 1}),
):
    add_convolutions(name, deformed(shape, outputs, **options), **options)
for n in SIZES:
    add_convolutions(f"c{n}", deformed((1, n, 4, 5), 2))
    add_convolutions(f"w{n}", deformed((1, 2, 3, n), 2, padding=1), padding=1)
    add_convolutions(f"h{n}", deformed((1, 2, n, 3), 2, padding=1), padding=1)
    add_convolutions(f"o{n}", deformed((1, 2, 4, 5), n))
for kernel in ((1, 1), (1, 4), (2, 2), (5, 3), (8, 8), (9, 9)):
    tolerance = "close" if kernel == (9, 9) else "exact"  # of more than 64 taps the order of summing is another
    add_convolutions(f"k{kernel[0]}x{kernel[1]}", deformed((1, 3, 11, 12), 3, kernel, padding=2), tolerance, padding=2)
PADDED = deformed((1, 3, 5, 6), 4, padding=1)
for name, build in (
    ("far", deformed((1, 3, 5, 6), 4, reach=30, padding=1)),
    ("whole_pixels", offsets_among([-2, -1, 0, 1, 2], PADDED)),
    ("border", offsets_among([-1, 5, 6, -6, 0.5, np.nextafter(np.float32(1), 0)], PADDED)),
    ("not_finite", offsets_among([NAN, INF, -INF, 0.5, 1e10, -3e38], PADDED)),
    ("holes", with_holes(PADDED)),
    ("border_holes", with_holes(offsets_among([-1, 5, 6, 0.5, 0], PADDED))),
):
    add_convolutions(name, build, padding=1)
add("modulated_deform_conv2d", "no_bias", deformed((1, 4, 6, 7), 5, biased=False))
add("modulated_deform_conv2d", "no_bias_strided", deformed((2, 4, 6, 7), 5, biased=False, stride=2), stride=2)
add("modulated_deform_conv2d", "mask_not_finite",
    lambda rng: tuple(np.where(rng.random(a.shape) < 0.05, NAN, a).astype(a.dtype) if i == 2 else a
                      for i, a in enumerate(PADDED(rng))), padding=1)  # fmt: skip

# ---- scans -----------------------------------------------------------------------------------------------------


def tensor(*shape, levels=0):
    """Of a few `levels`, if any, so that many elements tie; zeros of both signs among them."""

    def build(rng):
        if levels:
            return (np.where(rng.random(shape) < 0.5, -0.0, rng.integers(0, levels, shape)).astype(np.float32),)
        return (rng.standard_normal(shape).astype(np.float32),)

    return build


def holes(*shape):
    """Some NaN, infinities."""

    def build(rng):
        array = rng.standard_normal(shape).astype(np.float32)
        for value in (NAN, INF, -INF):
            array[rng.random(shape) < 0.12] = value
        return (array,)

    return build


for mode in ("top", "bottom", "left", "right"):
    for n in SIZES:
        add("corner_pool", f"w{n}_{mode}", tensor(1, 2, 3, n), mode=mode)
        add("corner_pool", f"h{n}_{mode}", tensor(2, 1, n, 3), mode=mode)
        add("corner_pool", f"c{n}_{mode}", tensor(1, n, 4, 5), mode=mode)
    add("corner_pool", f"no_images_{mode}", tensor(0, 2, 3, 4), mode=mode)
    add("corner_pool", f"ties_{mode}", tensor(2, 3, 9, 11, levels=2), mode=mode)
    add("corner_pool", f"holes_{mode}", holes(2, 3, 9, 17), mode=mode)
    add("corner_pool", f"many_{mode}", tensor(2, 33, 64, 65), mode=mode)

for operator in ("cummax", "cummin"):
    for n in SIZES:
        add(operator, f"vector{n}", tensor(n), dim=0)
        add(operator, f"last{n}", tensor(9, n), dim=-1)
        add(operator, f"first{n}", tensor(n, 9), dim=0)
        add(operator, f"middle{n}", tensor(3, n, 5), dim=1)
        add(operator, f"across{n}", tensor(3, 4, n), dim=1)
    for dim in range(-5, 5):
        add(operator, f"dim{dim}", tensor(2, 3, 4, 1, 5, levels=3), dim=dim)
        add(operator, f"holes{dim}", holes(3, 2, 5, 4, 9), dim=dim)
    add(operator, "no_elements", tensor(2, 0, 1), dim=0)
    add(operator, "no_elements_along", tensor(2, 0, 1), dim=1)
    add(operator, "most_dimensions", tensor(*(1,) * 14, 2, 3), dim=15)
    for dim in (0, 1, 2):
        add(operator, f"many{dim}", tensor(64, 65, 66), dim=dim)

# ---- normalization ---------------------------------------------------------------------------------------------


def normalized(*shape, make=lambda rng, shape: rng.standard_normal(shape)):
    """An input, scale and bias."""

    def build(rng):
        parameters = rng.uniform(-2, 2, (2, shape[1]))
        return tuple(array.astype(np.float32) for array in (make(rng, shape), *parameters))

    return build


STRANGE_INPUTS = {
    "constant": lambda rng, shape: np.full(shape, 0.3),
    "far_from_zero": lambda rng, shape: 100 + rng.standard_normal(shape),
    "huge": lambda rng, shape: 1e37 * rng.standard_normal(shape),
    "tiny": lambda rng, shape: 1e-30 * rng.standard_normal(shape),
    "outlier": lambda rng, shape: np.where(rng.random(shape) < 0.02, 1e6, rng.standard_normal(shape)),
    "holes": lambda rng, shape: holes(*shape)(rng)[0],
}

for n in SIZES:
    add("group_norm", f"pixels{n}", normalized(2, 6, n), "close", num_groups=1)
    add("group_norm", f"channels{n}", normalized(2, n, 3, 5), "close", num_groups=max(n, 1))
    add("group_norm", f"images{n}", normalized(n, 6, 2, 3), "close", num_groups=2)
for num_groups in (1, 2, 3, 4, 6, 12):
    add("group_norm", f"groups{num_groups}", normalized(2, 12, 5, 7), "close", num_groups=num_groups)
    for name, make in STRANGE_INPUTS.items():
        add("group_norm", f"{name}_groups{num_groups}", normalized(2, 12, 9, 11, make=make), "close",
            num_groups=num_groups)  # fmt: skip
for eps in (0, 1e-12, 1.0, 1e30):
    add("group_norm", f"eps{eps}", normalized(2, 4, 5, 6), "close", num_groups=2, eps=eps)
add("group_norm", "constant_eps0", normalized(1, 4, 9, make=STRANGE_INPUTS["constant"]), "close", num_groups=2, eps=0)
add("group_norm", "no_pixels", normalized(2, 4, 3, 0), "close", num_groups=2)
add("group_norm", "no_channels", normalized(2, 0, 3, 4), "close", num_groups=5)
add("group_norm", "two_dimensions", normalized(9, 32), "close", num_groups=4)
add("group_norm", "most_dimensions", normalized(2, 4, *(1,) * 13, 3), "close", num_groups=2)
add("group_norm", "many", normalized(3, 64, 40, 41), "close", num_groups=32)

# ---- what is refused -------------------------------------------------------------------------------------------


def zeros(*shape):
    return np.zeros(shape, np.float32)


for operator, attributes in (("nms", {"iou_threshold": 0.5}), ("soft_nms", {})):
    refuse(operator, "boxes must be [N, 4], got [3, 5]", zeros(3, 5), zeros(3), **attributes)
    refuse(operator, "boxes must be [N, 4], got [4]", zeros(4), zeros(1), **attributes)
    refuse(operator, "boxes must be [N, 4], got [1, 3, 4]", zeros(1, 3, 4), zeros(3), **attributes)
    refuse(operator, "boxes must be [N, 4], got []", zeros(), zeros(1), **attributes)
    refuse(operator, "boxes must be [N, 4], got [0, 3]", zeros(0, 3), zeros(0), **attributes)
    refuse(operator, "scores must be [N] with N = 3, got [2]", zeros(3, 4), zeros(2), **attributes)
    refuse(operator, "scores must be [N] with N = 3, got [4]", zeros(3, 4), zeros(4), **attributes)
    refuse(operator, "scores must be [N] with N = 0, got [1]", zeros(0, 4), zeros(1), **attributes)
    refuse(operator, "scores must be [N], got [3, 1]", zeros(3, 4), zeros(3, 1), **attributes)
    refuse(operator, "scores must be [N], got []", zeros(3, 4), zeros(), **attributes)
refuse("nms", "iou_threshold must be a number, got nan", zeros(3, 4), zeros(3), iou_threshold=np.nan)
refuse("nms", "iou_threshold must be a number, got nan", zeros(0, 4), zeros(0), iou_threshold=np.nan)

refuse("nms_match", "dets must be [N, 5], got [3, 4]", zeros(3, 4), iou_threshold=0.5)
refuse("nms_match", "dets must be [N, 5], got [5]", zeros(5), iou_threshold=0.5)
refuse("nms_match", "dets must be [N, 5], got [0]", zeros(0), iou_threshold=0.5)
refuse("nms_match", "iou_threshold must be a number, got nan", zeros(3, 5), iou_threshold=np.nan)
refuse("box_iou", "boxes1 must be [N, 4], got [3, 5]", zeros(3, 5), zeros(3, 4))
refuse("box_iou", "boxes2 must be [M, 4], got [4]", zeros(3, 4), zeros(4))
refuse("box_iou", "boxes2 must be [N, 4] with N = 3, got [2, 4]", zeros(3, 4), zeros(2, 4), aligned=True)

refuse("corner_pool", "input must be [N, C, H, W], got [3, 4, 5]", zeros(3, 4, 5), mode="top")
refuse("corner_pool", "input must be [N, C, H, W], got [1, 1, 1, 4, 5]", zeros(1, 1, 1, 4, 5), mode="left")
refuse("corner_pool", "input must be [N, C, H, W], got []", zeros(), mode="left")
for operator in ("cummax", "cummin"):
    refuse(operator, "input must have at least one dimension, got a scalar", zeros(), dim=0)
    for dim in (2, -3, 2**40, -(2**63)):
        refuse(operator, f"dim must be in [-2, 1] for an input of 2 dimensions, got {dim}", zeros(2, 3), dim=dim)
    refuse(operator, "dim must be in [-1, 0] for an input of 1 dimensions, got 1", zeros(0), dim=1)
    refuse(operator, "arrays may have up to 16 dimensions, got 17", zeros(*(1,) * 17), dim=0)

POINTS = zeros(2, 4, 5, 2)
refuse("grid_sample", "input must be [N, C, H, W], got [2, 3, 4]", zeros(2, 3, 4), POINTS)
refuse("grid_sample", "input must be [N, C, H, W], got [2, 1, 3, 4, 5]", zeros(2, 1, 3, 4, 5), POINTS)
refuse("grid_sample", "grid must be [N, OH, OW, 2], got [2, 5, 2]", zeros(2, 3, 4, 5), zeros(2, 5, 2))
refuse("grid_sample", "grid must be [N, OH, OW, 2], got [2, 3, 4, 5, 3]", zeros(2, 3, 4, 5), zeros(2, 3, 4, 5, 3))
refuse("grid_sample", "grid must be [N, OH, OW, 2] with N = 2, got [1, 4, 5, 2]", zeros(2, 3, 4, 5), zeros(1, 4, 5, 2))
refuse("grid_sample", "grid must be [N, OH, OW, 2] with N = 0, got [2, 4, 5, 2]", zeros(0, 3, 4, 5), POINTS)
refuse("grid_sample", "grid must be [N, OH, OW, 2], got [2, 4, 5, 1]", zeros(2, 3, 4, 5), zeros(2, 4, 5, 1))
for height, width in ((0, 5), (4, 0), (0, 0)):
    text = f"input must have pixels to read, got [2, 3, {height}, {width}]"
    refuse("grid_sample", text, zeros(2, 3, height, width), POINTS)


for operator, extra in (("deform_conv2d", ()), ("modulated_deform_conv2d", (zeros(1, 9, 4, 5),))):
    fits = {"input": zeros(1, 4, 6, 7), "offset": zeros(1, 18, 4, 5)}
    fits |= (
        dict(zip(("mask",), extra, strict=False))
        | {"weight": zeros(5, 4, 3, 3)}
        | ({"bias": zeros(5)} if extra else {})
    )

    def refuse_with(text, operator=operator, fits=fits, attributes=(), **changed):
        refuse(operator, text, *(fits | changed).values(), **dict(attributes))

    for shape in ((4, 6, 7), (1, 1, 4, 6, 7), ()):
        refuse_with(f"input must be [N, C, H, W], got {list(shape)}", input=zeros(*shape))
    for shape in ((5, 4, 3), (1, 5, 4, 3, 3)):
        refuse_with(f"weight must be [O, C/groups, KH, KW], got {list(shape)}", weight=zeros(*shape))
    for shape in ((5, 3, 3, 3), (5, 5, 3, 3), (5, 4, 0, 3), (5, 4, 3, 0)):
        text = f"weight must be [O, 4, KH, KW] with KH and KW at least 1, got {list(shape)}"
        refuse_with(text, weight=zeros(*shape))
    for shape in ((18, 4, 5), (1, 1, 18, 4, 5)):
        text = f"offset must be [N, deform_groups*2*KH*KW, OH, OW], got {list(shape)}"
        refuse_with(text, offset=zeros(*shape))
    for shape in (
        (2, 18, 4, 5),
        (0, 18, 4, 5),
        (1, 9, 4, 5),
        (1, 36, 4, 5),
        (1, 18, 3, 5),
        (1, 18, 4, 6),
        (1, 18, 0, 5),
    ):
        refuse_with(f"offset must be [1, 18, 4, 5], got {list(shape)}", offset=zeros(*shape))
    refuse_with("offset must be [1, 18, 0, 0], got [1, 18, 4, 5]", input=zeros(1, 4, 2, 1))
    if extra:
        refuse_with("mask must be [N, deform_groups*KH*KW, OH, OW], got [9, 4, 5]", mask=zeros(9, 4, 5))
        for shape in ((2, 9, 4, 5), (1, 8, 4, 5), (1, 18, 4, 5), (1, 9, 5, 5), (1, 9, 4, 4)):
            refuse_with(f"mask must be [1, 9, 4, 5], got {list(shape)}", mask=zeros(*shape))
        for shape in ((4,), (6,), (0,)):
            refuse_with(f"bias must be [O] with O = 5, got {list(shape)}", bias=zeros(*shape))
        refuse_with("bias must be [O], got [5, 1]", bias=zeros(5, 1))
    for name, least in (("stride", 1), ("padding", 0), ("dilation", 1)):
        for value in ((least - 1, 2), (2, least - 1), (-(2**63), 2), (2, 2**29 + 1), (2**63 - 1, 2)):
            text = f"{name} must be between {least} and 2**29, got {list(value)}"
            refuse_with(text, attributes={name: value}.items())
    for name in ("groups", "deform_groups"):
        for value in (0, -1, -(2**63)):
            refuse_with(f"{name} must be at least 1, got {value}", attributes={name: value}.items())
    for value in (2, 3, 5, 2**62):
        text = f"groups must divide the channels of input and output, 4 and 5, got {value}"
        refuse_with(text, attributes={"groups": value}.items())
    for value in (3, 5, 8, 2**62):
        text = f"deform_groups must divide the channels of input, 4, got {value}"
        refuse_with(text, attributes={"deform_groups": value}.items())


def roi(**changed):
    """One region with some of its numbers changed."""
    ordinary = {"image": 0, "x1": 1, "y1": 1, "x2": 3, "y2": 2}
    return np.array([list((ordinary | changed).values())], np.float32)


MAP = zeros(2, 3, 4, 5)
SIZE = {"output_size": (2, 3)}
refuse("roi_align", "input must be [N, C, H, W], got [3, 4, 5]", zeros(3, 4, 5), roi(), **SIZE)
refuse("roi_align", "rois must be [K, 5], got [3, 4]", MAP, zeros(3, 4), **SIZE)
refuse("roi_align", "rois must be [K, 5], got [5]", MAP, zeros(5), **SIZE)
refuse("roi_align", "rois must be [K, 5], got [0, 4]", MAP, zeros(0, 4), **SIZE)
for image in (2, -1, 1e9, -1e9, 3e38, NAN, INF, -INF):
    text = f"the batch index of rois[0] must be in [0, 2), got {image:g}"
    refuse("roi_align", text, MAP, roi(image=image), **SIZE)
refuse("roi_align", "the batch index of rois[0] must be in [0, 0), got 0", zeros(0, 3, 4, 5), roi(), **SIZE)
for corner in ("x1", "y1", "x2", "y2"):
    for value in (NAN, INF, -INF):
        for sampling_ratio in (0, 2):
            text = f"the coordinates of rois[0] must be finite, got {value:g}"
            refuse("roi_align", text, MAP, roi(**{corner: value}), sampling_ratio=sampling_ratio, **SIZE)
refuse(
    "roi_align", "the coordinates of rois[1] must be finite, got nan", MAP, np.concatenate([roi(), roi(x2=NAN)]), **SIZE
)
for ratio in (1025, 2**40):
    refuse("roi_align", f"sampling_ratio must be at most 1024, got {ratio}", MAP, roi(), sampling_ratio=ratio, **SIZE)
for height, width in ((0, 2), (2, 0), (-1, 2), (2, -(2**40))):
    text = f"output_height and output_width must be at least 1, got {height} and {width}"
    refuse("roi_align", text, MAP, roi(), output_size=(height, width))
    refuse("roi_align", text, MAP, zeros(0, 5), output_size=(height, width))
for value in (NAN, INF, -INF):
    refuse("roi_align", f"spatial_scale must be finite, got {value:g}", MAP, roi(), spatial_scale=value, **SIZE)

BOXES_5, BOXES_K = zeros(3, 5), zeros(2, 3, 5)
refuse("nms_rotated", "dets must be [N, 5], got [3, 4]", zeros(3, 4), zeros(3), iou_threshold=0.5)
refuse("nms_rotated", "dets must be [N, 5], got [0, 6]", zeros(0, 6), zeros(0), iou_threshold=0.5)
refuse("nms_rotated", "scores must be [N] with N = 3, got [2]", BOXES_5, zeros(2), iou_threshold=0.5)
refuse("nms_rotated", "scores must be [N], got [3, 1]", BOXES_5, zeros(3, 1), iou_threshold=0.5)
for labels in ([0, 1], [0, 1, 2, 3], []):
    text = f"labels must be [N] with N = 3, got [{len(labels)}]"
    refuse("nms_rotated", text, BOXES_5, zeros(3), np.array(labels, np.int64), iou_threshold=0.5)
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

FEATURES, BEST = zeros(2, 3, 4, 5), zeros(2, 4, 5, 5)
refuse("rotated_feature_align", "features must be [N, C, H, W], got [3, 4, 5]", zeros(3, 4, 5), BEST)
refuse("rotated_feature_align", "best_rbboxes must be [N, H, W, 5], got [40, 5]", FEATURES, zeros(40, 5))
for wrong, text in (((1, 4, 5, 5), "N = 2"), ((2, 3, 5, 5), "H = 4"), ((2, 4, 6, 5), "W = 5")):
    refuse(
        "rotated_feature_align",
        f"best_rbboxes must be [N, H, W, 5] with {text}, got {list(wrong)}",
        FEATURES,
        zeros(*wrong),
    )
refuse("rotated_feature_align", "best_rbboxes must be [N, H, W, 5], got [2, 4, 5, 6]", FEATURES, zeros(2, 4, 5, 6))
for points in (0, -2, 6, 2**40):
    refuse("rotated_feature_align", f"points must be from 1 to 5, got {points}", FEATURES, BEST, points=points)
for points in (1, 5):
    for column in (0, 1) if points == 1 else range(5):
        with_nan = BEST.copy()
        with_nan[1, 2, 3, column] = NAN
        refuse(
            "rotated_feature_align",
            "best_rbboxes must not hold NaN, got it in box [1, 2, 3]",
            FEATURES,
            with_nan,
            points=points,
        )


def rotated_roi(**changed):
    ordinary = {"image": 0, "x": 2, "y": 2, "w": 3, "h": 2, "angle": 1}
    return np.array([list((ordinary | changed).values())], np.float32)


refuse("roi_align_rotated", "input must be [N, C, H, W], got [3, 4, 5]", zeros(3, 4, 5), rotated_roi(), **SIZE)
refuse("roi_align_rotated", "rois must be [K, 6], got [3, 5]", MAP, zeros(3, 5), **SIZE)
refuse("roi_align_rotated", "rois must be [K, 6], got [0, 5]", MAP, zeros(0, 5), **SIZE)
for image in (2, -1, 1e9, 3e38, NAN, INF, -INF):
    text = f"the batch index of rois[0] must be in [0, 2), got {image:g}"
    refuse("roi_align_rotated", text, MAP, rotated_roi(image=image), **SIZE)
for one in ("x", "y", "w", "h", "angle"):
    for value in (NAN, INF, -INF):
        for sampling_ratio in (0, 2):
            text = f"the coordinates of rois[0] must be finite, got {value:g}"
            refuse("roi_align_rotated", text, MAP, rotated_roi(**{one: value}), sampling_ratio=sampling_ratio, **SIZE)
for height, width in ((0, 2), (2, 0), (-1, 2), (2, -(2**40))):
    text = f"output_height and output_width must be at least 1, got {height} and {width}"
    refuse("roi_align_rotated", text, MAP, rotated_roi(), output_size=(height, width))
    refuse("roi_align_rotated", text, MAP, zeros(0, 6), output_size=(height, width))
for value in (NAN, INF, -INF):
    refuse(
        "roi_align_rotated",
        f"spatial_scale must be finite, got {value:g}",
        MAP,
        rotated_roi(),
        spatial_scale=value,
        **SIZE,
    )
refuse(
    "roi_align_rotated",
    "sampling_ratio must be at most 1024, got 1025",
    MAP,
    rotated_roi(),
    sampling_ratio=1025,
    **SIZE,
)
for changed in ({"w": 1e9, "h": 1e9}, {"w": 3e38}):
    text = "rois[1] must not take more than 67108864 samples, or overflow"
    refuse("roi_align_rotated", text, MAP, np.concatenate([rotated_roi(), rotated_roi(**changed)]), **SIZE)
refuse("roi_align_rotated", "rois[0] must not take more than 67108864 samples, or overflow", MAP, rotated_roi(x=3e38),
       spatial_scale=10.0, **SIZE)  # fmt: skip

CHANNELS = zeros(4)
refuse("group_norm", "x must be [N, C, ...], got [4]", CHANNELS, CHANNELS, CHANNELS, num_groups=2)
for scale, bias, text in (
    (zeros(3), CHANNELS, "scale must be [C] with C = 4, got [3]"),
    (zeros(1, 4), CHANNELS, "scale must be [C], got [1, 4]"),
    (CHANNELS, zeros(5), "bias must be [C] with C = 4, got [5]"),
    (CHANNELS, zeros(), "bias must be [C], got []"),
):
    refuse("group_norm", text, zeros(2, 4, 5), scale, bias, num_groups=2)
for num_groups in (0, -1, -(2**63)):
    text = f"num_groups must be at least 1, got {num_groups}"
    refuse("group_norm", text, zeros(2, 4, 5), CHANNELS, CHANNELS, num_groups=num_groups)
    refuse("group_norm", text, zeros(2, 0, 5), zeros(0), zeros(0), num_groups=num_groups)
for num_groups in (3, 8, 2**62):
    text = f"num_groups must divide C = 4, got {num_groups}"
    refuse("group_norm", text, zeros(2, 4, 5), CHANNELS, CHANNELS, num_groups=num_groups)
for eps in (-1.0, NAN, INF, -INF):
    text = f"epsilon must be finite and at least 0, got {eps:g}"
    refuse("group_norm", text, zeros(2, 4, 5), CHANNELS, CHANNELS, num_groups=2, eps=eps)

OPERATORS = sorted({case.operator for case in CASES})
