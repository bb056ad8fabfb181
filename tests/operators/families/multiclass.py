"""Suppression of the corner boxes of many classes and images: multiclass_nms, nms_indices and nms_match_pairs."""

from functools import partial

import numpy as np

from tests.operators.case import INF, NAN, SIZES, add, given, oracle, refuse, zeros
from tests.operators.families.boxes import STRANGE_BOXES, area, intersection, make_boxes, make_scores
from tests.operators.families.nms import descending, nms, soft_nms

# ---- oracles ---------------------------------------------------------------------------------------------------------


@oracle
def nms_match_pairs(boxes, scores, iou_threshold, score_threshold):
    number = boxes.dtype.type
    rows = []
    for image, label in np.ndindex(scores.shape[:2]):
        values = scores[image, label]
        left = np.array(descending(values), np.int64)
        while len(left):
            best, left = left[0], left[1:]
            box, competing = boxes[image, best], boxes[image, left]
            with np.errstate(all="ignore"):
                shared = intersection(box, competing, number(0))
                union = area(box, number(0)) + area(competing, number(0)) - shared
                ious = (shared.astype(np.float64) / (union.astype(np.float64) + 1e-10)).astype(boxes.dtype)
            suppressed = ious >= iou_threshold.flat[0]
            if values[best] > score_threshold.flat[0]:
                rows += [(image, label, best, other) for other in left[suppressed]]
            left = left[~suppressed]
    return (np.array(rows, np.int64).reshape(-1, 4),)


@oracle
def nms_indices(boxes, scores, iou_threshold, score_threshold, max_per_class=-1, center_point_box=False):
    number = boxes.dtype.type
    rows = []
    for image, label in np.ndindex(scores.shape[:2]):
        first, second = boxes[image, :, :2], boxes[image, :, 2:]
        if center_point_box:
            with np.errstate(all="ignore"):
                corners = np.concatenate([first - second / number(2), first + second / number(2)], axis=1)
        else:
            low, high = np.where(second < first, second, first), np.where(second < first, first, second)
            corners = np.concatenate([low, high], axis=1)
        values = scores[image, label]
        members = (
            np.arange(len(values)) if score_threshold == -INF else np.flatnonzero(values > number(score_threshold))
        )
        _, kept = nms(corners[members], values[members], iou_threshold, max_num=max_per_class)
        rows += [(image, label, box) for box in members[kept]]
    return (np.array(rows, np.int64).reshape(-1, 3),)


@oracle
def multiclass_nms(
    boxes, scores, score_threshold=0.05, iou_threshold=0.5, max_per_image=100, nms_pre=-1, class_agnostic=False,
    method="nms", sigma=0.5, min_score=1e-3, offset=0,
):  # fmt: skip
    number = boxes.dtype.type
    images, _, classes = scores.shape
    result = []
    for image in range(images):
        pools = []
        for label in range(classes):
            values = scores[image, :, label]
            members = np.flatnonzero(values > number(score_threshold))
            if 0 < nms_pre < len(members):
                members = np.sort(members[descending(values[members])[:nms_pre]])
            pools.append([(int(box), label) for box in members])
        if class_agnostic:
            pools = [sorted(candidate for pool in pools for candidate in pool)]
        rows = []  # (score, box, class, row)
        for pool in pools:
            candidates = [boxes[image, n] if boxes.ndim == 3 else boxes[image, n, label] for n, label in pool]
            candidates = np.array(candidates, boxes.dtype).reshape(-1, 4)
            values = np.array([scores[image, n, label] for n, label in pool], boxes.dtype)
            if method == "nms":
                dets, kept = nms(candidates, values, iou_threshold, offset)
            else:
                dets, kept = soft_nms(
                    candidates, values, iou_threshold, sigma, min_score, method[len("soft_nms_") :], offset
                )
                left = (dets[:, 4] >= number(min_score)) | (np.arange(len(dets)) == 0)  # a lowered score may be NaN
                dets, kept = dets[left], kept[left]
            rows += [(float(det[4]), *pool[i], det) for det, i in zip(dets, kept, strict=True)]
        rows.sort(key=lambda row: (-row[0], row[1], row[2]))
        if method != "nms":  # the best box of all is kept whatever its score
            rows = [row for rank, row in enumerate(rows) if rank == 0 or row[0] >= number(min_score)]
        result.append(rows[:max_per_image] if max_per_image > 0 else rows)
    length = max_per_image if max_per_image > 0 else max(map(len, result), default=0)
    dets = np.zeros((images, length, 5), boxes.dtype)
    labels, indices = np.full((2, images, length), -1, np.int64)
    for image, rows in enumerate(result):
        for i, (_, box, label, det) in enumerate(rows):
            dets[image, i], labels[image, i], indices[image, i] = det, label, box
    return dets, labels, indices


