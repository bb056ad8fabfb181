"""Compare detectors of rotated boxes with MMRotate 1's own, as whole networks.  Run by hand, as it needs MMRotate.

    pip install --no-deps --target MMROTATE mmrotate==1.0.0rc1 e2cnn sympy mpmath scipy
    python -m tests.tools.check_rotated FOLDER MMROTATE [NAME ...]     # with --record, write what the tests expect
    python -m tests.tools.check_rotated export "" [NAME ...]           # export each at dynamic size, without MMRotate

FOLDER is that of check_parts; the detectors are those of tests/detect/rotated_1_cases.py.  Both sides have the same
weights, and detect in a batch of two images, one of which is padded.  Prints a line for each detector.  Exit code 1 if
names, shapes or detections differ, or an export fails.
"""

from __future__ import annotations

import collections
import collections.abc
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import mmort.torch
from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.parts.rotated.geometry import with_longer_width
from tests.detect import rotated_1_cases
from tests.tools import check_parts, check_query_detectors
from tests.tools.small_detectors import print_problems, write_record

RECORD = Path(__file__).parents[1] / "data" / "detect" / "rotated_1.json"


def active_rotated_filter(weights: Tensor, indices: Tensor) -> Tensor:
    """Return filters [O, I, 1, 3, 3] turned into all orientations, [O * 8, I, 3, 3]: by the operator's definition."""
    filters, channels = weights.shape[:2]
    turned = torch.zeros(filters, indices.shape[3], channels, 9)
    for orientation in range(indices.shape[3]):
        turned[:, orientation, :, indices[0, :, :, orientation].flatten().long() - 1] = weights.flatten(2)
    return turned.reshape(-1, channels, 3, 3)


def rotated_feature_align(features: Tensor, boxes: Tensor, spatial_scale: float) -> Tensor:
    """Take boxes of any shape, as MMCV's function."""
    height, width = features.shape[2:]
    return mmort.torch.rotated_feature_align(features, boxes.reshape(-1, height, width, 5), spatial_scale)


class RoIAlignRotated(mmort.torch.RoIAlignRotated):
    """Take the old names of arguments too, as MMCV's layer."""

    def __init__(self, out_size: int, spatial_scale: float, sample_num: int, clockwise: bool) -> None:
        super().__init__(out_size, spatial_scale=spatial_scale, sampling_ratio=sample_num, clockwise=clockwise)


def batched_nms(
    boxes: Tensor, scores: Tensor, idxs: Tensor, nms_cfg: Any, class_agnostic: bool = False
) -> tuple[Tensor, Tensor]:
    """Keep the classes of rotated boxes apart as MMCV does, by a shift of their centres."""
    settings = dict(nms_cfg)
    if boxes.shape[1] != 5 or not len(boxes):
        return check_parts.batched_nms(boxes, scores, idxs, settings, class_agnostic)
    shift = idxs.to(boxes) * (boxes[:, :2].max() + boxes[:, 2:4].max() + 1)
    apart = torch.cat([boxes[:, :2] + shift[:, None], boxes[:, 2:]], 1)
    dets, kept = mmort.torch.nms_rotated(apart, scores, settings["iou_threshold"])
    return torch.cat([boxes[kept], dets[:, -1:]], 1), kept


def mmrotate(folder: str, rotated: str) -> Any:
    """Return MMRotate's registry of modules, imported from two folders."""
    check_parts.mmdetection(folder)
    operators = import_module("mmcv.ops")
    for function in (active_rotated_filter, rotated_feature_align, batched_nms, RoIAlignRotated):
        setattr(operators, function.__name__, function)
    for module in list(sys.modules.values()):  # those of MMDetection that took the name before
        if getattr(module, "__name__", "").startswith("mmdet.") and hasattr(module, "batched_nms"):
            module.batched_nms = batched_nms  # type: ignore[attr-defined]
    collections.Sequence = collections.abc.Sequence  # type: ignore[attr-defined]
    for package, version in (("mmcv", "2.1.0"), ("mmdet", "3.1.0")):  # the newest that it accepts
        import_module(package).__version__ = version  # type: ignore[attr-defined]
    sys.path.insert(0, rotated)
    import_module("scipy.linalg")
    for alias in (int, float):  # numpy 2 has them no longer; e2cnn needs them
        setattr(np, alias.__name__, alias)
    import_module("mmrotate.utils").register_all_modules(init_default_scope=True)
    from mmrotate.registry import MODELS

    return MODELS


def give_weights(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    """Fill our detector with the tests' weights, and theirs with the same, by the names that loading finds."""
    weights = theirs.state_dict()
    numbered = {key: torch.full_like(value, index) for index, (key, value) in enumerate(weights.items())}
    integers = {key: value for key, value in weights.items() if not value.is_floating_point()}
    load_weights(ours, {**numbered, **integers})
    origins = {key: int(value.flatten()[0]) for key, value in ours.state_dict().items() if value.is_floating_point()}
    rotated_1_cases.fill(ours)
    filled = ours.state_dict()
    theirs.train()  # e2cnn computes its filters when training ends
    theirs.load_state_dict({list(weights)[index]: filled[key] for key, index in origins.items()}, strict=False)
    theirs.eval()


def difference(registry: Any, name: str, record: dict[str, Any]) -> str:
    """Return how a detector differs from MMRotate's, "" if it does not; write what MMRotate finds to `record`."""
    from mmengine.config import ConfigDict

    theirs = registry.build(ConfigDict(rotated_1_cases.config_of(name)["model"])).eval()
    ours = build(rotated_1_cases.config_of(name))
    try:
        give_weights(ours, theirs)
    except ValueError as error:
        return str(error)
    # Of the descriptions of a box, one with the longer side as width; OpenCV's depend on its version.
    canonical = partial(with_longer_width, version="le90")
    return check_query_detectors.difference_of_detections(ours, theirs, record, box=2e-3, canonical=canonical)


def main(folder: str, rotated: str, *arguments: str) -> int:
    """Check the detectors of the command line, by default all."""
    torch.set_grad_enabled(False)
    registry = None if folder == "export" else mmrotate(folder, rotated)
    records: dict[str, dict[str, Any]] = {}

    def problem(name: str) -> str:
        if registry is None:
            return check_query_detectors.exported(rotated_1_cases.config_of(name)["model"], rotated_1_cases.fill)
        return difference(registry, name, records.setdefault(name, {}))

    chosen = [argument for argument in arguments if argument != "--record"] or rotated_1_cases.CASES
    different = print_problems((name, problem(name)) for name in chosen)
    if "--record" in arguments:
        write_record(RECORD, records)
    return different


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
