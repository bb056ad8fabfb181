"""The table of docs/adopt.md: what each command does with files of other exporters, and whether detections are theirs.

python -m tests.tools.tabulate_exporters FOLDER [NAME ...]

The files are made in FOLDER from packages of the index: of ultralytics, torchvision and transformers with random
weights, those of ultralytics such that it detects something, and the trained one that nudenet has.
"""

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch

import mmort
import mmort.onnx
from mmort import Detections
from mmort.tables import lay_out

SIZES = (480, 640), (333, 641), (640, 300), (101, 97)
SIDE = 320
COLUMNS = "adopt", "predict", "accelerate", "quantize", "portable"


class Exporter(NamedTuple):
    """How a file is made, what else `adopt` is told, and what the exporter's own library detects in an image."""

    make: Callable[[Path], Path]
    detect: Callable[[Path, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
    """Returns boxes, or rotated ones, scores and labels."""
    config: bool = False
    """Whether the file's folder has transformers' config."""


def images() -> list[np.ndarray]:
    """Return smooth images with noise."""
    rng = np.random.default_rng(3)
    made = []
    for height, width in SIZES:
        smooth = cv2.resize(rng.integers(0, 256, (12, 16, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
        made.append(np.clip(smooth.astype(int) + rng.integers(-20, 20, smooth.shape), 0, 255).astype(np.uint8))
    return made


def spread(network: torch.nn.Module) -> None:
    """Let a network of ultralytics detect something in `images`: normalize its layers by them, and spread scores."""
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    batch = np.stack([cv2.resize(image, (SIDE, SIDE)).transpose(2, 0, 1) for image in images()])
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    network.train()
    with torch.no_grad():
        network(torch.from_numpy(batch[:, ::-1].astype(np.float32) / 255))
    network.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    head = network.model[-1]
    with torch.no_grad():
        for name in ("cv3", "one2one_cv3"):
            for layers in getattr(head, name, None) or ():
                layers[-1].weight.normal_(0, 0.06)
                layers[-1].bias.fill_(-4.0)
        for name in ("cv2", "one2one_cv2"):
            for layers in getattr(head, name, None) or ():
                layers[-1].weight.normal_(0, 0.3 if layers[-1].weight.shape[0] > 4 else 0.004)
                if layers[-1].weight.shape[0] == 4:
                    layers[-1].bias.uniform_(2, 4)


def yolo(stem: str, **arguments: Any) -> Exporter:
    """Return a model of ultralytics with random weights."""

    def make(folder: Path) -> Path:
        from ultralytics import YOLO

        torch.manual_seed(0)
        model = YOLO(f"{stem}.yaml")
        network = type(model.model)(f"{stem}.yaml", nc=3, verbose=False)
        network.args, network.task = model.model.args, model.model.task
        spread(network)
        model.model = network
        exported = model.export(format="onnx", imgsz=SIDE, simplify=False, conf=0.001, iou=0.7, **arguments)
        return Path(exported).rename(folder / "model.onnx")

    return Exporter(make, of_ultralytics)


def of_ultralytics(path: Path, image: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what ultralytics predicts."""
    import onnx
    from ultralytics import YOLO

    task = {entry.key: entry.value for entry in onnx.load(path).metadata_props}["task"]
    arguments = {"conf": 0.001, "iou": 0.7, "max_det": 300, "retina_masks": True, "verbose": False}
    result = YOLO(path, task=task).predict(image, imgsz=SIDE, **arguments)[0]
    if result.obb is not None:
        return result.obb.xywhr.numpy(), result.obb.conf.numpy(), result.obb.cls.numpy()
    return result.boxes.xyxy.numpy(), result.boxes.conf.numpy(), result.boxes.cls.numpy()


def nudenet(folder: Path) -> Path:
    """Return the trained YOLOv8n of nudenet."""
    import nudenet as package

    path = folder / "model.onnx"
    path.write_bytes(Path(package.__file__).with_name("320n.onnx").read_bytes())
    return path


def torchvision(name: str, **arguments: Any) -> Exporter:
    """Return a detector of torchvision with random weights, whose file gives the detections itself."""

    def make(folder: Path) -> Path:
        from torchvision.models import detection

        torch.manual_seed(0)
        model = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=4, **arguments).eval()
        inputs = [torch.from_numpy(images()[0][:240, :320].transpose(2, 0, 1).astype(np.float32) / 255)]
        names = list(model(inputs)[0])
        torch.onnx.export(
            model,
            (inputs,),
            folder / "model.onnx",
            opset_version=17,
            dynamo=False,
            input_names=["image"],
            output_names=names,
            dynamic_axes={output: {0: "count"} for output in names},
        )
        return folder / "model.onnx"

    def detect(path: Path, image: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        height, width = session.get_inputs()[0].shape[1:]
        resized = cv2.resize(image, (width, height))
        values = resized[..., ::-1].transpose(2, 0, 1).astype(np.float32) / np.float32(255)
        results = session.run(None, {session.get_inputs()[0].name: values})
        outputs = dict(zip([output.name for output in session.get_outputs()], results, strict=True))
        kept = outputs["labels"] > 0
        scale = np.array([image.shape[1] / width, image.shape[0] / height] * 2)
        return outputs["boxes"][kept] * scale, outputs["scores"][kept], outputs["labels"][kept] - 1

    return Exporter(make, detect)


def transformers(name: str, **arguments: Any) -> Exporter:
    """Return a detector of transformers with random weights and its image processor."""

    def make(folder: Path) -> Path:
        import transformers as package

        torch.manual_seed(0)
        config = getattr(package, f"{name}Config")(num_labels=5, **arguments)
        model = getattr(package, f"{name}ForObjectDetection")(config).eval()
        size = {"height": SIDE, "width": SIDE}
        processor = (
            package.RTDetrImageProcessor(size=size) if name == "RTDetr" else package.YolosImageProcessor(size=size)
        )
        model.config.save_pretrained(folder)
        processor.save_pretrained(folder)
        torch.onnx.export(
            Named(model),
            (torch.zeros(1, 3, SIDE, SIDE),),
            folder / "model.onnx",
            opset_version=17,
            dynamo=False,
            input_names=["pixel_values"],
            output_names=["logits", "pred_boxes"],
        )
        return folder / "model.onnx"

    def detect(path: Path, image: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        import onnxruntime
        import transformers as package

        processor = package.AutoImageProcessor.from_pretrained(path.parent)
        # The same input for both: mmort resizes with Pillow, transformers perhaps with torchvision.
        values = mmort.Predictor(path.with_name("adopted.onnx"), score_threshold=0).preprocessing(image).input[None]
        session = onnxruntime.InferenceSession(path)
        logits, boxes = map(torch.from_numpy, session.run(None, {"pixel_values": values}))
        outputs = package.models.rt_detr.modeling_rt_detr.RTDetrObjectDetectionOutput(logits=logits, pred_boxes=boxes)
        sizes = torch.tensor([image.shape[:2]])
        (result,) = processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=sizes)
        return result["boxes"].numpy(), result["scores"].numpy(), result["labels"].numpy()

    return Exporter(make, detect, config=True)


class Named(torch.nn.Module):
    """A model of transformers that returns logits and boxes."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.model(pixel_values=values)
        return outputs.logits, outputs.pred_boxes


EXPORTERS = {
    "ultralytics YOLOv8n": yolo("yolov8n"),
    "ultralytics YOLO11n, nms=True": yolo("yolo11n", nms=True),
    "ultralytics YOLO26n, end to end": yolo("yolo26n", nms=False),
    "ultralytics YOLOv8n-seg": yolo("yolov8n-seg"),
    "ultralytics YOLO11n-seg, nms=True": yolo("yolo11n-seg", nms=True),
    "ultralytics YOLOv8n-obb": yolo("yolov8n-obb"),
    "ultralytics YOLO11n-obb, nms=True": yolo("yolo11n-obb", nms=True),
    "ultralytics YOLOv8n-pose": yolo("yolov8n-pose"),
    "ultralytics YOLO11n-pose, nms=True": yolo("yolo11n-pose", nms=True),
    "nudenet 320n (YOLOv8n, trained)": Exporter(nudenet, of_ultralytics),
    "torchvision SSDlite": torchvision("ssdlite320_mobilenet_v3_large"),
    "torchvision Faster R-CNN": torchvision("fasterrcnn_mobilenet_v3_large_fpn", min_size=240, max_size=400),
    "transformers YOLOS": transformers("Yolos", num_hidden_layers=4, hidden_size=64, num_attention_heads=4),
    "transformers RT-DETR": transformers("RTDetr", num_queries=100, decoder_layers=2),
}


def difference(detections: Detections, expected: tuple[np.ndarray, np.ndarray, np.ndarray]) -> str:
    """Return how detections differ from an exporter's own, or an empty string."""
    boxes, scores, labels = expected
    if len(scores) != len(detections):
        return f"{len(detections)} of {len(scores)} detections"
    order = np.argsort(-scores, kind="stable")
    mine = detections.boxes if detections.rotated_boxes is None else detections.rotated_boxes
    off = np.abs(mine - boxes[order]).max(axis=1, initial=0)
    wrong = (off > 0.01) | (np.abs(detections.scores - scores[order]) > 1e-4) | (detections.labels != labels[order])
    return f"{int(wrong.sum())} of {len(scores)} differ" if wrong.any() else ""


def outcomes(exporter: Exporter, folder: Path) -> Iterator[str]:
    """Yield the cell of each column."""
    path, adopted, calibration = exporter.make(folder), folder / "adopted.onnx", folder / "images"
    calibration.mkdir(exist_ok=True)
    for number, image in enumerate(images()):
        cv2.imwrite(str(calibration / f"{number}.png"), image)
    files = [str(file) for file in sorted(calibration.iterdir())]
    mmort.onnx.adopt(path, adopted, config=folder if exporter.config else None, force=True)
    yield "yes"
    predictor = mmort.Predictor(adopted, score_threshold=0)
    actual = [predictor(image) for image in images()]
    problems = [
        problem
        for image, detections in zip(images(), actual, strict=True)
        if (problem := difference(detections, exporter.detect(path, image)))
    ]
    yield problems[0] if problems else f"yes, {sum(map(len, actual))}"
    inputs = [[predictor.preprocessing(image).input[None]] for image in images()]
    for step in (
        lambda output: mmort.onnx.accelerate(adopted, output, inputs[:1], force=True),
        lambda output: mmort.onnx.quantize(adopted, output, inputs, force=True),
        lambda output: mmort.onnx.make_portable(adopted, output, force=True),
    ):
        output = folder / "output.onnx"
        output.unlink(missing_ok=True)
        try:
            result = step(output)
        except (ValueError, mmort.onnx.VerificationError) as error:
            yield "nothing to quantize" if "nothing to quantize" in str(error) else str(error)[:100]
            continue
        if not output.exists():
            yield "not worth it" if getattr(result, "left", ()) else "nothing to replace"
            continue
        mmort.Predictor(output, score_threshold=0)(files[0])
        before, after = getattr(result, "before", None), getattr(result, "after", None)
        yield f"{before / after:.1f} times" if before and after else "yes"


def main() -> int:
    """Print the table."""
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(EXPORTERS)
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory(dir=folder) as temporary, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cells = []
            try:
                for cell in outcomes(EXPORTERS[name], Path(temporary)):
                    cells.append(cell)
            except Exception as error:
                cells.append(f"{type(error).__name__}: {error}"[:120])
        rows.append((name, *cells))
        print("| " + " | ".join(rows[-1]) + " |", flush=True)
    print(lay_out([("", *COLUMNS), *rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