# ---- cases -----------------------------------------------------------------------------------------------------------


def batch(images, n, classes, levels=0, each=False, kind="clustered"):
    """Return a builder of boxes [B, N, 4], with `each` [B, N, C, 4], and scores [B, N, C]."""

    def build(rng):
        count = images * n * (classes if each else 1)
        boxes = make_boxes(rng, count, kind).reshape((images, n, classes, 4) if each else (images, n, 4))
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
            for limit in (-1, 5, 400):
                add("multiclass_nms", f"{method}_agnostic{agnostic:d}_pre{pre}_max{limit}", batch(2, 33, 18, levels=9),
                    method=method, class_agnostic=agnostic, nms_pre=pre, max_per_image=limit, iou_threshold=0.4,
                    sigma=0.3, min_score=0.05)  # fmt: skip
for method in METHODS:
    for agnostic in (False, True):
        for limit in (-1, 1, 5):
            add("multiclass_nms", f"{method}_agnostic{agnostic:d}_max{limit}_all_below", batch(2, 9, 18, levels=9),
                method=method, class_agnostic=agnostic, max_per_image=limit, min_score=2.0)  # fmt: skip
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


def classes_of_boxes(images, n, classes, kind="clustered", levels=0):
    return lambda rng: pairs(images, n, classes, 0, 0, levels, kind)(rng)[:2]


THRESHOLDS = {"iou_threshold": 0.3, "score_threshold": 0.2}
for n in SIZES:
    add("nms_indices", f"n{n}", classes_of_boxes(2, n, 3), **THRESHOLDS)
    add("nms_indices", f"grid{n}", classes_of_boxes(1, n, 2, "grid", 5), iou_threshold=0.5, score_threshold=-INF)
    add("nms_indices", f"centers{n}", classes_of_boxes(1, n, 2), **THRESHOLDS, center_point_box=True)
for iou_threshold in (0, 1):
    for max_per_class in (1, 3):
        add("nms_indices", f"iou{iou_threshold}_max{max_per_class}", classes_of_boxes(2, 33, 4, levels=5),
            iou_threshold=iou_threshold, score_threshold=0, max_per_class=max_per_class)  # fmt: skip
add("nms_indices", "no_images", classes_of_boxes(0, 4, 3), **THRESHOLDS)
add("nms_indices", "no_classes", classes_of_boxes(2, 4, 0), **THRESHOLDS)
add("nms_indices", "many", classes_of_boxes(2, 400, 5), **THRESHOLDS)
# more boxes than are sorted at first: few are kept, few but of a crowd that the best belong to, and ties at the cut
add("nms_indices", "few_kept", classes_of_boxes(1, 1500, 2, "scattered"), **THRESHOLDS, max_per_class=5)
corners = np.concatenate([np.zeros(300), 20 * np.arange(1, 1201)])
crowd = given([np.stack([corners, corners, corners + 9, corners + 9], axis=1)], [[np.linspace(1, 0, 1500)]])
add("nms_indices", "crowd", crowd, **THRESHOLDS, max_per_class=10)
add("nms_indices", "ties", classes_of_boxes(1, 1500, 1, "scattered", 3), **THRESHOLDS, max_per_class=5)
for name, boxes in STRANGE_BOXES.items():
    n = len(boxes)
    for center_point_box in (False, True):
        add("nms_indices", f"boxes_{name}_centers{center_point_box:d}", given([boxes], [[np.linspace(0.9, 0.1, n)]]),
            **THRESHOLDS, center_point_box=center_point_box)  # fmt: skip
for score_threshold in (-INF, 0, INF):
    add("nms_indices", f"strange_scores_above{score_threshold}",
        given([[[0, 0, 1, 1]] * 5], [[[NAN, -INF, 0.5, INF, NAN]]]), iou_threshold=1,
        score_threshold=score_threshold)  # fmt: skip

refuse("nms_indices", "boxes must be [B, K, 4], got [3, 4]", zeros(3, 4), zeros(1, 1, 3), **THRESHOLDS)
refuse(
    "nms_indices", "scores must be [B, C, K] with K = 3, got [1, 1, 4]", zeros(1, 3, 4), zeros(1, 1, 4), **THRESHOLDS
)
for threshold in (-0.5, 1.5, NAN):
    refuse("nms_indices", f"iou_threshold must be from 0 to 1, got {threshold:g}", zeros(1, 3, 4), zeros(1, 1, 3),
           iou_threshold=threshold, score_threshold=0)  # fmt: skip
refuse("nms_indices", "score_threshold must be a number, got nan", zeros(1, 3, 4), zeros(1, 1, 3),
       iou_threshold=0.5, score_threshold=NAN)  # fmt: skip
