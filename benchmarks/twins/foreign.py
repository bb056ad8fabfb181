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
from tqdm import tqdm

from mmort.predict import read_image
from tests.tools.exporters.exporter import Rows
from tests.tools.exporters.of_transformers import export_transformers, of_transformers
from tests.tools.exporters.of_ultralytics import predicted
from tests.tools.tabulate_exporters import average_precision

Detect = Callable[[Path, np.ndarray], Rows]
"""Returns what a package detects with a file in an image."""


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


def average_precision_of(data: Path, model: Path, detect: Detect) -> float:
    """Return COCO's AP of what a package detects in the images for validation."""
    annotations, _ = read_annotations(data, "val")
    results = []
    for image in tqdm(annotations["images"], desc="val2017"):
        rows = detect(model, read_image(data / "val2017" / image["file_name"]))
        for corners, score, label in zip(*rows, strict=True):
            box = [*corners[:2], *(corners[2:] - corners[:2])]
            category = annotations["categories"][int(label)]["id"]
            result = {"image_id": image["id"], "category_id": category, "bbox": list(map(float, box))}
            results.append(result | {"score": float(score)})
    return average_precision(data / "annotations" / "instances_val2017.json", results)


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


def train_yolo(data: Path, twin: Path, options: argparse.Namespace) -> Detect:
    """Train and export YOLO11n, and return the function that detects with ultralytics."""
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
    return predicted({"imgsz": options.size})


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


def train_rt_detr(data: Path, twin: Path, options: argparse.Namespace) -> Detect:
    """Train and export RT-DETR, and return the function that detects with transformers."""
    from transformers import RTDetrImageProcessor

    torch.manual_seed(options.seed)
    model = build_rt_detr([category["name"] for category in read_annotations(data, "val")[0]["categories"]])
    processor = RTDetrImageProcessor(size={"height": options.size * 5 // 6, "width": options.size})

    def pixels(path: Path) -> torch.Tensor:
        return processor(read_image(path)[..., ::-1].copy(), return_tensors="pt")["pixel_values"][0]

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
    export_transformers(model, processor, twin)
    return of_transformers


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
    detect = options.train(options.data, options.twin, options)
    print(f"AP {average_precision_of(options.data, options.twin / 'model.onnx', detect):.4f}")


if __name__ == "__main__":
    main()
