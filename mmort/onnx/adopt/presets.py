"""`PRESETS`: exporters whose files do not say how images become their input, each with the source of what is known.

A preset fits a file whose outputs have one of its forms.  That is a guess: other exporters write the same shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from mmort.contract.metadata import read_preprocessing
from mmort.onnx.adopt.foreign_file import IMAGENET, NOISE, Entries, ForeignFile, cells, parsed_literal, scaled_to_one
from mmort.onnx.adopt.image_processors import default_settings, image_processor
from mmort.onnx.adopt.inputs import Tensor
from mmort.onnx.adopt.own_steps import OwnSteps

Form = Callable[[ForeignFile], Entries | None]
"""Returns the entries of a layout for the outputs of a file, without preprocessing; None if it has other outputs."""


class Preset(NamedTuple):
    """An exporter."""

    exporter: str
    forms: tuple[Form, ...]
    prepare: Callable[[ForeignFile], Entries]
    """Returns the preprocessing for a file."""
    source: str
    """Where the exporter's own code says so."""
    more: Mapping[str, Any] = MappingProxyType({})
    """Further entries of the layout."""

    def entries(self, file: ForeignFile) -> Entries | None:
        """Return the entries of a layout; None if the file has not the outputs for it.

        Preprocessing is missing if the file does a part of it which is not the exporter's.
        """
        found = next(filter(None, (form(file) for form in self.forms)), None)
        if found is None:
            return None
        names = _names(file, found)
        classes = {} if names is None else {"classes": names}
        remaining = _remaining(self.prepare(file), file.own_steps)
        return found | dict(self.more) | classes | ({} if remaining is None else {"preprocessing": remaining})


def _remaining(prepare: Entries, done: OwnSteps) -> Entries | None:
    """Return the rest of an exporter's preprocessing that the file does not do; None if the file's part is not its."""
    if done.reverses:
        prepare = prepare | {"to_rgb": not prepare.get("to_rgb", False)}
    if not done.divides:
        return prepare
    is_divided = prepare.get("std") == scaled_to_one()["std"] and "mean" not in prepare
    return {name: value for name, value in prepare.items() if name not in ("std", "divide")} if is_divided else None


def fitting(file: ForeignFile) -> dict[str, Entries]:
    """Return the entries of each preset that fits a file."""
    entries = ((name, preset.entries(file)) for name, preset in PRESETS.items())
    return {name: found for name, found in entries if found is not None and "preprocessing" in found}


def makes_inputs(file: ForeignFile, prepare: Entries) -> bool:
    """Return whether a preprocessing makes an input of the size that a file takes, of the image of noise at least."""
    size, settings = file.size(), read_preprocessing(prepare)
    if size is None:
        return True
    width, height = settings.resized_size(*NOISE[::-1])
    return settings.finish(np.zeros((height, width, 3), np.uint8), NOISE).pad_shape == (size[1], size[0])


def _only_output(file: ForeignFile, rank: int) -> Tensor | None:
    """Return the file's output if there is one only, with this number of dimensions."""
    outputs = list(file.outputs.values())
    return outputs[0] if len(outputs) == 1 and len(outputs[0].shape or ()) == rank else None


def _shape(file: ForeignFile, output: Tensor) -> tuple[int, ...]:
    """Return the shape of an output, of a run where the file does not state it."""
    if output.shape is not None and all(output.shape):
        return tuple(size or 0 for size in output.shape)
    return file.results()[output.name].shape


def _grid(file: ForeignFile, per_cell: int) -> Tensor | None:
    """Return the only output if it has so many rows for each cell of the usual grids, and columns for an objectness."""
    output = _only_output(file, 3)
    if output is None:
        return None
    _, rows, columns = _shape(file, output)
    strides = ([8, 16, 32], [8, 16, 32, 64])
    fits = rows in [per_cell * cells(file.run_size(), grid) for grid in strides]
    return output if fits and columns >= 6 else None


def _with_objectness(output: Tensor) -> Entries:
    """Return the entries of rows of a box, its objectness, and a score for each class."""
    name = output.name
    return {
        "boxes": f"{name}[:4]",
        "box_format": "cxcywh",
        "objectness": f"{name}[4]",
        "scores": f"{name}[5:]",
        "score_threshold": 0.001,
    }


