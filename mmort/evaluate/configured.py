"""The test data set of an MMDetection config, 2.x or 3.x, and the options of its metrics."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from mmort.configs.data_sets import METRICS_OF_TYPES, OTHER_FORMATS, classes_of, dict_of, named_classes, type_of
from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import plain_type
from mmort.evaluate.classification import ClassificationDataset, ClassificationOptions
from mmort.evaluate.coco import Coco90Dataset, CocoDataset, Objects365V1Dataset
from mmort.evaluate.coco_metrics import CocoOptions
from mmort.evaluate.coco_panoptic import CocoPanopticDataset, PanopticOptions
from mmort.evaluate.concatenated import ConcatenatedDataset
from mmort.evaluate.dataset import Dataset, DatasetWarning
from mmort.evaluate.dota import DotaDataset, DotaOptions
from mmort.evaluate.lvis import LvisDataset, LvisOptions, NotFederatedError
from mmort.evaluate.poses import PoseDataset, PoseOptions
from mmort.evaluate.segmentation import SegmentationDataset, SegmentationOptions, read_segmentation_entry
from mmort.evaluate.text_regions import HmeanOptions, TextRegionDataset
from mmort.evaluate.voc import VocDataset, VocOptions
from mmort.evaluate.words import WordDataset, WordOptions
from mmort.evaluate.yolo import Split, YoloDataset

_Path: TypeAlias = str | os.PathLike[str]

_OPTIONS = {
    "bbox": CocoOptions,
    "PQ": PanopticOptions,
    "mAP": VocOptions,
    "mIoU": SegmentationOptions,
    "accuracy": ClassificationOptions,
    "keypoints": PoseOptions,
    "word_acc": WordOptions,
    "hmean": HmeanOptions,
}
"""The options of data sets by the first of their metrics."""

_METRICS = {
    SegmentationOptions: ("IoUMetric",),
    ClassificationOptions: ("Accuracy",),
    PoseOptions: ("CocoMetric", "PCKAccuracy"),
    WordOptions: ("WordMetric",),
    HmeanOptions: ("HmeanIOUMetric",),
}
"""The types of evaluators that have these options; others beside them may have some of the same name."""

_ANNOTATION_SUFFIXES = {".json": "CocoDataset", ".txt": "VOCDataset", ".yaml": "YoloDataset", ".yml": "YoloDataset"}
"""The types of data sets by the suffix of an annotation file that is given instead of the config's."""


_OF_JSON = "CocoPanopticDataset", "Coco90Dataset", *METRICS_OF_TYPES
"""The types that an annotation file with the suffix .json may have instead of CocoDataset."""

_PARTIAL = "KFoldDataset", "ClassBalancedDataset"
"""Data sets that hold another, and have some of its images, or some of them several times."""

_PATHS = "ann_file", "data_root", "img_prefix", "img_subdir", "ann_subdir", "seg_prefix"
"""Entries of a data set that are paths."""


