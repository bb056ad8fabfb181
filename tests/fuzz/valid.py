"""Random valid arguments of every operator, small enough that the naive oracles take about a millisecond.

Numbers of attributes are float32 already, as those of ONNX nodes, so that all front ends get the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.operators.case import INF, NAN, ORACLES
from tests.operators.families.boxes import make_boxes, make_scores
from tests.operators.families.deform import deformed
from tests.operators.families.rotated import make_rotated


@dataclass(frozen=True)
class Call:
    """Arguments of an operator: its arrays in order, and the numpy function's other arguments."""

    operator: str
    arrays: tuple[np.ndarray, ...]
    attributes: dict[str, Any]


VALID: dict[str, Callable[[np.random.Generator], tuple[tuple[np.ndarray, ...], dict[str, Any]]]] = {}


def make_call(operator: str, rng: np.random.Generator) -> Call:
    """Return random valid arguments."""
    with np.errstate(over="ignore"):
        return Call(operator, *VALID[operator](rng))


def valid(make):
    VALID[make.__name__] = make
    return make


def chosen(rng, *values):
    """Return one of the values as it is, where numpy would convert them all."""
    return values[rng.integers(len(values))]


def single(number):
    """Return the float32 number nearest to this one, as a float of Python."""
    return float(np.float32(number))


def threshold(rng):
    return single(chosen(rng, 0.0, 0.25, 0.5, 1.0, -0.5, rng.random(), rng.random()))


def flag(rng):
    return bool(rng.integers(2))


def boxes(rng, n):
    """Return boxes of any kind and size, now and then some with strange numbers."""
    kind = chosen(rng, "scattered", "clustered", "elongated", "scales", "grid")
    corners = make_boxes(rng, n, kind) * np.float32(10.0 ** chosen(rng, 0, 0, 0, -6, 6))
    if rng.random() < 0.2:
        strange = rng.random(corners.shape) < 0.05
        corners[strange] = rng.choice(np.float32([NAN, INF, -INF, 0, 1e38, -1e38]), int(strange.sum()))
    return corners


def scores(rng, *shape):
    """Return scores, now and then such as tie, or strange ones."""
    values = make_scores(rng, int(np.prod(shape)), chosen(rng, 0, 3, 20)).reshape(shape)
    if rng.random() < 0.2:
        values[rng.random(shape) < 0.1] = chosen(rng, NAN, INF, -INF, -0.0, -1.0)
    return values


def pixels(rng, *shape):
    """Return a map, now and then with holes or huge numbers."""
    values = rng.standard_normal(shape).astype(np.float32)
    if rng.random() < 0.15:
        values[rng.random(shape) < 0.1] = chosen(rng, NAN, INF, -INF, 1e30)
    return values


def size(rng, limit=5):
    """Return a number of channels, images or pixels; rarely 0."""
    return int(rng.integers(1, limit + 1)) if rng.random() < 0.95 else 0


def count(rng):
    """Return a number of boxes."""
    return int(chosen(rng, rng.integers(0, 4), rng.integers(0, 20), rng.integers(0, 40)))


@valid
def nms(rng):
    n = count(rng)
    idxs = (rng.choice(np.array([0, 1, 2, -5, 2**40]), n),) if rng.random() < 0.5 else ()
    attributes = {"iou_threshold": threshold(rng), "offset": int(rng.integers(2))}
    attributes |= {"score_threshold": chosen(rng, 0.0, 0.25), "max_num": chosen(rng, -1, 0, 3)}
    return (boxes(rng, n), scores(rng, n), *idxs), attributes


@valid
def soft_nms(rng):
    n = count(rng)
    attributes = {"iou_threshold": threshold(rng), "sigma": chosen(rng, 0.5, 0.25), "offset": int(rng.integers(2))}
    attributes |= {"min_score": chosen(rng, 0.0, 0.0625, 0.5), "method": chosen(rng, "naive", "linear", "gaussian")}
    return (boxes(rng, n), scores(rng, n)), attributes