def _yolox(file: ForeignFile) -> Entries | None:
    """Return the entries of a row for each cell, with boxes decoded or not."""
    output = _grid(file, 1)
    if output is None or _constant_objectness(file, output):
        return None
    # Centres of raw boxes are offsets in cells.
    is_raw = bool(np.median(np.abs(file.results()[output.name][..., :2])) < 8)
    if is_raw and (file.size() is None or _shape(file, output)[1] != cells(file.run_size(), [8, 16, 32])):
        return None
    grids = {"strides": [8, 16, 32]} if is_raw else {}
    return _with_objectness(output) | grids | {"iou_threshold": 0.65}


def _yolov6(file: ForeignFile) -> Entries | None:
    """Return the entries of a row for each cell, whose objectness is always 1."""
    output = _grid(file, 1)
    if output is None or not _constant_objectness(file, output):
        return None
    return _with_objectness(output) | {"iou_threshold": 0.45, "max_detections": 1000}


def _constant_objectness(file: ForeignFile, output: Tensor) -> bool:
    """Return whether the fifth column of an output is 1 in all rows."""
    return bool((file.results()[output.name][..., 4] == 1).all())


def _anchors(file: ForeignFile) -> Entries | None:
    """Return the entries of three rows for each cell, of three anchors."""
    output = _grid(file, 3)
    return None if output is None else _with_objectness(output) | {"iou_threshold": 0.45}


def _anchors_of_yolov7(file: ForeignFile) -> Entries | None:
    """Return the entries of YOLOv7's rows, whose score is the objectness if there is one class."""
    entries, output = _anchors(file), next(iter(file.outputs.values()))
    if entries is None or _shape(file, output)[2] != 6:
        return entries
    return {name: value for name, value in entries.items() if name != "objectness"} | {"scores": f"{output.name}[4:5]"}


def _classes_only(file: ForeignFile) -> Entries | None:
    """Return the entries of a box and a score for each class, in columns or rows, for each cell."""
    output = _only_output(file, 3)
    if output is None:
        return None
    _, first, second = _shape(file, output)
    numbers = [cells(file.run_size(), grid) for grid in ([8, 16, 32], [8, 16, 32, 64])]
    columns_first = second in numbers
    if (not columns_first and first not in numbers) or min(first, second) < 5:
        return None
    boxes = file.results()[output.name]
    boxes = boxes[:, :2] if columns_first else boxes[..., :2]
    if np.median(np.abs(boxes)) < 8:  # of raw boxes
        return None
    layout = {"columns_first": True} if columns_first else {}
    return {
        "boxes": f"{output.name}[:4]",
        "box_format": "cxcywh",
        "scores": f"{output.name}[4:]",
        "iou_threshold": 0.7,
        "score_threshold": 0.001,
        **layout,
    }


def _six_columns(file: ForeignFile) -> Entries | None:
    """Return the entries of rows of two corners, a score and a class, chosen by the file."""
    output = _only_output(file, 3)
    if output is None or _shape(file, output)[2] != 6 or not 1 <= _shape(file, output)[1] <= 1000:
        return None
    name, rows = output.name, file.results()[output.name]
    if not _are_labels(rows[..., 5]):
        return None
    return {"boxes": f"{name}[:4]", "box_format": "xyxy", "scores": f"{name}[4]", "labels": f"{name}[5]"}


def _seven_columns(file: ForeignFile) -> Entries | None:
    """Return the entries of rows of an image's index, two corners, a class and a score, of all images."""
    output = _only_output(file, 2)
    if output is None or _shape(file, output)[1] != 7:
        return None
    name, rows = output.name, file.results()[output.name]
    if not _are_labels(rows[:, 0]) or not _are_labels(rows[:, 5]):
        return None
    return {
        "boxes": f"{name}[1:5]",
        "box_format": "xyxy",
        "scores": f"{name}[6]",
        "labels": f"{name}[5]",
        "batch_index": f"{name}[0]",
    }


def _are_labels(values: Any) -> bool:
    """Return whether all values are integers from 0."""
    return bool(((values == np.round(values)) & (values >= 0)).all())


def _efficient_nms(file: ForeignFile) -> Entries | None:
    """Return the entries of the four outputs of TensorRT's EfficientNMS, by their usual names."""
    names = ("num_dets", "det_boxes", "det_scores", "det_classes")
    if set(file.outputs) != set(names):
        return None
    counts, boxes, scores, labels = names
    return {"boxes": boxes, "box_format": "xyxy", "scores": scores, "labels": labels, "row_counts": counts}


