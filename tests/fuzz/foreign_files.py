"""Files of other exporters with a change or two: adopted and run, or refused in one line.

python -m tests.fuzz.foreign_files --seconds 60 [--seed N] [--count N]
"""

import json
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

import mmort
import mmort.onnx
from mmort.onnx.adopt import Question
from tests.fuzz.children import Fuzzer, main
from tests.onnx.foreign import CLASSES, HEIGHT, WIDTH, ultralytics, write

COUNT = 40
ENTRIES: dict[str, tuple[Any, ...]] = {
    "boxes": ("output0[:4]", "output0[1:5]", "boxes", "output0", "output1", "[", "output0[9999:10003]"),
    "box_format": ("xyxy", "xywh", "cxcywh", "yxyx"),
    "scores": ("output0[4:7]", "output0[4]", "scores", "output0[99]", "boxes", "output1"),
    "labels": ("output0[5]", "labels", None, "scores"),
    "objectness": ("output0[4]", None, "scores"),
    "angle": ("output0[6]", "output0[7]", None, "boxes"),
    "keypoints": ("output0[5:11]", "output0[7:]", None, "boxes"),
    "keypoint_columns": (2, 3, 0, -1, 2**40),
    "masks": ("masks", "output0[7:]", None, "boxes", "output1"),
    "prototypes": ("output1", None, "masks", "output0"),
    "mask_format": (
        {"area": "image", "stride": 4096},
        {"area": "box"},
        {"threshold": 1e38},
        {"rescaling": "edges"},
        None,
    ),
    "box_unit": ("pixels", "relative"),
    "activation": ("none", "sigmoid", "softmax"),
    "background": ("none", "first", "last"),
    "columns_first": (True, False),
    "strides": ([8, 16, 32], [1], [0], [2**40], None),
    "multi_label": (True, False),
    "iou_threshold": (0.0, 0.5, 1.0, 2.0, None),
    "class_agnostic": (True, False),
    "score_threshold": (0.0, 0.5, 1.0, -1),
    "max_detections": (1, 300, 0, 2**31, 2**62),
    "classes": (CLASSES, [], ["a"], ["a"] * 1000, None),
    "preprocessing": (
        {"size": [WIDTH, HEIGHT], "keep_ratio": False},
        {"size": [2**12, 2**12]},
        {"size": [1, 1], "padding": {"size": [WIDTH, HEIGHT], "centred": True}},
        {"padding": {"size_divisor": 4096}},
        {},
    ),
}
"""Values of the entries of a layout, most of which suit some file."""

TEXTS = (
    "",
    "[",
    "7",
    "{}",
    "[4, 3]",
    "[2**9, 3]",
    "[100000, 100000]",
    "[64, 96]",
    "{0: 'a'}",
    "{'nms': True}",
    "True",
    "x" * 9999,
)


class Case(NamedTuple):
    """A file, the layout that is passed with it, and an image's height and width."""

    path: Path
    layout: dict[str, Any]
    image: tuple[int, int]


def boxes(draw: np.random.Generator, count: int) -> np.ndarray:
    """Return boxes cx, cy, w, h in pixels."""
    return np.concatenate([draw.uniform(10, 60, (count, 2)), draw.uniform(5, 40, (count, 2))], 1)


