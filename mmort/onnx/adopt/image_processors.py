"""Image processors of transformers by name: the preprocessing that their settings and their defaults make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mmort.onnx.adopt.foreign_file import IMAGENET_MEAN, IMAGENET_STD, Entries, is_positive

_IMAGENET = {"image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD}
_CLIP = {"image_mean": (0.48145466, 0.4578275, 0.40821073), "image_std": (0.26862954, 0.26130258, 0.27577711)}
_SHORT_SIDE = {"shortest_edge": 800, "longest_edge": 1333}


class _Processor(NamedTuple):
    """The defaults of an image processor, for settings that its file leaves out."""

    size: Mapping[str, int]
    normalization: Mapping[str, Any] = _IMAGENET
    do_normalize: bool = True
    resample: int = 2
    side_divisor: int = 1
    activation: str = "sigmoid"
    """The function from logits to scores: "softmax" with a background last, or "sigmoid"."""
    multi_label: bool = True
    max_detections: int | None = None
    """None: as many as there are queries."""
    resizes_floats: bool = False
    """Whether levels from 0 to 1 are resized, without antialiasing."""


_PROCESSORS = {
    "Detr": _Processor(_SHORT_SIDE, activation="softmax"),
    "Yolos": _Processor(_SHORT_SIDE, activation="softmax", side_divisor=16),
    "ConditionalDetr": _Processor(_SHORT_SIDE, max_detections=100),
    "DeformableDetr": _Processor(_SHORT_SIDE, max_detections=100),
    "RTDetr": _Processor({"height": 640, "width": 640}, do_normalize=False),
    "RfDetr": _Processor(_SHORT_SIDE, resizes_floats=True),
    "OwlViT": _Processor({"height": 768, "width": 768}, _CLIP, resample=3, multi_label=False),
}
"""By name, without the ending ``ImageProcessor``."""

UNSUPPORTED = {
    "Owlv2": "it blurs images before it resizes them, which no preset and no layout can say",
    "GroundingDino": "its logits are of the tokens of a text, which no layout makes classes of",
}
"""Why other processors are refused."""

_OF_MODELS = {
    "detr": "Detr",
    "table-transformer": "Detr",
    "yolos": "Yolos",
    "conditional_detr": "ConditionalDetr",
    "dab-detr": "ConditionalDetr",
    "deformable_detr": "DeformableDetr",
    "lw_detr": "DeformableDetr",
    "rf_detr": "RfDetr",
    "rt_detr": "RTDetr",
    "rt_detr_v2": "RTDetr",
    "d_fine": "RTDetr",
    "deimv2": "RTDetr",
    "owlvit": "OwlViT",
}
"""By ``model_type`` in ``config.json``, where ``preprocessor_config.json`` names no processor."""

_ENDINGS = ("ImageProcessorFast", "ImageProcessorPil", "ImageProcessor", "FeatureExtractor")

_INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}
"""By their numbers in Pillow, which ``preprocessor_config.json`` has."""

_SIZES = ({"shortest_edge", "longest_edge"}, {"height", "width"}, {"max_height", "max_width"})


def type_of(settings: Mapping[str, Any]) -> str:
    """Return the name of the image processor that settings are of; empty if they have none."""
    return str(settings.get("image_processor_type") or settings.get("feature_extractor_type") or "")


def _processor(settings: Mapping[str, Any], model_type: str = "") -> _Processor | None:
    """Return the defaults of a processor; None if settings have no name, and their model is not known."""
    name = type_of(settings)
    stem = next((name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending)), name)
    stem = stem or _OF_MODELS.get(model_type, "")
    if not stem:
        return None
    if stem not in _PROCESSORS:
        known = ", ".join(f"{stem}ImageProcessor" for stem in _PROCESSORS)
        reason = f"; {UNSUPPORTED[stem]}" if stem in UNSUPPORTED else ""
        raise ValueError(
            f"adopt: preprocessor_config.json: image_processor_type must be {known}, with or without Fast or Pil, got "
            f"{name[:80]}{reason}"
        )
    return _PROCESSORS[stem]


def selection(settings: Mapping[str, Any], columns: int, names: int, queries: int, model_type: str = "") -> Entries:
    """Return how detections are made of logits with a number of columns, for a number of class names.

    Raises
    ------
    ValueError
        If there are not as many columns as classes, or one more where the background is a class.
    """
    processor = _processor(settings, model_type)
    activation = "softmax" if columns == names + 1 else "sigmoid"
    if model_type in _OF_MODELS:
        activation = _PROCESSORS[_OF_MODELS[model_type]].activation
    expected = names + (activation == "softmax")
    if columns != expected:
        raise ValueError(
            f"adopt: config.json must have {columns} classes, as the output logits has, or one less, the background "
            f"being one in DETR and YOLOS, got {names}"
        )
    if activation == "softmax":
        return {"activation": "softmax", "background": "last", "max_detections": queries}
    if processor is not None and not processor.multi_label:
        return {"activation": "sigmoid", "max_detections": queries}
    limit = None if processor is None else processor.max_detections
    return {"activation": "sigmoid", "multi_label": True, "max_detections": limit or queries}


def default_settings(stem: str, fixed: list[int] | None) -> dict[str, Any]:
    """Return the settings of a processor, by its name without the ending, that has its defaults.

    One that stretches all images to a size is for that of the inputs, a width and a height, if it is fixed.
    """
    settings: dict[str, Any] = {"image_processor_type": f"{stem}ImageProcessor"}
    if fixed is not None and "height" in _PROCESSORS[stem].size:
        settings["size"] = {"width": fixed[0], "height": fixed[1]}
    return settings


def image_processor(settings: Mapping[str, Any], fixed: list[int] | None, model_type: str = "") -> Entries:
    """Return the preprocessing of an image processor's settings.

    Parameters
    ----------
    settings : mapping
        As ``preprocessor_config.json`` has them.
    fixed : list of int or None
        The width and height of the file's input if they are fixed.
    model_type : str, default ""
        That of ``config.json``.

    Raises
    ------
    ValueError
        If the processor, its interpolation or its size is not known.
    """
    processor = _processor(settings, model_type)
    if processor is None:
        required = ["size", *(["image_mean", "image_std"] if settings.get("do_normalize", True) else [])]
        if missing := [name for name in required if name not in settings]:
            raise ValueError(
                f"adopt: preprocessor_config.json: there must be image_processor_type, or {', '.join(required)}; "
                f"missing: {', '.join(missing)}"
            )
        processor = _Processor({})
    resample = settings.get("resample", processor.resample)
    if resample not in _INTERPOLATIONS:
        raise ValueError(
            f"adopt: preprocessor_config.json: resample must be 2, bilinear, or 3, bicubic, got {str(resample)[:80]}"
        )
    if settings.get("do_center_crop"):
        raise ValueError("adopt: preprocessor_config.json: do_center_crop must be false: images are not cropped")
    is_pillow = type_of(settings).endswith("Pil")
    backend = "pillow" if is_pillow else "torchvision"
    entries: Entries = {"to_rgb": True, "resize_backend": backend, "interpolation": _INTERPOLATIONS[resample]}
    if processor.resizes_floats:
        _check_floats(settings, resample)
        entries["to_float32"] = True
    entries |= _normalization(settings, processor)
    if settings.get("do_resize", True):
        entries |= _resizing(_size(settings, processor), processor)
    target = settings.get("pad_size") or fixed
    if target is not None and entries.get("keep_ratio", True):
        target = [target["width"], target["height"]] if isinstance(target, dict) else target
        entries["padding"] = {"size": target}
    return entries


def _check_floats(settings: Mapping[str, Any], resample: int) -> None:
    """Refuse settings of RF-DETR's processor by which other numbers than those from 0 to 1 are interpolated."""
    factor = settings.get("rescale_factor", 1 / 255)
    if _INTERPOLATIONS[resample] != "bilinear" or not settings.get("do_rescale", True) or factor != 1 / 255:
        raise ValueError(
            "adopt: preprocessor_config.json: of RfDetrImageProcessor, resample must be 2, bilinear, do_rescale true "
            f"and rescale_factor 1/255, got {resample}, {settings.get('do_rescale', True)} and {str(factor)[:80]}"
        )