def paddle_rows(file: ForeignFile) -> Entries | None:
    """Return the entries of PaddleDetection's post-processing: class, score and corners, and the rows of each image."""
    meanings = {meaning for _, meaning in file.inputs.further}
    floats = [output for output in file.outputs.values() if output.dtype == "float32" and len(output.shape or ()) == 2]
    counts = [output for output in file.outputs.values() if output.dtype in ("int32", "int64")]
    if "scale_hw" not in meanings or len(floats) != 1 or len(counts) != 1 or _shape(file, floats[0])[1] != 6:
        return None
    name = floats[0].name
    return {
        "boxes": f"{name}[2:]",
        "box_format": "xyxy",
        "box_unit": "original",
        "scores": f"{name}[1]",
        "labels": f"{name}[0]",
        "row_counts": counts[0].name,
    }


def picodet_maps(file: ForeignFile) -> Entries | None:
    """Return the entries of PicoDet without post-processing: the scores of each of four grids, then the distances."""
    size, shapes = file.size(), [output.shape or () for output in file.outputs.values()]
    if size is None or len(shapes) != 2 * len(_PICODET_STRIDES) or any(len(shape) != 3 for shape in shapes):
        return None
    counts = [cells(size, [stride]) for stride in _PICODET_STRIDES]
    if [shape[1] for shape in shapes] != 2 * counts or {shape[2] or 1 for shape in shapes[4:]} != {32}:
        return None
    names, half = list(file.outputs), len(counts)
    return {
        "boxes": " + ".join(names[half:]),
        "box_format": "ltrb",
        "scores": " + ".join(names[:half]),
        "strides": list(_PICODET_STRIDES),
        "multi_label": True,
        "iou_threshold": 0.6,
        "score_threshold": 0.025,
        "max_detections": 100,
    }


_PICODET_STRIDES = (8, 16, 32, 64)


def _original_sizes(file: ForeignFile) -> Entries | None:
    """Return the entries of labels, boxes and scores in the original image, whose width and height are an input."""
    meanings = [meaning for _, meaning in file.inputs.further]
    if meanings != ["original_wh"] or not {"labels", "boxes", "scores"} <= set(file.outputs):
        return None
    boxes = file.outputs["boxes"]
    if len(boxes.shape or ()) != 3 or file.outputs["labels"].dtype not in ("int64", "int32"):
        return None
    return {"boxes": "boxes", "box_format": "xyxy", "box_unit": "original", "scores": "scores", "labels": "labels"}


QUERIES: Entries = {"boxes": "pred_boxes", "box_format": "cxcywh", "box_unit": "relative", "scores": "logits"}
"""The entries of transformers' object detection, without what its classes are."""


def has_queries(file: ForeignFile) -> bool:
    """Return whether a file has the outputs of transformers' object detection."""
    return {"logits", "pred_boxes"} <= set(file.outputs)


def matches_words(file: ForeignFile) -> bool:
    """Return whether logits are how well queries match words, whose scale OWL-ViT and OWLv2 make positive by an Elu."""
    return has_queries(file) and "Elu" in file.operators


def queries(file: ForeignFile) -> Entries | None:
    """Return the entries of transformers' object detection, without its classes.

    Grounding DINO's logits are of the tokens of a text, and -inf where it has none.
    """
    return QUERIES if has_queries(file) and not np.isneginf(file.results()["logits"]).any() else None


def _queries_of_classes(file: ForeignFile) -> Entries | None:
    """Return the entries of files whose logits are of classes."""
    return None if matches_words(file) else _all_queries(file)


def _queries_of_words(file: ForeignFile) -> Entries | None:
    """Return the entries of OWL-ViT and OWLv2, whose classes are words that the file holds."""
    return _all_queries(file) if matches_words(file) else None


def _all_queries(file: ForeignFile) -> Entries | None:
    """Return the entries of files of which transformers returns as many detections as there are queries."""
    entries = queries(file)
    return None if entries is None else entries | {"max_detections": _shape(file, file.outputs["logits"])[1]}


def _names(file: ForeignFile, entries: Mapping[str, Any]) -> list[str] | None:
    """Return the names of classes in a file's metadata, under the keys of other libraries, if they fit its scores."""
    names, width = _stated_names(file), _scores(file, entries)
    return names if names and width in (None, len(names)) else None


def _stated_names(file: ForeignFile) -> list[str]:
    """Return the names of classes in a file's metadata; empty if it has none."""
    keys = ("names", "class_names", "classes", "labels")
    return next(filter(None, (_texts(file.metadata.get(key, "")) for key in keys)), [])


