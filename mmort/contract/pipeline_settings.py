"""A config's test pipeline as the arguments of `Preprocessing`."""

from __future__ import annotations

from typing import Any

from mmort.configs.data_preprocessor import DataPreprocessor
from mmort.configs.layout import DetectorConfig
from mmort.configs.test_pipeline import (
    BatchShapes,
    CenterCrop,
    CenterPad,
    EfficientNetCenterCrop,
    FixScaleResize,
    FixShapeResize,
    KeepRatioResize,
    LetterResize,
    Load,
    Normalize,
    Pad,
    PadToWidth,
    RescaleToHeight,
    Resize,
    ResizeEdge,
    Step,
    TestPipeline,
    TopdownAffine,
    padding_value,
)
from mmort.contract.line_height import LineHeight
from mmort.contract.padding import Padding

_ORDER = "LoadImageFromFile, Resize or ResizeEdge, Pad, CenterCrop or RandomCenterCropPad, Normalize, Pad"


def settings_of(config: DetectorConfig) -> dict[str, Any]:
    """Return the arguments of `Preprocessing` for a config.

    Raises
    ------
    ValueError
        If the config has no test pipeline, a step or an entry that is not supported, or steps in an order that
        `Preprocessing` does not have; the message names them.
    """
    pipeline, version_3 = config.test_pipeline, config.version == 3
    settings: dict[str, Any] = {"turn_boxes": version_3}
    settings |= {"flip": True} if pipeline.flip else {}
    settings |= _color_settings(config)
    position, previous = -1, ""
    for kind, step in pipeline.steps:
        stage = _stage(step, after_normalize="mean" in settings)
        if stage is None:
            continue
        if stage <= position:
            raise ValueError(
                f"preprocessing: step {kind} of the test pipeline is not supported after {previous}; the supported "
                f"order, each once at most: {_ORDER}"
            )
        position, previous = stage, kind
        if isinstance(step, LetterResize):
            settings |= _letter_resize(step, settings, config.image_channels, config.batch_shapes)
        else:
            settings |= _settings(step, pipeline, settings, config.image_channels, version_3=version_3)
    settings |= _model_settings(config.data_preprocessor, settings, config.image_channels)
    if "mean" not in settings and config.image_channels != 3:
        settings |= {"mean": (0.0,) * config.image_channels, "std": (1.0,) * config.image_channels}
    if len(settings.get("mean", ())) not in (0, config.image_channels):
        raise ValueError(
            f"preprocessing: mean must be {config.image_channels} numbers, as images have channels, got "
            f"{settings['mean']}"
        )
    return _without_zero_padding(settings)


def _color_settings(config: DetectorConfig) -> dict[str, Any]:
    """Return how image files are read; ValueError if the channels differ from those that the backbone takes."""
    loads = [step for _, step in config.test_pipeline.steps if isinstance(step, Load)]
    color_type = (loads[0].color_type if loads else None) or "color"
    channels = {"color": 3, "color_ignore_orientation": 3, "grayscale": 1}.get(color_type)
    wanted = config.image_channels
    if channels not in (None, wanted):
        raise ValueError(
            f"preprocessing: LoadImageFromFile with color_type {color_type!r} reads images for in_channels={channels}, "
            f"but the backbone has {wanted}"
        )
    return {} if color_type == "color" else {"color_type": color_type}


def _stage(step: Step, *, after_normalize: bool) -> int | None:
    """Return where a step stands in `_ORDER`; None if it does not change the image."""
    if isinstance(step, Pad):
        return 4 if after_normalize else 2
    resizing = Resize, ResizeEdge, FixShapeResize, KeepRatioResize, RescaleToHeight
    if isinstance(step, (*resizing, TopdownAffine, EfficientNetCenterCrop)):
        return 1
    stages = {Load: 0, LetterResize: 2, PadToWidth: 2, CenterPad: 2, CenterCrop: 2, Normalize: 3}
    return next((stage for kind, stage in stages.items() if isinstance(step, kind)), None)