@valid
def batched_nms(rng):
    n = count(rng)
    config = {"type": chosen(rng, "nms", "soft_nms"), "iou_threshold": threshold(rng)}
    config |= chosen(rng, {}, {"max_num": 3}, {"offset": 1})
    idxs = rng.choice(np.array([0, 1, 2, 2**40]), n)
    return (boxes(rng, n), scores(rng, n), idxs), {"nms_cfg": chosen(rng, None, config), "class_agnostic": flag(rng)}


@valid
def nms_match(rng):
    n = count(rng)
    return (np.column_stack([boxes(rng, n), scores(rng, n)]),), {"iou_threshold": threshold(rng)}


@valid
def nms_match_pairs(rng):
    images, n, classes = size(rng, 2), count(rng) // 2, size(rng, 3)
    thresholds = (np.full(1, value, np.float32) for value in (threshold(rng), chosen(rng, 0, 0.3, -INF)))
    return (boxes(rng, images * n).reshape(images, n, 4), scores(rng, images, classes, n), *thresholds), {}


@valid
def nms_indices(rng):
    images, n, classes = size(rng, 2), count(rng) // 2, size(rng, 3)
    attributes = {"iou_threshold": chosen(rng, 0.0, 0.3, 0.5, 1.0), "score_threshold": chosen(rng, -INF, 0.0, 0.25)}
    attributes |= {"max_per_class": chosen(rng, -1, 1, 3), "center_point_box": flag(rng)}
    return (boxes(rng, images * n).reshape(images, n, 4), scores(rng, images, classes, n)), attributes


@valid
def multiclass_nms(rng):
    images, n, classes = size(rng, 2), count(rng) // 2, size(rng, 4)
    shape = (images, n, classes, 4) if rng.random() < 0.3 else (images, n, 4)
    agnostic = len(shape) == 3 and flag(rng)
    attributes = {"score_threshold": chosen(rng, 0.0, 0.25), "iou_threshold": threshold(rng)}
    attributes |= {"max_per_image": chosen(rng, -1, 1, 20), "nms_pre": chosen(rng, -1, 3), "class_agnostic": agnostic}
    attributes |= {"method": chosen(rng, "nms", "nms", "soft_nms_naive", "soft_nms_linear", "soft_nms_gaussian")}
    return (boxes(rng, int(np.prod(shape[:-1]))).reshape(shape), scores(rng, images, n, classes)), attributes


@valid
def filter_scores(rng):
    shape = size(rng, 3), count(rng), size(rng, 4)
    return (scores(rng, *shape),), {"score_threshold": threshold(rng), "nms_pre": chosen(rng, -1, 1, 5, 1000)}


@valid
def box_iou(rng):
    n, m, aligned = count(rng), count(rng), flag(rng)
    attributes = {"mode": chosen(rng, "iou", "iof"), "aligned": aligned, "offset": int(rng.integers(2))}
    return (boxes(rng, n), boxes(rng, n if aligned else m)), attributes


def rotated_boxes(rng, n):
    corners = make_rotated(rng, n, chosen(rng, "clustered", "scattered", "elongated", "scales", "upright"))
    if rng.random() < 0.1:
        strange = rng.random(corners.shape) < 0.05
        corners[strange] = rng.choice(np.float32([NAN, INF, -INF, 0]), int(strange.sum()))
    return corners


@valid
def box_iou_rotated(rng):
    n, m, aligned = int(rng.integers(0, 4)), int(rng.integers(0, 4)), flag(rng)
    attributes = {"mode": chosen(rng, "iou", "iof"), "aligned": aligned, "clockwise": flag(rng)}
    return (rotated_boxes(rng, n), rotated_boxes(rng, n if aligned else m)), attributes


def decided(rng, dets, clockwise=True):
    """Return a threshold that no overlap of these boxes comes near to: the oracle's overlaps are exact."""
    with np.errstate(all="ignore"):
        (overlaps,) = ORACLES["box_iou_rotated"](dets, dets, clockwise=clockwise)
    value = single(chosen(rng, 0.05, 0.3, 0.7, rng.random()))
    while (np.abs(overlaps - value) < 1e-4).any():
        value = single(value + 0.001)
    return value


@valid
def nms_rotated(rng):
    n, clockwise = int(rng.integers(0, 7)), flag(rng)
    dets, labels = rotated_boxes(rng, n), (rng.integers(-1, 2, n),) if rng.random() < 0.4 else ()
    attributes = {"iou_threshold": decided(rng, dets, clockwise), "clockwise": clockwise}
    return (dets, scores(rng, n), *labels), attributes


