"""Scenes of kernels that read maps, lines and pairs, drawn by a seed: all dimensions, modes and positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Scene = dict[str, Any]
Array = NDArray[Any]
Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A function's name and arguments."""

MAX_INPUT = 1 << 23
"""Elements of an input."""
MAX_WORK = 1 << 24
"""Samples, multiplications by a weight, or comparisons of a scene, about."""
PYRAMIDS = (
    ((100, 152), (50, 76), (25, 38), (13, 19)),  # Deformable DETR and DINO at 800 x 1,216
    ((80, 80), (40, 40), (20, 20)),  # Mask2Former and RTMDet's strides at 640 x 640
    ((25, 38),),
    ((48, 64), (24, 32), (12, 16), (6, 8), (3, 4)),
)


def log_integer(rng: np.random.Generator, smallest: int, largest: float) -> int:
    """Return an integer whose logarithm is uniform."""
    largest = max(largest, smallest)
    return round(smallest * (largest / smallest) ** rng.random())


def draw_plane(rng: np.random.Generator, channels: int, largest: int = 300) -> tuple[int, int]:
    """Return height and width of maps with so many channels."""
    side = min(largest, math.sqrt(MAX_INPUT / channels))
    height = log_integer(rng, 4, side)
    return height, min(max(1, round(height * float(rng.uniform(0.5, 2)))), int(side) + 1)


def draw_precision(rng: np.random.Generator) -> str:
    return str(rng.choice(["float32", "float64"], p=[0.85, 0.15]))


# ---- scenes by operator ----------------------------------------------------------------------------------------------