def _normalization(settings: Mapping[str, Any], processor: _Processor) -> Entries:
    """Return mean and standard deviation of levels from 0 to 255."""
    rescales = settings.get("do_rescale", settings.get("rescale", True))
    scale = 1 / _number(settings, "rescale_factor", 1 / 255) if rescales else 1.0
    if not settings.get("do_normalize", processor.do_normalize):
        return {"std": [scale] * 3}
    values = {name: settings.get(name) or processor.normalization[name] for name in ("image_mean", "image_std")}
    for name, value in values.items():
        if not isinstance(value, (list, tuple)) or len(value) != 3 or not all(map(_is_number, value)):
            raise ValueError(f"adopt: preprocessor_config.json: {name} must be three numbers, got {str(value)[:80]}")
    scaled = {  # float32, as transformers computes them
        entry: [float(np.float32(value) * np.float32(scale)) for value in values[f"image_{entry}"]]
        for entry in ("mean", "std")
    }
    return scaled | {"divide": True}


def _number(settings: Mapping[str, Any], name: str, default: float) -> float:
    """Return a number of settings, which must not be 0."""
    value = settings.get(name, default)
    if not _is_number(value) or not value:
        raise ValueError(f"adopt: preprocessor_config.json: {name} must be a number but 0, got {str(value)[:80]}")
    return float(value)


def _is_number(value: Any) -> bool:
    """Return whether a value is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _size(settings: Mapping[str, Any], processor: _Processor) -> Mapping[str, int]:
    """Return the size of settings as a dict; old ones have an integer, the shorter side, and ``max_size``."""
    size = settings.get("size") or processor.size
    if is_positive(size):
        is_square = "height" in processor.size and processor.side_divisor == 1 and processor.resample == 3
        longest = settings.get("max_size", _SHORT_SIDE["longest_edge"])
        size = {"height": size, "width": size} if is_square else {"shortest_edge": size, "longest_edge": longest}
    elif isinstance(size, (list, tuple)) and len(size) == 2:
        size = {"height": size[0], "width": size[1]}
    stated = {name: side for name, side in size.items() if side is not None} if isinstance(size, Mapping) else {}
    if set(stated) not in _SIZES or not all(map(is_positive, stated.values())):
        raise ValueError(
            "adopt: preprocessor_config.json: size must have shortest_edge and longest_edge, height and width, or "
            f"max_height and max_width, got {str(size)[:80]}"
        )
    return stated


def _resizing(size: Mapping[str, int], processor: _Processor) -> Entries:
    """Return how images are resized."""
    if "height" in size:
        return {"size": [size["width"], size["height"]], "keep_ratio": False}
    if "max_height" in size:
        return {"size": [size["max_width"], size["max_height"]], "turn_size": False, "rounding": "down"}
    divisor = {} if processor.side_divisor == 1 else {"side_divisor": processor.side_divisor}
    return {"size": [size["longest_edge"], size["shortest_edge"]], "rounding": "down"} | divisor
