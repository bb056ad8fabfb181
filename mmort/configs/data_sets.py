"""The config of a data set, MMDetection 2 or 3: its type, and the names of its classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmort._files.inputs import read_text
from mmort.configs import class_names
from mmort.configs.schema import plain_type

CLASSES_OF_TYPES = {
    "Coco90Dataset": class_names.COCO_90,
    "CocoDataset": class_names.COCO,
    "CocoPanopticDataset": None,
    "DOTADataset": class_names.DOTA,
    "VOCDataset": class_names.VOC,
}
"""The supported types, with their classes if the config names none; None for all that the annotations have."""

METRICS_OF_TYPES = {
    "CityscapesDataset": "CityScapesMetric",
    "CrowdHumanDataset": "CrowdHumanMetric",
    "DeepFashionDataset": "CocoMetric",
    "LVISDataset": "LVISMetric",
    "LVISV05Dataset": "LVISMetric",
    "LVISV1Dataset": "LVISMetric",
    "Objects365V1Dataset": "CocoMetric",
    "Objects365V2Dataset": "CocoMetric",
    "OpenImagesChallengeDataset": "OpenImagesMetric",
    "OpenImagesDataset": "OpenImagesMetric",
    "V3DetDataset": "CocoMetric",
    "iSAIDDataset": "CocoMetric",
}
"""Types whose annotations are read in COCO's format and measured by its metrics, with MMDetection's metrics of them.

Their classes, if the config names none, are all that the annotations have.
"""

OTHER_FORMATS = "CrowdHumanDataset", "OpenImagesChallengeDataset", "OpenImagesDataset"
"""Those whose own annotation files have another format."""


def type_of(data_set: Mapping[str, Any]) -> str:
    """Return the type of a data set, without a package's name, and MMDetection's for one of MMYOLO.

    Raises
    ------
    ValueError
        If it is not supported.
    """
    name = plain_type(data_set.get("type")).removeprefix("YOLOv5")  # MMYOLO's pad images by batch_shapes_cfg
    if name not in CLASSES_OF_TYPES and name not in METRICS_OF_TYPES:
        raise ValueError(
            f"evaluate: data set {name} is not supported; supported: "
            f"{', '.join([*CLASSES_OF_TYPES, *METRICS_OF_TYPES])}. If its files have one of these formats, override "
            "its type, and its classes"
        )
    return name


def dict_of(data_set: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an entry that must be a dict, empty if there is none."""
    value = data_set.get(name) or {}
    if not isinstance(value, Mapping):
        raise ValueError(f"evaluate: {name} of the config's data set must be a dict, got {value!r}")
    return value


def named_classes(data_set: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names of classes that a data set's config states; None if it states none.

    Raises
    ------
    ValueError
        If they are no list of names.
    OSError
        If the file with the names cannot be read.
    """
    described = dict_of(data_set, "metainfo")
    named = data_set.get("classes") or described.get("classes") or described.get("CLASSES")
    if isinstance(named, str):
        named = read_text("class names", named).splitlines()
    if named is not None and not (isinstance(named, (list, tuple)) and all(isinstance(name, str) for name in named)):
        raise ValueError(f"evaluate: classes of the config's data set must be a list of names, got {named!r}")
    return None if named is None else tuple(named)


def classes_of(data_set: Mapping[str, Any], detector: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """Return the names of the classes of a data set, which may be empty: its own, the detector's, or its type's.

    Returns None if they are unknown.

    Raises
    ------
    ValueError
        If the names are no list of names, or others than the detector's, or the type is not supported.
    OSError
        If the file with the names cannot be read.
    """
    named = named_classes(data_set)
    if named is None:
        return detector or (CLASSES_OF_TYPES.get(type_of(data_set)) if data_set else None)
    if detector and tuple(named) != detector:
        raise ValueError(
            "evaluate: the detector's classes are not those of the config's data set; "
            f"detector: {', '.join(detector)}; data set: {', '.join(named)}"
        )
    return tuple(named)