def _settings(
    step: Step, pipeline: TestPipeline, before: dict[str, Any], channels: int, *, version_3: bool
) -> dict[str, Any]:
    """Return the settings of a step, after those of the steps `before` it."""
    if isinstance(step, Load):
        return {"to_float32": True} if step.to_float32 else {}
    if isinstance(step, Resize):
        size = pipeline.size or step.size
        keep_ratio = not version_3 if step.keep_ratio is None else step.keep_ratio
        settings = {"keep_ratio": keep_ratio, "resize_backend": step.backend} | ({"size": size} if size else {})
        settings |= {"interpolation": step.interpolation} if step.interpolation else {}
        return settings | ({"rounding": "truncate"} if isinstance(step, FixScaleResize) else {})
    if isinstance(step, ResizeEdge):
        return {"edge": step.scale, "resize_backend": step.backend, "interpolation": step.interpolation}
    if isinstance(step, EfficientNetCenterCrop):
        of_resizing = {"resize_backend": step.backend, "interpolation": step.interpolation}
        size = step.crop_size, step.crop_size
        return {"keep_ratio": False, "size": size, "crop_padding": step.crop_padding, **of_resizing}
    if isinstance(step, RescaleToHeight):
        line = LineHeight(step.height, step.min_width, step.max_width, step.width_divisor)
        return {"line": line, "resize_backend": step.backend, "interpolation": step.interpolation}
    if isinstance(step, PadToWidth):
        return _pad_to_width(step, before, channels)
    if isinstance(step, TopdownAffine):  # what it cuts out has this size
        return {"keep_ratio": False, "size": step.size}
    if isinstance(step, CenterCrop):
        return {"crop": step.size}
    if isinstance(step, FixShapeResize):
        size, interpolation = (step.width, step.height), step.interpolation
        return {"keep_ratio": False, "size": size, "resize_backend": step.backend, "interpolation": interpolation}
    if isinstance(step, KeepRatioResize):
        return {"size": (step.side, step.side), "rounding": "truncate", "interpolation": "area"}
    if isinstance(step, Normalize):
        return {"mean": step.mean, "std": step.std, "to_rgb": step.to_rgb}
    if isinstance(step, CenterPad):
        if "size" in before:
            raise ValueError("preprocessing: RandomCenterCropPad after Resize is not supported")
        if channels != 3:
            raise ValueError(f"preprocessing: RandomCenterCropPad is for 3 channels, got {channels}")
        return {"pad_or": step.pad_or, "pad_add": step.test_pad_add_pix, "padding": Padding(value=step.value)}
    assert isinstance(step, Pad)
    return _pad(step, before, channels, version_3=version_3)


def _letter_resize(
    step: LetterResize, before: dict[str, Any], channels: int, batch_shapes: BatchShapes | None
) -> dict[str, Any]:
    """Return the settings of ``LetterResize``: alone it resizes, after ``YOLOv5KeepRatioResize`` it pads."""
    value = _padding_value("LetterResize", step.pad_val or {}, before, channels, version_3=True)
    padding: dict[str, Any] = {"value": value, "centred": True}
    padding |= {"half_pixels": True} if step.half_pad_param else {}
    if before.get("interpolation") != "area":
        if "size" in before or batch_shapes is not None:
            raise ValueError(
                "preprocessing: LetterResize without YOLOv5KeepRatioResize before it is supported without another "
                "resizing and batch_shapes_cfg"
            )
        canvas: dict[str, Any] = {"size_divisor": step.MINI_PAD} if step.use_mini_pad else {"size": step.size}
        settings = {"size": step.size, "turn_size": False, "padding": Padding(**padding, **canvas)}
        return settings if step.allow_scale_up else settings | {"enlarges": False}
    if step.allow_scale_up or step.use_mini_pad:
        raise ValueError(
            "preprocessing: LetterResize after YOLOv5KeepRatioResize is supported with allow_scale_up=False and "
            f"use_mini_pad=False only, got {step.allow_scale_up} and {step.use_mini_pad}"
        )
    (side, _), canvas_side = before["size"], step.side if batch_shapes is None else batch_shapes.img_size
    if canvas_side < side:
        name = "LetterResize's scale" if batch_shapes is None else "batch_shapes_cfg's img_size"
        raise ValueError(
            f"preprocessing: {name} must be at least that of YOLOv5KeepRatioResize, {side}, got {canvas_side}: a "
            "second resizing is not supported"
        )
    if batch_shapes is None:
        canvas = {"size": (canvas_side, canvas_side)}
    else:
        canvas = {"long_side": canvas_side, "size_divisor": batch_shapes.size_divisor}
        canvas["margin"] = float(batch_shapes.extra_pad_ratio)
    return {"padding": Padding(**padding, **canvas)}