def _scores(file: ForeignFile, entries: Mapping[str, Any]) -> int | None:
    """Return how many scores a box has by some entries; None if the file chooses one."""
    output, _, begin = entries["scores"].partition("[")
    if "labels" in entries or output not in file.outputs:
        return None
    shape = _shape(file, file.outputs[output])
    return shape[1 if entries.get("columns_first") else -1] - int(begin.rstrip("]").partition(":")[0] or 0)


def contradiction(file: ForeignFile, entries: Mapping[str, Any]) -> str | None:
    """Return why a file's metadata, which other libraries write, contradicts some entries; None if it does not."""
    task = file.metadata.get("task", "detect")
    if task.lower().replace("_", "-") not in _DETECTION:
        return f"task is {task[:80]}"
    names, width = _stated_names(file), _scores(file, entries)
    if names and width not in (None, len(names)):
        return f"there are {len(names)} names of classes, and {width} scores of a box"
    return None


_DETECTION = ("", "detect", "detection", "object-detection")
"""The words for the task in metadata."""


def _texts(text: str) -> list[str]:
    """Return a list of names, in JSON's or Python's notation, or a dict of them by label; empty if it is neither."""
    value = parsed_literal(text)
    if isinstance(value, dict) and sorted(map(str, value)) == sorted(map(str, range(len(value)))):
        by_label = {str(label): name for label, name in value.items()}
        value = [by_label[str(label)] for label in range(len(by_label))]
    is_names = isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)
    return list(value) if is_names else []


def _size(file: ForeignFile) -> list[int]:
    """Return the width and height of a file's inputs; 640, the usual one, if it takes any."""
    return file.size() or file.stated_size() or [640, 640]


def _letterbox(file: ForeignFile, **changes: Any) -> Entries:
    """Return the preprocessing of YOLOv5 and later ones: red first, from 0 to 1, fitted, and grey on all sides."""
    size = _size(file)
    return scaled_to_one() | {
        "size": size,
        "turn_size": False,
        "padding": {"value": 114.0, "size": size, "centred": True},
        "clip_boxes": True,
        **changes,
    }


def _corner(file: ForeignFile, **changes: Any) -> Entries:
    """Return the preprocessing of YOLOX: blue first, from 0 to 255, fitted, and grey on the right and below."""
    size = _size(file)
    padding = {"value": 114.0, "size": size}
    return {"size": size, "turn_size": False, "rounding": "down", "padding": padding, "by_ratio": True} | changes


def _stretched(file: ForeignFile, **changes: Any) -> Entries:
    """Return the preprocessing that resizes to the input's size, red first and from 0 to 1."""
    return scaled_to_one() | {"size": _size(file), "keep_ratio": False, **changes}


def _processor(stem: str) -> Callable[[ForeignFile], Entries]:
    """Return a function that returns the preprocessing of an image processor of transformers with its defaults."""
    return lambda file: image_processor(default_settings(stem, file.size()), file.size())


_CUBIC = {"interpolation": "bicubic"}
_SIGMOID: Entries = {"activation": "sigmoid", "multi_label": True}
_SOFTMAX: Entries = {"activation": "softmax", "background": "last"}
_TRANSFORMERS = "https://github.com/huggingface/transformers, models/"

