"""Train a small detector of another package on digits, on the CPU, and export it as that package does.  Run by hand.

    python -m benchmarks.twins.foreign yolo DATA TWIN
    python -m benchmarks.twins.foreign rt_detr DATA TWIN

`yolo` is YOLO11n of ultralytics, `rt_detr` an RT-DETR of transformers, like R18 but half as wide.  Both begin with
random weights, and their packages compute the losses.  DATA is a data set in COCO's format: train2017, val2017 and
annotations.  Both packages need a torchvision that was made for the installed torch.

Writes TWIN/model.onnx, beside it transformers' config for `mmort adopt --config TWIN`, and the weights to
TWIN/training; prints the AP, by pycocotools, of what the package itself detects in val2017 with that file.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
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
            found = {"image_id": image["id"], "category_id": category, "bbox": list(map(float, box))}
            results.append(found | {"score": float(score)})
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


def train_yolo(data: Path, twin: Path, options: argparse.Namespace) -> Callable[[Path], Detections]:
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
        found = exported.predict(path, device="cpu", **arguments)[0].boxes
        return found.xyxy.numpy(), found.conf.numpy(), found.cls.numpy()

    return detect


class Outputs(torch.nn.Module):
    """A model of transformers that returns logits and boxes."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.model(pixel_values=values)
        return outputs.logits, outputs.pred_boxes


def build_rt_detr(names: list[str]) -> Any:
    """Return an RT-DETR like R18, but half as wide, of one block a stage and few queries, and with random weights."""
    from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrResNetConfig

    widths = [32, 64, 128, 256]
    outputs = ["stage2", "stage3", "stage4"]
    sizes = {"embedding_size": 32, "hidden_sizes": widths, "depths": [1, 1, 1, 1], "layer_type": "basic"}
    config = RTDetrConfig(
        backbone_config=RTDetrResNetConfig(out_features=outputs, **sizes),
        freeze_backbone_batch_norms=False,
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
        encoder_in_channels=widths[1:],
        encoder_hidden_dim=128,
        encoder_ffn_dim=256,
        hidden_expansion=0.5,
        d_model=128,
        decoder_in_channels=[128] * 3,
        decoder_ffn_dim=256,
        decoder_layers=3,
        num_queries=40,
        num_denoising=20,
    )
    return RTDetrForObjectDetection(config)


def train_rt_detr(data: Path, twin: Path, options: argparse.Namespace) -> Callable[[Path], Detections]:
    """Train and export RT-DETR, and return what transformers detects with the file."""
    import onnxruntime
    from transformers import RTDetrImageProcessor
    from transformers.models.rt_detr.modeling_rt_detr import RTDetrObjectDetectionOutput

    torch.manual_seed(options.seed)
    model = build_rt_detr([category["name"] for category in read_annotations(data, "val")[0]["categories"]])
    side = {"height": options.size * 5 // 6, "width": options.size}
    processor = RTDetrImageProcessor(size=side)

    def pixels(path: Path) -> torch.Tensor:
        with Image.open(path) as image:
            return processor(image.convert("RGB"), return_tensors="pt")["pixel_values"][0]

    samples = [
        (pixels(path), {"class_labels": torch.tensor(labels), "boxes": torch.tensor(boxes, dtype=torch.float32)})
        for path, labels, boxes in tqdm(relative_boxes(data, "train"), desc="train2017")
    ]
    batch = 8
    steps = len(samples) // batch * options.epochs
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, step / 300) * (1 + math.cos(math.pi * step / steps)) / 2
    )
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.997))
    model.train()
    progress = tqdm(total=steps, desc="steps", mininterval=20)
    for _ in range(options.epochs):
        for indices in torch.randperm(len(samples))[: len(samples) // batch * batch].split(batch):
            values = torch.stack([samples[index][0][torch.randperm(3)] for index in indices])  # colours mean nothing
            outputs = model(pixel_values=values, labels=[dict(samples[index][1]) for index in indices])
            optimizer.zero_grad()
            outputs.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            schedule.step()
            average.update_parameters(model)
            progress.update()
            progress.set_postfix(loss=f"{outputs.loss.item():.2f}", refresh=False)
    progress.close()
    seen = torch.stack([values for values, _ in samples[:1000]]).split(batch)  # averaged weights need new statistics
    torch.optim.swa_utils.update_bn(tqdm(seen, desc="normalizations"), average)
    model = average.module.eval()
    model.save_pretrained(twin / "training")
    model.config.save_pretrained(twin)
    processor.save_pretrained(twin)
    torch.onnx.export(
        Outputs(model),
        (torch.zeros(1, 3, side["height"], side["width"]),),
        twin / "model.onnx",
        opset_version=17,
        dynamo=False,
        input_names=["pixel_values"],
        output_names=["logits", "pred_boxes"],
    )
    session = onnxruntime.InferenceSession(twin / "model.onnx")

    def detect(path: Path) -> Detections:
        with Image.open(path) as image:
            size = image.size[::-1]
        logits, boxes = map(torch.from_numpy, session.run(None, {"pixel_values": pixels(path)[None].numpy()}))
        outputs = RTDetrObjectDetectionOutput(logits=logits, pred_boxes=boxes)
        sizes = torch.tensor([size])
        (found,) = processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=sizes)
        return found["boxes"].numpy(), found["scores"].numpy(), found["labels"].numpy()

    return detect


def main() -> None:
    """Train, export, and test what was exported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, train, epochs, size in (("yolo", train_yolo, 6, 192), ("rt_detr", train_rt_detr, 6, 192)):
        command = commands.add_parser(name)
        command.set_defaults(train=train)
        command.add_argument("data", type=Path)
        command.add_argument("twin", type=Path)
        command.add_argument("--epochs", type=int, default=epochs)
        command.add_argument("--size", type=int, default=size, help="the width of the input in pixels")
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.twin.mkdir(parents=True, exist_ok=True)
    print(f"AP {average_precision(options.data, options.train(options.data, options.twin, options)):.4f}")


if __name__ == "__main__":
    main()
