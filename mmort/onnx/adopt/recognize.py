"""Recognizers: what a file's metadata, names and shapes say about its layout, for each exporter that says enough.

A recognizer returns the entries of a `Layout` that it is sure of, or None.  What it leaves out the user is asked for.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mmort._files.inputs import read_bytes

Entries = dict[str, Any]

MAX_CONFIG_BYTES, MAX_METADATA_CHARACTERS = 2**24, 2**22
_BILINEAR = 2
"""The number of bilinear resizing in Pillow, which ``preprocessor_config.json`` has."""


class Tensor(NamedTuple):
    """An input or output: its name, element type as ONNX names it, and sizes, None where the file states none."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None


class ForeignFile(NamedTuple):
    """What recognizers look at: the image input, the outputs by name, the metadata, and the folder of `--config`."""

    image: Tensor
    outputs: dict[str, Tensor]
    metadata: Mapping[str, str]
    config: Path | None

    def size(self) -> list[int] | None:
        """Return the width and height of the input if they are fixed."""
        height, width = (self.image.shape or (None, None))[-2:]
        return None if height is None or width is None else [width, height]


class Recognized(NamedTuple):
    """The exporter, and the entries of a layout that follow from it."""

    exporter: str
    entries: Entries


def recognize(file: ForeignFile) -> Recognized:
    """Return what the first recognizer that knows the file says; nothing if none does."""
    for exporter, recognizer in RECOGNIZERS.items():
        entries = recognizer(file)
        if entries is not None:
            return Recognized(exporter, entries)
    return Recognized("an unknown exporter", {})


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
    output = next(iter(file.outputs.values()))
    shape = output.shape or ()
    is_detr = "RTDETR" in file.metadata.get("head", "") or "rtdetr" in file.metadata.get("description", "").lower()
    entries: Entries = {"classes": classes, "preprocessing": _letterbox(file, is_detr=is_detr)}
    if task == "obb":
        entries["preprocessing"]["clip_boxes"] = False
    name = output.name
    if is_detr:
        entries |= {"boxes": f"{name}[:4]", "box_format": "cxcywh", "box_unit": "relative"}
        if len(shape) == 3 and shape[2] == 6 and len(classes) == 2:
            return entries  # 6 columns are two scores, or a score and a class
        if len(shape) == 3 and shape[2] == 6:
            return entries | {"scores": f"{name}[4]", "labels": f"{name}[5]"}
        if len(shape) == 3 and shape[2] == 4 + len(classes):
            return entries | {"scores": f"{name}[4:]"}
        return entries
    if _is_true(file, "end2end") or _arguments(file).get("nms") or (len(shape) == 3 and shape[2] == 6):
        chosen = {"boxes": f"{name}[:4]", "box_format": "xyxy", "scores": f"{name}[4]", "labels": f"{name}[5]"}
        return entries | chosen | _further_columns(file, task, name, 6)
    end = 4 + len(classes)
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


_TASKS = ("detect", "segment", "obb", "pose")
"""Those of ultralytics that detect objects."""


def _further_columns(file: ForeignFile, task: str, name: str, begin: int) -> Entries:
    """Return the entries of the columns that a task of ultralytics has after boxes and scores."""
    if task == "detect":
        return {}
    if task == "obb":
        return {"angle": f"{name}[{begin}]", "box_format": "cxcywh"}
    if task == "pose":
        shape = _literal(file, "kpt_shape", "two positive integers", _is_size)
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
        sides = _literal(file, "imgsz", "two positive integers", _is_size)
        size = [sides[1], sides[0]]
    common: Entries = {"size": size, "to_rgb": True, "std": [255.0, 255.0, 255.0], "divide": True}
    if is_detr:
        return common | {"keep_ratio": False}
    padding: Entries = {
        "value": 114.0,
        "centred": True,
        "size_divisor": _literal(file, "stride", "a positive integer", _is_positive),
    }
    if fixed:
        padding["size"] = size
    return common | {"turn_size": False, "padding": padding, "clip_boxes": True}


def _transformers(file: ForeignFile) -> Entries | None:
    """Return the layout of transformers' object detection, whose outputs have its names."""
    if not {"logits", "pred_boxes"} <= set(file.outputs):
        return None
    entries: Entries = {
        "boxes": "pred_boxes",
        "box_format": "cxcywh",
        "box_unit": "relative",
        "scores": "logits",
    }
    if file.config is None:
        return entries
    labels = _json(file.config / "config.json").get("id2label", {})
    names = [labels[key] for key in sorted(labels, key=int)]
    columns = (file.outputs["logits"].shape or (None,))[-1]
    if columns == len(names):
        entries |= {"activation": "sigmoid", "multi_label": True}
    elif columns == len(names) + 1:
        entries |= {"activation": "softmax", "background": "last"}
    else:
        raise ValueError(
            f"adopt: {file.config / 'config.json'} must have {columns} classes, as the output logits has, or one less, "
            f"got {len(names)}"
        )
    return entries | {"classes": names, "preprocessing": _image_processor(file.config, file.size())}


