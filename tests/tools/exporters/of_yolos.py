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


def exported(network: torch.nn.Module, folder: Path, outputs: list[str]) -> Path:
    """Return the file of a network by torch's exporter, as YOLOv6 and YOLOv7 call it."""
    torch.onnx.export(
        network,
        (torch.zeros(1, 3, SIDE, SIDE),),
        folder / "model.onnx",
        opset_version=13,
        dynamo=False,
        input_names=["images"],
        output_names=outputs,
    )
    return folder / "model.onnx"


SELECTED = ["num_dets", "det_boxes", "det_scores", "det_classes"]
"""The outputs of files that suppress boxes."""

SUPPRESSION: dict[str, Any] = {
    "classes": NAMES,
    "score_threshold": SCORE_THRESHOLD,
    "iou_threshold": IOU_THRESHOLD,
    "max_detections": 300,
}
"""As YOLOv6 and YOLOv7 are called here."""


def yolov6(
    config: str, suppresses: bool = False, with_preprocess: bool = False, preset: str | None = "yolov6"
) -> Exporter:
    """Return a network of yolov6detect, which may suppress boxes in the file, and take levels with blue first."""

    def make(folder: Path) -> Path:
        from yolov6.models.end2end import End2End
        from yolov6.models.yolo import build_model
        from yolov6.utils.config import Config

        torch.manual_seed(0)
        source = Path(str(import_module("yolov6").__file__)).parent
        settings = Config.fromfile(str(source / "configs" / config))
        settings.training_mode = "repvgg"
        network = build_model(settings, len(NAMES), torch.device("cpu"))
        normalized(network.train(), network, photos)
        with torch.no_grad():
            for scores, sides in zip(network.detect.cls_preds, network.detect.reg_preds, strict=True):
                scores.weight.normal_(0, 0.02)
                scores.bias.fill_(-2.0)
                sides.weight.normal_(0, 0.001)
                sides.bias.uniform_(2, 4)
        for layer in network.modules():
            if layer is not network and hasattr(layer, "switch_to_deploy"):
                layer.switch_to_deploy()
        if not suppresses:
            return exported(network, folder, ["outputs"])
        limits = {"max_obj": 100, "iou_thres": IOU_THRESHOLD, "score_thres": SCORE_THRESHOLD}
        whole = End2End(network, **limits, ort=True, with_preprocess=with_preprocess).eval()
        return exported(whole, folder, SELECTED)

    layout = {"classes": NAMES} if suppresses else SUPPRESSION
    detect = partial(of_yolov6, suppresses, with_preprocess)
    return Exporter(make, detect, layout=layout, preset=preset, iou_threshold=IOU_THRESHOLD)


def of_yolov6(suppresses: bool, with_preprocess: bool, path: Path, image: np.ndarray) -> Rows:
    """Return what YOLOv6's own letterbox, suppression and scaling make of an image and of the file's output."""
    import onnxruntime
    from yolov6.core.inferer import Inferer
    from yolov6.data.data_augment import letterbox
    from yolov6.utils.nms import non_max_suppression

    resized = letterbox(image, (SIDE, SIDE), auto=False)[0]
    values = np.ascontiguousarray(resized.transpose(2, 0, 1))[None].astype(np.float32)
    if not with_preprocess:
        values = np.ascontiguousarray(values[:, ::-1]) / 255
    outputs = list(map(torch.from_numpy, onnxruntime.InferenceSession(path).run(None, {"images": values})))
    if suppresses:
        counts, boxes, scores, labels = (output[0] for output in outputs)
        rows = torch.cat([boxes, scores[:, None], labels[:, None].float()], 1)[: int(counts)]
    else:
        (rows,) = non_max_suppression(outputs[0], SCORE_THRESHOLD, IOU_THRESHOLD, max_det=300)
    boxes = Inferer.rescale((SIDE, SIDE), rows[:, :4], image.shape)
    return boxes.numpy(), rows[:, 4].numpy(), rows[:, 5].numpy()


