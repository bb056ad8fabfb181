"""Corner boxes: the operator box_iou, and the boxes and overlaps that the nms families use too."""

from functools import partial

import numpy as np

from tests.operators.case import INF, NAN, SIZES, add, given, oracle, refuse, zeros

# ---- oracle ----------------------------------------------------------------------------------------------------


def larger(a, b):
    """C++'s std::max: the first argument also on ties and NaN."""
    return np.where(a < b, b, a)


def smaller(a, b):
    """C++'s std::min."""
    return np.where(b < a, b, a)


def area(boxes, offset):
    return (boxes[..., 2] - boxes[..., 0] + offset) * (boxes[..., 3] - boxes[..., 1] + offset)


def intersection(box, boxes, offset):
    """Return the area that boxes have in common."""
    zero = boxes.dtype.type(0)
    width = larger(zero, smaller(box[..., 2], boxes[..., 2]) - larger(box[..., 0], boxes[..., 0]) + offset)
    height = larger(zero, smaller(box[..., 3], boxes[..., 3]) - larger(box[..., 1], boxes[..., 1]) + offset)
    return width * height


def iou(box, boxes, offset):
    """Return the IoU of one box with others; NaN for 0/0."""
    with np.errstate(all="ignore"):
        offset = boxes.dtype.type(offset)
        shared = intersection(box, boxes, offset)
        return shared / (area(box, offset) + area(boxes, offset) - shared)


@oracle
def box_iou(boxes1, boxes2, mode="iou", aligned=False, offset=0):
    with np.errstate(all="ignore"):
        offset = boxes1.dtype.type(offset)
        if not aligned:
            boxes1, boxes2 = boxes1[:, None], boxes2[None]
        shared = intersection(boxes1, boxes2, offset)
        whole = area(boxes1, offset) + area(boxes2, offset) - shared if mode == "iou" else area(boxes1, offset)
        return (shared / whole,)


# ---- cases -----------------------------------------------------------------------------------------------------


def make_boxes(rng, n, kind="scattered"):
    """Return boxes [n, 4]; "scales" has sizes from 1e-2 to 1e4, "grid" integers, whose IoUs hit thresholds."""
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
    """Return scores [n]; distinct, or of a few `levels` so that many tie."""
    if levels:
        return (rng.integers(0, levels, n) / levels).astype(np.float32)
    return (rng.permutation(n) / max(n, 1)).astype(np.float32)


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

# ---- refusals --------------------------------------------------------------------------------------------------

refuse("box_iou", "boxes1 must be [N, 4], got [3, 5]", zeros(3, 5), zeros(3, 4))
refuse("box_iou", "boxes2 must be [M, 4], got [4]", zeros(3, 4), zeros(4))
refuse("box_iou", "boxes2 must be [N, 4] with N = 3, got [2, 4]", zeros(3, 4), zeros(2, 4), aligned=True)