def _image_processor(folder: Path, fixed: list[int] | None) -> Entries:
    """Return the preprocessing of a folder's ``preprocessor_config.json``, for a file that may have a fixed size."""
    path = folder / "preprocessor_config.json"
    settings = _json(path)
    settings = settings.get("image_processor", settings)
    if settings.get("resample", _BILINEAR) != _BILINEAR:
        raise ValueError(f"adopt: {path}: resample must be 2, bilinear, got {settings['resample']}")
    entries: Entries = {"to_rgb": True, "resize_backend": "pillow"}
    scale = 1 / settings.get("rescale_factor", 1 / 255) if settings.get("do_rescale", True) else 1.0
    if settings.get("do_normalize", True):
        entries |= {
            "mean": [scale * value for value in settings["image_mean"]],
            "std": [scale * value for value in settings["image_std"]],
            "divide": True,
        }
    else:
        entries["std"] = [scale] * 3
    size = settings.get("size", {}) if settings.get("do_resize", True) else {}
    if "shortest_edge" in size:
        longest = size.get("longest_edge") or 2**14
        entries |= {"size": [longest, size["shortest_edge"]], "rounding": "down"}
    elif "height" in size:
        entries |= {"size": [size["width"], size["height"]], "keep_ratio": False}
    elif size:
        raise ValueError(f"adopt: {path}: size must have shortest_edge, or height and width, got {', '.join(size)}")
    target = settings.get("pad_size") or fixed
    if target is not None and entries.get("keep_ratio", True):
        target = [target["width"], target["height"]] if isinstance(target, dict) else target
        entries["padding"] = {"size": target}
    return entries


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
    size = file.size()
    if size is None:
        return entries
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    preprocessing = {
        "size": size,
        "keep_ratio": False,
        "to_rgb": True,
        "mean": [255 * value for value in mean],
        "std": [255 * value for value in std],
        "divide": True,
    }
    return entries | {"preprocessing": preprocessing}


def _torchvision(file: ForeignFile) -> Entries | None:
    """Return the layout of torchvision's detectors, which take one image of any size without a batch."""
    if len(file.image.shape or ()) != 3:
        return None
    floats = [output for output in file.outputs.values() if output.dtype == "float32"]
    labels = [output.name for output in file.outputs.values() if output.dtype == "int64"]
    boxes = [output.name for output in floats if len(output.shape or ()) == 2 and (output.shape or ())[1] in (4, None)]
    masks = [output.name for output in floats if len(output.shape or ()) == 4]
    scores = [output.name for output in floats if len(output.shape or ()) == 1]
    if (len(labels), len(boxes), len(scores)) != (1, 1, 1):
        return None
    size = file.size()
    preprocessing: Entries = {"to_rgb": True, "std": [255.0, 255.0, 255.0], "divide": True}
    if size is not None:
        preprocessing |= {"size": size, "keep_ratio": False}
    entries: Entries = {
        "boxes": boxes[0],
        "box_format": "xyxy",
        "scores": scores[0],
        "labels": labels[0],
        "background": "first",
        "preprocessing": preprocessing,
    }
    if len(masks) == 1:
        entries |= {"masks": masks[0], "mask_format": {"area": "image", "threshold": 0.5, "rescaling": "stretch"}}
    return entries


def _yolox(file: ForeignFile) -> Entries | None:
    """Return the layout of YOLOX's own export, whose boxes are not decoded: (N, cells of three grids, 5 + classes)."""
    size, output = file.size(), next(iter(file.outputs.values()))
    if size is None or len(file.outputs) != 1 or len(output.shape or ()) != 3:
        return None
    assert output.shape is not None
    strides = [8, 16, 32]
    if output.shape[1] != _cells(size, strides) or (output.shape[2] or 0) < 6 or file.metadata.get("names"):
        return None
    return {
        "boxes": f"{output.name}[:4]",
        "box_format": "cxcywh",
        "objectness": f"{output.name}[4]",
        "scores": f"{output.name}[5:]",
        "strides": strides,
        "iou_threshold": 0.65,
        "score_threshold": 0.001,
        "preprocessing": {
            "size": size,
            "turn_size": False,
            "rounding": "down",
            "padding": {"value": 114.0, "size": size},
        },
    }


def _cells(size: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many cells the grids of an input have."""
    return sum((size[0] // stride) * (size[1] // stride) for stride in strides)


RECOGNIZERS: dict[str, Callable[[ForeignFile], Entries | None]] = {
    "ultralytics": _ultralytics,
    "transformers": _transformers,
    "RF-DETR": _rf_detr,
    "torchvision": _torchvision,
    "YOLOX": _yolox,
}
"""By exporter, those that are surest first."""


def _literal(file: ForeignFile, key: str, required: str, check: Callable[[Any], bool]) -> Any:
    """Return an entry of ultralytics' metadata, which is Python's text of a value."""
    text = file.metadata[key]
    try:
        if len(text) <= MAX_METADATA_CHARACTERS and check(value := ast.literal_eval(text)):
            return value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    raise ValueError(f"adopt: {key} of ultralytics' metadata must be {required}, got {text[:60]!r}")


def _is_positive(value: Any) -> bool:
    """Return whether a value is a positive integer."""
    return isinstance(value, int) and value > 0


def _is_size(value: Any) -> bool:
    """Return whether a value is a height and a width."""
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(_is_positive, value))


def _names(file: ForeignFile) -> list[str]:
    """Return the class names that ultralytics wrote."""

    def check(names: Any) -> bool:
        labels = sorted(names) if isinstance(names, dict) else range(len(names)) if isinstance(names, list) else None
        return bool(names) and labels is not None and list(labels) == list(range(len(names)))

    names = _literal(file, "names", "a name for each of the labels 0, 1, ...", check)
    return [str(names[label]) for label in range(len(names))]


def _arguments(file: ForeignFile) -> Mapping[str, Any]:
    """Return the arguments that ultralytics exported a file with."""
    if "args" not in file.metadata:
        return {}
    arguments: dict[str, Any] = _literal(file, "args", "a dict", lambda value: isinstance(value, dict))
    return arguments


def _is_true(file: ForeignFile, key: str) -> bool:
    """Return whether an entry of ultralytics' metadata is true."""
    return file.metadata.get(key) == "True"


def _json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file."""
    try:
        values = json.loads(read_bytes("config", path, MAX_CONFIG_BYTES))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"adopt: {path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"adopt: {path} must be an object, got {type(values).__name__}")
    return values