def _padding_value(
    kind: str, pad_val: Any, before: dict[str, Any], channels: int, *, version_3: bool
) -> tuple[float, ...]:
    """Return the value of each channel of a ``pad_val``, converted as OpenCV converts it for the image's type."""
    value = padding_value(kind, pad_val, channels, version_3=version_3)
    if before.get("to_float32"):
        return value
    levels = tuple(float(min(max(round(level), 0), 255)) for level in value)
    if levels != value and before.get("color_type") == "unchanged":  # whose type is the file's
        raise ValueError(f"preprocessing: pad_val of {kind} must be integers from 0 to 255, got {pad_val}")
    return levels


def _pad(step: Pad, before: dict[str, Any], channels: int, *, version_3: bool) -> dict[str, Any]:
    """Return the settings of ``Pad``, which in MMDetection 3 counts as image."""
    normalized, divisor = "mean" in before, 1 if step.size_divisor is None else step.size_divisor
    value = padding_value("Pad", step.pad_val, channels, version_3=version_3)
    if normalized and any(value):
        raise ValueError(f"preprocessing: Pad after Normalize is supported with zeros only, got {step.pad_val}")
    if normalized and step.size is None and not step.pad_to_square and not version_3:
        return {"size_divisor": divisor}
    if "padding" in before:
        raise ValueError("preprocessing: Pad after RandomCenterCropPad or another Pad is not supported")
    value = _padding_value("Pad", step.pad_val, before, channels, version_3=version_3)
    size = None
    if step.size is not None:
        first, second = step.size
        size = (first, second) if version_3 else (second, first)  # MMDetection 2 has the height first
    return {
        "padding": Padding(
            value=None if normalized else value,
            size=size,
            square=step.pad_to_square,
            size_divisor=divisor,
            in_image=version_3,
        )
    }


def _pad_to_width(step: PadToWidth, before: dict[str, Any], channels: int) -> dict[str, Any]:
    """Return the settings of ``PadToWidth``, whose padding does not count as image: MMOCR has the ``valid_ratio``."""
    line: LineHeight | None = before.get("line")
    if line is None or line.widest is None or line.widest > step.width:
        raise ValueError(
            f"preprocessing: PadToWidth is supported after RescaleToHeight with a max_width of at most its width, "
            f"{step.width}, only"
        )
    value = _padding_value("PadToWidth", step.pad.pad_val, before, channels, version_3=True)
    return {"padding": Padding(value=value, size=(step.width, line.height))}


def _model_settings(step: DataPreprocessor, before: dict[str, Any], channels: int) -> dict[str, Any]:
    """Return the settings that MMDetection 3 keeps in the model's ``data_preprocessor``."""
    settings: dict[str, Any] = {}
    if "mean" in before and (step.mean is not None or step.swaps):
        raise ValueError("preprocessing: Normalize beside a data_preprocessor that normalizes too is not supported")
    if "mean" not in before:
        settings["to_rgb"] = step.swaps
    if step.mean is not None and step.std is not None:
        mean, std = ((*values,) * (channels if len(values) == 1 else 1) for values in (step.mean, step.std))
        settings |= {"mean": mean, "std": std, "divide": True}
    if step.padding_size is not None:
        if "padding" in before:
            raise ValueError("preprocessing: Pad beside a size of the data_preprocessor is not supported")
        settings["padding"] = Padding(size=step.padding_size)
    if step.pad_size_divisor is not None:
        settings["size_divisor"] = step.pad_size_divisor
    return settings


def _without_zero_padding(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without the padding of ``RandomCenterCropPad`` if its values are 0 once they are normalized."""
    if "pad_or" in settings and "mean" in settings:
        first, middle, last = settings["mean"]
        if settings["padding"] == Padding(value=(last, middle, first) if settings["to_rgb"] else (first, middle, last)):
            return {**settings, "padding": None}
    return settings