def yolo(task: str, further: int, **metadata: str) -> Callable[[np.random.Generator, bool], dict[str, Any]]:
    """Return a writer's arguments for a task of ultralytics with further columns, with or without suppression."""

    def arguments(draw: np.random.Generator, selected: bool) -> dict[str, Any]:
        more = draw.uniform(0, 1, (COUNT, further))
        if "head" in metadata:
            selected, places = True, draw.uniform(0.2, 0.5, (COUNT, 4))  # of RT-DETR, relative
        else:
            places = boxes(draw, COUNT)
        if selected and task != "obb" and "head" not in metadata:
            places = np.concatenate([places[:, :2] - places[:, 2:] / 2, places[:, :2] + places[:, 2:] / 2], 1)
        if selected:
            choice = draw.uniform(0, 1, (COUNT, 1)), draw.integers(0, 3, (COUNT, 1))
            rows = np.concatenate([places, *choice, more], 1)
        else:
            rows = np.concatenate([places, draw.uniform(0, 1, (COUNT, 3)), more], 1).T
        outputs = {"output0": rows}
        if task == "segment":
            outputs["output1"] = draw.normal(0, 1, (further, HEIGHT // 4, WIDTH // 4))
        entries = ultralytics(task=task, args=f"{{'nms': {selected}}}", **metadata)
        return {"outputs": outputs, "metadata": entries}

    return arguments


def torchvision(draw: np.random.Generator, has_masks: bool) -> dict[str, Any]:
    """Return a writer's arguments for an image without a batch."""
    corners = np.sort(draw.uniform(0, 60, (COUNT, 2, 2)), 1).reshape(COUNT, 4)
    outputs = {"boxes": corners, "labels": draw.integers(0, 4, COUNT), "scores": draw.uniform(0, 1, COUNT)}
    if has_masks:
        outputs["masks"] = draw.uniform(0, 1, (COUNT, 1, HEIGHT, WIDTH))
    return {"outputs": outputs, "image": (3, HEIGHT, WIDTH), "name": "image"}


def yolox(draw: np.random.Generator, _: bool) -> dict[str, Any]:
    """Return a writer's arguments for boxes on grids."""
    cells = sum((HEIGHT // stride) * (WIDTH // stride) for stride in (8, 16, 32))
    return {"outputs": {"output0": draw.uniform(0, 1, (cells, 8))}, "image": (1, 3, HEIGHT, WIDTH)}


def queries(draw: np.random.Generator, has_names_of_mmort: bool) -> dict[str, Any]:
    """Return a writer's arguments for RF-DETR, or transformers."""
    names = ("dets", "labels") if has_names_of_mmort else ("pred_boxes", "logits")
    arrays = draw.uniform(0.2, 0.5, (COUNT, 4)), draw.normal(0, 2, (COUNT, 4))
    return {"outputs": dict(zip(names, arrays, strict=True))}


KINDS = (
    yolo("detect", 0),
    yolo("segment", 8),
    yolo("obb", 1),
    yolo("pose", 6, kpt_shape="[2, 3]"),
    yolo("detect", 0, head="RTDETRDecoder"),
    torchvision,
    yolox,
    queries,
)


def change(rng: random.Random, arguments: dict[str, Any], layout: dict[str, Any]) -> None:
    """Change the metadata, an output, the input or the layout."""
    kind = rng.randrange(6)
    outputs, metadata = arguments["outputs"], arguments.get("metadata")
    name = rng.choice(list(outputs))
    array = outputs[name]
    if kind == 0 and metadata:
        metadata[rng.choice(list(metadata))] = rng.choice(TEXTS)
    elif kind == 1:
        axis = rng.randrange(array.ndim)
        outputs[name] = (
            np.repeat(array, rng.choice((0, 1, 2)), axis) if rng.random() < 0.5 else np.delete(array, slice(1), axis)
        )
    elif kind == 2:
        special = rng.choice((np.nan, np.inf, -1e30, 1e30, 0, -1))
        if array.dtype == np.float64 and array.size:
            outputs[name] = np.where(np.random.default_rng(rng.randrange(99)).random(array.shape) < 0.3, special, array)
    elif kind == 3:
        outputs[rng.choice(("extra", "masks", name))] = array[None] if rng.random() < 0.5 else array[..., :1]
    elif kind == 4:
        image = list(arguments.get("image", ("n", 3, HEIGHT, WIDTH)))
        image[rng.randrange(len(image))] = rng.choice((1, 3, "h", 31, HEIGHT, WIDTH, 2048))
        arguments["image"] = tuple(image)
    else:
        entry = rng.choice(list(ENTRIES))
        layout[entry] = rng.choice(ENTRIES[entry])


def make(rng: random.Random, folder: Path) -> Case:
    """Write a file; return it, and what is done with it."""
    draw = np.random.default_rng(rng.randrange(2**32))
    arguments, layout = rng.choice(KINDS)(draw, rng.random() < 0.5), dict[str, Any]()
    if set(arguments["outputs"]) == {"pred_boxes", "logits"}:
        layout = {"activation": "sigmoid", "preprocessing": {"size": [WIDTH, HEIGHT], "keep_ratio": False}}
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        change(rng, arguments, layout)
    path = write(folder / "model.onnx", opset=rng.choice((11, 13, 17, 17, 18, 18)), **arguments)
    (folder / "layout.json").write_text(json.dumps(layout))
    return Case(path, layout, rng.choice(((HEIGHT, WIDTH), (1, 1), (40, 200), (300, 3))))


def run(case: Case) -> None:
    """Adopt a file, and detect in an image."""
    output = case.path.with_name("out.onnx")
    try:
        str(mmort.onnx.adopt(case.path, output, case.layout))
    except ValueError as error:
        if ("\n" in str(error) and not isinstance(error, Question)) or output.exists():
            raise AssertionError(f"{output.exists()}, {error}") from error
        raise
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of boxes that are not finite, and of padding
        detections = mmort.Predictor(output, score_threshold=0)(np.zeros((*case.image, 3), np.uint8))
        detections.to_json()
    assert detections.image_size == case.image


if __name__ == "__main__":
    mmort.set_num_threads(1)
    onnxruntime.set_default_logger_severity(4)
    sys.exit(main(Fuzzer("foreign files", make, run, (ValueError, OSError), 50)))