PRESETS: dict[str, Preset] = {
    "yolox": Preset(
        "YOLOX",
        (_yolox,),
        _corner,
        "https://github.com/Megvii-BaseDetection/YOLOX, yolox/data/data_augment.py: preproc, ValTransform",
    ),
    "yolox-legacy": Preset(
        "YOLOX before 0.1.1",
        (_yolox,),
        lambda file: _corner(file, to_rgb=True, **IMAGENET),
        "https://github.com/Megvii-BaseDetection/YOLOX, yolox/data/data_augment.py: ValTransform(legacy=True)",
    ),
    "yolov5": Preset(
        "YOLOv5",
        (_anchors,),
        lambda file: _letterbox(file, by_ratio=True),
        "https://github.com/ultralytics/yolov5, utils/augmentations.py: letterbox; detect.py",
        {"max_detections": 1000},
    ),
    "yolov6": Preset(
        "YOLOv6",
        (_yolov6, _efficient_nms),
        lambda file: _letterbox(file, by_ratio=True),
        "https://github.com/meituan/YOLOv6, yolov6/core/inferer.py: process_image",
    ),
    "yolov7": Preset(
        "YOLOv7",
        (_anchors_of_yolov7, _seven_columns, _efficient_nms),
        lambda file: _letterbox(file, by_ratio=True),
        "https://github.com/WongKinYiu/yolov7, utils/datasets.py: letterbox; export.py --end2end",
    ),
    "yolov8": Preset(
        "YOLOv8, YOLO11 or YOLO12 of ultralytics without its metadata",
        (_classes_only,),
        _letterbox,
        "https://github.com/ultralytics/ultralytics, ultralytics/data/augment.py: LetterBox",
    ),
    "yolov9": Preset(
        "YOLOv9",
        (_classes_only,),
        lambda file: _letterbox(file, by_ratio=True),
        "https://github.com/WongKinYiu/yolov9, utils/augmentations.py: letterbox; detect.py",
    ),
    "yolov10": Preset(
        "YOLOv10",
        (_six_columns,),
        _letterbox,
        "https://github.com/THU-MIG/yolov10, ultralytics/data/augment.py: LetterBox",
    ),
    "ppyoloe": Preset(
        "PP-YOLOE or PicoDet of PaddleDetection",
        (paddle_rows,),
        lambda file: _stretched(file, **IMAGENET, **_CUBIC),
        "https://github.com/PaddlePaddle/PaddleDetection, configs/ppyoloe/_base_/ppyoloe_reader.yml",
    ),
    "ppyoloe-plus": Preset(
        "PP-YOLOE+, or RT-DETR and PP-DocLayout of PaddleDetection",
        (paddle_rows,),
        lambda file: _stretched(file, **_CUBIC),
        "https://github.com/PaddlePaddle/PaddleDetection, configs/ppyoloe/_base_/ppyoloe_plus_reader.yml, "
        "configs/rtdetr/_base_/rtdetr_reader.yml",
    ),
    "picodet": Preset(
        "PicoDet of PaddleDetection without post-processing",
        (picodet_maps,),
        lambda file: _stretched(file, **IMAGENET, **_CUBIC, clip_boxes=True),
        "https://github.com/PaddlePaddle/PaddleDetection, configs/picodet/_base_/picodet_320_reader.yml",
    ),
    "rtdetr": Preset(
        "RT-DETR",
        (_original_sizes,),
        lambda file: _stretched(file, resize_backend="pillow"),
        "https://github.com/lyuwenyu/RT-DETR, rtdetrv2_pytorch/references/deploy/rtdetrv2_onnxruntime.py",
    ),
    "dfine": Preset(
        "D-FINE",
        (_original_sizes,),
        lambda file: _stretched(file, resize_backend="pillow"),
        "https://github.com/Peterande/D-FINE, tools/inference/torch_inf.py, configs/dfine/include/dataloader.yml",
    ),
    "deim": Preset(
        "DEIM",
        (_original_sizes,),
        lambda file: _stretched(file, resize_backend="pillow"),
        "https://github.com/ShihuaHuang95/DEIM, tools/inference/torch_inf.py",
    ),
    "deimv2-dinov3": Preset(
        "DEIMv2 with a backbone of DINOv3",
        (_original_sizes,),
        lambda file: _stretched(file, **IMAGENET, resize_backend="pillow"),
        "https://github.com/Intellindust-AI-Lab/DEIMv2, tools/inference/torch_inf.py",
    ),
    "detr": Preset(
        "DETR of transformers", (_queries_of_classes,), _processor("Detr"), f"{_TRANSFORMERS}detr", _SOFTMAX
    ),
    "yolos": Preset(
        "YOLOS of transformers", (_queries_of_classes,), _processor("Yolos"), f"{_TRANSFORMERS}yolos", _SOFTMAX
    ),
    "rtdetr-transformers": Preset(
        "RT-DETR or D-FINE of transformers",
        (_queries_of_classes,),
        _processor("RTDetr"),
        f"{_TRANSFORMERS}rt_detr, d_fine",
        _SIGMOID,
    ),
    "owlvit": Preset(
        "OWL-ViT of transformers",
        (_queries_of_words,),
        _processor("OwlViT"),
        f"{_TRANSFORMERS}owlvit",
        {"activation": "sigmoid"},
    ),
}
"""Exporters by the name that ``--preset`` takes."""


def listing() -> str:
    """Return the presets, a line for each with its source."""
    width = max(map(len, PRESETS))
    return "\n".join(f"{name:<{width}}  {preset.exporter}; {preset.source}" for name, preset in PRESETS.items())
