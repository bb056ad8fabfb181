"""Files of torchvision's detectors by torch's two exporters, for images of one size and of any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from tests.tools.exporters.exporter import Exporter, Rows, images, names, normalized

CLASSES = 4
"""With the background of those that have one."""


def model_of(name: str, **arguments: Any) -> torch.nn.Module:
    """Return a detector of torchvision with random weights that detects something."""
    from torchvision.models import detection

    torch.manual_seed(0)
    model = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=CLASSES, **arguments).eval()
    normalized(model, model.backbone)
    head = getattr(getattr(model, "head", None), "classification_head", None)
    with torch.no_grad():
        if hasattr(head, "cls_logits"):  # RetinaNet and FCOS, whose scores are sigmoids
            head.cls_logits.weight.normal_(0, 0.05)
            head.cls_logits.bias.fill_(-2.0)
    return model


def torchvision(
    name: str, *, dynamo: bool = False, any_size: bool = False, has_background: bool = True, **arguments: Any
) -> Exporter:
    """Return a detector of torchvision, whose file gives the detections itself.

    Compared with are the outputs of the file, for an image of its own size with `any_size`, or for a resized one.
    """

    def make(folder: Path) -> Path:
        model = model_of(name, **arguments)
        inputs = [torch.from_numpy(images()[0][:240, :320].transpose(2, 0, 1).astype(np.float32) / 255)]
        outputs = list(model(inputs)[0])
        axes = {output: {0: "count"} for output in outputs} | ({"image": {1: "height", 2: "width"}} if any_size else {})
        common: dict[str, Any] = {"input_names": ["image"], "output_names": outputs}
        if dynamo:
            torch.onnx.export(model, (inputs,), folder / "model.onnx", dynamo=True, external_data=False, **common)
        else:
            torch.onnx.export(
                model, (inputs,), folder / "model.onnx", opset_version=17, dynamo=False, dynamic_axes=axes, **common
            )
        return folder / "model.onnx"

    detect = of_file(has_background)
    count = CLASSES - has_background
    return Exporter(make, detect, layout={"classes": names(count)})


def of_file(has_background: bool) -> Callable[[Path, np.ndarray], Rows]:
    """Return what the outputs of a file are for an image that is resized to its input, if that has one size."""

    def detect(path: Path, image: np.ndarray) -> Rows:
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        sizes = session.get_inputs()[0].shape[1:]
        height, width = (size if isinstance(size, int) else image.shape[axis] for axis, size in enumerate(sizes))
        resized = cv2.resize(image, (width, height))
        values = resized[..., ::-1].transpose(2, 0, 1).astype(np.float32) / np.float32(255)
        results = session.run(None, {session.get_inputs()[0].name: values})
        outputs = dict(zip([output.name for output in session.get_outputs()], results, strict=True))
        scale = np.array([image.shape[1] / width, image.shape[0] / height] * 2)
        return kept(outputs["boxes"] * scale, outputs["scores"], outputs["labels"], has_background)

    return detect


def kept(boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, has_background: bool) -> Rows:
    """Return detections with labels from 0, without the background."""
    if not has_background:
        return boxes, scores, labels
    is_object = labels > 0
    return boxes[is_object], scores[is_object], labels[is_object] - 1


SIZES = {"min_size": 240, "max_size": 400}
MODELS: dict[str, dict[str, Any]] = {
    "ssd300_vgg16": {},
    "ssdlite320_mobilenet_v3_large": {},
    "retinanet_resnet50_fpn": SIZES | {"has_background": False},
    "retinanet_resnet50_fpn_v2": SIZES | {"has_background": False},
    "fcos_resnet50_fpn": SIZES | {"has_background": False},
    "fasterrcnn_mobilenet_v3_large_320_fpn": {},
    "fasterrcnn_mobilenet_v3_large_fpn": SIZES,
    "fasterrcnn_resnet50_fpn": SIZES,
    "maskrcnn_resnet50_fpn": SIZES,
    "keypointrcnn_resnet50_fpn": SIZES,
}
FILES = {
    **{f"torchvision {name}": torchvision(name, **arguments) for name, arguments in MODELS.items()},
    **{
        f"torchvision {name}, any size": torchvision(name, any_size=True, **arguments)
        for name, arguments in MODELS.items()
    },
    **{
        f"torchvision {name}, dynamo": torchvision(name, dynamo=True, **arguments) for name, arguments in MODELS.items()
    },
}
"""The files by name."""
