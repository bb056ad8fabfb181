"""Configs in which one entry differs from a case's: any that MMDetection's constructors take, any step of a pipeline.

What an entry may be comes from the signatures of MMDetection's classes, from the values that its published configs
have, and from neighbours of the present value.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.originals.published_values import published
from tests.originals.results import ImageResult
from tests.originals.version import Version

Path = tuple[Any, ...]
PIPELINE: Path = ("test_dataloader", "dataset", "pipeline")
REMOVED = "(removed)"
SCORES = "score_thr", "conf_thr", "filter_thr", "object_mask_thr", "min_score", "score_threshold"
OVERLAPS = "iou_threshold", "iou_thr", "nms_thr"
"""Entries that are compared with scores of detections, and with their overlaps."""
LEFT_ALONE = ("type", "init_cfg", "_scope_", "train_cfg", "pretrained", "num_classes", "self", "with_cp")
"""Entries that say what the network is, not how it works, or how it is trained."""

NORMS: tuple[Any, ...] = (
    {"type": "BN", "eps": 0.3},
    {"type": "GN", "num_groups": 2, "eps": 0.2},
    {"type": "GN", "num_groups": 4},
    {"type": "SyncBN"},
    {"type": "IN"},
    {"type": "LN"},
    {"type": "LN", "eps": 0.3},
    None,
)
ACTIVATIONS: tuple[Any, ...] = (
    *({"type": name} for name in ("ReLU", "LeakyReLU", "PReLU", "GELU", "Swish", "SiLU", "HSwish", "Sigmoid", "Tanh")),
    *({"type": name} for name in ("ELU", "Mish", "ReLU6", "HSigmoid")),
    {"type": "LeakyReLU", "negative_slope": 0.4},
    None,
)
CONVOLUTIONS: tuple[Any, ...] = (
    *({"type": name} for name in ("Conv2d", "ConvWS", "ConvAWS", "DCN", "DCNv2")),
    {"type": "DCNv2", "deform_groups": 2},
    None,
)
BY_NAME: dict[str, tuple[Any, ...]] = {
    "norm_cfg": NORMS,
    "post_norm_cfg": NORMS,
    "act_cfg": ACTIVATIONS,
    "conv_cfg": CONVOLUTIONS,
    "nms": (
        None,
        {"type": "nms", "iou_threshold": 0.3},
        {"type": "nms", "iou_threshold": 0.6, "class_agnostic": True},
        {"type": "nms", "iou_threshold": 0.6, "max_num": 5},
        {"type": "nms", "iou_threshold": 0.6, "offset": 1},
        {"type": "nms", "iou_threshold": 0.6, "score_threshold": 0.4},
        {"type": "nms", "iou_threshold": 0.6, "split_thr": 2},
        {"type": "nms", "iou_thr": 0.3},
        {"type": "soft_nms", "iou_threshold": 0.3},
        {"type": "soft_nms", "iou_threshold": 0.3, "method": "gaussian", "sigma": 0.2},
        {"type": "soft_nms", "iou_threshold": 0.3, "method": "naive", "min_score": 0.2},
        {"type": "nms_match", "iou_threshold": 0.3},
        {"iou_threshold": 0.3},
    ),
    "upsample_cfg": (
        {"mode": "bilinear"},
        {"mode": "nearest"},
        {"scale_factor": 2, "mode": "nearest"},
        {"mode": "bilinear", "align_corners": True},
        {"type": "deconv", "scale_factor": 2},
        {"type": "bilinear", "scale_factor": 2},
        {"type": "nearest", "scale_factor": 2},
        {"type": "pixel_shuffle", "scale_factor": 2},
        {
            "type": "carafe",
            "scale_factor": 2,
            "up_kernel": 5,
            "up_group": 1,
            "encoder_kernel": 3,
            "encoder_dilation": 1,
        },
        {"type": None},
    ),
    "dcn": ({"type": "DCN", "deform_groups": 1}, {"type": "DCNv2", "deform_groups": 2}, {"type": "DCNv2", "groups": 2}),
    "stage_with_dcn": ((False, True, True, True), (True, False, False, False)),
    "plugins": (
        [
            {
                "cfg": {"type": "ContextBlock", "ratio": 0.25},
                "stages": (False, True, True, True),
                "position": "after_conv3",
            }
        ],
        [{"cfg": {"type": "NonLocal2d"}, "position": "after_conv2"}],
        [
            {
                "cfg": {"type": "GeneralizedAttention", "num_heads": 2, "attention_type": "0010"},
                "position": "after_conv2",
            }
        ],
    ),
    "roi_layer": (
        {"type": "RoIAlign", "output_size": 7, "sampling_ratio": 2},
        {"type": "RoIAlign", "output_size": 7, "aligned": False},
        {"type": "RoIAlign", "output_size": 7, "sampling_ratio": 2, "pool_mode": "max"},
        {"type": "RoIPool", "output_size": 7},
        {"type": "DeformRoIPoolPack", "output_size": 7, "output_channels": 32},
    ),
    "loss_cls": (
        {"type": "CrossEntropyLoss", "use_sigmoid": True},
        {"type": "CrossEntropyLoss", "use_sigmoid": False},
        {"type": "FocalLoss", "use_sigmoid": True},
        {"type": "QualityFocalLoss", "use_sigmoid": True, "activated": True},
        {"type": "SeesawLoss", "num_classes": 3},
        {"type": "GHMC"},
    ),
    "loss_bbox": ({"type": "IoULoss"}, {"type": "SmoothL1Loss", "beta": 0.1}, {"type": "GIoULoss"}),
    "bbox_coder": (
        {"type": "DeltaXYWHBBoxCoder", "target_means": [0.1, 0.0, 0.0, 0.2], "target_stds": [0.1, 0.1, 0.2, 0.2]},
        {"type": "DeltaXYWHBBoxCoder", "clip_border": False},
        {"type": "DeltaXYWHBBoxCoder", "add_ctr_clamp": True, "ctr_clamp": 4},
        {"type": "LegacyDeltaXYWHBBoxCoder"},
        {"type": "TBLRBBoxCoder", "normalizer": 3.0},
        {"type": "DistancePointBBoxCoder", "clip_border": False},
        {"type": "YOLOBBoxCoder"},
        {"type": "PseudoBBoxCoder"},
    ),
    "anchor_generator": (),
    "angle_version": ("oc", "le90", "le135"),
}
STEPS: tuple[Any, ...] = (
    {"type": "Resize", "scale": (90, 70), "keep_ratio": True},
    {"type": "Resize", "scale": (90, 70), "keep_ratio": False},
    {"type": "Resize", "scale_factor": 1.5},
    {"type": "FixShapeResize", "width": 90, "height": 70, "keep_ratio": True},
    {"type": "FixScaleResize", "scale": (90, 70), "keep_ratio": True},
    {"type": "ResizeShortestEdge", "scale": 70, "max_size": 120},
    {"type": "Pad", "size": (140, 130)},
    {"type": "Pad", "size_divisor": 64, "pad_val": {"img": 50}},
    {"type": "Pad", "pad_to_square": True, "pad_val": {"img": (114.0, 114.0, 114.0)}},
    {"type": "Pad", "size_divisor": 48, "padding_mode": "reflect"},
    {"type": "Normalize", "mean": [100.0, 110.0, 120.0], "std": [50.0, 55.0, 60.0], "to_rgb": True},
    {"type": "Normalize", "mean": [1.0, 2.0, 3.0], "std": [5.0, 5.0, 6.0], "to_rgb": False},
    {"type": "RandomFlip", "prob": 1.0},
    {"type": "RandomFlip", "prob": 0.0},
    {"type": "RandomFlip", "prob": 1.0, "direction": "vertical"},
    {"type": "CenterCrop", "crop_size": (64, 60)},
    {
        "type": "RandomCenterCropPad",
        "ratios": None,
        "border": None,
        "mean": [40, 50, 60],
        "std": [1, 1, 1],
        "to_rgb": True,
    }
    | {"test_mode": True, "test_pad_mode": ["logical_or", 31], "test_pad_add_pix": 1},
    {"type": "Expand", "prob": 0.0},
    {"type": "LoadAnnotations", "with_bbox": True},
    {"type": "LoadEmptyAnnotations", "with_bbox": True},
    {"type": "RandomGrayscale", "prob": 1.0},
    {"type": "ImageToTensor", "keys": ["img"]},
    {"type": "Transpose", "keys": ["img"], "order": (1, 0, 2)},
)
"""Steps that are put into a pipeline."""
PREPROCESSORS: tuple[dict[str, Any], ...] = (
    {"mean": None, "std": None},
    {"mean": [10.0, 20.0, 30.0]},
    {"std": [3.0, 4.0, 5.0]},
    {"std": None},
    {"bgr_to_rgb": False},
    {"rgb_to_bgr": True, "bgr_to_rgb": False},
    {"pad_size_divisor": 64},
    {"pad_size_divisor": 1},
    {"pad_value": 3.0},
    {"mean": [100.0], "std": [50.0]},
    {"pad_mask": True},
    {"pad_seg": True},
    {"boxtype2tensor": False},
    {"non_blocking": True},
    {"batch_augments": [{"type": "BatchFixedSizePad", "size": (160, 160), "pad_mask": False}]},
    {"type": "mmdet.DetDataPreprocessor"},
    {"type": "BatchResize", "scale": (64, 64)},
)


@dataclass(frozen=True)
class Mutant:
    """A changed config: the path of an entry, its new value (`REMOVED` if it is left out), and a shorter text."""

    path: Path
    value: Any
    name: str = ""

    def of(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return a changed copy of a config."""
        config = copy.deepcopy(config)
        parent: Any = config
        for key in self.path[:-1]:
            if isinstance(parent, dict) and parent.get(key) is None:
                parent[key] = {}
            parent = parent[key]
        if isinstance(self.value, str) and self.value == REMOVED:
            del parent[self.path[-1]]
        else:
            parent[self.path[-1]] = copy.deepcopy(self.value)
        return config

    @property
    def text(self) -> str:
        """The path and the value."""
        return (
            self.name
            or f"{'.'.join(map(str, self.path))} = {self.value if self.value == REMOVED else repr(self.value)}"
        )


