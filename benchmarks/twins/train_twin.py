"""Train a small RTMDet or DINO on digits with MMDetection on the CPU: a twin for `engines.py`.  Run by hand.

    python -m benchmarks.twins.train_twin CONFIG FOLDER DATA TWIN [--backbone CHECKPOINT]

CONFIG is a file beside this one, FOLDER has MMDetection 3, as for tests.tools.check_parts, and DATA is a data set in
COCO's format: train2017, val2017 and annotations.  With --backbone, training begins with a trained detector's backbone.
Writes TWIN/config.py and TWIN/checkpoint.pth, in float16, and the log and the last epochs to TWIN/training; prints the
AP of the weights in float16.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from tests.tools import check_parts


def read_settings(options: argparse.Namespace) -> Any:
    """Return the settings of a training."""
    from mmengine.config import Config

    settings: Any = Config.fromfile(options.config)
    settings.work_dir = str(options.twin / "training")
    for loader in (settings.train_dataloader, settings.val_dataloader, settings.test_dataloader):
        loader.dataset.data_root = str(options.data)
    for evaluator in (settings.val_evaluator, settings.test_evaluator):
        evaluator.ann_file = str(options.data / settings.val_dataloader.dataset.ann_file)
    if options.backbone:
        source = {"type": "Pretrained", "checkpoint": str(options.backbone), "prefix": "backbone."}
        settings.model.backbone.init_cfg = source
    return settings


def main() -> None:
    """Train, write, and test what was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("folder")
    parser.add_argument("data", type=Path)
    parser.add_argument("twin", type=Path)
    parser.add_argument("--backbone", type=Path, metavar="CHECKPOINT")
    options = parser.parse_args()
    options.twin.mkdir(parents=True, exist_ok=True)
    check_parts.mmdetection(options.folder)
    for module in ("datasets", "engine", "evaluation"):
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
