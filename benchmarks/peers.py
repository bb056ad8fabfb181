"""mmort and what people would otherwise call, on the same inputs: torch, torchvision, ONNX Runtime's nodes and numpy.

A function for each operator; its arguments are a row's columns, and it yields the contenders, mmort first.  Peers that
are not installed are left out.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from inputs import Array, make_boxes, make_grid, make_line, make_rois, make_rotated_rois, random
from timing import Contender

import mmort

PIP_NAMES = {
    "torch": "torch===2.13.0",
    "torchvision": "torchvision===0.28.0",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
}
MIN_LIMIT_BYTES = 2**20
"""Of an input, for its copy to be shown as a limit: copies of small arrays are mostly the call."""


def optional(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        return None


PACKAGES = {package: optional(package) for package in PIP_NAMES}
torch, torchvision, onnx, onnxruntime = PACKAGES.values()


def tensors(*arrays: Array) -> list[Any]:
    return [torch.from_numpy(array) for array in arrays]


def session(domain: str, operator: str, feeds: dict[str, Array], outputs: int = 1, **attributes: Any) -> Any:
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


def nms(kind: str, boxes: int, iou_threshold: float) -> Iterator[Contender]:
    inputs = make_boxes(kind, boxes)
    yield Contender("mmort", partial(mmort.nms, *inputs, iou_threshold), lambda result: result[1])
    if torchvision:
        yield Contender("torchvision", partial(torchvision.ops.nms, *tensors(*inputs), iou_threshold))
    if kind == "square":
        yield Contender("numpy.argsort of the scores", partial(np.argsort, -inputs[1]), None)


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
    boxes: Array,
    scores: Array,
    method: str,
    iou_threshold: float = 0.3,
    sigma: float = 0.5,
    min_score: float = 1e-3,
) -> Array:
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


def overlaps_in_numpy(box: Array, boxes: Array) -> Array:
    sides = np.minimum(box[2:4], boxes[:, 2:4]) - np.maximum(box[:2], boxes[:, :2])
    common = sides.clip(0).prod(1)
    return common / ((box[2:4] - box[:2]).prod() + (boxes[:, 2:4] - boxes[:, :2]).prod(1) - common)


def nms_match(kind: str, boxes: int, iou_threshold: float) -> Iterator[Contender]:
    dets = np.column_stack(make_boxes(kind, boxes))
    yield Contender("mmort", partial(mmort.nms_match, dets, iou_threshold), np.concatenate)
    yield Contender("numpy loop", partial(nms_match_in_numpy, dets, iou_threshold), np.concatenate)


def nms_match_in_numpy(dets: Array, iou_threshold: float) -> list[Array]:
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
    if torch:
        image, _, weight = tensors(*arrays)
        yield Contender("torch.conv2d", partial(torch.nn.functional.conv2d, image, weight, padding=1), None)


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


def roi_align_rotated(
    rois: int, input: tuple[int, int, int, int], output_size: int, sampling_ratio: int
) -> Iterator[Contender]:
    arrays = random(*input), make_rotated_rois(rois)
    run = partial(mmort.roi_align_rotated, *arrays, output_size, input[3] / 1216, sampling_ratio)
    yield Contender("mmort", run)


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
    if array.nbytes >= MIN_LIMIT_BYTES:
        yield Contender("copy of the input", array.copy, None)


def corner_pool_in_torch(input: Any, axis: int, backwards: bool) -> Any:  # as mmcv.ops.CornerPool does it
    if not backwards:
        return torch.cummax(input, axis)[0]
    return torch.cummax(input.flip(axis), axis)[0].flip(axis)


def corner_pool_in_numpy(input: Array, axis: int, backwards: bool) -> Array:
    if not backwards:
        return np.maximum.accumulate(input, axis)
    return np.flip(np.maximum.accumulate(np.flip(input, axis), axis), axis)


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
