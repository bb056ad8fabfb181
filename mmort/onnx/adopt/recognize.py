"""Recognizers: what a file's metadata, names and shapes say about its layout, for each exporter that says enough.

A recognizer returns the entries of a `Layout` that it is sure of, or None.  What it leaves out the user is asked for.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmort._files.inputs import read_bytes
from mmort.limits import MAX_LITERAL, MAX_PREPROCESSOR_BYTES

Entries = dict[str, Any]

PIXEL_MASK = "pixel_mask"
"""The name of the mask that transformers' DETRs take."""

_IMAGENET: Entries = {
    "mean": [255 * value for value in (0.485, 0.456, 0.406)],
    "std": [255 * value for value in (0.229, 0.224, 0.225)],
    "divide": True,
}
"""Preprocessing for backbones trained on ImageNet."""

_INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}
"""By their numbers in Pillow, which ``preprocessor_config.json`` has."""


class Tensor(NamedTuple):
    """An input or output: its name, element type as ONNX names it, and sizes, None where the file states none."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None


class ForeignFile(NamedTuple):
    """What recognizers look at: inputs, the outputs by name, the metadata, and the folder of `--config`."""

    image: Tensor
    pixel_mask: Tensor | None
    """Which pixels of a batch are an image's, and not padding."""
    outputs: dict[str, Tensor]
    metadata: Mapping[str, str]
    config: Path | None
    results: Callable[[], Mapping[str, NDArray[Any]]]
    """Runs the file on noise, and returns the outputs."""

    def size(self) -> list[int] | None:
        """Return the width and height of the input if they are fixed."""
        height, width = (self.image.shape or (None, None))[-2:]
        return None if height is None or width is None else [width, height]


def recognize(file: ForeignFile) -> tuple[str, Entries]:
    """Return the exporter of a file, and the entries of a layout that follow from it."""
    for exporter, recognizer in RECOGNIZERS.items():
        entries = recognizer(file)
        if entries is not None:
            return exporter, entries
    return "an unknown exporter", {}


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
    if file.metadata.get("end2end") == "True" or _arguments(file).get("nms") or (len(shape) == 3 and shape[2] == 6):
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
    settings = _image_processor_settings(file.config)
    columns = (file.outputs["logits"].shape or (None,))[-1]
    if columns == len(names):
        entries |= {"activation": "sigmoid", "multi_label": True} | _best_pairs(file, settings)
    elif columns == len(names) + 1:
        entries |= {"activation": "softmax", "background": "last"}
    else:
        raise ValueError(
            f"adopt: {file.config / 'config.json'} must have {columns} classes, as the output logits has, or one less, "
            f"got {len(names)}"
        )
    preprocessing = _image_processor(file.config / _PREPROCESSOR, settings, file.size())
    return entries | {"classes": names, "preprocessing": preprocessing}


_PREPROCESSOR = "preprocessor_config.json"

_TOP_100 = re.compile("(Conditional|Deformable)DetrImageProcessor")
"""Image processors that keep the best 100 pairs of a query and a class; others keep as many as there are queries."""


def _best_pairs(file: ForeignFile, settings: Mapping[str, Any]) -> Entries:
    """Return how many pairs of a query and a class are detections."""
    if _TOP_100.match(str(settings.get("image_processor_type", ""))):
        return {"max_detections": 100}
    queries = (file.outputs["logits"].shape or (None, None))[1]
    return {"max_detections": file.results()["logits"].shape[1] if queries is None else queries}


def _image_processor_settings(folder: Path) -> Mapping[str, Any]:
    """Return what a folder's ``preprocessor_config.json`` says of images."""
    settings = _json(folder / _PREPROCESSOR)
    settings = settings.get("image_processor", settings)
    if not isinstance(settings, dict):
        raise ValueError(
            f"adopt: {folder / _PREPROCESSOR}: image_processor must be an object, got {type(settings).__name__}"
        )
    return settings