def draw_regions(rng: np.random.Generator, work: float) -> Scene:
    channels = log_integer(rng, 1, 1024)
    height, width = draw_plane(rng, channels)
    pooled, ratio = log_integer(rng, 1, 28), int(rng.choice([0, 1, 2, 4], p=[0.4, 0.1, 0.4, 0.1]))
    sizes = str(rng.choice(["tiny", "usual", "huge"], p=[0.2, 0.6, 0.2]))
    samples = (ratio or {"tiny": 1, "usual": 2, "huge": 1 + max(height, width) // pooled}[sizes]) ** 2
    regions = log_integer(rng, 1, min(1000, work / (channels * pooled**2 * samples)))
    return {
        "input": [1, channels, height, width], "regions": regions, "sizes": sizes, "pooled": pooled, "ratio": ratio,
        "aligned": bool(rng.random() < 0.8),
    }  # fmt: skip


def draw_grid_sample(rng: np.random.Generator, work: float) -> Scene:
    channels = log_integer(rng, 1, 1024)
    height, width = draw_plane(rng, channels)
    batch = int(rng.choice([1, 2, 4])) if channels * height * width * 4 <= MAX_INPUT else 1
    mode = str(rng.choice(["bilinear", "nearest", "bicubic"], p=[0.5, 0.35, 0.15]))
    points = log_integer(rng, 1, work / batch / channels / (4 if mode == "bicubic" else 1))
    rows = max(1, round(math.sqrt(points)))
    return {
        "input": [batch, channels, height, width], "output": [rows, max(1, points // rows)], "mode": mode,
        "positions": str(rng.choice(["scattered", "turned", "straight"])),
        "padding": str(rng.choice(["zeros", "border", "reflection"], p=[0.6, 0.2, 0.2])),
        "align": bool(rng.random() < 0.4), "channels_last": bool(rng.random() < 0.1), "dtype": draw_precision(rng),
    }  # fmt: skip


def draw_deform_conv2d(rng: np.random.Generator, work: float) -> Scene:
    kernel = int(rng.choice([1, 3, 5, 7], p=[0.2, 0.5, 0.15, 0.15]))
    groups = int(rng.choice([1, 2, 4], p=[0.8, 0.1, 0.1]))
    channels, outputs = (max(groups, log_integer(rng, 3, 512) // groups * groups) for _ in range(2))
    stride, dilation = int(rng.choice([1, 2], p=[0.7, 0.3])), int(rng.choice([1, 2], p=[0.8, 0.2]))
    positions = 32 * work / (channels * outputs // groups * kernel**2)
    side = log_integer(rng, 4, min(150, max(4.0, math.sqrt(positions))) * stride)
    return {
        "input": [1, channels, side, max(1, round(side * float(rng.uniform(0.7, 1.5))))], "outputs": outputs,
        "kernel": kernel, "stride": stride, "dilation": dilation, "groups": groups,
        "deform_groups": int(rng.choice([1, 4])) if channels % 4 == 0 else 1,
        "offsets": float(rng.choice([0, 0.5, 3, 30])),
    }  # fmt: skip


def draw_pyramid(rng: np.random.Generator) -> list[list[int]]:
    """Return heights and widths of levels, of a published detector or of any image."""
    if rng.random() < 0.4:
        return [list(size) for size in PYRAMIDS[int(rng.integers(len(PYRAMIDS)))]]
    height, ratio = log_integer(rng, 1, 160), float(rng.uniform(0.5, 2))
    sizes = [[height, max(1, round(height * ratio))]]
    for _ in range(int(rng.integers(0, 5))):
        sizes.append([(side + 1) // 2 for side in sizes[-1]])
    return sizes


def draw_attention(rng: np.random.Generator, work: float) -> Scene:
    pyramid = draw_pyramid(rng)
    heads, channels = int(rng.choice([1, 2, 4, 8, 16])), int(rng.choice([8, 16, 32, 64, log_integer(rng, 1, 128)]))
    points, batch = int(rng.choice([1, 2, 4, 8, 16])), int(rng.choice([1, 2, 8], p=[0.7, 0.2, 0.1]))
    cells = sum(h * w for h, w in pyramid)
    batch = max(1, min(batch, MAX_INPUT // (cells * heads * channels)))
    queries = cells if rng.random() < 0.3 else log_integer(rng, 1, 900)
    limit = work / (batch * heads * channels * points * len(pyramid))
    return {
        "pyramid": pyramid, "heads": heads, "channels": channels, "points": points, "batch": batch,
        "queries": max(1, int(min(queries, limit))), "spread": float(rng.choice([0, 0.02, 0.2, 1])),
        "dtype": draw_precision(rng),
    }  # fmt: skip


def draw_carafe(rng: np.random.Generator, work: float) -> Scene:
    group, kernel, scale = int(rng.choice([1, 4])), int(rng.choice([1, 3, 5, 7])), int(rng.choice([1, 2, 3, 4]))
    channels = group * log_integer(rng, 1, 512 // group)
    side = log_integer(rng, 2, min(100, math.sqrt(work / (channels * kernel**2 * scale**2))))
    return {
        "input": [1, channels, side, max(1, round(side * float(rng.uniform(0.5, 2))))], "group": group,
        "kernel": kernel, "scale": scale, "dtype": draw_precision(rng),
    }  # fmt: skip


def draw_line(rng: np.random.Generator, work: float) -> Scene:
    count = int(work / 4)
    shape = [log_integer(rng, 1, min(count, 1000)) for _ in range(int(rng.integers(1, 5)))]
    while math.prod(shape) > count:
        largest = shape.index(max(shape))
        shape[largest] = max(1, shape[largest] // 2)
    return {
        "input": shape, "dim": int(rng.integers(len(shape))), "values": str(rng.choice(["random", "ties", "rising"])),
        "dtype": str(rng.choice(["float32", "float64", "int8", "int64"], p=[0.7, 0.1, 0.1, 0.1])),
    }  # fmt: skip


def draw_corner_pool(rng: np.random.Generator, work: float) -> Scene:
    batch, channels = int(rng.choice([1, 2, 8], p=[0.7, 0.2, 0.1])), log_integer(rng, 1, 512)
    height, width = draw_plane(rng, batch * channels, 1000)
    if rng.random() < 0.5:
        height, width = width, height
    return {
        "input": [batch, channels, height, width], "mode": str(rng.choice(["top", "bottom", "left", "right"])),
        "channels_last": bool(rng.random() < 0.1),
        "dtype": str(rng.choice(["float32", "float64", "int8", "int32"], p=[0.7, 0.1, 0.1, 0.1])),
    }  # fmt: skip


def draw_pairs(rng: np.random.Generator, work: float) -> Scene:
    aligned = bool(rng.random() < 0.2)
    first = log_integer(rng, 1, 100_000 if aligned else 20_000)
    return {
        "boxes": first, "others": first if aligned else log_integer(rng, 1, min(20_000, work / 16 / first)),
        "mode": str(rng.choice(["iou", "iof"], p=[0.8, 0.2])), "aligned": aligned, "offset": int(rng.random() < 0.1),
        "dtype": str(rng.choice(["float32", "float64"], p=[0.85, 0.15])),
    }  # fmt: skip


DRAW: dict[str, Callable[[np.random.Generator, float], Scene]] = {
    "roi_align": draw_regions, "roi_align_rotated": draw_regions, "grid_sample": draw_grid_sample,
    "deform_conv2d": draw_deform_conv2d, "multi_scale_deformable_attention": draw_attention, "carafe": draw_carafe,
    "cummax": draw_line, "cummin": draw_line, "corner_pool": draw_corner_pool, "box_iou": draw_pairs,
    "box_iou_rotated": draw_pairs,
}  # fmt: skip
OPERATORS = tuple(DRAW)


def draw(rng: np.random.Generator, operator: str, scale: float) -> Scene:
    """Return the description of a random scene with up to `scale` times the usual work."""
    scene = DRAW[operator](rng, scale * MAX_WORK / (8 if operator == "box_iou_rotated" else 1))
    return {"operator": operator, **scene, "seed": int(rng.integers(2**31))}


# ---- their arguments -------------------------------------------------------------------------------------------------


def make_regions(rng: np.random.Generator, scene: Scene) -> Array:
    """Return x1, y1, x2, y2 of regions in an image four times as large as the map."""
    image = 4.0 * np.array([scene["input"][3], scene["input"][2]])
    low, high = {"tiny": (0.5, 8), "usual": (8, 0.5 * image), "huge": (0.5 * image, image)}[scene["sizes"]]
    sides = np.exp(rng.uniform(np.log(low), np.log(np.maximum(high, low)), (scene["regions"], 2)))
    corners = rng.uniform(0, np.maximum(image - sides, 1))
    return np.concatenate([corners, corners + sides], axis=1)


def make_positions(rng: np.random.Generator, scene: Scene) -> Array:
    """Return positions of (batch, rows, columns, 2): anywhere, or an image that is turned or only stretched."""
    batch, (rows, columns) = scene["input"][0], scene["output"]
    if scene["positions"] == "scattered":
        return rng.uniform(-1.05, 1.05, (batch, rows, columns, 2)).astype(np.float32)
    y, x = np.meshgrid(np.linspace(-1.05, 1.05, rows), np.linspace(-1.05, 1.05, columns), indexing="ij")
    grid = np.stack([0.98 * x - 0.17 * y, 0.17 * x + 0.98 * y] if scene["positions"] == "turned" else [x, y], -1)
    return np.tile(grid.astype(np.float32), (batch, 1, 1, 1))


def prepare_deform_conv2d(rng: np.random.Generator, scene: Scene) -> Call:
    kernel, stride, dilation = scene["kernel"], scene["stride"], scene["dilation"]
    padding = dilation * (kernel // 2)
    batch, channels, *plane = scene["input"]
    height, width = ((side + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for side in plane)
    offsets = rng.standard_normal((batch, 2 * scene["deform_groups"] * kernel**2, height, width), np.float32)
    weight = rng.standard_normal((scene["outputs"], channels // scene["groups"], kernel, kernel), np.float32)
    options = {
        "stride": stride, "padding": padding, "dilation": dilation, "groups": scene["groups"],
        "deform_groups": scene["deform_groups"],
    }  # fmt: skip
    features = rng.standard_normal(scene["input"], np.float32)
    return "deform_conv2d", (features, np.float32(scene["offsets"]) * offsets, weight), options


def prepare_attention(rng: np.random.Generator, scene: Scene) -> Call:
    sizes = np.array(scene["pyramid"])
    cells = sizes.prod(axis=1)
    batch, queries, heads, points = scene["batch"], scene["queries"], scene["heads"], scene["points"]
    value = rng.standard_normal((batch, int(cells.sum()), heads, scene["channels"]), np.float32)
    centers = rng.uniform(0, 1, (batch, queries, 1, 1, 1, 2))
    locations = centers + rng.normal(0, scene["spread"], (batch, queries, heads, len(sizes), points, 2))
    weights = rng.random(locations.shape[:-1], np.float32)
    starts = np.concatenate([[0], cells.cumsum()[:-1]])
    value, locations, weights = (array.astype(scene["dtype"]) for array in (value, locations, weights))
    return "multi_scale_deformable_attention", (value, sizes, starts, locations, weights), {}


def prepare(scene: Scene) -> Call:
    """Return the function's name and arguments."""
    rng = np.random.default_rng(scene["seed"])
    operator = scene["operator"]
    if operator == "deform_conv2d":
        return prepare_deform_conv2d(rng, scene)
    if operator == "multi_scale_deformable_attention":
        return prepare_attention(rng, scene)
    if operator in {"box_iou", "box_iou_rotated"}:
        sets = []
        for count in (scene["boxes"], scene["others"]):
            boxes = np.concatenate([rng.uniform(0, 1000, (count, 2)), rng.uniform(10, 100, (count, 2))], axis=1)
            if operator == "box_iou":
                boxes[:, 2:] += boxes[:, :2]
            else:
                boxes = np.concatenate([boxes, rng.uniform(-1.6, 1.6, (count, 1))], axis=1)
            sets.append(boxes.astype(scene["dtype"]))
        options = {"mode": scene["mode"], "aligned": scene["aligned"]}
        return operator, tuple(sets), options | ({"offset": scene["offset"]} if operator == "box_iou" else {})
    if operator in {"cummax", "cummin"}:
        line = rng.standard_normal(scene["input"])
        if scene["values"] == "rising":
            line = np.sort(line, axis=scene["dim"])
        elif scene["values"] == "ties" or "int" in scene["dtype"]:
            line = np.round(2 * line)
        return operator, (line.astype(scene["dtype"]), scene["dim"]), {}
    features = rng.standard_normal(scene["input"], np.float32)
    if "int" in scene.get("dtype", ""):
        features *= 10
    features = features.astype(scene.get("dtype", "float32"))
    if scene.get("channels_last"):  # as images are, seen as maps
        features = np.ascontiguousarray(features.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    if operator == "corner_pool":
        return operator, (features, scene["mode"]), {}
    if operator == "carafe":
        size = scene["scale"] * np.array(scene["input"][2:])
        masks = rng.random((1, scene["group"] * scene["kernel"] ** 2, *size), np.float32).astype(scene["dtype"])
        return operator, (features, masks, scene["kernel"], scene["group"], scene["scale"]), {}
    if operator == "grid_sample":
        options = {"mode": scene["mode"], "padding_mode": scene["padding"], "align_corners": scene["align"]}
        return operator, (features, make_positions(rng, scene).astype(scene["dtype"])), options
    corners = make_regions(rng, scene)
    if operator == "roi_align_rotated":
        angles = rng.uniform(-1.6, 1.6, (len(corners), 1))
        corners = np.concatenate([(corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2], angles], 1)
    rois = np.concatenate([np.zeros((len(corners), 1)), corners], axis=1).astype(np.float32)
    options = {"spatial_scale": 0.25, "sampling_ratio": scene["ratio"], "aligned": scene["aligned"]}
    return operator, (features, rois, scene["pooled"]), options


def describe(scene: Scene) -> str:
    """Return a line of what the scene is made of."""
    words = []
    for name, value in scene.items():
        if name in {"operator", "seed"} or value is False:
            continue
        if isinstance(value, str):
            words.append(value)
        elif isinstance(value, list) and isinstance(value[0], list):
            words.append(" ".join("x".join(map(str, size)) for size in value))
        else:
            shown = "x".join(map(str, value)) if isinstance(value, list) else f"{value:g}"
            words.append(shown if name == "input" else name if value is True else f"{name} {shown}")
    return ", ".join(words)