@valid
def nms_rotated_indices(rng):
    images, n, classes = size(rng, 2), int(rng.integers(0, 6)), size(rng, 3)
    dets = rotated_boxes(rng, images * n)
    attributes = {"iou_threshold": decided(rng, dets), "score_threshold": chosen(rng, 0.0, 0.25)}
    return (dets.reshape(images, n, 5), scores(rng, images, classes, n)), attributes


@valid
def multiclass_nms_rotated(rng):
    (dets, values), attributes = nms_rotated_indices(rng)
    attributes |= chosen(rng, {}, {"pre_top_k": 2}, {"keep_top_k": 2}, {"max_output_boxes_per_class": 1})
    return (dets, np.ascontiguousarray(values.transpose(0, 2, 1))), attributes


@valid
def corner_pool(rng):
    array = pixels(rng, size(rng, 2), size(rng, 3), size(rng, 20), size(rng, 20))
    return (array,), {"mode": chosen(rng, "top", "bottom", "left", "right")}


@valid
def cummax(rng):
    shape = [size(rng, 6) for _ in range(rng.integers(1, 5))]
    values = pixels(rng, *shape) if flag(rng) else rng.integers(-2, 3, shape).astype(np.float32)
    return (values,), {"dim": int(rng.integers(-len(shape), len(shape)))}


VALID["cummin"] = cummax


@valid
def carafe(rng):
    groups, kernel, factor = (int(chosen(rng, 1, 2)), int(chosen(rng, 1, 3, 5)), int(rng.integers(1, 4)))
    images, channels, height, width = size(rng, 2), groups * size(rng, 3), size(rng, 6), size(rng, 6)
    features = pixels(rng, images, channels, height, width)
    masks = pixels(rng, images, groups * kernel**2, height * factor, width * factor)
    return (features, masks), {"kernel_size": kernel, "group_size": groups, "scale_factor": factor}


@valid
def group_norm(rng):
    groups, rest = int(rng.integers(1, 4)), [size(rng, 5) for _ in range(rng.integers(0, 4))]
    channels = groups * size(rng, 4)
    attributes = {"num_groups": groups, "eps": single(chosen(rng, 1e-5, 1e-3, 1.0))}
    array = rng.standard_normal((size(rng, 3), channels, *rest)) * 10.0 ** rng.integers(-3, 4)
    return (array.astype(np.float32), *(rng.uniform(-2, 2, (2, channels)).astype(np.float32))), attributes


@valid
def grid_sample(rng):
    height, width = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    images, points = size(rng, 2), (size(rng, 6), size(rng, 6))
    attributes = {"mode": chosen(rng, "bilinear", "nearest", "bicubic")}
    attributes |= {"padding_mode": chosen(rng, "zeros", "border", "reflection"), "align_corners": flag(rng)}
    grid = rng.uniform(-1, 1, (images, *points, 2)) * chosen(rng, 0.9, 1.5, 10.0)
    grid = np.round(grid * 8) / 8 if rng.random() < 0.2 else grid
    if rng.random() < 0.1:
        grid[rng.random(grid.shape) < 0.1] = chosen(rng, NAN, INF, -1e30)
    return (pixels(rng, images, size(rng), height, width), grid.astype(np.float32)), attributes


@valid
def point_sample(rng):
    array = pixels(rng, images := size(rng, 2), size(rng), int(rng.integers(1, 9)), int(rng.integers(1, 9)))
    shape = (images, size(rng, 9), 2) if flag(rng) else (images, size(rng, 4), size(rng, 4), 2)
    attributes = {"align_corners": flag(rng), "mode": chosen(rng, "bilinear", "nearest")}
    return (array, rng.uniform(-0.2, 1.2, shape).astype(np.float32)), attributes


