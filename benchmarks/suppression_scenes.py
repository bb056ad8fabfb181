"""Scenes of suppression that a seed draws: numbers of boxes, their sizes, how they lie, and how they score."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Scene = dict[str, Any]
Array = NDArray[Any]

OPERATORS = ("nms", "batched_nms", "nms_indices", "multiclass_nms", "nms_match", "nms_rotated",
             "nms_rotated_indices", "soft_nms")  # fmt: skip
MAX_BOXES = {
    "nms": 1_000_000, "batched_nms": 300_000, "nms_indices": 300_000, "multiclass_nms": 20_000, "nms_match": 20_000,
    "nms_rotated": 100_000, "nms_rotated_indices": 30_000, "soft_nms": 10_000,
}  # fmt: skip
SIZES = ("one", "uniform", "log", "long", "clusters", "anchors", "equal", "nested", "giant")
ANGLES = ("any", "equal", "right")
ORDERS = ("random", "size", "position", "ties")
METHODS = ("naive", "linear", "gaussian")
TABLE: tuple[tuple[str, int, str, float, float, float], ...] = (
    ("nms", 300_000, "long", 4_000, 0.1, 0),
    ("nms", 300_000, "clusters", 1_000, 0.5, 0),
    ("nms", 100_000, "one", 4_000, 0.1, 0),
    ("nms", 10_000, "one", 4_000, 0.1, 0),
    ("nms", 300_000, "one", 4_000, 0.1, 0),
    ("nms", 300_000, "clusters", 4_000, 0.1, 0),
    ("nms", 300_000, "uniform", 4_000, 0.1, 0),
    ("nms", 100_000, "uniform", 4_000, 0.1, 0),
    ("nms", 300_000, "log", 4_000, 0.3, 0),
    ("nms", 100_000, "log", 4_000, 0.3, 0),
    ("nms", 100_000, "uniform", 1_000, 0.3, 0),
    ("nms", 3_000, "one", 4_000, 0.1, 0),
    ("batched_nms", 30_000, "long", 1_000, 0.1, 20),
    ("nms_rotated", 30_000, "clusters", 1_000, 0.1, 0),
    ("multiclass_nms", 10_000, "clusters", 4_000, 0.7, 20),
    ("soft_nms", 1_000, "clusters", 1_000, 0.5, 0),
    ("nms_match", 10_000, "one", 1_000, 0.5, 0),
    ("nms", 131_072, "pixels", 0, 0.1, 0),
    ("nms", 120_000, "nested", 0, 0.5, 0),
    ("nms", 260_000, "outlier", 10_000, 0.5, 0),
    ("nms", 260_000, "decades", 0, 0.5, 0),
    ("nms", 300_000, "empty", 0, 0.0, 0),
    ("soft_nms", 100_000, "one", 1_000, 0.5, 0),
    ("nms_match", 100_000, "one", 1_000, 0.5, 0),
)  # fmt: skip
"""Operator, boxes, sizes, plane, threshold, classes."""


def draw(rng: np.random.Generator, operator: str, scale: float) -> Scene:
    """Return the description of a random scene of up to `scale` times the usual number of boxes."""
    count = int(100 * max(scale * MAX_BOXES[operator] / 100, 1) ** rng.random())
    return {
        "operator": operator,
        "count": count,
        "density": float(rng.choice([0, 0.1, 1, 3, 10, 30, 100, 300, 1000])),
        "sizes": str(rng.choice(SIZES)),
        "order": str(rng.choice(ORDERS, p=[0.7, 0.1, 0.1, 0.1])),
        "threshold": round(float(rng.uniform(0.1, 0.9)), 2),
        "classes": int(rng.choice([1, 20, 1203])) if operator == "batched_nms" else int(rng.choice([1, 20, 80])),
        "offset": int(rng.random() < 0.1),
        "max_num": int(rng.choice([-1, 100, 1000], p=[0.8, 0.1, 0.1])),
        "dtype": str(rng.choice(["float32", "float64"], p=[0.85, 0.15])),
        "method": str(rng.choice(METHODS)),
        "angles": str(rng.choice(ANGLES)),
        "seed": int(rng.integers(2**31)),
    }


def make_sides(rng: np.random.Generator, kind: str, count: int) -> Array:
    """Return widths and heights of (count, 2)."""
    if kind == "uniform":
        return rng.uniform(10, 100, (count, 2))
    if kind == "log":
        return 2 * 500 ** rng.random((count, 2))
    if kind == "long":
        return np.stack([rng.uniform(100, 300, count), rng.uniform(10, 30, count)], axis=1)
    if kind == "giant":
        sides = rng.uniform(10, 30, (count, 2))
        sides[rng.integers(count)] = 1e5
        return sides
    if kind == "decades":
        return 10 ** rng.uniform(-15, 15, (count, 1)) * np.ones((1, 2))
    return np.full((count, 2), 32.0)


def make_boxes(rng: np.random.Generator, scene: Scene) -> Array:
    """Return corners of (count, 4) in the plane of the scene, or one where a box overlaps `density` others."""
    kind, count = scene["sizes"], scene["count"]
    sides = make_sides(rng, kind, count)
    if kind == "nested":
        centers, sides = np.full((count, 2), 500.0), np.linspace(1, 1000, count)[:, None] * np.ones((1, 2))
    elif kind == "equal":
        centers = np.full((count, 2), 500.0)
    elif kind == "empty":
        centers, sides = rng.uniform(0, 1000, (count, 2)), sides * 0
    elif kind == "pixels":
        centers = np.stack(np.divmod(rng.permutation(count), 512), axis=1) * 1.0
    elif kind == "anchors":
        cells = -(-count // 9)
        columns = math.isqrt(cells - 1) + 1
        shapes = np.array([[a * r, a / r] for a in (32, 40.3, 50.8) for r in (0.7071, 1, 1.4142)])
        positions = np.stack(np.divmod(np.arange(cells), columns), axis=1) * 8.0
        centers = np.repeat(positions, 9, axis=0)[:count]
        sides = np.tile(shapes, (cells, 1))[:count]
    else:
        plane = scene.get("plane") or math.sqrt(
            count * 4 * float(np.median(sides[:, 0]) * np.median(sides[:, 1])) / (scene["density"] or 1e-3)
        )
        centers = rng.uniform(0, plane, (count, 2))
        if kind == "clusters":
            groups = max(count // 50, 1)
            members = np.arange(count) % groups
            sizes = rng.uniform(20, 200, (groups, 2))
            centers = centers[:groups][members] + rng.normal(0, 4, (count, 2))
            sides = sizes[members] * np.exp(rng.normal(0, 0.08, (count, 2)))
        elif kind == "outlier":
            centers[-1], sides[-1] = (1e30, 5), (1e25, 10)
    return np.concatenate([centers - sides / 2, centers + sides / 2], axis=1)


def make_scores(rng: np.random.Generator, scene: Scene, boxes: Array) -> Array:
    scores = rng.random(len(boxes))
    if scene["order"] == "ties":
        scores = np.round(scores, 1)
    elif scene["order"] != "random":
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        by = area if scene["order"] == "size" else boxes[:, 0]
        scores = np.sort(scores)[np.argsort(np.argsort(by, kind="stable"))]
    return scores


def make_angles(rng: np.random.Generator, scene: Scene, count: int) -> Array:
    """Return angles of (count, 1): all about equal in crowds, as around objects."""
    if scene["angles"] == "equal" or (scene["angles"] == "any" and scene["sizes"] in {"clusters", "equal"}):
        return rng.normal(0.3, 0.05, (count, 1))
    if scene["angles"] == "right":
        return rng.choice([0, np.pi / 2], (count, 1))
    return rng.uniform(-1.6, 1.6, (count, 1))


def prepare(scene: Scene) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Return the function's name and arguments."""
    rng = np.random.default_rng(scene["seed"])
    operator, threshold, classes = scene["operator"], scene["threshold"], scene["classes"]
    boxes = make_boxes(rng, scene)
    scores = make_scores(rng, scene, boxes).astype(scene["dtype"])
    corners, limit = boxes.astype(scene["dtype"]), scene["max_num"]
    if operator == "nms":
        return operator, (corners, scores, threshold), {"offset": scene["offset"], "max_num": limit}
    if operator == "batched_nms":
        labels = rng.integers(0, max(classes, 1), len(boxes))
        return operator, (corners, scores, labels, {"type": "nms", "iou_threshold": threshold, "max_num": limit}), {}
    if operator == "nms_match":
        return operator, (np.concatenate([corners, scores[:, None]], axis=1), threshold), {}
    if operator == "soft_nms":
        return operator, (corners, scores), {"iou_threshold": threshold, "method": scene["method"]}
    if operator == "nms_indices":
        classes = min(classes, 5)
        scores = np.stack([rng.permutation(scores) for _ in range(classes)])[None]
        options = {"iou_threshold": threshold, "score_threshold": 0.05, "max_per_class": limit}
        return operator, (corners[None], scores), options
    if operator == "multiclass_nms":
        few = np.zeros((1, len(boxes), classes), scene["dtype"])
        few[0, np.arange(len(boxes)), rng.integers(0, classes, len(boxes))] = scores
        options = {"iou_threshold": threshold, "score_threshold": 0.05, "max_per_image": limit}
        return operator, (corners[None], few), options
    rotated = np.concatenate(
        [(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2], make_angles(rng, scene, len(boxes))], axis=1
    ).astype(scene["dtype"])
    if operator == "nms_rotated":
        return operator, (rotated, scores, threshold), {}
    scores = np.stack([rng.permutation(scores) for _ in range(min(classes, 5))])[None]
    return operator, (rotated[None], scores, threshold, 0.05), {}


def describe(scene: Scene) -> str:
    """Return a line of what matters to the operator."""
    words = [f"{scene['count']:,} {scene['sizes']}", f"IoU {scene['threshold']}"]
    if scene.get("plane"):
        words.append(f"in {scene['plane']:,}")
    elif scene["sizes"] not in {"equal", "nested", "anchors", "pixels", "empty"}:
        words.append(f"{scene['density']:g} overlaps")
    words.append(f"scores by {scene['order']}" if scene["order"] in {"size", "position"} else scene["order"])
    if scene["classes"] > 1 and scene["operator"] in {"batched_nms", "multiclass_nms", "nms_indices"}:
        words.append(f"{scene['classes']} classes")
    if scene["max_num"] > 0 and scene["operator"] in {"nms", "batched_nms", "multiclass_nms", "nms_indices"}:
        words.append(f"at most {scene['max_num']}")
    if "rotated" in scene["operator"]:
        words.append(f"{scene['angles']} angles")
    if scene["operator"] == "soft_nms":
        words.append(scene["method"])
    words += [scene["dtype"]] * (scene["dtype"] == "float64") + ["offset 1"] * (scene["offset"] == 1)
    return ", ".join(words)
