"""Suppression of corner boxes: nms, soft_nms, batched_nms and nms_match."""

import math
from functools import partial

import numpy as np

from tests.operators.case import INF, NAN, SIZES, add, given, oracle, refuse, zeros
from tests.operators.families.boxes import STRANGE_BOXES, iou, make_boxes, make_scores

# ---- oracles ---------------------------------------------------------------------------------------------------------


def descending(scores):
    """Return the indices by descending score; equal scores in input order, NaN last."""
    return sorted(range(len(scores)), key=lambda i: (1, 0) if np.isnan(scores[i]) else (0, -float(scores[i])))


@oracle
def nms(boxes, scores, iou_threshold, offset=0, score_threshold=0, max_num=-1, idxs=None):
    number = boxes.dtype.type
    left = np.array(descending(scores), np.int64)
    if score_threshold > 0:
        left = left[scores[left] > number(score_threshold)]
    kept = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        same = True if idxs is None else idxs[left] == idxs[best]
        left = left[~(same & (iou(boxes[best], boxes[left], offset) > number(iou_threshold)))]
    if max_num > 0:
        kept = kept[:max_num]
    indices = np.array(kept, np.int64)
    return np.concatenate([boxes[indices], scores[indices, None]], axis=1), indices


@oracle
def soft_nms(boxes, scores, iou_threshold=0.3, sigma=0.5, min_score=1e-3, method="linear", offset=0):
    number = boxes.dtype.type
    scores, records = scores.copy(), list(range(len(boxes)))
    dets = []
    i = 0
    while i < len(records):
        left = scores[records[i:]]
        if not np.isnan(left[0]):
            best = i + int(np.where(np.isnan(left), number(-INF), left).argmax())  # the first of the largest
            records[i], records[best] = records[best], records[i]
        top = records[i]
        dets.append([*boxes[top], scores[top]])
        i += 1
        overlaps = iou(boxes[top], boxes[records[i:]], offset)
        with np.errstate(all="ignore"):
            if method == "gaussian":
                exponents = -(overlaps * overlaps) / number(sigma)
                weights = np.array([_exp(exponent) for exponent in exponents.tolist()]).astype(boxes.dtype)
            else:
                decayed = number(0) if method == "naive" else number(1) - overlaps
                weights = np.where(overlaps >= number(iou_threshold), decayed, number(1))
            scores[records[i:]] *= weights
        q = i
        while q < len(records):
            if scores[records[q]] < number(min_score):
                records[q] = records[-1]
                records.pop()
            else:
                q += 1
    return np.array(dets, boxes.dtype).reshape(-1, 5), np.array(records, np.int64)


def _exp(x):
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


@oracle
def batched_nms(boxes, scores, idxs, nms_cfg, class_agnostic=False):
    """One suppression per class; all results by descending score."""
    options = {"type": "nms", "iou_threshold": np.inf} if nms_cfg is None else dict(nms_cfg)
    suppress = {"nms": nms, "soft_nms": soft_nms}[options.pop("type", "nms")]
    max_num = options.pop("max_num", -1)
    classes = np.zeros_like(idxs) if class_agnostic else idxs
    decayed = {}  # index: row of dets
    for label in sorted(set(classes.tolist())):
        members = np.flatnonzero(classes == label)
        dets, kept = suppress(boxes[members], scores[members], **options)
        decayed |= dict(zip(members[kept].tolist(), dets, strict=True))
    kept = np.array(sorted(decayed), np.int64)
    dets = np.array([decayed[i] for i in kept.tolist()], boxes.dtype).reshape(-1, 5)
    order = descending(dets[:, 4])
    if suppress is soft_nms:  # which always returns its best box; here only the best of all classes is
        min_score = options.get("min_score", 1e-3)
        order = order[:1] + [i for i in order[1:] if not dets[i, 4] < boxes.dtype.type(min_score)]
    if max_num > 0:
        order = order[:max_num]
    return dets[order], kept[order]