def dataset_of(
    config: Mapping[str, Any] | None = None,
    *,
    classes: Sequence[str] = (),
    annotation_file: _Path | None = None,
    image_dir: _Path | None = None,
    data_root: _Path | None = None,
    labels_by_name: bool = False,
    split: Split = "val",
    skip_wrong_labels: bool = False,
) -> Dataset:
    """Open the test data set of a config, or one that the other arguments describe.

    Parameters
    ----------
    config : dict, optional
        An MMDetection config, as `mmort.configs.read_config` returns it.  Its ``data.test`` or
        ``test_dataloader.dataset`` is used.  If there are several, each is measured, as MMDetection 2 does it: the
        names of their figures begin with the number of the data set, ``0_bbox_mAP``.
    classes : sequence of str, optional
        The detector's class names, which the data set must have.
    annotation_file : path, optional
        Instead of the config's: a ``.json`` file in COCO's format, a ``.txt`` file with the names of VOC's images, the
        folder of DOTA's annotations, or YOLO's ``data.yaml``.
    image_dir : path, optional
        Instead of the config's.  For VOC, the directory that contains ``JPEGImages`` and ``Annotations``.
    data_root : path, optional
        Instead of the config's ``data_root``, or the ``path`` of ``data.yaml``.
    labels_by_name : bool, default False
        Whether labels count `classes` for COCO's format, too; see `CocoDataset`.
    split : {"train", "val", "test"}, default "val"
        The entry of ``data.yaml`` that lists the images.
    skip_wrong_labels : bool, default False
        Leave out lines of labels that are not in YOLO's format, with a warning.

    Raises
    ------
    ValueError
        If the config's data set is not supported, something is missing, or the classes differ.
    OSError
        If the annotation file cannot be opened.

    Warns
    -----
    DatasetWarning
        If MMDetection measures a data set of this type by another metric.
    """
    replaced = _Arguments(annotation_file, image_dir, data_root, labels_by_name)
    if annotation_file is not None and _ANNOTATION_SUFFIXES.get(Path(annotation_file).suffix) == "YoloDataset":
        if image_dir is not None:
            raise ValueError("evaluate: data.yaml has the directory of the images, so image_dir must not be given")
        return YoloDataset(
            annotation_file, tuple(classes) or None, data_root, split, skip_wrong_labels=skip_wrong_labels
        )
    if split != "val":
        raise ValueError(f"evaluate: split is for data.yaml of a data set for YOLOs, got {split!r}")
    if skip_wrong_labels:
        raise ValueError("evaluate: skip_wrong_labels is for data.yaml of a data set for YOLOs")
    if config is None:
        if annotation_file is None or image_dir is None:
            raise ValueError("evaluate: without a config, the annotation file and the image directory must be given")
        return _open(None, {}, tuple(classes), replaced)
    layout = DetectorConfig(config)
    entries = layout.test_data_sets
    if layout.package is not None and layout.package.module != "mmocr" and len(entries) > 1:
        raise ValueError(f"evaluate: the config must have one test data set, got {len(entries)}")
    if len(entries) > 1 and (annotation_file is not None or image_dir is not None):
        raise ValueError(
            f"evaluate: the config tests on {len(entries)} data sets, so an annotation file or an image directory must "
            "be given in the config, not as an argument"
        )
    if partial := next((kind for kind in layout.test_data_wrappers if kind in _PARTIAL), None):
        raise ValueError(
            f"evaluate: the test data set {partial} is not supported, as it chooses or repeats images of the data set "
            "in it; give a config with that data set, or one of its chosen images"
        )
    for entry in entries:
        _require_all_images(entry)
    opens = _open if layout.package is None else _open_package
    datasets = [opens(layout, entry, tuple(classes), replaced) for entry in entries]
    return datasets[0] if len(datasets) == 1 else ConcatenatedDataset(datasets)


class _Arguments(NamedTuple):
    """Paths that replace those of a config, and whether labels count the classes."""

    annotation_file: _Path | None
    image_dir: _Path | None
    data_root: _Path | None
    labels_by_name: bool


def _open(
    config: DetectorConfig | None, entry: Mapping[str, Any], classes: tuple[str, ...], replaced: _Arguments
) -> Dataset:
    """Open a data set by its entry of a config, which may be empty."""
    _require_paths(entry)
    kind = type_of(entry) if entry else "CocoDataset"
    suffix = Path(replaced.annotation_file or "").suffix
    if replaced.annotation_file is not None and Path(replaced.annotation_file).is_dir():
        kind = "DOTADataset"
    elif replaced.annotation_file is not None and not (kind in _OF_JSON and suffix == ".json"):
        kind = _ANNOTATION_SUFFIXES.get(suffix, kind)
    root = _Root(config, entry, replaced.data_root)
    prefix = entry.get("img_prefix")
    if prefix is None:
        prefixes = dict_of(entry, "data_prefix")
        name = {"VOCDataset": "sub_data_root", "DOTADataset": "img_path"}.get(kind, "img")
        prefix = prefixes.get(name, "")
    annotations = (
        root.path(entry.get("ann_file")) if replaced.annotation_file is None else Path(replaced.annotation_file)
    )
    if kind in OTHER_FORMATS and annotations.suffix != ".json":
        raise ValueError(
            f"evaluate: annotations of a {kind} must be in COCO's format, a .json file (--ann FILE.json), got "
            f"{annotations}"
        )
    images = root.path(prefix) if replaced.image_dir is None else Path(replaced.image_dir)
    names = classes_of(entry, classes)
    if not names and kind in ("VOCDataset", "DOTADataset"):
        raise ValueError(
            f"evaluate: the detector has no class names, and {annotations} does not say which label is which class: "
            "give the config (CONFIG), which does"
        )
    if kind == "VOCDataset":
        subdirs = entry.get("img_subdir", "JPEGImages"), entry.get("ann_subdir", "Annotations")
        return VocDataset(annotations, images, names or (), *subdirs)
    if kind == "DOTADataset":
        return DotaDataset(annotations, images, names or ())
    if kind == "CocoPanopticDataset":
        segments = entry.get("seg_prefix") or dict_of(entry, "data_prefix").get("seg")
        has_segments = segments is not None and replaced.annotation_file is None
        return CocoPanopticDataset(annotations, images, root.path(segments) if has_segments else None, names)
    if METRICS_OF_TYPES.get(kind) == "LVISMetric":
        with contextlib.suppress(NotFederatedError):
            return LvisDataset(annotations, images, names, labels_by_name=replaced.labels_by_name)
    if METRICS_OF_TYPES.get(kind, "CocoMetric") != "CocoMetric":
        text = f"a {kind} is measured by COCO's metrics; MMDetection measures it by its {METRICS_OF_TYPES[kind]}"
        warnings.warn(text, DatasetWarning, stacklevel=3)
    types = {"Coco90Dataset": Coco90Dataset, "Objects365V1Dataset": Objects365V1Dataset}
    return types.get(kind, CocoDataset)(annotations, images, names, labels_by_name=replaced.labels_by_name)


