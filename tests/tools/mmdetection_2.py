"""MMDetection 2 without compiled operators, to be compared with; `check_parts.mmdetection` imports version 3.

pip install --no-deps --target FOLDER mmdet==2.28.2 mmcv==1.7.2 addict yapf six termcolor terminaltables
"""

from __future__ import annotations

import copy
import sys
import types
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.tools import check_parts


def import_from(folder: str) -> None:
    """Import MMDetection from a folder; mmort's operators stand in for MMCV's."""
    for alias in (int, float):  # numpy 2 has them no longer
        setattr(np, alias.__name__, alias)
    for name in ("torchvision", "torchvision.models", "torchvision.utils"):  # MMCV only imports it
        module = types.ModuleType(name)
        vars(module).update(__version__="0.20.0", __path__=[], __spec__=ModuleSpec(name, None, is_package=True))
        sys.modules[name] = module
    sys.path.insert(0, folder)
    sys.meta_path.insert(0, check_parts.OperatorsFinder(folder))
    import_module("mmcv.utils.ext_loader").load_ext = lambda name, functions: None
    import_module("mmcv.ops.carafe").carafe = check_parts.carafe


def build(model: dict[str, Any]) -> Any:
    """Return the detector that a config's model describes."""
    config = import_module("mmcv").ConfigDict(copy.deepcopy(model))
    return import_module("mmdet.models").build_detector(config)


def detect(detector: Any, image: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return boxes with scores [K, 5], labels [K] and perhaps masks [K, H, W] of a batch of one image."""
    canvas = image.shape[2], image.shape[3]
    meta = {"img_shape": (*shape, 3), "ori_shape": (*shape, 3), "pad_shape": (*canvas, 3), "batch_input_shape": canvas}
    meta |= {"scale_factor": np.ones(4, np.float32), "flip": False, "flip_direction": None}
    (result,) = detector.simple_test(image, [meta], rescale=False)
    by_class, masks = result if isinstance(result, tuple) else (result, None)
    if isinstance(by_class, np.ndarray):  # proposals
        by_class = [by_class]
    rows = np.concatenate(by_class)
    if isinstance(masks, tuple):  # Mask Scoring R-CNN gives masks a score of their own
        masks, scores = masks
        rows[:, 4] = np.concatenate([np.reshape(each, -1) for each in scores])
    labels = np.repeat(np.arange(len(by_class)), [len(boxes) for boxes in by_class])
    flat = None if masks is None else torch.from_numpy(np.array([mask for each in masks for mask in each]))
    return torch.from_numpy(rows), torch.from_numpy(labels), flat
