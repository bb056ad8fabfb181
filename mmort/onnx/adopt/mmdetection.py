"""Files of MMDetection 2 and MMDeploy: their outputs are mmort's, and the detector's config says the rest."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmort.configs import read_config
from mmort.configs.layout import DetectorConfig
from mmort.contract.mask_format import covered_area
from mmort.contract.metadata import read_preprocessing
from mmort.contract.preprocessing import Preprocessing
from mmort.contract.tasks import DETS, LABELS, MASKS
from mmort.onnx.adopt.foreign_file import Entries, ForeignFile
from mmort.onnx.adopt.layout import Layout, merged
from mmort.onnx.adopt.question import Question
from mmort.onnx.adopt.trial import check_classes, run_trial
from mmort.predict.engines.onnxruntime import OnnxRuntime

EXPORTER = "MMDetection or MMDeploy"

_SETTABLE = ("classes", "preprocessing")
"""The entries of a layout that these files leave open."""


def has_detections(file: ForeignFile) -> bool:
    """Return whether a file has the outputs ``dets`` and ``labels`` of MMDetection, rather than RF-DETR's."""
    outputs = ((tensor, file.outputs.get(tensor.name)) for tensor in (DETS, LABELS))
    return all(output is not None and len(output.shape or ()) == len(tensor.sizes) for tensor, output in outputs)


def read_layout(path: str | os.PathLike[str], config: Path | None, entries: Mapping[str, Any]) -> Layout:
    """Return the layout of a file with MMDetection's outputs, after a run of it.

    Parameters
    ----------
    path : path
    config : Path or None
        The detector's config.
    entries : mapping
        Classes or preprocessing, instead of the config's.

    Raises
    ------
    ValueError
        If the preprocessing is unknown, there are other entries, or the file's labels have no names.
    """
    if unknown := [name for name in entries if name not in _SETTABLE]:
        raise ValueError(
            f"adopt: a file of {EXPORTER} has detections already, of which only {' and '.join(_SETTABLE)} can be "
            f"set, got {', '.join(unknown)}"
        )
    stated = merged({} if config is None else _of_config(config, entries), entries)
    if "preprocessing" not in stated:
        raise Question(
            f"adopt: a file of {EXPORTER} does not say how images become its input; pass --config CONFIG.py, the "
            "detector's config"
        )
    trial = run_trial(OnnxRuntime(path), read_preprocessing(stated["preprocessing"]), pads=True)
    dets, labels, *masks = trial.outputs
    name = DETS.name
    columns = {"boxes": f"{name}[:4]", "box_format": "xyxy", "scores": f"{name}[4]", "labels": LABELS.name}
    if dets.shape[1] == 6:
        columns |= {"box_format": "cxcywh", "angle": f"{name}[4]", "scores": f"{name}[5]"}
    if masks:
        area = covered_area(masks[0].shape[1:], trial.canvas)
        stated |= {"masks": MASKS.name, "mask_format": {"area": area}}
    layout = Layout.read(columns | stated)
    check_classes(labels, layout)
    return layout


def _of_config(path: Path, entries: Mapping[str, Any]) -> Entries:
    """Return the entries that a config of MMDetection states; classes only if they are not among `entries`."""
    if not path.is_file():
        raise ValueError(f"adopt: config must be the detector's config, a file, of a file of {EXPORTER}, got {path}")
    config = read_config(path)
    stated: Entries = {"preprocessing": Preprocessing.from_config(config).to_dict()}
    classes = None if "classes" in entries else DetectorConfig(config).classes()
    return stated if classes is None else stated | {"classes": list(classes)}