def mutants(version: Version, config: dict[str, Any], model: Any, detected: Sequence[ImageResult] = ()) -> list[Mutant]:
    """Return all mutants of a case's config.

    `model` is its detector in MMDetection, and `detected` what this detects: thresholds are put among the scores
    and overlaps of these detections, where they have an effect.
    """
    made: dict[str, Mutant] = {}
    scores, overlaps = _levels_of([image.scores for image in detected]), _levels_of(map(_overlaps, detected))
    drawn = _Drawn(version, {SCORES: scores, OVERLAPS: overlaps})
    for mutant in (
        *drawn.of_node(config["model"], ("model",), model),
        *_of_preprocessor(config),
        *(mutant for path in version.pipelines for mutant in drawn.of_pipeline(config, path)),
    ):
        present = _value_at(config, mutant.path)
        if not _same(present, mutant.value):
            made.setdefault(mutant.text, mutant)
    return list(made.values())


def _value_at(config: Any, path: Path) -> Any:
    """Return the value of an entry; `REMOVED` if there is none."""
    for key in path:
        try:
            config = config[key]
        except (KeyError, IndexError, TypeError):
            return REMOVED
    return config


def _same(first: Any, second: Any) -> bool:
    return type(first) is type(second) and json.dumps(first, default=str) == json.dumps(second, default=str)