def yolov7(config: str, form: str = "grid", classes: int = 3, preset: str | None = "yolov7") -> Exporter:
    """Return a network of yolov7detect, in a form that export.py writes.

    yolov7-wky-package has its configs, and modules with the names of yolo9's: it must be on the path for these files
    only, not among the installed packages.
    """

    def make(folder: Path) -> Path:
        import yaml
        from yolov7.models.experimental import End2End
        from yolov7.models.yolo import Model

        torch.manual_seed(0)
        source = Path(str(import_module("cfg").__file__)).parent
        network = Model(yaml.safe_load((source / config).read_text()), nc=classes)
        normalized(network.train(), network, photos)
        head = network.model[-1]
        with torch.no_grad():
            for layer in head.m:
                layer.weight.normal_(0, 0.05)
                layer.bias.fill_(-1.0)
        network.fuse().eval()
        network(torch.zeros(1, 3, SIDE, SIDE))
        if form == "grid":
            head.concat = True
            return exported(network, folder, ["output"])
        if form == "maps":
            head.export = True
            return exported(network, folder, ["output", "output2", "output3"])
        limit = 640 if form == "onnxruntime" else None
        whole = End2End(network, 100, IOU_THRESHOLD, SCORE_THRESHOLD, limit, torch.device("cpu"), classes)
        return exported(whole, folder, SELECTED if limit is None else ["output"])

    layout = SUPPRESSION | {"classes": NAMES[:classes]} if form == "grid" else {"classes": NAMES[:classes]}
    return Exporter(make, partial(of_yolov7, form), layout=layout, preset=preset, iou_threshold=IOU_THRESHOLD)


def of_yolov7(form: str, path: Path, image: np.ndarray) -> Rows:
    """Return what YOLOv7's own letterbox, suppression and scaling make of an image and of the file's output."""
    import onnxruntime
    from yolov7.utils.datasets import letterbox
    from yolov7.utils.general import non_max_suppression, scale_coords

    resized = letterbox(image, (SIDE, SIDE), auto=False)[0]
    values = np.ascontiguousarray(resized[..., ::-1].transpose(2, 0, 1))[None].astype(np.float32) / 255
    output = torch.from_numpy(onnxruntime.InferenceSession(path).run(None, {"images": values})[0])
    if form == "onnxruntime":
        rows = torch.cat([output[:, 1:5], output[:, 6:], output[:, 5:6]], 1)
    else:
        (rows,) = non_max_suppression(output, SCORE_THRESHOLD, IOU_THRESHOLD)
    boxes = scale_coords((SIDE, SIDE), rows[:, :4], image.shape)
    return boxes.numpy(), rows[:, 4].numpy(), rows[:, 5].numpy()


FILES = {
    "yolov5 yolov5n": trained_by_yolov5("yolov5", "models/yolov5n.yaml", None, 1000),
    "yolov5 yolov5n, dynamic": trained_by_yolov5("yolov5", "models/yolov5n.yaml", "yolov5", 1000, dynamic=True),
    "yolov5 yolov5s": trained_by_yolov5("yolov5", "models/yolov5s.yaml", None, 1000),
    "yolo9 gelan-t": trained_by_yolov5("yolo9", "models/detect/gelan-t.yaml", "yolov9", 300),
    "pixeltable-yolox nano": yolox("yolox-nano", decodes=True),
    "pixeltable-yolox nano, without decoding": yolox("yolox-nano", decodes=False),
    "pixeltable-yolox tiny": yolox("yolox-tiny", decodes=True),
    "yolov6detect yolov6n": yolov6("yolov6n.py"),
    "yolov6detect yolov6n, suppression for ONNX Runtime": yolov6("yolov6n.py", True),
    "yolov6detect yolov6n, suppression and preprocessing": yolov6("yolov6n.py", True, True),
    "yolov7detect yolov7-tiny": yolov7("deploy/yolov7-tiny.yaml"),
    "yolov7detect yolov7-tiny, one class": yolov7("deploy/yolov7-tiny.yaml", classes=1),
    "yolov7detect yolov7-tiny, without grid": yolov7("deploy/yolov7-tiny.yaml", "maps"),
    "yolov7detect yolov7-tiny, suppression for ONNX Runtime": yolov7("deploy/yolov7-tiny.yaml", "onnxruntime"),
    "yolov7detect yolov7-tiny, suppression for TensorRT": yolov7("deploy/yolov7-tiny.yaml", "tensorrt"),
}
"""The files by name."""