@valid
def multi_scale_deformable_attention(rng):
    sizes = [(int(rng.integers(1, 5)), int(rng.integers(1, 5))) for _ in range(rng.integers(1, 4))]
    gap, areas = int(chosen(rng, 0, 0, 2)), [height * width for height, width in sizes]
    starts = np.cumsum([gap, *(area + gap for area in areas)])
    images, queries, heads, points = size(rng, 2), size(rng, 3), size(rng, 2), size(rng, 3)
    shape = images, queries, heads, len(sizes), points
    locations = rng.uniform(-0.3, 1.3, (*shape, 2)).astype(np.float32)
    if rng.random() < 0.1:
        locations[rng.random(locations.shape) < 0.1] = chosen(rng, NAN, INF, 1e30)
    value = pixels(rng, images, int(starts[-1]), heads, size(rng, 9))
    shapes, starts = np.array(sizes, np.int64), starts[:-1].astype(np.int64)
    return (value, shapes, starts, locations, rng.random(shape).astype(np.float32)), {}


def convolution(rng, biased):
    """Return arrays and attributes of a modulated deformable convolution."""
    groups, deform_groups = int(chosen(rng, 1, 1, 2)), int(chosen(rng, 1, 1, 2))
    kernel = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    attributes = {"stride": chosen(rng, 1, 2, (2, 1)), "padding": chosen(rng, 0, 1, (2, 0))}
    attributes |= {"dilation": chosen(rng, 1, 1, (1, 2)), "groups": groups, "deform_groups": deform_groups}
    shape = size(rng, 2), 2 * size(rng, 2), size(rng, 6), size(rng, 6)
    arrays = deformed(shape, groups * size(rng, 3), kernel, float(chosen(rng, 0.5, 1.5, 20)), biased, **attributes)(rng)
    if rng.random() < 0.1:
        arrays[1][rng.random(arrays[1].shape) < 0.1] = chosen(rng, NAN, INF, -1.0, 1e30)
    return arrays, attributes


@valid
def modulated_deform_conv2d(rng):
    return convolution(rng, flag(rng))


@valid
def deform_conv2d(rng):
    (array, offset, _, weight), attributes = convolution(rng, False)
    return (array, offset, weight), attributes


def regions(rng, images, side, scale):
    """Return RoIs with the index of their image, in units `scale` times as fine as pixels."""
    k = int(rng.integers(0, 4)) if images else 0
    corners = np.sort(rng.uniform(-0.2, 1.2, (2, k, 2)) * side, axis=0)
    if rng.random() < 0.2:
        corners = corners[::-1]
    corners = np.round(corners) if rng.random() < 0.2 else corners
    index = rng.integers(0, max(images, 1), k)
    return np.column_stack([index, *(corner / scale for corner in corners)]).astype(np.float32)


@valid
def roi_align(rng):
    array = pixels(rng, size(rng, 2), size(rng, 4), size(rng, 9), size(rng, 9))
    scale = chosen(rng, 1.0, 0.25, 0.125)
    attributes = {"output_size": (int(rng.integers(1, 4)), int(rng.integers(1, 4))), "spatial_scale": scale}
    attributes |= {"sampling_ratio": int(rng.integers(0, 3)), "pool_mode": chosen(rng, "avg", "max")}
    rois = regions(rng, len(array), max(array.shape[2:]), scale)
    return (array, rois), attributes | {"aligned": flag(rng)}


@valid
def roi_align_rotated(rng):
    (array, rois), attributes = roi_align(rng)
    del attributes["pool_mode"]
    centre, sides = (rois[:, 1:3] + rois[:, 3:5]) / 2, rois[:, 3:5] - rois[:, 1:3]
    angles = rng.uniform(-4, 4, len(rois)) if flag(rng) else rng.integers(-1, 2, len(rois))
    rotated = np.column_stack([rois[:, 0], centre, sides, angles]).astype(np.float32)
    return (array, rotated), attributes | {"clockwise": flag(rng)}


@valid
def rotated_feature_align(rng):
    array = pixels(rng, size(rng, 2), size(rng, 4), size(rng, 5), size(rng, 5))
    images, _, height, width = array.shape
    boxes = rng.uniform(-2, 10, (images, height, width, 5)).astype(np.float32)
    scale = chosen(rng, 1.0, 0.5, 0.125)
    boxes[..., :4] /= np.float32(scale)
    return (array, boxes), {"spatial_scale": scale, "points": int(chosen(rng, 1, 5))}
