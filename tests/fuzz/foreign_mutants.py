"""Files of other exporters with a change or two: adopted, and equal to the exporter's detections, or refused, or asked.

python -m tests.fuzz.foreign_mutants [--count 1000] [--seed 0]

A file's outputs depend on the mean of its input, so that another preprocessing gives other scores and boxes.  What the
exporter detects is computed here, in numpy.  Changes that make the file's own statement false, such as other names in
its metadata, are counted apart: no one could know better.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import onnx.helper as oh

import mmort
import mmort.onnx
from mmort.onnx.adopt import Question
from tests.onnx.foreign import corners, suppressed

WEIGHTS = np.array([0.2, 0.3, 0.5], np.float32)
"""Of the channels in the mean that outputs depend on, so that their order matters."""

IMAGENET = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
NAMES = ["cat", "dog", "owl", "fox"]
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Corners in pixels, scores and labels."""


@dataclass
class Output:
    """An output: its rows for an image, and what is added to each element times the mean of the input."""

    rows: np.ndarray
    gains: np.ndarray

    def at(self, mean: float) -> np.ndarray:
        """Return the output for an input with a mean."""
        return self.rows + self.gains * mean


@dataclass
class Case:
    """A file of an exporter."""

    kind: str
    outputs: dict[str, Output]
    detect: Callable[[dict[str, np.ndarray], tuple[int, int], tuple[int, int]], Rows]
    """What the exporter makes of the outputs by their first names, the input's size, and the image's."""
    prepare: Callable[[np.ndarray, tuple[int, int]], tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]]
    """Returns the input (3, H, W) for an image, and what maps boxes to the image."""
    size: tuple[int, int]
    """Height and width of the input."""
    metadata: dict[str, str] = field(default_factory=dict)
    config: dict[str, dict[str, Any]] = field(default_factory=dict)
    sizes: str | None = None
    """The name of a second input, which boxes in the original image need."""
    is_single: bool = False
    is_dynamic: bool = False
    batch: int | str = "n"
    names: dict[str, str] = field(default_factory=dict)
    """The outputs by other names."""
    order: list[str] | None = None
    extra: bool = False
    channels_last: bool = False
    is_false: bool = False
    """Whether a change has made the file's own statement false."""
    changes: list[str] = field(default_factory=list)


