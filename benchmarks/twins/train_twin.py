"""Train a small detector on digits with MMDetection on the CPU: a twin for `engines.py`.  Run by hand.

    python -m benchmarks.twins.train_twin CONFIG DATA TWIN [--backbone CHECKPOINT]

CONFIG is a file beside this one, and DATA a data set in COCO's format: train2017, val2017 and annotations, whose
categories get the names of the config's classes.  docs/mmdetection_on_todays_torch.md installs MMDetection; a language
model, whose weights begin at random, needs transformers too.  With --backbone, training begins with a trained
detector's backbone.  Writes TWIN/config.py and TWIN/checkpoint.pth, in float16, and the log and the last epochs to
TWIN/training; prints the AP of the weights in float16.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import mmort.mmcv  # noqa: F401  # before MMDetection


def write_annotations(data: Path, split: str, classes: tuple[str, ...], folder: Path) -> str:
    """Write the annotations of a split with the config's names of the categories, and return the file's path."""
    annotations = json.loads((data / "annotations" / f"instances_{split}2017.json").read_text())
    for category, name in zip(annotations["categories"], classes, strict=True):
        category["name"] = name
    path = folder / f"instances_{split}2017.json"
    path.write_text(json.dumps(annotations))
    return str(path.absolute())


def write_language_model(source: str, folder: Path) -> str:
    """Write a BERT of the sizes and the vocabulary of a folder, with random weights, and return its folder."""
    from transformers import BertConfig, BertModel

    BertModel(BertConfig.from_pretrained(source)).save_pretrained(folder)
    for name in ("config.json", "vocab.txt"):
        shutil.copy(Path(source, name), folder)
    return str(folder)


def read_settings(options: argparse.Namespace) -> Any:
    """Return the settings of a training."""
    from mmengine.config import Config

    settings: Any = Config.fromfile(options.config)
    training = options.twin / "training"
    training.mkdir(exist_ok=True)
    settings.work_dir = str(training)
    train, val = (write_annotations(options.data, split, settings.classes, training) for split in ("train", "val"))
    loaders = settings.train_dataloader, settings.val_dataloader, settings.test_dataloader
    for loader, path in zip(loaders, (train, val, val), strict=True):
        loader.dataset.data_root = str(options.data)
        loader.dataset.ann_file = path
    for evaluator in (settings.val_evaluator, settings.test_evaluator):
        evaluator.ann_file = val
    if "language_model" in settings.model:
        settings.model.language_model.name = write_language_model(
            settings.model.language_model.name, training / "language_model"
        )
    if options.backbone:
        source = {"type": "Pretrained", "checkpoint": str(options.backbone), "prefix": "backbone."}
        settings.model.backbone.init_cfg = source
    return settings


def main() -> None:
    """Train, write, and test what was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("twin", type=Path)
    parser.add_argument("--backbone", type=Path, metavar="CHECKPOINT")
    options = parser.parse_args()
    options.twin.mkdir(parents=True, exist_ok=True)
    os.environ["HF_HUB_OFFLINE"] = "1"
    for module in ("datasets", "engine", "evaluation", "models"):
        import_module(f"mmdet.{module}")
    from mmengine.config import Config
    from mmengine.runner import Runner

    Config.fromfile(options.config).dump(options.twin / "config.py")
    runner = Runner.from_cfg(read_settings(options))
    runner.train()
    weights = {
        name: tensor.half() if tensor.is_floating_point() else tensor
        for name, tensor in runner.model.state_dict().items()
    }
    meta = {"dataset_meta": {"classes": runner.cfg.classes}}
    torch.save({"meta": meta, "state_dict": weights}, options.twin / "checkpoint.pth")
    runner.model.load_state_dict(weights)
    runner.test()


if __name__ == "__main__":
    main()
