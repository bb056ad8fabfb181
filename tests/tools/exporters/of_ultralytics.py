"""Files of ultralytics, in all tasks and by its options, with random weights such that they detect something."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from tests.tools.exporters.exporter import SIDE, Exporter, Rows, images, normalized, photos

IOU_THRESHOLD = 0.7


def spread(network: torch.nn.Module) -> None:
    """Let a network of ultralytics detect something: normalize its layers by images, and spread scores.

    For rotated boxes these are photos, so that no scores of photos are 1: torch sorts equal ones in any order, and
    each box suppresses those after it.
    """
    network.train()
    normalized(network, network, photos if network.task == "obb" else images)
    head = network.model[-1]
    with torch.no_grad():
        for name in ("cv3", "one2one_cv3"):
            for layers in getattr(head, name, None) or ():
                layers[-1].weight.normal_(0, 0.06)
                if layers[-1].bias is not None:
                    layers[-1].bias.fill_(-4.0)
        for name in ("cv2", "one2one_cv2"):
            for layers in getattr(head, name, None) or ():
                layers[-1].weight.normal_(0, 0.3 if layers[-1].weight.shape[0] > 4 else 0.004)
                if layers[-1].weight.shape[0] == 4:
                    layers[-1].bias.uniform_(2, 4)


def yolo(stem: str, classes: int = 3, **arguments: Any) -> Exporter:
    """Return a model of ultralytics with random weights, exported with some arguments."""

    def make(folder: Path) -> Path:
        from ultralytics import YOLO

        torch.manual_seed(0)
        model = YOLO(f"{stem}.yaml")
        network = type(model.model)(f"{stem}.yaml", nc=classes, verbose=False)
        network.args, network.task = model.model.args, model.model.task
        spread(network)
        model.model = network
        settings = {"imgsz": SIDE, "simplify": False, "conf": 0.001, "iou": IOU_THRESHOLD} | arguments
        return moved(model.export(format="onnx", **settings), folder)

    detect = predicted(arguments)
    is_half = bool(arguments.get("half"))
    return Exporter(make, detect, is_half=is_half, iou_threshold=IOU_THRESHOLD)


def rt_detr(stem: str, **arguments: Any) -> Exporter:
    """Return ultralytics' RT-DETR with random weights."""

    def make(folder: Path) -> Path:
        from ultralytics import RTDETR

        torch.manual_seed(0)
        settings = {"imgsz": SIDE, "simplify": False} | arguments
        return moved(RTDETR(f"{stem}.yaml").export(format="onnx", **settings), folder)

    return Exporter(make, predicted(arguments))


def yoloe(stem: str, **arguments: Any) -> Exporter:
    """Return YOLOE with random weights and random embeddings of three words."""

    def make(folder: Path) -> Path:
        from ultralytics import YOLOE

        torch.manual_seed(0)
        model = YOLOE(f"{stem}.yaml")
        network = model.model
        network.train()
        network.set_classes(["cat", "dog", "owl"], torch.nn.functional.normalize(torch.randn(1, 3, 512), dim=-1))
        normalized(network, network)
        settings = {"imgsz": SIDE, "simplify": False, "conf": 0.001, "iou": IOU_THRESHOLD} | arguments
        return moved(model.export(format="onnx", **settings), folder)

    return Exporter(make, predicted(arguments), iou_threshold=IOU_THRESHOLD)


def without_metadata(exporter: Exporter, preset: str) -> Exporter:
    """Return the same file without metadata, as other scripts write it, and the preset that says the rest."""

    def make(folder: Path) -> Path:
        path = exporter.make(folder)
        path.rename(folder / "complete.onnx")
        model = onnx.load(folder / "complete.onnx")
        del model.metadata_props[:]
        onnx.save(model, path)
        return path

    def detect(path: Path, image: np.ndarray) -> Rows:
        return exporter.detect(path.with_name("complete.onnx"), image)

    return exporter._replace(make=make, detect=detect, preset=preset, layout={"classes": ["0", "1", "2"]})


def moved(exported: Any, folder: Path) -> Path:
    """Return the path of an exported file after it was moved into a folder."""
    return Path(exported).rename(folder / "model.onnx")


@lru_cache(maxsize=1)
def loaded(path: Path) -> Any:
    """Return ultralytics' model of a file."""
    from ultralytics import YOLO

    return YOLO(path, task={entry.key: entry.value for entry in onnx.load(path).metadata_props}["task"])


def predicted(arguments: Mapping[str, Any] | None = None) -> Any:
    """Return a function that predicts with a file of ultralytics, exported with some arguments."""
    stated = dict(arguments or {})

    def detect(path: Path, image: np.ndarray) -> Rows:
        settings = {"conf": 0.001, "iou": IOU_THRESHOLD, "max_det": 300, "retina_masks": True, "verbose": False}
        settings |= {key: value for key, value in stated.items() if key in ("conf", "max_det", "agnostic_nms")}
        size = stated.get("imgsz", SIDE)
        count = stated.get("batch", 1)
        results = loaded(path).predict([image] * count, imgsz=size, batch=count, **settings)
        result = results[0]
        if result.obb is not None:
            return result.obb.xywhr.numpy(), result.obb.conf.numpy(), result.obb.cls.numpy()
        return result.boxes.xyxy.numpy(), result.boxes.conf.numpy(), result.boxes.cls.numpy()

    return detect