def letterbox(image: np.ndarray, size: tuple[int, int], *, centred: bool = True) -> tuple[np.ndarray, float, int, int]:
    """Return an image fitted into a size and padded with 114, the ratio, and its top and left."""
    height, width = image.shape[:2]
    ratio = min(size[0] / height, size[1] / width)
    if centred:
        resized = cv2.resize(image, (max(1, round(width * ratio)), max(1, round(height * ratio))))
    else:
        resized = cv2.resize(image, (max(1, int(width * ratio)), max(1, int(height * ratio))))
    canvas = np.full((*size, 3), 114, np.uint8)
    top, left = ((size[0] - resized.shape[0]) // 2, (size[1] - resized.shape[1]) // 2) if centred else (0, 0)
    canvas[top : top + resized.shape[0], left : left + resized.shape[1]] = resized
    return canvas, ratio, top, left


def to_ultralytics(image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Prepare as ultralytics does: each side has a ratio of its own."""
    canvas, ratio, top, left = letterbox(image, size)
    height, width = image.shape[:2]
    scale = np.array([round(width * ratio) / width, round(height * ratio) / height] * 2)

    def back(boxes: np.ndarray) -> np.ndarray:
        return np.clip((boxes - [left, top, left, top]) / scale, 0, [width, height] * 2)

    return canvas[..., ::-1].transpose(2, 0, 1).astype(np.float32) / 255, back


def to_yolov5(image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Prepare as YOLOv5 does: both sides have the same ratio."""
    canvas, ratio, _, _ = letterbox(image, size)
    height, width = image.shape[:2]
    left, top = (size[1] - width * ratio) / 2, (size[0] - height * ratio) / 2

    def back(boxes: np.ndarray) -> np.ndarray:
        return np.clip((boxes - [left, top, left, top]) / ratio, 0, [width, height] * 2)

    return canvas[..., ::-1].transpose(2, 0, 1).astype(np.float32) / 255, back


def stretched(
    normalization: tuple[np.ndarray, np.ndarray] | None = None, backend: str = "cv2", kind: int = cv2.INTER_LINEAR
) -> Any:
    """Return a function that resizes to the input's size."""

    def prepare(image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        height, width = image.shape[:2]
        if backend == "pillow":
            from PIL import Image

            resized = np.asarray(Image.fromarray(image).resize((size[1], size[0]), Image.Resampling.BILINEAR))
        elif backend == "torch":
            import torch
            from torch.nn import functional

            pixels = torch.from_numpy(image.transpose(2, 0, 1)[None].copy())
            resized = (
                functional.interpolate(pixels, size, mode="bilinear", antialias=True)[0].numpy().transpose(1, 2, 0)
            )
        else:
            values = image.astype(np.float32) if backend == "float" else image
            resized = cv2.resize(values, (size[1], size[0]), interpolation=kind)
        values = resized[..., ::-1].astype(np.float32) / 255
        if normalization is not None:
            values = (values - normalization[0]) / normalization[1]
        scale = [width / size[1], height / size[0]] * 2
        return values.transpose(2, 0, 1).astype(np.float32), lambda boxes: boxes * scale

    return prepare


def stretched_by_config(draw: np.random.Generator, size: tuple[int, int]) -> tuple[Any, dict[str, dict[str, Any]]]:
    """Return a function that resizes to the input's size, and the config of PaddleDetection that says how."""
    is_cubic, is_normalized, resizes_first = (bool(choice) for choice in draw.integers(0, 2, 3))
    resize = {"type": "Resize", "interp": 2 if is_cubic else 1, "keep_ratio": False, "target_size": list(size)}
    mean, std = (values.tolist() for values in IMAGENET)
    normalize = {"type": "NormalizeImage", "is_scale": True, "mean": mean, "std": std}
    normalize["norm_type"] = "mean_std" if is_normalized else "none"
    steps = [resize, normalize] if resizes_first else [normalize, resize]
    config = {"draw_threshold": 0.5, "Preprocess": [*steps, {"type": "Permute"}], "label_list": NAMES[:3]}
    interpolation = cv2.INTER_CUBIC if is_cubic else cv2.INTER_LINEAR
    prepare = stretched(IMAGENET if is_normalized else None, "cv2" if resizes_first else "float", interpolation)
    return prepare, {"infer_cfg.yml": config}


def as_is(image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Prepare as torchvision does, whose files resize themselves."""
    return image[..., ::-1].transpose(2, 0, 1).astype(np.float32) / 255, lambda boxes: boxes


def random_boxes(draw: np.random.Generator, count: int, size: tuple[int, int]) -> np.ndarray:
    """Return boxes cx, cy, w, h in pixels of an input."""
    sides = np.array([size[1], size[0]])
    return np.concatenate([draw.uniform(0.2, 0.8, (count, 2)) * sides, draw.uniform(0.1, 0.4, (count, 2)) * sides], 1)


def with_gains(rows: np.ndarray, gains: np.ndarray | float) -> Output:
    """Return an output whose columns have gains."""
    return Output(rows, np.broadcast_to(np.asarray(gains, float), rows.shape).copy())


def best(
    boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, threshold: float | None, limit: int, least: float
) -> Rows:
    """Return the detections that suppression within classes leaves, best first."""
    kept = np.argsort(-scores, kind="stable") if threshold is None else suppressed(boxes, scores, labels, threshold)
    kept = kept[scores[kept] > least][:limit]
    return boxes[kept], scores[kept], labels[kept]


SIZES = (64, 96), (96, 64), (64, 64), (128, 96)
GAIN = 0.05


def ultralytics(draw: np.random.Generator) -> Case:
    """Return a file of ultralytics for one of its tasks."""
    size, classes = SIZES[draw.integers(4)], int(draw.choice([1, 2, 3, 4]))
    task, selected = str(draw.choice(["detect", "detect", "segment", "pose"])), bool(draw.random() < 0.4)
    classes = 1 if task == "pose" else classes
    boxes, scores = random_boxes(draw, 40, size), draw.uniform(0.05, 0.8, (40, classes))
    more = {"detect": 0, "segment": 8, "pose": 12}[task]
    further = np.ones((40, more)) if task == "segment" else draw.uniform(0, 60, (40, more))
    labels = scores.argmax(1)
    if selected:
        rows = np.concatenate([corners(boxes), scores.max(1)[:, None], labels[:, None], further], 1)
        gains = np.array([1.0] * 4 + [GAIN, 0] + [0] * more)
    else:
        rows, gains = (
            np.concatenate([boxes, scores, further], 1),
            np.array([1.0] * 2 + [0] * 2 + [GAIN] * classes + [0] * more),
        )
    outputs = {"output0": with_gains(rows, gains) if selected else with_gains(rows.T, gains[:, None])}
    if task == "segment":
        outputs["output1"] = with_gains(np.ones((8, size[0] // 4, size[1] // 4)), 0)
    metadata = {"description": "Ultralytics YOLO11n model", "task": task, "stride": "32", "imgsz": str(list(size))}
    metadata |= {
        "names": str(dict(enumerate(NAMES[:classes]))),
        "args": f"{{'nms': {selected}}}",
        "kpt_shape": "[4, 3]",
    }

    def detect(outputs: dict[str, np.ndarray], *_: Any) -> Rows:
        if selected:
            rows = outputs["output0"]
            return best(rows[:, :4], rows[:, 4], rows[:, 5].astype(int), None, 300, 0)
        rows = outputs["output0"].T
        scores = rows[:, 4 : 4 + classes]
        return best(corners(rows[:, :4]), scores.max(1), scores.argmax(1), 0.7, 300, 0.001)

    return Case(f"ultralytics {task}", outputs, detect, to_ultralytics, size, metadata)


def yolov5(draw: np.random.Generator) -> Case:
    """Return a file of YOLOv5, which states names and stride."""
    size, classes = SIZES[draw.integers(4)], int(draw.choice([1, 3]))
    count = 3 * sum(size[0] // stride * (size[1] // stride) for stride in (8, 16, 32))
    scores = draw.uniform(0.05, 0.9, (count, 1 + classes))
    scores[:, 0] *= draw.uniform(0, 1, count) ** 4
    rows = np.concatenate([random_boxes(draw, count, size), scores], 1)
    gains = np.array([1.0] * 2 + [0] * 2 + [GAIN] + [0] * classes)

    def detect(outputs: dict[str, np.ndarray], *_: Any) -> Rows:
        rows = outputs["output0"]
        scores = rows[:, 4:5] * rows[:, 5:]
        return best(corners(rows[:, :4]), scores.max(1), scores.argmax(1), 0.45, 1000, 0.001)

    metadata = {"stride": "32", "names": str(NAMES[:classes])}
    return Case("YOLOv5", {"output0": with_gains(rows, gains)}, detect, to_yolov5, size, metadata)


def without_metadata(draw: np.random.Generator) -> Case:
    """Return a file of the same shape without the metadata, or one of YOLOX, YOLOv6 or YOLOv8."""
    case, kind = yolov5(draw), str(draw.choice(["YOLOv5", "YOLOX", "YOLOv6", "YOLOv8", "YOLOv8, rows"]))
    case.metadata, case.kind = {}, f"{kind} without metadata"
    output = case.outputs["output0"]
    count = len(output.rows) if kind == "YOLOv5" else len(output.rows) // 3
    output.rows, output.gains = output.rows[:count], output.gains[:count]
    if kind == "YOLOX":
        output.gains = output.gains / 255
        case.prepare = lambda image, size: (
            letterbox(image, size, centred=False)[0].transpose(2, 0, 1).astype(np.float32),
            lambda boxes: boxes / min(size[0] / image.shape[0], size[1] / image.shape[1]),
        )
    if kind == "YOLOv6":
        output.rows[:, 4] = 1
        output.gains[:, 4:] = [0] + [GAIN] * (output.rows.shape[1] - 5)
    if kind.startswith("YOLOv8"):
        output.rows, output.gains = np.delete(output.rows, 4, 1), np.delete(output.gains, 4, 1)
        output.gains[:, 4:] = GAIN
    threshold = {"YOLOX": 0.65, "YOLOv8": 0.7, "YOLOv8, rows": 0.7}.get(kind, 0.45)
    if kind == "YOLOv8":
        output.rows, output.gains = output.rows.T, output.gains.T

    def detect(outputs: dict[str, np.ndarray], *_: Any) -> Rows:
        rows = outputs["output0"].T if kind == "YOLOv8" else outputs["output0"]
        scores = rows[:, 4:] if kind.startswith("YOLOv8") else rows[:, 4:5] * rows[:, 5:]
        return best(corners(rows[:, :4]), scores.max(1), scores.argmax(1), threshold, 1000, 0.001)

    case.detect = detect
    return case


def queries(draw: np.random.Generator) -> Case:
    """Return a file of RF-DETR, or of transformers' DETR or RT-DETR with its config."""
    size, classes = SIZES[draw.integers(4)], int(draw.choice([1, 2, 3, 4]))
    kind = str(draw.choice(["RF-DETR", "DETR", "RT-DETR"]))
    logits = draw.normal(0, 2, (20, classes + (kind == "DETR")))
    shares = np.concatenate([draw.uniform(0.3, 0.7, (20, 2)), draw.uniform(0.1, 0.3, (20, 2))], 1)
    names = ("dets", "labels") if kind == "RF-DETR" else ("pred_boxes", "logits")
    gains = np.arange(logits.shape[1]) % 2 + 1
    outputs = {names[0]: with_gains(shares, [GAIN, GAIN, 0, 0]), names[1]: with_gains(logits, gains)}
    if kind != "RF-DETR" and draw.random() < 0.5:
        outputs = dict(reversed(outputs.items()))
    config = {}
    if kind != "RF-DETR":
        labels = {str(label): name for label, name in enumerate(NAMES[:classes])}
        model = "detr" if kind == "DETR" else "rt_detr"
        settings = {"image_processor_type": f"{'Detr' if kind == 'DETR' else 'RTDetr'}ImageProcessor"}
        settings["size"] = {"height": size[0], "width": size[1]}
        config = {"config.json": {"id2label": labels, "model_type": model}, "preprocessor_config.json": settings}

    def detect(outputs: dict[str, np.ndarray], size: tuple[int, int], _: Any) -> Rows:
        boxes, logits = corners(outputs[names[0]]) * [size[1], size[0], size[1], size[0]], outputs[names[1]]
        if kind == "DETR":
            exponents = np.exp(logits)
            scores = (exponents / exponents.sum(1, keepdims=True))[:, :-1]
            return best(boxes, scores.max(1), scores.argmax(1), None, 20, 0)
        scores = 1 / (1 + np.exp(-logits))
        index, label = (values.ravel() for values in np.indices(scores.shape))
        return best(boxes[index], scores.ravel(), label, None, 20, 0)

    prepare = {
        "RF-DETR": stretched(IMAGENET, "float"),
        "DETR": stretched(IMAGENET, "torch"),
        "RT-DETR": stretched(None, "torch"),
    }[kind]
    return Case(kind, outputs, detect, prepare, size, {}, config)


def r_cnn(draw: np.random.Generator) -> Case:
    """Return a file of torchvision or detectron2, without a batch."""
    size, kind = SIZES[draw.integers(4)], str(draw.choice(["torchvision", "detectron2"]))
    count = int(draw.choice([2, 5]))
    boxes, scores = corners(random_boxes(draw, count, size)), draw.uniform(0.2, 0.8, count)
    labels = draw.integers(0, 3, count) + (kind == "torchvision")
    outputs = {"boxes": with_gains(boxes, GAIN), "labels": with_gains(labels, 0), "scores": with_gains(scores, GAIN)}
    if kind == "detectron2":
        outputs = {name: Output(output.rows, output.gains / 255) for name, output in outputs.items()}
        outputs["size"] = with_gains(np.array(size), 0)

    def detect(outputs: dict[str, np.ndarray], *_: Any) -> Rows:
        shift = 1 if kind == "torchvision" else 0
        return best(outputs["boxes"], outputs["scores"], outputs["labels"].astype(int) - shift, None, 300, 0)

    def prepare(image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        if kind == "torchvision":
            return stretched()(image, size)
        from PIL import Image

        resized = np.asarray(Image.fromarray(image).resize((size[1], size[0]), Image.Resampling.BILINEAR))
        scale = [image.shape[1] / size[1], image.shape[0] / size[0]] * 2
        return resized.transpose(2, 0, 1).astype(np.float32), lambda boxes: boxes * scale

    return Case(kind, outputs, detect, prepare, size, is_single=True)


def of_the_original(draw: np.random.Generator) -> Case:
    """Return a file of RT-DETR or of PaddleDetection, whose boxes are in the original image."""
    size, kind = SIZES[draw.integers(4)], str(draw.choice(["RT-DETR of its authors", "PP-YOLOE"]))
    boxes, scores = corners(random_boxes(draw, 20, (1, 1))), draw.uniform(0.2, 0.8, 20)
    labels = draw.integers(0, 3, 20)
    if kind == "PP-YOLOE":
        rows = np.concatenate([labels[:, None], scores[:, None], boxes * 100], 1)
        outputs = {"rows": with_gains(rows, [0, GAIN, 0, 0, 0, 0]), "count": with_gains(np.array([20]), 0)}
        prepare, config = stretched_by_config(draw, size)
        name = "scale_factor"
        if draw.random() < 0.5:
            kind += " with its config"
        else:
            prepare, config = stretched(IMAGENET, kind=cv2.INTER_CUBIC), {}
    else:
        outputs = {"labels": with_gains(labels, 0), "boxes": with_gains(boxes, 0), "scores": with_gains(scores, GAIN)}
        prepare, name, config = stretched(None, "pillow"), "orig_target_sizes", {}

    def detect(outputs: dict[str, np.ndarray], size: tuple[int, int], image: tuple[int, int]) -> Rows:
        if name == "scale_factor":
            rows = outputs["rows"]
            return best(rows[:, 2:], rows[:, 1], rows[:, 0].astype(int), None, 300, 0)
        sides = [image[1], image[0], image[1], image[0]]
        return best(outputs["boxes"] * sides, outputs["scores"], outputs["labels"].astype(int), None, 300, 0)

    def prepare_only(image: np.ndarray, size: tuple[int, int]) -> Any:
        return prepare(image, size)[0], lambda boxes: boxes

    case = Case(kind, outputs, detect, prepare_only, size, config=config, sizes=name)
    case.batch = 1 if name == "scale_factor" else "n"
    return case


KINDS = (ultralytics, ultralytics, yolov5, without_metadata, queries, r_cnn, of_the_original)


def write(case: Case, path: Path) -> None:
    """Write a case's file."""
    batch = None if case.is_single else case.batch
    spatial = ["h", "w"] if case.is_dynamic else [*case.size]
    axes = [0, 1, 2] if case.is_single else [1, 2, 3]
    weights = {"weights": WEIGHTS.reshape(3, 1, 1) * 3, "flat": np.array([-1])}
    nodes, source, infos = [], "images", []
    if case.channels_last:
        nodes.append(oh.make_node("Transpose", ["images"], ["first"], perm=[0, 3, 1, 2] if batch else [2, 0, 1]))
        source = "first"
    nodes.append(oh.make_node("Mul", [source, "weights"], ["weighted"]))
    nodes.append(oh.make_node("ReduceMean", ["weighted"], ["means"], axes=axes, keepdims=0))
    nodes.append(oh.make_node("Reshape", ["means", "flat"], ["mean"]))
    flat = {"rows", "count"} if case.kind.startswith("PP-YOLOE") else set(case.outputs) if case.is_single else set()
    for key in case.order or list(case.outputs):
        output, name = case.outputs[key], case.names.get(key, key)
        is_integer = key in ("labels", "count", "size") and output.rows.ndim == 1
        rank = output.rows.ndim
        weights |= {f"{key}/rows": output.rows.astype(np.float32), f"{key}/gains": output.gains.astype(np.float32)}
        weights[f"{key}/shape"] = np.array([1] * rank if key in flat else [-1] + [1] * rank)
        result = f"{key}/plain" if case.sizes == "orig_target_sizes" and key == "boxes" else f"{key}/sum"
        nodes += [
            oh.make_node("Reshape", ["mean", f"{key}/shape"], [f"{key}/mean"]),
            oh.make_node("Mul", [f"{key}/mean", f"{key}/gains"], [f"{key}/more"]),
            oh.make_node("Add", [f"{key}/more", f"{key}/rows"], [result]),
        ]
        if result.endswith("plain"):
            weights |= {"columns": np.array([0, 1, 0, 1]), "four": np.array([-1, 1, 4])}
            nodes += [
                oh.make_node("Cast", [case.sizes], ["sides/float"], to=1),
                oh.make_node("Gather", ["sides/float", "columns"], ["sides/four"], axis=1),
                oh.make_node("Reshape", ["sides/four", "four"], ["sides"]),
                oh.make_node("Mul", [result, "sides"], [f"{key}/sum"]),
            ]
        kind = 7 if is_integer else 1
        nodes.append(oh.make_node("Cast", [f"{key}/sum"], [name], to=kind))
        shape = [*output.rows.shape] if key in flat else [batch, *output.rows.shape]
        if case.is_single and key != "size":
            shape[0] = "count"
        infos.append(oh.make_tensor_value_info(name, kind, shape))
    if case.extra:
        nodes.append(oh.make_node("Identity", ["mean"], ["extra"]))
        infos.append(oh.make_tensor_value_info("extra", 1, ["m"]))
    sizes = [*spatial, 3] if case.channels_last else [3, *spatial]
    inputs = [oh.make_tensor_value_info("images", 1, sizes if case.is_single else [batch, *sizes])]
    if case.sizes is not None:
        inputs.append(oh.make_tensor_value_info(case.sizes, 7 if "orig" in case.sizes else 1, [batch, 2]))
    initializers = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = oh.make_graph(nodes, "mutant", inputs, infos, initializers)
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    oh.set_model_props(model, case.metadata)
    onnx.save(model, path)


def change(case: Case, draw: np.random.Generator) -> None:
    """Change a case's metadata, names, shapes or columns."""
    has_statement = bool(case.metadata or case.config) or case.kind in ("RF-DETR", "torchvision", "detectron2")
    name = str(draw.choice(list(case.outputs)))
    kind = str(draw.choice(CHANGES))
    case.changes.append(kind)
    if kind == "order":
        case.order = [str(key) for key in draw.permutation(list(case.outputs))]
    elif kind == "name":
        case.names[name] = str(draw.choice(["out", "output", "boxes1", "scores1", "1234"])) + name[-1]
    elif kind == "batch" and not case.is_single and not case.kind.startswith("PP-YOLOE"):
        case.batch = int(draw.choice([1, 3]))
    elif kind == "dynamic" and case.kind.startswith("ultralytics") and "segment" not in case.kind:
        case.is_dynamic = True
    elif kind == "reversed":
        output = case.outputs[name]
        axis = 0 if case.kind.startswith("ultralytics") and "True" not in case.metadata.get("args", "") else -1
        output.rows, output.gains = np.flip(output.rows, axis), np.flip(output.gains, axis)
        case.is_false |= has_statement or case.sizes is not None
        case.detect = nothing
    elif kind == "transposed" and case.outputs[name].rows.ndim == 2 and not case.is_single:
        output, detect = case.outputs[name], case.detect
        output.rows, output.gains = output.rows.T, output.gains.T
        case.detect = lambda outputs, *sizes: detect(outputs | {name: outputs[name].T}, *sizes)
    elif kind == "metadata" and case.metadata:
        key = str(draw.choice(list(case.metadata)))
        if draw.random() < 0.4:
            del case.metadata[key]
            case.is_false |= key in ("args", "task")  # without them, other defaults hold
        else:
            texts = (
                "[1]",
                "16",
                "64",
                "['a', 'b']",
                "{0: 'a'}",
                "detect",
                "segment",
                "{'nms': True}",
                "{'nms': False}",
                "[96, 64]",
            )
            case.metadata[key] = str(draw.choice(texts))
            case.is_false = True
    elif kind == "config" and case.config:
        settings = case.config[str(draw.choice(list(case.config)))]
        key = str(draw.choice(list(settings)))
        if key == "size":
            settings[key] = {"shortest_edge": 64, "longest_edge": 96}
            case.is_false = True
        elif key == "Preprocess":
            steps = [dict(step) for step in settings[key]]
            step = steps[draw.integers(len(steps))]
            entry, value = [("keep_ratio", True), ("target_size", [64, 64]), ("interp", 0), ("type", "Pad")][
                draw.integers(4)
            ]
            step[entry] = value
            settings[key] = steps
            case.is_false = True
        elif key == "label_list":
            settings[key] = settings[key][: draw.integers(3)]
            case.is_false = True
        elif key == "draw_threshold":
            settings[key] = 0.9  # of what is drawn
        elif key == "id2label":
            settings[key] = {str(label): "a" for label in range(int(draw.choice([1, 2, 3, 4, 5])))}
            case.is_false = True
        else:
            settings[key] = str(draw.choice(["YolosImageProcessor", "Owlv2ImageProcessor", "yolos", "other"]))
            case.is_false = True
    elif kind == "extra":
        case.extra = True
    elif kind == "channels last":
        case.channels_last = True


CHANGES = (
    "order",
    "name",
    "batch",
    "dynamic",
    "reversed",
    "transposed",
    "metadata",
    "metadata",
    "config",
    "extra",
    "channels last",
)


def nothing(*_: Any) -> Rows:
    """Return no detections: no exporter writes such a file."""
    return np.zeros((0, 4)), np.zeros(0), np.zeros(0, int)


def images() -> list[np.ndarray]:
    """Return smooth images of other sizes than the inputs', whose channels differ."""
    draw = np.random.default_rng(5)
    made = []
    for height, width in ((120, 90), (77, 200)):
        smooth = cv2.resize(draw.integers(0, 256, (6, 8, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
        made.append((smooth * [0.3, 0.6, 1.0]).astype(np.uint8))
    return made


def judge(seed: int, folder: Path) -> tuple[str, Case]:
    """Return what came of a mutant: right, refused, asked, wrong, or wrong by its own statement."""
    draw = np.random.default_rng(seed)
    case = KINDS[draw.integers(len(KINDS))](draw)
    for _ in range(int(draw.choice([0, 1, 1, 2]))):
        change(case, draw)
    path, output = folder / "model.onnx", folder / "adopted.onnx"
    for file in folder.iterdir():  # of other mutants
        file.unlink()
    write(case, path)
    for name, values in case.config.items():
        (folder / name).write_text(json.dumps(values))
    layout = {"classes": ["a", "b", "c"]} if case.is_single else {}
    try:
        mmort.onnx.adopt(path, output, layout, config=folder if case.config else None)
    except Question:
        return ("asked" if not output.exists() else "wrong"), case
    except ValueError:
        return ("refused" if not output.exists() else "wrong"), case
    predict = mmort.Predictor(output, score_threshold=0)
    for image in images():
        size = case.size
        if case.is_dynamic:  # padded to multiples of the stride only
            ratio = min(size[0] / image.shape[0], size[1] / image.shape[1])
            height, width = (-(-round(side * ratio) // 32) * 32 for side in image.shape[:2])
            size = height, width
        input, back = case.prepare(image, size)
        mean = float((input.mean((1, 2)) * WEIGHTS).sum())
        boxes, scores, labels = case.detect(
            {name: output.at(mean) for name, output in case.outputs.items()}, size, image.shape[:2]
        )
        try:
            found, boxes = predict(image), back(boxes)
        except ValueError:  # a size that does not fit the file's
            return "refused", case
        if case.kind == "ultralytics segment":  # without the detections whose mask has no pixel
            filled = (np.ceil(boxes[:, :2]) < np.ceil(boxes[:, 2:])).all(1)
            boxes, scores, labels = boxes[filled], scores[filled], labels[filled]
        if not equal(found, boxes, scores, labels):
            return ("wrong by its own statement" if case.is_false else "wrong"), case
    return "right", case


def equal(found: mmort.Detections, boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> bool:
    """Return whether detections are these rows, in any order of equal scores."""
    if len(found) != len(scores) or not np.allclose(found.scores, scores, atol=1e-4):
        return False
    matched = [
        (np.abs(found.boxes - box).max(1) < 1e-2) & (np.abs(found.scores - score) < 1e-4) & (found.labels == label)
        for box, score, label in zip(boxes, scores, labels, strict=True)
    ]
    return all(match.any() for match in matched)


def main() -> int:
    """Judge mutants, and print how many are what."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            verdict, case = judge(seed, Path(folder))
            counts[verdict] += 1
            if verdict == "wrong":
                print(f"seed {seed}: {case.kind}, {', '.join(case.changes) or 'unchanged'}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
