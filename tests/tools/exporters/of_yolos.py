"""Files of YOLOs of other packages than ultralytics, with random weights, and what the packages' own steps detect."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from tests.tools.exporters.exporter import SIDE, Exporter, Rows, normalized, photos

NAMES = ["cat", "dog", "owl"]
SCORE_THRESHOLD, IOU_THRESHOLD, YOLOX_IOU_THRESHOLD = 0.001, 0.45, 0.65
DEFAULT_SIDE = 640
"""Of the packages' own detection, with a file that takes images of any size."""


def trained_by_yolov5(package: str, config: str, preset: str | None, limit: int, **arguments: Any) -> Exporter:
    """Return a network of YOLOv5, or of a package that grew out of it, exported by the package's own command."""

    def make(folder: Path) -> Path:
        torch.manual_seed(0)
        source = Path(str(import_module(package).__file__)).parent
        network = import_module(f"{package}.models.yolo").Model(source / config, nc=len(NAMES))
        network.names = NAMES
        network.train()
        normalized(network, network, photos)
        with torch.no_grad():  # no scores of 1, whose boxes the packages' suppression takes in any order
            for layers in getattr(network.model[-1], "cv3", ()):
                layers[-1].weight.normal_(0, 0.01)
        torch.save({"model": network}, folder / "model.pt")
        settings = {"imgsz": (SIDE, SIDE), "include": ("onnx",), **arguments}
        with loading():
            (path,) = import_module(f"{package}.export").run(weights=str(folder / "model.pt"), **settings)
        return Path(path)

    layout = {"score_threshold": SCORE_THRESHOLD, "iou_threshold": IOU_THRESHOLD, "max_detections": limit}
    detect = partial(of_yolov5, package, limit)
    return Exporter(make, detect, layout=layout, preset=preset, iou_threshold=IOU_THRESHOLD)


@contextmanager
def loading() -> Iterator[None]:
    """Let packages load whole networks, which torch refuses by default, and find a module that was renamed."""
    import huggingface_hub.errors

    sys.modules.setdefault("huggingface_hub.utils._errors", huggingface_hub.errors)
    with mock.patch.object(torch, "load", partial(torch.load, weights_only=False)):
        yield


def of_yolov5(package: str, limit: int, path: Path, image: np.ndarray) -> Rows:
    """Return what a package's own letterbox, suppression and scaling make of an image and of the file's output."""
    import onnxruntime

    general = import_module(f"{package}.utils.general")
    session = onnxruntime.InferenceSession(path)
    height = session.get_inputs()[0].shape[2]
    side = height if isinstance(height, int) else DEFAULT_SIDE
    resized = import_module(f"{package}.utils.augmentations").letterbox(image, side, auto=False)[0]
    values = np.ascontiguousarray(resized[..., ::-1].transpose(2, 0, 1))[None].astype(np.float32) / 255
    output = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: values})[0])
    (rows,) = general.non_max_suppression(output, SCORE_THRESHOLD, IOU_THRESHOLD, max_det=limit)
    boxes = general.scale_boxes(values.shape[2:], rows[:, :4], image.shape)
    return boxes.numpy(), rows[:, 4].numpy(), rows[:, 5].numpy()


def yolox(name: str, *, decodes: bool) -> Exporter:
    """Return a YOLOX of pixeltable-yolox with random weights, with boxes decoded by the file or not."""

    def make(folder: Path) -> Path:
        from yolox.config import YoloxConfig

        torch.manual_seed(0)
        config = YoloxConfig.get_named_config(name)
        config.num_classes = len(NAMES)
        network = config.get_model().eval()
        network.head.decode_in_inference = decodes
        normalized(network, lambda batch: network(batch.flip(1) * 255), photos)
        with torch.no_grad():  # scores above the threshold
            for layer in (*network.head.obj_preds, *network.head.cls_preds):
                layer.bias.fill_(-1.0)
        torch.onnx.export(
            network,
            (torch.zeros(1, 3, SIDE, SIDE),),
            folder / "model.onnx",
            opset_version=17,
            dynamo=False,
            input_names=["images"],
            output_names=["output"],
        )
        return folder / "model.onnx"

    return Exporter(
        make, partial(of_yolox, decodes), layout={"classes": NAMES}, preset="yolox", iou_threshold=YOLOX_IOU_THRESHOLD
    )


def of_yolox(decodes: bool, path: Path, image: np.ndarray) -> Rows:
    """Return what YOLOX's own transform and suppression make of an image and of the file's output."""
    import onnxruntime
    from yolox.data.data_augment import preproc
    from yolox.models.yolo_head import YoloxHead
    from yolox.utils import postprocess

    values, ratio = preproc(image, (SIDE, SIDE))
    output = torch.from_numpy(onnxruntime.InferenceSession(path).run(None, {"images": values[None]})[0])
    if not decodes:
        head = YoloxHead(len(NAMES))
        head.hw = [(SIDE // stride, SIDE // stride) for stride in head.strides]
        output = head.decode_outputs(output, output.type())
    (rows,) = postprocess(output, len(NAMES), SCORE_THRESHOLD, YOLOX_IOU_THRESHOLD)
    rows = rows[(-rows[:, 4] * rows[:, 5]).argsort(stable=True)[:300]]
    return (rows[:, :4] / ratio).numpy(), (rows[:, 4] * rows[:, 5]).numpy(), rows[:, 6].numpy()


FILES = {
    "yolov5 yolov5n": trained_by_yolov5("yolov5", "models/yolov5n.yaml", None, 1000),
    "yolov5 yolov5n, dynamic": trained_by_yolov5("yolov5", "models/yolov5n.yaml", "yolov5", 1000, dynamic=True),
    "yolov5 yolov5s": trained_by_yolov5("yolov5", "models/yolov5s.yaml", None, 1000),
    "yolo9 gelan-t": trained_by_yolov5("yolo9", "models/detect/gelan-t.yaml", "yolov9", 300),
    "pixeltable-yolox nano": yolox("yolox-nano", decodes=True),
    "pixeltable-yolox nano, without decoding": yolox("yolox-nano", decodes=False),
    "pixeltable-yolox tiny": yolox("yolox-tiny", decodes=True),
}
"""The files by name."""