def _levels_of(values: Iterable[NDArray[np.floating]]) -> list[float]:
    """Return three numbers between values: a fifth, a half and four fifths of them are smaller."""
    ordered = np.unique(np.concatenate([np.zeros(0), *values]).round(4))
    between = (ordered[1:] + ordered[:-1]) / 2
    return [round(float(between[int(share * len(between))]), 5) for share in (0.2, 0.5, 0.8)] if len(between) else []


def _overlaps(image: ImageResult) -> NDArray[np.floating]:
    """Return the intersections over unions above 0 of an image's upright boxes of the same class."""
    if not len(image.boxes) or image.boxes.shape[1] != 4:
        return np.zeros(0)
    first, last = np.split(image.boxes.astype(np.float64), 2, axis=1)
    shared = (np.minimum(last[:, None], last) - np.maximum(first[:, None], first)).clip(min=0).prod(2)
    areas = (last - first).clip(min=0).prod(1)
    overlaps = shared / (areas[:, None] + areas - shared).clip(min=1e-9)
    same = np.triu(image.labels[:, None] == image.labels[None], 1)
    return overlaps[same & (overlaps > 0)]


@dataclass(frozen=True)
class _Drawn:
    """What mutants are drawn from: a version's signatures and steps, and values for entries by their names."""

    version: Version
    observed: Mapping[tuple[str, ...], Sequence[float]]

    def of_node(self, node: dict[str, Any], path: Path, module: Any) -> Iterator[Mutant]:
        """Yield the mutants of a dict and of what is in it; `module` is what MMDetection made of the dict, or None."""
        name = str(path[-1]) if not isinstance(path[-1], int) else str(path[-2])
        parameters = self._parameters(node, module)
        for key in [*node, *(key for key in parameters if key not in node)]:
            if key in LEFT_ALONE or (key == "data_preprocessor" and len(path) == 1):
                continue
            present = node.get(key, parameters.get(key))
            for value in (*_values(name, node, key, present), *self._observed(key)):
                yield Mutant((*path, key), value)
            if key in node:
                yield Mutant((*path, key), REMOVED)
            if isinstance(present, dict):
                yield from self.of_node(present, (*path, key), _child(module, key))
            elif isinstance(present, (list, tuple)) and key in node:
                for index, element in enumerate(present):
                    if isinstance(element, dict):
                        yield from self.of_node(element, (*path, key, index), _element(_child(module, key), index))

    def _observed(self, key: str) -> Sequence[float]:
        """Return the values that were observed for an entry."""
        return next((values for keys, values in self.observed.items() if key in keys), ())

    def of_pipeline(self, config: dict[str, Any], path: Path) -> Iterator[Mutant]:
        """Yield mutants of the test pipeline, an ordered list of steps."""
        steps = _value_at(config, path)
        for index, step in enumerate(steps):
            loads = step["type"] == "LoadImageFromFile"
            if not loads and index < len(steps) - 1:
                yield Mutant(path, [*steps[:index], *steps[index + 1 :]], f"pipeline without {step['type']}")
                yield Mutant(path, [*steps[:index], step, *steps[index:]], f"pipeline with {step['type']} twice")
            if not loads and index < len(steps) - 2:
                swapped = [*steps[:index], steps[index + 1], step, *steps[index + 2 :]]
                yield Mutant(path, swapped, f"pipeline with {step['type']} after {steps[index + 1]['type']}")
            if not loads:
                for inserted in self.version.steps:
                    name = f"pipeline with {inserted} before {step['type']}"
                    yield Mutant(path, [*steps[:index], inserted, *steps[index:]], name)
            parameters = self._parameters(step, None)
            for key in [*step, *(key for key in parameters if key not in step)]:
                if key not in ("type", "meta_keys"):
                    present = step.get(key, parameters.get(key))
                    for value in _values("", step, key, present):
                        yield Mutant((*path, index, key), value)
                    if key in step:
                        yield Mutant((*path, index, key), REMOVED)

    def _parameters(self, node: dict[str, Any], module: Any) -> dict[str, Any]:
        """Return the parameters, with their defaults, of the class that MMDetection builds from a dict."""
        kind = node.get("type")
        owner: Any = None
        if isinstance(kind, str):
            name = kind.rpartition(".")[2]
            owner = self.version.type_named(name)
        elif module is not None and not isinstance(module, dict):
            owner = type(module)
        return _signature(owner) if inspect.isclass(owner) else {}