def _open_package(
    config: DetectorConfig, entry: Mapping[str, Any], classes: tuple[str, ...], replaced: _Arguments
) -> Dataset:
    """Open a data set of one of OpenMMLab's other packages by its entry of a config."""
    root = _Root(config, entry, replaced.data_root)
    if config.package is not None and config.package.module == "mmpose":
        return _open_poses(config, entry, root, replaced)
    prefixes, names = entry.get("data_prefix"), named_classes(entry)
    if names is not None and classes and names != classes:
        raise ValueError(
            "evaluate: the model's classes are not those of the config's data set; "
            f"model: {', '.join(classes)}; data set: {', '.join(names)}"
        )
    prefix = prefixes if isinstance(prefixes, Mapping) else {"img_path": prefixes}
    images = root.path(prefix.get("img_path") or "") if replaced.image_dir is None else Path(replaced.image_dir)
    if config.package is not None and config.package.module == "mmocr":
        annotations = replaced.annotation_file or root.path(entry.get("ann_file") or "")
        if not (config.has_model and "det_head" in config.outer_model):
            return WordDataset(images, annotations)
        if any(plain_type(step.get("type")) == "FixInvalidPolygon" for step in config.test_steps or ()):
            raise ValueError("evaluate: FixInvalidPolygon, which changes the texts of the data set, is not supported")
        return TextRegionDataset(images, annotations)
    if config.package is not None and config.package.module == "mmpretrain":
        listed = replaced.annotation_file or (root.path(entry["ann_file"]) if entry.get("ann_file") else None)
        if split := _split_of(entry):
            images = images if prefix.get("img_path") or replaced.image_dir else root.path(split)
            meta = root.path(f"meta/{split}.txt")
            listed = meta if listed is None and meta.is_file() else listed
        return ClassificationDataset(images, listed, names or classes or None)
    settings = read_segmentation_entry(entry)
    if names is None and len(classes) == len(settings.classes) and {*classes} != {*settings.classes}:
        settings = dataclasses.replace(settings, classes=())  # the model has other words for the same classes
    maps = replaced.annotation_file or root.path(prefix.get("seg_map_path") or "")
    names = names or classes or settings.classes
    if not names:
        raise ValueError("evaluate: neither the file nor the config's data set names the classes of the pixels")
    listed = root.path(entry["ann_file"]) if entry.get("ann_file") else None
    return SegmentationDataset(images, maps, names, listed, settings)


def _split_of(entry: Mapping[str, Any]) -> str | None:
    """Return the part of ImageNet that a data set of MMPretrain states; ValueError if an entry is not supported."""
    kind, split = plain_type(entry.get("type")), entry.get("split") or None
    if kind not in ("CustomDataset", "ImageNet"):
        raise ValueError(f"evaluate: data set {kind} is not supported; supported: CustomDataset, ImageNet")
    if split not in (None, "train", "val"):
        raise ValueError(f"evaluate: split of the config's data set must be 'train' or 'val', got {split!r}")
    for name in ("extensions", "with_label"):
        if entry.get(name, True) is not True:
            raise ValueError(f"evaluate: {name} of the config's data set is not supported")
    return split