@oracle
def nms_match(dets, iou_threshold):
    number = dets.dtype.type
    left = np.array(descending(dets[:, 4]), np.int64)
    groups = []
    while len(left):
        best, left = left[0], left[1:]
        suppressed = iou(dets[best], dets[left], 0) >= number(iou_threshold)
        groups.append(np.concatenate([[best], left[suppressed]]))
        left = left[~suppressed]
    return tuple(groups)


# ---- cases -----------------------------------------------------------------------------------------------------------


def scored(n, kind="scattered", levels=0):
    return lambda rng: (make_boxes(rng, n, kind), make_scores(rng, n, levels))


def at_threshold(rng):
    """Pairs of boxes far from each other; the IoU of the first pair is one half."""
    boxes = np.tile(np.array([[0, 0, 10, 10]], np.float32), (34, 1))
    boxes[1::2, 3] = 5
    boxes += np.repeat(np.arange(17), 2)[:, None].astype(np.float32) * 32
    return boxes, make_scores(rng, 34)


HALF, ULP_LESS, ULP_MORE = 0.5, float(np.nextafter(np.float32(0.5), 0)), float(np.nextafter(np.float32(0.5), 1))

TRIO = [[0, 0, 10, 10], [1, 0, 11, 10], [50, 50, 60, 60]]
STRANGE_SCORES = {
    "equal": [0.5, 0.5, 0.5],
    "zeros": [0.0, -0.0, 0.0],
    "nan": [NAN, 0.9, NAN],
    "inf": [-INF, INF, -INF],
    "negative": [-3, -1, -2],
}


def with_strange_ones(rng):
    """Scattered boxes with a few scores that are negative, infinite or NaN."""
    boxes, scores = scored(400, "scattered")(rng)
    scores[rng.choice(400, 40, replace=False)] = np.repeat(np.float32([-0.5, -INF, INF, NAN]), 10)
    return boxes, scores


def with_an_empty_box(rng):
    boxes, scores = scored(400, "scattered")(rng)
    boxes[7, 2] = boxes[7, 0]
    return boxes, scores


def strange_scores(scores):
    """Return a builder of three boxes and scores, in both orders."""
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
    add("nms", f"{kind}1200_max300", scored(1200, kind, 50), iou_threshold=0.6, max_num=300, score_threshold=0.03)
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
        add("nms", f"above{score_threshold}_max{max_num}", scored(60, "clustered", 4), **attributes)

for n in SIZES:
    for method in ("naive", "linear", "gaussian"):
        tolerance = "close" if method == "gaussian" else "exact"
        add("soft_nms", f"n{n}_{method}", scored(n, "clustered"), tolerance, method=method)
for method in ("naive", "linear", "gaussian"):
    tolerance = "close" if method == "gaussian" else "exact"
    for kind in ("scattered", "clustered", "elongated", "grid"):
        add("soft_nms", f"{kind}300_{method}", scored(300, kind), tolerance, method=method)
        add("soft_nms", f"{kind}100_{method}_o1", scored(100, kind), tolerance, method=method, offset=1, min_score=0.2)
    for offset, min_score in ((0, 0.2), (1, 1e-3)):  # enough boxes for a grid, and equal scores
        attributes = {"method": method, "offset": offset, "min_score": min_score}
        add("soft_nms", f"scattered600_{method}_o{offset}", scored(600, "scattered", 20), tolerance, **attributes)
    for min_score in (-2.0, 0.01):
        for build in (with_strange_ones, with_an_empty_box):
            name = f"{build.__name__}_{method}_above{min_score}"
            add("soft_nms", name, build, tolerance, method=method, min_score=min_score)
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

# ---- refusals --------------------------------------------------------------------------------------------------------

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
for idxs in ([0, 1], [0, 1, 2, 3], []):
    text = f"idxs must be [N] with N = 3, got [{len(idxs)}]"
    refuse("nms", text, zeros(3, 4), zeros(3), np.array(idxs, np.int64), iou_threshold=0.5)
