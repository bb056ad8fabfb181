"""Times mmort against torch, torchvision, ONNX Runtime's own operators and numpy, on the same work.

Each row of TABLE is one input; the function that it belongs to makes the input and yields the contenders, mmort first.
A row is timed only if all contenders give the same answer.  They take turns, so that noise affects all alike.
"""

import argparse
import importlib
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

import mmort
from mmort._kernels import simd_level

PIP_NAMES = {
    "torch": "torch===2.13.0",
    "torchvision": "torchvision===0.28.0",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
}
MIN_SAMPLE = 0.001  # seconds; of shorter calls, as many as fill it are timed together
MAX_ROW = 0.8  # seconds, after which MIN_SAMPLES are enough
MIN_SAMPLES = 5


def optional(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        print(f"{package} is not installed, so its rows are skipped: pip install '{PIP_NAMES[package]}'")
        return None


torch, torchvision, onnx, onnxruntime = (optional(package) for package in PIP_NAMES)


class Contender(NamedTuple):
    name: str
    run: Callable[[], Any]
    answer: Callable[[Any], Any] = lambda result: result  # the part of a result that all must agree on


# ---- inputs -------------------------------------------------------------------------------------------------------


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def make_boxes(kind: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Boxes on an image of 1333 x 800 pixels, and scores without ties."""
    rng = np.random.default_rng(count)
    image = np.array([1333, 800])
    if kind == "uniform":
        centres, sides = rng.uniform(0, image, (count, 2)), rng.uniform(8, 160, (count, 2))
    elif kind == "clustered":  # as a detector's head gives them: about 20 boxes around each object
        objects = rng.integers(0, max(1, count // 20), count)
        centres, sides = rng.uniform(0, image, (count, 2))[objects], rng.uniform(16, 320, (count, 2))[objects]
        centres = centres + sides * rng.normal(0, 0.08, (count, 2))
        sides = sides * np.exp(rng.normal(0, 0.12, (count, 2)))
    elif kind == "text lines":
        centres = np.stack([rng.uniform(0, 1333, count), rng.integers(0, 50, count) * 16 + rng.normal(0, 1, count)], 1)
        sides = np.stack([rng.uniform(40, 600, count), rng.uniform(8, 20, count)], 1)
    else:  # "large": many overlap many others
        centres, sides = rng.uniform(0, image, (count, 2)), rng.uniform(200, 800, (count, 2))
    boxes = np.hstack([centres - sides / 2, centres + sides / 2]).astype(np.float32)
    return boxes, (rng.permutation(count).astype(np.float32) + 1) / np.float32(count + 1)


def make_rois(count: int, batch: int, height: int, width: int, spatial_scale: float) -> np.ndarray:
    """Regions of 16 pixels to half the image, most of them small."""
    rng = np.random.default_rng(count)
    image = np.array([width, height]) / spatial_scale
    sides = np.exp(rng.uniform(np.log(16), np.log(image / 2), (count, 2)))
    corners = rng.uniform(0, image - sides)
    return np.hstack([rng.integers(0, batch, (count, 1)), corners, corners + sides]).astype(np.float32)


def session(domain: str, operator: str, feeds: dict[str, np.ndarray], outputs: int = 1, **attributes: Any) -> Any:
    """Return a function that runs one node in ONNX Runtime, on as many threads as mmort is set to."""
    if not onnx or not onnxruntime:
        return None
    names = [f"output{i}" for i in range(outputs)]
    node = onnx.helper.make_node(operator, list(feeds), names, domain=domain, **attributes)
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    graph = onnx.helper.make_graph([node], operator, inputs, [onnx.ValueInfoProto(name=name) for name in names])
    opsets = [onnx.helper.make_opsetid(name, version) for name, version in (("", 16), ("mmcv", 1))]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = mmort.get_num_threads()
    options.register_custom_ops_library(mmort.get_onnxruntime_op_path())
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return partial(onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"]).run, None, feeds)


def tensors(*arrays: np.ndarray) -> list[Any]:
    return [torch.from_numpy(array) for array in arrays]


# ---- contenders, operator by operator -----------------------------------------------------------------------------


def nms(kind: str, boxes: int, iou_threshold: float) -> Iterator[Contender]:
    inputs = make_boxes(kind, boxes)
    yield Contender("mmort", partial(mmort.nms, *inputs, iou_threshold), lambda result: result[1])
    if torchvision:
        yield Contender("torchvision", partial(torchvision.ops.nms, *tensors(*inputs), iou_threshold))


def nms_ort(kind: str, boxes: int, iou_threshold: float) -> Iterator[Contender]:
    corners, scores = make_boxes(kind, boxes)
    feeds = {"boxes": corners, "scores": scores}
    yield Contender("mmort", session("mmcv", "NonMaxSuppression", feeds, iou_threshold=iou_threshold), lambda r: r[0])
    feeds = {
        "boxes": corners[None],
        "scores": scores[None, None],
        "max_output_boxes_per_class": np.array([boxes]),
        "iou_threshold": np.array([iou_threshold], np.float32),
    }
    yield Contender("ONNX Runtime", session("", "NonMaxSuppression", feeds), lambda result: result[0][:, 2])


def batched_nms(kind: str, boxes: int, classes: int, iou_threshold: float) -> Iterator[Contender]:
    corners, scores = make_boxes(kind, boxes)
    idxs = np.random.default_rng(boxes).integers(0, classes, boxes)
    settings = {"type": "nms", "iou_threshold": iou_threshold}
    yield Contender("mmort", partial(mmort.batched_nms, corners, scores, idxs, settings), lambda result: result[1])
    if torchvision:
        inputs = tensors(corners, scores, idxs)
        yield Contender("torchvision", partial(torchvision.ops.batched_nms, *inputs, iou_threshold))


def soft_nms(kind: str, boxes: int, method: str) -> Iterator[Contender]:
    inputs = make_boxes(kind, boxes)
    yield Contender("mmort", partial(mmort.soft_nms, *inputs, method=method), lambda result: result[0])
    yield Contender("numpy loop", partial(soft_nms_in_numpy, *inputs, method=method))


def soft_nms_in_numpy(
    boxes: np.ndarray,
    scores: np.ndarray,
    method: str,
    iou_threshold: float = 0.3,
    sigma: float = 0.5,
    min_score: float = 1e-3,
) -> np.ndarray:
    left, rows = np.column_stack([boxes, scores]), []
    while len(left):
        best = left[:, 4].argmax()
        rows.append(left[best])
        left = np.delete(left, best, 0)
        overlaps = overlaps_in_numpy(rows[-1], left)
        if method == "gaussian":
            left[:, 4] *= np.exp(-(overlaps * overlaps) / np.float32(sigma))
        else:
            left[:, 4] *= np.where(overlaps >= iou_threshold, 1 - overlaps if method == "linear" else 0, 1)
        left = left[left[:, 4] >= min_score]
    return np.array(rows)


def overlaps_in_numpy(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    sides = np.minimum(box[2:4], boxes[:, 2:4]) - np.maximum(box[:2], boxes[:, :2])
    common = sides.clip(0).prod(1)
    return common / ((box[2:4] - box[:2]).prod() + (boxes[:, 2:4] - boxes[:, :2]).prod(1) - common)


def nms_match(kind: str, boxes: int, iou_threshold: float) -> Iterator[Contender]:
    dets = np.column_stack(make_boxes(kind, boxes))
    yield Contender("mmort", partial(mmort.nms_match, dets, iou_threshold), np.concatenate)
    yield Contender("numpy loop", partial(nms_match_in_numpy, dets, iou_threshold), np.concatenate)


def nms_match_in_numpy(dets: np.ndarray, iou_threshold: float) -> list[np.ndarray]:
    left, groups = np.argsort(-dets[:, 4], kind="stable"), []
    while len(left):
        reaches = overlaps_in_numpy(dets[left[0]], dets[left]) >= iou_threshold
        reaches[0] = True
        groups.append(left[reaches])
        left = left[~reaches]
    return groups


def box_iou(boxes1: int, boxes2: int) -> Iterator[Contender]:
    first, second = make_boxes("uniform", boxes1)[0], make_boxes("clustered", boxes2)[0]
    yield Contender("mmort", partial(mmort.box_iou, first, second))
    if torchvision:
        yield Contender("torchvision", partial(torchvision.ops.box_iou, *tensors(first, second)))


def deform_conv2d(input: tuple[int, int, int, int], outputs: int) -> Iterator[Contender]:
    batch, channels, height, width = input
    arrays = random(*input), random(batch, 18, height, width), random(outputs, channels, 3, 3)
    yield Contender("mmort", partial(mmort.deform_conv2d, *arrays, padding=1))
    if torchvision:
        yield Contender("torchvision", partial(torchvision.ops.deform_conv2d, *tensors(*arrays), padding=1))


def multiclass_nms(boxes: int, classes: int, score_threshold: float) -> Iterator[Contender]:
    """All post-processing of a detector's head, down to the best 100 detections."""
    corners = make_boxes("uniform", boxes)[0]
    count = boxes * classes  # no two scores tie
    scores = (np.random.default_rng(boxes).permutation(count).reshape(boxes, classes) / count) ** 20
    scores = scores.astype(np.float32)
    call = partial(mmort.multiclass_nms, corners[None], scores[None], score_threshold)
    yield Contender("mmort", call, lambda result: (result[1][0], result[2][0]))
    if torchvision:
        inputs = tensors(corners, scores)
        yield Contender("torchvision", partial(multiclass_nms_in_torchvision, *inputs, score_threshold))


def multiclass_nms_in_torchvision(boxes: Any, scores: Any, score_threshold: float) -> tuple[Any, Any]:
    indices, labels = (scores > score_threshold).nonzero(as_tuple=True)
    kept = torchvision.ops.batched_nms(boxes[indices], scores[indices, labels], labels, 0.5)[:100]
    return labels[kept], indices[kept]


def multi_scale_deformable_attention(
    sizes: tuple[tuple[int, int], ...], heads: int, channels: int
) -> Iterator[Contender]:
    """The encoder of DINO: each pixel samples 4 points of each map."""
    areas = [height * width for height, width in sizes]
    pixels, rng = sum(areas), np.random.default_rng(0)
    value = random(1, pixels, heads, channels)
    locations = rng.random((1, pixels, heads, len(sizes), 4, 2), np.float32)
    weights = rng.random((1, pixels, heads, len(sizes), 4), np.float32) / (4 * len(sizes))
    starts = np.cumsum([0, *areas[:-1]])
    call = partial(mmort.multi_scale_deformable_attention, value, np.array(sizes), starts, locations, weights)
    yield Contender("mmort", call)
    if torch:
        yield Contender("torch, grid_sample", partial(attention_in_torch, *tensors(value, locations, weights), sizes))


def attention_in_torch(value: Any, locations: Any, weights: Any, sizes: tuple[tuple[int, int], ...]) -> Any:
    """The formulation of Deformable DETR for machines without its own kernel."""
    batch, _, heads, channels = value.shape
    queries = locations.shape[1]
    samples = []
    for level, (height, width) in enumerate(sizes):
        start = sum(rows * columns for rows, columns in sizes[:level])
        plane = value[:, start : start + height * width].permute(0, 2, 3, 1).reshape(-1, channels, height, width)
        grid = 2 * locations[:, :, :, level].transpose(1, 2).flatten(0, 1) - 1
        samples.append(torch.nn.functional.grid_sample(plane, grid, align_corners=False))
    weights = weights.transpose(1, 2).reshape(batch * heads, 1, queries, -1)
    total = (torch.stack(samples, dim=-2).flatten(-2) * weights).sum(-1)
    return total.view(batch, heads * channels, queries).transpose(1, 2)


def roi_align(
    rois: int, input: tuple[int, int, int, int], output_size: int, sampling_ratio: int, aligned: bool
) -> Iterator[Contender]:
    scale = input[3] / 1216
    arrays = random(*input), make_rois(rois, input[0], *input[2:], scale)
    yield Contender("mmort", partial(mmort.roi_align, *arrays, output_size, scale, sampling_ratio, aligned=aligned))
    if torchvision:
        settings = (output_size, scale, sampling_ratio, aligned)
        yield Contender("torchvision", partial(torchvision.ops.roi_align, *tensors(*arrays), *settings))


def roi_align_ort(
    rois: int, input: tuple[int, int, int, int], output_size: int, sampling_ratio: int, aligned: bool
) -> Iterator[Contender]:
    scale = input[3] / 1216
    features, regions = random(*input), make_rois(rois, input[0], *input[2:], scale)
    shared = {
        "output_height": output_size,
        "output_width": output_size,
        "sampling_ratio": sampling_ratio,
        "spatial_scale": scale,
        "mode": "avg",
    }
    feeds = {"input": features, "rois": regions}
    yield Contender("mmort", session("mmcv", "MMCVRoiAlign", feeds, aligned=int(aligned), **shared), lambda r: r[0])
    feeds = {"X": features, "rois": regions[:, 1:].copy(), "batch_indices": regions[:, 0].astype(np.int64)}
    transformation = "half_pixel" if aligned else "output_half_pixel"
    run = session("", "RoiAlign", feeds, coordinate_transformation_mode=transformation, **shared)
    yield Contender("ONNX Runtime", run, lambda result: result[0])


def make_grid(shape: tuple[int, int, int], positions: str) -> np.ndarray:
    """Positions to sample at: a slightly turned and stretched picture, or points anywhere."""
    if positions == "scattered":
        return np.random.default_rng(0).uniform(-1.05, 1.05, (*shape, 2)).astype(np.float32)
    y, x = np.meshgrid(np.linspace(-1.05, 1.05, shape[1]), np.linspace(-1.05, 1.05, shape[2]), indexing="ij")
    turned = np.stack([0.98 * x - 0.17 * y, 0.17 * x + 0.98 * y], -1).astype(np.float32)
    return np.tile(turned, (shape[0], 1, 1, 1))


def grid_sample(
    input: tuple[int, int, int, int], output: tuple[int, int], positions: str, mode: str, padding: str, align: bool
) -> Iterator[Contender]:
    arrays = random(*input), make_grid((input[0], *output), positions)
    yield Contender("mmort", partial(mmort.grid_sample, *arrays, mode, padding, align))
    if torch:
        function = partial(torch.nn.functional.grid_sample, *tensors(*arrays), mode, padding, align)
        yield Contender("torch", function)


def grid_sample_ort(
    input: tuple[int, int, int, int], output: tuple[int, int], positions: str, mode: str, padding: str, align: bool
) -> Iterator[Contender]:
    feeds = {"input": random(*input), "grid": make_grid((input[0], *output), positions)}
    numbers = {
        "interpolation_mode": ("bilinear", "nearest", "bicubic").index(mode),
        "padding_mode": ("zeros", "border", "reflection").index(padding),
        "align_corners": int(align),
    }
    yield Contender("mmort", session("mmcv", "grid_sampler", feeds, **numbers), lambda result: result[0])
    run = session("", "GridSample", feeds, mode=mode, padding_mode=padding, align_corners=int(align))
    yield Contender("ONNX Runtime", run, lambda result: result[0])


def corner_pool(input: tuple[int, int, int, int], mode: str) -> Iterator[Contender]:
    array = random(*input)
    axis, backwards = (2 if mode in ("top", "bottom") else 3), mode in ("top", "left")
    yield Contender("mmort", partial(mmort.corner_pool, array, mode))
    if torch:
        yield Contender("torch", partial(corner_pool_in_torch, *tensors(array), axis, backwards))
    yield Contender("numpy", partial(corner_pool_in_numpy, array, axis, backwards))


def corner_pool_in_torch(input: Any, axis: int, backwards: bool) -> Any:  # as mmcv.ops.CornerPool does it
    if not backwards:
        return torch.cummax(input, axis)[0]
    return torch.cummax(input.flip(axis), axis)[0].flip(axis)


def corner_pool_in_numpy(input: np.ndarray, axis: int, backwards: bool) -> np.ndarray:
    if not backwards:
        return np.maximum.accumulate(input, axis)
    return np.flip(np.maximum.accumulate(np.flip(input, axis), axis), axis)


def make_line(input: tuple[int, ...], values: str) -> np.ndarray:
    """Normal numbers, or small integers with many ties."""
    if values == "int8, ties":
        return np.random.default_rng(0).integers(-3, 4, input, np.int8)
    return random(*input)


def cummax(input: tuple[int, ...], values: str, dim: int) -> Iterator[Contender]:
    array = make_line(input, values)
    yield Contender("mmort", partial(mmort.cummax, array, dim))
    if torch:
        yield Contender("torch", partial(torch.cummax, *tensors(array), dim))


def cummin(input: tuple[int, ...], values: str, dim: int) -> Iterator[Contender]:
    array = make_line(input, values)
    yield Contender("mmort", partial(mmort.cummin, array, dim))
    if torch:
        yield Contender("torch", partial(torch.cummin, *tensors(array), dim))


# ---- the table ----------------------------------------------------------------------------------------------------


def rows(names: str, *choices: Any) -> list[dict[str, Any]]:
    """One row for each combination of the choices."""
    return [dict(zip(names.split(), values, strict=True)) for values in product(*choices)]


def listed(names: str, *values: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(names.split(), row, strict=True)) for row in values]


KINDS = ("uniform", "clustered", "text lines", "large")
ROI_ALIGN = listed(
    "rois input output_size sampling_ratio aligned",
    (1, (1, 1, 8, 8), 2, 2, True),
    (1, (1, 256, 50, 76), 7, 0, True),
    (10, (1, 256, 50, 76), 7, 2, True),
    (100, (1, 256, 50, 76), 7, 2, False),
    (100, (1, 256, 200, 304), 7, 0, True),
    (100, (1, 256, 200, 304), 14, 0, True),
    (300, (1, 1024, 50, 76), 14, 2, True),
    (1000, (1, 256, 200, 304), 7, 0, True),
    (1000, (2, 256, 100, 152), 7, 2, True),
    (1000, (2, 256, 100, 152), 7, 0, False),
    (1000, (1, 16, 100, 152), 7, 2, True),
)
GRID_SAMPLE = listed(
    "input output positions mode padding align",
    ((1, 1, 4, 4), (1, 1), "turned", "bilinear", "zeros", False),
    ((1, 1, 256, 256), (256, 256), "turned", "bilinear", "zeros", False),
    ((1, 3, 256, 256), (256, 256), "scattered", "bilinear", "border", False),
    ((1, 8, 256, 256), (256, 256), "turned", "bilinear", "zeros", False),
    ((1, 3, 720, 1280), (720, 1280), "turned", "bilinear", "zeros", False),
    ((1, 64, 200, 304), (200, 304), "turned", "bilinear", "zeros", False),
    ((1, 64, 128, 128), (128, 128), "turned", "bilinear", "zeros", False),
    ((4, 256, 50, 76), (50, 76), "turned", "bilinear", "border", True),
    ((4, 64, 50, 76), (50, 76), "turned", "bilinear", "reflection", False),
    ((1, 256, 200, 304), (1, 12544), "scattered", "bilinear", "zeros", False),
    ((100, 1, 28, 28), (1, 196), "scattered", "bilinear", "zeros", False),
    ((8, 32, 100, 152), (900, 4), "scattered", "bilinear", "zeros", False),
    ((1, 1, 256, 256), (256, 256), "turned", "nearest", "zeros", False),
    ((1, 3, 256, 256), (256, 256), "scattered", "nearest", "border", False),
    ((1, 8, 256, 256), (256, 256), "turned", "nearest", "zeros", False),
    ((1, 1, 512, 512), (512, 512), "scattered", "nearest", "zeros", False),
    ((1, 64, 128, 128), (128, 128), "turned", "nearest", "zeros", False),
    ((1, 256, 200, 304), (1, 12544), "scattered", "nearest", "border", True),
    ((1, 3, 720, 1280), (720, 1280), "turned", "bicubic", "zeros", False),
    ((1, 64, 128, 128), (128, 128), "turned", "bicubic", "zeros", False),
    ((1, 64, 50, 76), (50, 76), "turned", "bicubic", "reflection", True),
)
SCANS = listed(
    "input values dim",
    ((8,), "normal", 0),
    ((1000,), "normal", 0),
    ((1_000_000,), "normal", 0),
    ((1000, 1000), "normal", 0),
    ((1000, 1000), "normal", 1),
    ((1000, 1000), "int8, ties", 1),
    ((1, 128, 128, 128), "normal", 3),
    ((8, 256, 50, 76), "normal", 1),
    ((8, 256, 50, 76), "normal", 2),
    ((8, 256, 50, 76), "normal", 3),
    ((100_000, 5), "normal", 1),
)
TABLE: dict[Callable[..., Iterator[Contender]], list[dict[str, Any]]] = {
    nms: [
        *rows("kind boxes iou_threshold", KINDS, (10, 100, 400, 1000, 3000), (0.5,)),
        *rows("kind boxes iou_threshold", KINDS, (10000,), (0.3, 0.5, 0.7)),
    ],
    nms_ort: rows("kind boxes iou_threshold", KINDS, (10, 100, 1000, 5000), (0.5,)),
    batched_nms: rows("kind boxes classes iou_threshold", KINDS, (10, 1000, 10000), (80,), (0.5,)),
    soft_nms: [
        *rows("kind boxes method", ("uniform", "clustered"), (10, 100, 1000), ("naive", "linear", "gaussian")),
        *rows("kind boxes method", ("uniform",), (10000,), ("gaussian",)),
    ],
    nms_match: rows("kind boxes iou_threshold", KINDS, (10, 100, 2000), (0.5,)),
    box_iou: listed(
        "boxes1 boxes2", (1, 1), (10, 10), (100, 100), (100, 20000), (20000, 100), (1000, 1000), (2000, 2000)
    ),
    roi_align: ROI_ALIGN,
    roi_align_ort: ROI_ALIGN,
    grid_sample: GRID_SAMPLE,
    grid_sample_ort: GRID_SAMPLE,
    deform_conv2d: listed("input outputs", ((1, 64, 64, 64), 64), ((1, 256, 100, 152), 256)),
    multiclass_nms: rows("boxes classes score_threshold", (1000, 10000), (80,), (0.05, 0.5)),
    multi_scale_deformable_attention: listed(
        "sizes heads channels", (((100, 152), (50, 76), (25, 38), (13, 19)), 8, 32)
    ),
    corner_pool: rows(
        "input mode",
        ((1, 1, 4, 4), (1, 256, 64, 64), (1, 128, 128, 128), (2, 64, 127, 255)),
        ("top", "bottom", "left", "right"),
    ),
    cummax: SCANS,
    cummin: SCANS,
}


# ---- measuring ----------------------------------------------------------------------------------------------------


class Measurement(NamedTuple):
    operator: str
    row: dict[str, Any]
    peer: str
    threads: int
    ours: float  # seconds
    theirs: float

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours


def check_agreement(contenders: list[Contender]) -> None:
    (_, wanted), *others = [(contender.name, contender.answer(contender.run())) for contender in contenders]
    for name, answer in others:
        for ours, theirs in zip(*(x if isinstance(x, tuple) else (x,) for x in (wanted, answer)), strict=True):
            ours, theirs = np.asarray(ours), np.asarray(theirs)
            if ours.shape != theirs.shape:
                raise SystemExit(f"mmort gives {list(ours.shape)}, {name} {list(theirs.shape)}: not the same work")
            if ours.dtype.kind != "f":
                agreed = np.array_equal(ours, theirs)
            else:  # a position halfway between two pixels may be rounded to either
                agreed = np.isclose(ours, theirs, rtol=1e-3, atol=1e-3).mean() > 0.999
            if not agreed:
                raise SystemExit(f"mmort and {name} give different answers: not the same work")


def time_in_turns(contenders: list[Contender], repeat: int) -> list[float]:
    """Return the median seconds of a call, for each contender."""
    counts, samples = [], [[] for _ in contenders]
    for contender in contenders:
        start, calls = time.perf_counter(), 0
        while time.perf_counter() - start < MIN_SAMPLE:
            contender.run()
            calls += 1
        counts.append(calls)
    end = time.perf_counter() + MAX_ROW
    while len(samples[0]) < repeat and (len(samples[0]) < MIN_SAMPLES or time.perf_counter() < end):
        for contender, count, sample in zip(contenders, counts, samples, strict=True):
            contender.run()  # brings its data and its threads back to this processor
            start = time.perf_counter()
            for _ in range(count):
                contender.run()
            sample.append((time.perf_counter() - start) / count)
    return [statistics.median(sample) for sample in samples]


def measure(operators: list[str], threads: list[int], repeat: int) -> Iterator[Measurement]:
    chosen = [(f, row) for f in TABLE for row in TABLE[f] if f.__name__.removesuffix("_ort") in operators]
    for number, (function, row) in tqdm(list(product(threads, chosen)), unit="row", dynamic_ncols=True):
        mmort.set_num_threads(number)
        if torch:
            torch.set_num_threads(number)
        contenders = [contender for contender in function(**row) if contender.run]
        if len(contenders) < 2:
            continue
        try:
            check_agreement(contenders)
        except SystemExit as error:
            raise SystemExit(f"{function.__name__}({describe(row)}): {error}") from None
        ours, *others = time_in_turns(contenders, repeat)
        for peer, theirs in zip(contenders[1:], others, strict=True):
            yield Measurement(function.__name__, row, peer.name, number, ours, theirs)


# ---- reporting ----------------------------------------------------------------------------------------------------


def write(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def describe(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {write(value)}" for name, value in row.items())


def machine() -> str:
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    packages = [f"{module.__name__} {module.__version__}" for module in (np, torch, torchvision, onnxruntime) if module]
    return (
        f"{model}, {os.cpu_count()} processors, {platform.system()}; Python {platform.python_version()}; "
        f"mmort {mmort.__version__} ({simd_level()}), {', '.join(packages)}"
    )


def tabulate(head: list[str], lines: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    rule = ["-" * width for width in widths]
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in [head, rule, *lines])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in padded)


def report(measurements: list[Measurement], threads: list[int]) -> str:
    """Return the summary and a table for each operator."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for measurement in measurements:
        groups.setdefault((measurement.operator, measurement.peer), []).append(measurement)
    summary = []
    for (operator, peer), group in groups.items():
        line = [title(operator), peer, str(len(group) // len(threads))]
        for number in threads:
            ratios = [measurement.ratio for measurement in group if measurement.threads == number]
            line.append(f"{min(ratios):.1f} / {statistics.median(ratios):.1f} / {max(ratios):.1f}")
        summary.append(line)
    head = [
        "operator",
        "peer",
        "rows",
        *(f"{number} thread{'s' * (number > 1)}: min / median / max" for number in threads),
    ]
    parts = [tabulate(head, summary)]
    for operator in dict.fromkeys(measurement.operator for measurement in measurements):
        selected = [measurement for measurement in measurements if measurement.operator == operator]
        cells: dict[tuple[str, ...], dict[int, Measurement]] = {}
        for measurement in selected:
            key = (*map(write, measurement.row.values()), measurement.peer)
            cells.setdefault(key, {})[measurement.threads] = measurement
        head = [*selected[0].row, "peer"]
        for number in threads:
            head += [f"mmort, {number} thread{'s' * (number > 1)}", "ratio"]
        lines = []
        for key, by_threads in cells.items():
            lines.append([*key])
            for number in threads:
                lines[-1] += [duration(by_threads[number].ours), f"{by_threads[number].ratio:.2f}"]
        parts.append(f"### {title(operator)}\n\n{tabulate(head, lines)}")
    return "\n\n".join(parts)


def title(operator: str) -> str:
    return operator if not operator.endswith("_ort") else f"{operator.removesuffix('_ort')}, in ONNX Runtime"


def duration(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    names = list(dict.fromkeys(function.__name__.removesuffix("_ort") for function in TABLE))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "operators", nargs="*", metavar="operator", help=f"operators to time (default: all): {', '.join(names)}"
    )
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="comma-separated thread counts (default: 1,2)")
    parser.add_argument(
        "--repeat", type=int, default=11, help="samples of a contender, of which the median is reported (default: 11)"
    )
    parser.add_argument("--markdown", action="store_true", help="print the tables of benchmarks/README.md at the end")
    options = parser.parse_args()
    unknown = set(options.operators) - set(names)
    if unknown:
        parser.error(f"unknown operator: {', '.join(sorted(unknown))}")
    print(machine())
    print("ratio: time of the peer / time of mmort; above 1, mmort is faster")
    measurements = []
    for measurement in measure(options.operators or names, options.threads, options.repeat):
        measurements.append(measurement)
        if not options.markdown:
            threads = f"{measurement.threads} thread{'s' * (measurement.threads > 1)}"
            ours, theirs = duration(measurement.ours), duration(measurement.theirs)
            times = f"mmort {ours}, {measurement.peer} {theirs}, ratio {measurement.ratio:.2f}"
            tqdm.write(f"{title(measurement.operator)}: {describe(measurement.row)}; {threads}: {times}")
    if options.markdown and measurements:
        print("\n" + report(measurements, options.threads))


if __name__ == "__main__":
    main()