def _child(module: Any, key: str) -> Any:
    """Return the attribute of a module that an entry describes, if that can be told."""
    if module is None:
        return None
    if key == "layer_cfg":
        return _element(getattr(module, "layers", None), 0)
    names = ["prior_generator"] if key == "anchor_generator" else [key.removesuffix("_cfg"), key]
    made = (getattr(module, name, None) for name in names)
    return next((part for part in made if part is not None and not isinstance(part, dict)), None)


def _element(modules: Any, index: int) -> Any:
    try:
        return modules[index]
    except (TypeError, IndexError, KeyError):
        return None


def _signature(owner: type) -> dict[str, Any]:
    """Return the parameters of a class and, where it passes others on, of its bases."""
    parameters: dict[str, Any] = {}
    for base in owner.__mro__:
        if base.__module__.startswith("torch.") or base is object or "__init__" not in vars(base):
            continue
        signature = inspect.signature(base.__init__)  # type: ignore[misc]
        for name, parameter in list(signature.parameters.items())[1:]:
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                default = None if parameter.default is parameter.empty else parameter.default
                parameters.setdefault(name, default)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
            break
    return parameters


def _values(name: str, node: dict[str, Any], key: str, present: Any) -> Iterator[Any]:
    """Yield values for an entry."""
    yield from BY_NAME.get(key, ())
    kind = str(node.get("type", name)).rpartition(".")[2]
    yield from published().get(f"{kind}.{key}", ())
    if isinstance(present, bool):
        yield not present
    elif isinstance(present, int):
        yield from dict.fromkeys((present + 1, present - 1, 2 * present, 0, -1 if present >= 0 else 1))
    elif isinstance(present, float):
        yield from dict.fromkeys((present * 0.5, present * 2 + 0.1, 0.0, 0.9 if present < 0.9 else 0.2))
    elif isinstance(present, (list, tuple)) and present and all(type(element) in (int, float) for element in present):
        yield type(present)(reversed(present))
        yield type(present)(element * 2 for element in present)
        yield type(present)([present[0] + 1, *present[1:]])
        yield present[:-1]
    elif isinstance(present, (list, tuple)) and present and all(isinstance(element, bool) for element in present):
        yield type(present)(not element for element in present)
    elif present is None and key not in BY_NAME:
        yield from (True, 2, 0.5)
    if isinstance(present, dict) and "type" in present and key not in BY_NAME:
        yield {**present, "no_such_entry": 1}
    elif present is not None and not isinstance(present, dict):
        yield None


def _of_preprocessor(config: dict[str, Any]) -> Iterator[Mutant]:
    """Yield mutants of the data preprocessor, if there is one, and its other place."""
    present = config["model"].get("data_preprocessor")
    if present is None:  # MMDetection 2 has steps of the pipeline instead
        return
    path = "model", "data_preprocessor"
    for change in PREPROCESSORS:
        yield Mutant(path, {**present, **change})
    yield Mutant(path, {key: value for key, value in present.items() if key not in ("mean", "std")})
    yield Mutant(path, None)
    yield Mutant(path, REMOVED)
    without = {key: value for key, value in config["model"].items() if key != "data_preprocessor"}
    yield Mutant(("model",), without, "model without data_preprocessor")
    yield Mutant(("data_preprocessor",), {**present, "mean": [1.0, 2.0, 3.0]})
