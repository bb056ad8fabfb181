"""Train a small YOLO11n of ultralytics on digits, on the CPU, and export it as ultralytics does.  Run by hand.

    python -m benchmarks.twins.yolo DATA TWIN

It begins with random weights.  DATA is a data set in COCO's format: train2017, val2017 and annotations.  ultralytics
needs a torchvision that was made for the installed torch.  Writes TWIN/model.onnx, for `mmort adopt`, and the weights
to TWIN/training; prints the AP, by pycocotools, of what ultralytics detects in val2017 with that file.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

Detections = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Boxes by their corners, scores, and numbers of the categories from 0."""


def read_annotations(data: Path, split: str) -> tuple[dict[str, Any], dict[int, list[dict[str, Any]]]]:
    """Return the annotations of a split, and the objects of each image."""
    annotations = json.loads((data / "annotations" / f"instances_{split}2017.json").read_text())
    objects: dict[int, list[dict[str, Any]]] = {image["id"]: [] for image in annotations["images"]}
    for entry in annotations["annotations"]:
        objects[entry["image_id"]].append(entry)
    return annotations, objects


def relative_boxes(data: Path, split: str) -> Iterator[tuple[Path, list[int], np.ndarray]]:
    """Yield each image's file, its objects' labels, and their boxes: centres and sizes, relative to the image's."""
    annotations, objects = read_annotations(data, split)
    numbers = {category["id"]: number for number, category in enumerate(annotations["categories"])}
    for image in annotations["images"]:
        boxes = np.array([entry["bbox"] for entry in objects[image["id"]]], float).reshape(-1, 4)
        boxes[:, :2] += boxes[:, 2:] / 2
        labels = [numbers[entry["category_id"]] for entry in objects[image["id"]]]
        yield data / f"{split}2017" / image["file_name"], labels, boxes / ([image["width"], image["height"]] * 2)


def average_precision(data: Path, detect: Callable[[Path], Detections]) -> float:
    """Return COCO's AP of detections in the images for validation."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    annotations, _ = read_annotations(data, "val")
    results = []
    for image in tqdm(annotations["images"], desc="val2017"):
        for corners, score, label in zip(*detect(data / "val2017" / image["file_name"]), strict=True):
            box = [*corners[:2], *(corners[2:] - corners[:2])]
            category = annotations["categories"][int(label)]["id"]
            result = {"image_id": image["id"], "category_id": category, "bbox": list(map(float, box))}
            results.append(result | {"score": float(score)})
    truth = COCO(str(data / "annotations" / "instances_val2017.json"))
    evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return float(evaluation.stats[0])


def write_yolo_data(data: Path, folder: Path) -> Path:
    """Write labels in YOLO's format beside links to the images, and return the path of the data set's YAML."""
    for split in ("train", "val"):
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True, exist_ok=True)
        for path, labels, boxes in relative_boxes(data, split):
            link = folder / "images" / split / path.name
            link.unlink(missing_ok=True)
            link.symlink_to(path.absolute())
            rows = (f"{label} {' '.join(map(repr, box.tolist()))}\n" for label, box in zip(labels, boxes, strict=True))
            (folder / "labels" / split / path.with_suffix(".txt").name).write_text("".join(rows))
    categories = read_annotations(data, "val")[0]["categories"]
    names = {number: category["name"] for number, category in enumerate(categories)}
    yaml = folder / "data.yaml"
    settings = {"path": str(folder.absolute()), "train": "images/train", "val": "images/val", "names": names}
    yaml.write_text(json.dumps(settings))  # which is YAML, too
    return yaml


def train(data: Path, twin: Path, options: argparse.Namespace) -> Callable[[Path], Detections]:
    """Train and export YOLO11n, and return what ultralytics detects with the file."""
    from ultralytics import YOLO

    training = twin / "training"
    model = YOLO("yolo11n.yaml")
    model.train(
        data=str(write_yolo_data(data, training / "data")),
        project=str(training.absolute()),
        name="run",
        exist_ok=True,
        imgsz=options.size,
        epochs=options.epochs,
        batch=8,
        nbs=8,
        seed=options.seed,
        workers=0,
        device="cpu",
        amp=False,
        optimizer="AdamW",
        lr0=0.002,
        cos_lr=True,
        warmup_epochs=1,
        warmup_bias_lr=0.002,
        mosaic=0,
        scale=0.25,
        fliplr=0,
        val=False,
        plots=False,
    )
    weights = training / "run" / "weights" / "last.pt"
    shutil.move(YOLO(weights).export(format="onnx", imgsz=options.size, simplify=False), twin / "model.onnx")
    exported = YOLO(twin / "model.onnx", task="detect")

    def detect(path: Path) -> Detections:
        arguments = {"imgsz": options.size, "conf": 0.001, "iou": 0.7, "max_det": 300, "verbose": False}
        boxes = exported.predict(path, device="cpu", **arguments)[0].boxes
        return boxes.xyxy.numpy(), boxes.conf.numpy(), boxes.cls.numpy()

    return detect


def main() -> None:
    """Train, export, and test what was exported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("twin", type=Path)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--size", type=int, default=192, help="the width of the input in pixels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.twin.mkdir(parents=True, exist_ok=True)
    print(f"AP {average_precision(options.data, train(options.data, options.twin, options)):.4f}")


if __name__ == "__main__":
    main()
