"""The test data set of an MMDetection config, 2.x or 3.x, and the options of its metrics."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmort.evaluate import class_names
from mmort.evaluate.coco import CocoDataset
from mmort.evaluate.coco_metrics import CocoOptions
from mmort.evaluate.dataset import Dataset
from mmort.evaluate.voc import VocDataset, VocOptions

_FORMATS = {"CocoDataset": class_names.COCO, "VOCDataset": class_names.VOC}
"""MMDetection's types of data sets, with their classes if the config names none."""


def dataset_of(
    config: Mapping[str, Any] | None = None,
    *,
    classes: Sequence[str] = (),
    annotation_file: str | os.PathLike[str] | None = None,
    image_dir: str | os.PathLike[str] | None = None,
    data_root: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Open the test data set of a config, or one that the other arguments describe.

    Parameters
    ----------
    config : dict, optional
        An MMDetection config, as `mmort.detect.config.read_config` returns it.  Its ``data.test`` or
        ``test_dataloader.dataset`` is used.
    classes : sequence of str, optional
        The detector's class names, which the data set must have.
    annotation_file : path, optional
        Instead of the config's: a ``.json`` file in COCO's format, or a ``.txt`` file with the names of VOC's images.
    image_dir : path, optional
        Instead of the config's.  For VOC, the directory that contains ``JPEGImages`` and ``Annotations``.
    data_root : path, optional
        Instead of the config's ``data_root``.

    Raises
    ------
    ValueError
        If the config's data set is not supported, something is missing, or the classes differ.
    OSError
        If the annotation file cannot be opened.
    """
    entry = {} if config is None else _entry(config)
    if config is None and (annotation_file is None or image_dir is None):
        raise ValueError("evaluate: without a config, the annotation file and the image directory must be given")
    kind = _kind(entry) if entry else "VOCDataset" if str(annotation_file).endswith(".txt") else "CocoDataset"
    root = _Root(config or {}, entry, data_root)
    prefix = entry.get("img_prefix")
    if prefix is None:
        prefixes = entry.get("data_prefix") or {}
        prefix = prefixes.get("sub_data_root" if kind == "VOCDataset" else "img", "")
    annotations = Path(annotation_file) if annotation_file is not None else root.path(entry.get("ann_file"))
    images = Path(image_dir) if image_dir is not None else root.path(prefix)
    names = _classes(entry, tuple(classes))
    if kind == "VOCDataset":
        subdirs = entry.get("img_subdir", "JPEGImages"), entry.get("ann_subdir", "Annotations")
        return VocDataset(annotations, images, names or class_names.VOC, *subdirs)
    return CocoDataset(annotations, images, names)


def classes_of(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the class names of a config's test data set, None if they are unknown."""
    return _classes(_entry(config), ())


def batch_size_of(config: Mapping[str, Any]) -> int:
    """Return how many images of a config's test data set run together, 1 by default."""
    data = config.get("data") or {}
    loaders = config.get("test_dataloader"), data.get("test_dataloader"), data.get("test")
    for loader in loaders:
        if isinstance(loader, Mapping):
            for name in ("batch_size", "samples_per_gpu"):
                if name in loader:
                    return int(loader[name])
    return 1


def metric_options(config: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    """Return the options that a config's ``test_evaluator``, or its ``evaluation``, gives to a data set's metrics."""
    evaluators = config.get("test_evaluator") or config.get("evaluation") or {}
    schema = VocOptions if isinstance(dataset, VocDataset) else CocoOptions
    known = {field.name for field in dataclasses.fields(schema)} | ({"iou_thr"} if schema is VocOptions else set())
    options: dict[str, Any] = {}
    for evaluator in evaluators if isinstance(evaluators, (list, tuple)) else [evaluators]:
        options |= {name: value for name, value in evaluator.items() if name in known}
    if schema is VocOptions and "test_evaluator" in config:
        options.setdefault("eval_mode", "11points")
    return options


def _entry(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of the test data set."""
    loader = config.get("test_dataloader") or {}
    found = _unwrapped((config.get("data") or {}).get("test") or loader.get("dataset"))
    if isinstance(found, (list, tuple)) or (isinstance(found, Mapping) and isinstance(found.get("ann_file"), list)):
        raise ValueError(
            "evaluate: the config tests on several data sets at once, which is not supported; "
            "override its data.test (or test_dataloader.dataset) with one of them"
        )
    if not isinstance(found, Mapping):
        raise ValueError("evaluate: the config has no test data set: neither data.test nor test_dataloader.dataset")
    return found


def _unwrapped(found: Any) -> Any:
    """Return the data set inside data sets that wrap one, and lists of one."""
    if isinstance(found, (list, tuple)) and len(found) == 1:
        return _unwrapped(found[0])
    if isinstance(found, Mapping) and "ann_file" not in found and ("dataset" in found or "datasets" in found):
        return _unwrapped(found.get("dataset") or found["datasets"])
    return found


def _kind(entry: Mapping[str, Any]) -> str:
    """Return the type of a data set, without a package's name."""
    kind = str(entry.get("type")).rpartition(".")[2]
    if kind not in _FORMATS:
        raise ValueError(
            f"evaluate: data set {kind} is not supported; supported: {', '.join(_FORMATS)}. "
            "If its files have one of these formats, override its type, and its classes"
        )
    return kind


def _classes(entry: Mapping[str, Any], detector: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the class names: those that the config names, the detector's, or those of the type; None if unknown."""
    described = entry.get("metainfo") or {}
    named = entry.get("classes") or described.get("classes") or described.get("CLASSES")
    if isinstance(named, str):
        named = Path(named).read_text(encoding="utf-8").splitlines()
    if named is None:
        return detector or (_FORMATS[_kind(entry)] if entry else None)
    if detector and tuple(named) != detector:
        raise ValueError(
            "evaluate: the detector's classes are not those of the config's data set; "
            f"detector: {', '.join(detector)}; data set: {', '.join(named)}"
        )
    return tuple(named)


class _Root:
    """Resolves the paths of a data set's config."""

    def __init__(
        self, config: Mapping[str, Any], entry: Mapping[str, Any], replacement: str | os.PathLike[str] | None
    ) -> None:
        self.own, self.variable, self.replacement = entry.get("data_root"), config.get("data_root"), replacement

    def path(self, path: str | None) -> Path:
        """Return a path of the config, below the replaced root if there is one."""
        if path is None:
            raise ValueError("evaluate: the config's test data set has no ann_file; give an annotation file")
        if self.replacement is None:
            return Path(self.own or "", path)
        if self.own is None and self.variable is not None and Path(path).is_relative_to(self.variable):
            return Path(self.replacement, Path(path).relative_to(self.variable))  # the config has joined them already
        return Path(self.replacement, path)