def _image_processor(path: Path, settings: Mapping[str, Any], fixed: list[int] | None) -> Entries:
    """Return the preprocessing of an image processor's settings, for a file that may have a fixed size."""
    resample = settings.get("resample", 2)
    if resample not in _INTERPOLATIONS:
        raise ValueError(f"adopt: {path}: resample must be 2, bilinear, or 3, bicubic, got {resample}")
    is_pillow = str(settings.get("image_processor_type", "")).endswith("Pil")
    backend = "pillow" if is_pillow else "torchvision"
    entries: Entries = {"to_rgb": True, "resize_backend": backend, "interpolation": _INTERPOLATIONS[resample]}
    scale = 1 / settings.get("rescale_factor", 1 / 255) if settings.get("do_rescale", True) else 1.0
    if settings.get("do_normalize", True):
        scaled = {  # float32, as transformers computes them
            entry: [float(np.float32(value) * np.float32(scale)) for value in settings[f"image_{entry}"]]
            for entry in ("mean", "std")
        }
        entries |= scaled | {"divide": True}
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
    if boxes.shape is not None and boxes.shape[-2] is not None:
        entries["max_detections"] = boxes.shape[-2]
    size = file.size()
    if size is None:
        return entries
    preprocessing = {
        "size": size,
        "keep_ratio": False,
        "to_rgb": True,
        **_IMAGENET,
        "to_float32": True,
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
    """Return the layout of YOLOX's own export, (N, cells of three grids, 5 + classes), with boxes decoded or not."""
    size, output = file.size(), next(iter(file.outputs.values()))
    if size is None or len(file.outputs) != 1 or len(output.shape or ()) != 3:
        return None
    assert output.shape is not None
    strides = [8, 16, 32]
    if output.shape[1] != _cells(size, strides) or (output.shape[2] or 0) < 6 or file.metadata.get("names"):
        return None
    # Centres of raw boxes are offsets in cells.
    is_raw = np.median(np.abs(file.results()[output.name][..., :2])) < strides[0]
    return {
        "boxes": f"{output.name}[:4]",
        "box_format": "cxcywh",
        "objectness": f"{output.name}[4]",
        "scores": f"{output.name}[5:]",
        **({"strides": strides} if is_raw else {}),
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
    return sum(-(-size[0] // stride) * -(-size[1] // stride) for stride in strides)


def _picodet(file: ForeignFile) -> Entries | None:
    """Return the layout of PaddleDetection's PicoDet without its post-processing: scores and distances of each grid."""
    size, shapes = file.size(), [output.shape or () for output in file.outputs.values()]
    if size is None or len(shapes) != 2 * len(_PICODET_STRIDES) or any(len(shape) != 3 for shape in shapes):
        return None
    counts = [_cells(size, [stride]) for stride in _PICODET_STRIDES]
    if [shape[1] for shape in shapes] != 2 * counts or {shape[2] or 1 for shape in shapes[4:]} != {32}:
        return None
    names, half = list(file.outputs), len(counts)
    preprocessing = {
        "size": size,
        "keep_ratio": False,
        "to_rgb": "character" not in file.metadata,  # RapidLayout, which writes it, leaves images blue first
        **_IMAGENET,
        "clip_boxes": True,
    }
    entries: Entries = {
        "boxes": " + ".join(names[half:]),
        "box_format": "ltrb",
        "scores": " + ".join(names[:half]),
        "strides": list(_PICODET_STRIDES),
        "multi_label": True,
        "iou_threshold": 0.6,
        "score_threshold": 0.025,
        "max_detections": 100,
        "preprocessing": preprocessing,
    }
    if "character" in file.metadata:
        entries["classes"] = file.metadata["character"].splitlines()
    return entries


_PICODET_STRIDES = (8, 16, 32, 64)


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
    if (len(boxes), len(scores), len(integers)) != (1, 1, 2) or results[integers[-1]].shape != (2,):
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


RECOGNIZERS: dict[str, Callable[[ForeignFile], Entries | None]] = {
    "ultralytics": _ultralytics,
    "transformers": _transformers,
    "RF-DETR": _rf_detr,
    "detectron2": _detectron2,
    "torchvision": _torchvision,
    "PaddleDetection": _picodet,
    "YOLOX": _yolox,
}
"""By exporter, those that are surest first."""


def _literal(file: ForeignFile, key: str, required: str, check: Callable[[Any], bool]) -> Any:
    """Return an entry of ultralytics' metadata, which is Python's text of a value."""
    text = file.metadata[key]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes that Python does not know
            if len(text) <= MAX_LITERAL and check(value := ast.literal_eval(text)):
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


def _json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file."""
    try:
        values = json.loads(read_bytes("config", path, MAX_PREPROCESSOR_BYTES))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"adopt: {path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"adopt: {path} must be an object, got {type(values).__name__}")
    return values