FILES = {
    **{
        f"ultralytics {stem}": yolo(stem)
        for stem in (
            *(
                "yolov3-tiny",
                "yolov5n",
                "yolov5n-p6",
                "yolov6n",
                "yolov8n",
                "yolov8n-p2",
                "yolov8n-p6",
                "yolov8n-ghost",
            ),
            *("yolov8n-world", "yolov8n-worldv2", "yolov9t", "yolov10n", "yolo11n", "yolo12n", "yolo26n", "yolo26n-p2"),
            *("yolov8n-seg", "yolo11n-seg", "yolo12n-seg", "yolo26n-seg", "yolov8n-obb", "yolo11n-obb", "yolo12n-obb"),
            *("yolo26n-obb", "yolov8n-pose", "yolov8n-pose-p6", "yolo11n-pose", "yolo12n-pose", "yolo26n-pose"),
        )
    },
    **{
        f"ultralytics {stem}, nms=True": yolo(stem, nms=True)
        for stem in ("yolov5n", "yolov8n", "yolo11n", "yolo12n", "yolo11n-seg", "yolo11n-obb", "yolo11n-pose")
    },
    "ultralytics yolo26n, nms=False": yolo("yolo26n", nms=False),
    "ultralytics yolo26n, end2end=False": yolo("yolo26n", end2end=False),
    "ultralytics yolov10n, one class": yolo("yolov10n", classes=1),
    "ultralytics yolov8n, one class": yolo("yolov8n", classes=1),
    "ultralytics yolov8n, dynamic": yolo("yolov8n", dynamic=True),
    "ultralytics yolo11n, dynamic, nms=True": yolo("yolo11n", dynamic=True, nms=True),
    "ultralytics yolov10n, dynamic": yolo("yolov10n", dynamic=True),
    "ultralytics yolov8n, half": yolo("yolov8n", half=True),
    "ultralytics yolo11n, half, nms=True": yolo("yolo11n", half=True, nms=True),
    "ultralytics yolo26n, half": yolo("yolo26n", half=True),
    "ultralytics yolo11n-seg, half": yolo("yolo11n-seg", half=True),
    "ultralytics yolov8n, opset 12": yolo("yolov8n", opset=12),
    "ultralytics yolo11n, opset 20": yolo("yolo11n", opset=20),
    "ultralytics yolo11n, simplify": yolo("yolo11n", simplify=True),
    "ultralytics yolov8n, batch 2": yolo("yolov8n", batch=2),
    "ultralytics yolo11n, batch 2, nms=True": yolo("yolo11n", batch=2, nms=True),
    "ultralytics yolov8n, 224 x 416": yolo("yolov8n", imgsz=(224, 416)),
    "ultralytics yolo11n, agnostic nms": yolo("yolo11n", nms=True, agnostic_nms=True),
    "ultralytics yolo11n, nms=True, max_det 10, conf 0.05": yolo("yolo11n", nms=True, max_det=10, conf=0.05),
    "ultralytics yoloe-11s": yoloe("yoloe-11s"),
    "ultralytics yoloe-v8s-seg": yoloe("yoloe-v8s-seg"),
    "ultralytics yoloe-11s-seg, nms=True": yoloe("yoloe-11s-seg", nms=True),
    "ultralytics rtdetr-l": rt_detr("rtdetr-l"),
    "ultralytics rtdetr-resnet50": rt_detr("rtdetr-resnet50"),
    "ultralytics rtdetr-l, half": rt_detr("rtdetr-l", half=True)._replace(is_half=True),
    "ultralytics rtdetr-l, dynamic": rt_detr("rtdetr-l", dynamic=True),
    "ultralytics yolov8n-cls (a classifier)": yolo("yolov8n-cls"),
    "ultralytics yolo26n-sem (semantic segmentation)": yolo("yolo26n-sem"),
    "ultralytics yolov8n without metadata": without_metadata(yolo("yolov8n"), "yolov8"),
    "ultralytics yolo11n without metadata, opset 12": without_metadata(yolo("yolo11n", opset=12), "yolov8"),
    "ultralytics yolov10n without metadata": without_metadata(yolo("yolov10n"), "yolov10"),
    "ultralytics yolo11n, nms=True, without metadata": without_metadata(yolo("yolo11n", nms=True), "yolov10"),
    "ultralytics yolov8n-pose without metadata": without_metadata(yolo("yolov8n-pose"), "yolov8"),
}
"""The files by name."""