def _open_poses(config: DetectorConfig, entry: Mapping[str, Any], root: _Root, replaced: _Arguments) -> PoseDataset:
    """Open a data set of MMPose, if it is measured by the AP of COCO's keypoints, or by PCK."""
    for evaluator in config.evaluators:
        converters = [name for name in ("pred_converter", "gt_converter") if evaluator.get(name) is not None]
        kind, of = plain_type(evaluator.get("type")), evaluator.get("iou_type", "keypoints")
        if kind != "PCKAccuracy" and (kind != "CocoMetric" or of != "keypoints" or converters):
            raise ValueError(
                "evaluate: poses are measured by PCKAccuracy, or CocoMetric with iou_type='keypoints' and without "
                f"converters, got "
                f"{', '.join([kind, of, *converters])}"
            )
    annotations = replaced.annotation_file or root.path(entry.get("ann_file"))
    images = replaced.image_dir or root.path(dict_of(entry, "data_prefix").get("img", ""))
    boxes = entry.get("bbox_file") if replaced.annotation_file is None else None
    return PoseDataset(annotations, images, boxes)


def batch_size_of(config: Mapping[str, Any]) -> int:
    """Return how many images of a config's test data set run together, 1 by default."""
    return DetectorConfig(config).batch_size


def metric_options(config: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    """Return the options that a config's ``test_evaluator``, or its ``evaluation``, gives to a data set's metrics."""
    schemas = {DotaDataset: DotaOptions, LvisDataset: LvisOptions}
    schema = schemas.get(type(dataset), _OPTIONS[dataset.metric_names[0]])
    known = {field.name for field in dataclasses.fields(schema)}
    if schema in (VocOptions, DotaOptions):
        known.add("iou_thr")
    options: dict[str, Any] = {}
    evaluators = DetectorConfig(config).evaluators
    if schema in _METRICS:
        evaluators = [item for item in evaluators if plain_type(item.get("type")) in _METRICS[schema]]
    for evaluator in evaluators:
        options |= {name: value for name, value in evaluator.items() if name in known}
    if schema is VocOptions and any("type" in evaluator for evaluator in evaluators):  # MMDetection 3's
        options.setdefault("eval_mode", "11points")
    return options


def _require_paths(entry: Mapping[str, Any]) -> None:
    """Refuse entries of a data set that must be paths and are not."""
    paths = {f"data_prefix.{name}": value for name, value in dict_of(entry, "data_prefix").items()}
    paths |= {name: entry.get(name) for name in _PATHS}
    for name, value in paths.items():
        if value is not None and not isinstance(value, (str, os.PathLike)):
            raise ValueError(f"evaluate: {name} of the config's data set must be a path, got {value!r}")


def _require_all_images(entry: Mapping[str, Any]) -> None:
    """Refuse entries of a data set that leave images, boxes or objects out."""
    defaults = {"indices": None, "sample_interval": 1, "data_mode": "topdown"}
    defaults |= {"difficulty": 100, "diff_thr": 100}  # of MMRotate 0 and 1, for DOTA
    for name, default in defaults.items():
        if entry.get(name, default) != default:
            raise ValueError(f"evaluate: {name} of the config's data set must be {default!r}, got {entry[name]!r:.60}")
    if "bbox_score_thr" in dict_of(entry, "filter_cfg") and entry.get("bbox_file"):
        raise ValueError("evaluate: filter_cfg with bbox_score_thr, which leaves boxes out, is not supported")


class _Root:
    """Resolves the paths of a data set's config."""

    def __init__(self, config: DetectorConfig | None, entry: Mapping[str, Any], replacement: _Path | None) -> None:
        self.data_root, self.replacement = entry.get("data_root"), replacement
        self.variable = None if config is None else config.data_root

    def path(self, path: str | None) -> Path:
        """Return a path of the config, below the replaced root if there is one."""
        if path is None:
            raise ValueError("evaluate: the config's test data set has no ann_file; give an annotation file")
        if self.replacement is None:
            return Path(self.data_root or "", path)
        if self.data_root is None and self.variable is not None and Path(path).is_relative_to(self.variable):
            return Path(self.replacement, Path(path).relative_to(self.variable))  # the config has joined them already
        return Path(self.replacement, path)
