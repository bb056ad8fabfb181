"""Read the test pipeline of an MMDetection config, 2.x or 3.x, as the arguments of `Preprocessing`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mmort.predict.padding import Padding

_WITHOUT_EFFECT = (
    "Collect",
    "ConvertBoxType",
    "ConvertMask2BoxType",
    "DefaultFormatBundle",
    "ImageToTensor",
    "LoadAnnotations",
    "LoadPanopticAnnotations",
    "LoadProposals",
    "PackDetInputs",
    "ProposalBroadcaster",
    "RRandomFlip",
    "RandomFlip",
    "ToDataContainer",
    "ToTensor",
    "Transpose",
)
"""Steps that pack or load annotations or proposals, and flips, which only the ``flip`` of MultiScaleFlipAug enables."""


def settings_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Preprocessing` for a config.

    Raises
    ------
    ValueError
        If the config has no test pipeline, or a step that is not supported; the message names it.
    """
    settings: dict[str, Any] = {}
    model = config.get("model") or {}
    data_preprocessor = model.get("data_preprocessor") or config.get("data_preprocessor") or {}
    data_preprocessor = data_preprocessor.get("data_preprocessor", data_preprocessor)  # inside semi-supervised ones
    try:
        for kind, step in _steps(_test_pipeline(config)):
            if kind == "Pad":
                settings |= _pad(step, version_3=bool(data_preprocessor), normalized="mean" in settings)
            else:
                settings |= _step_settings(kind, step)
    except KeyError as error:
        raise ValueError(f"preprocessing: a step of the test pipeline has no entry {error}") from None
    return settings | _data_preprocessor(data_preprocessor)


def _test_pipeline(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Find the pipeline of the test data set, or ``test_pipeline``."""
    data = config.get("data") or {}
    loader = config.get("test_dataloader") or {}
    found: Any = data.get("test") or loader.get("dataset") or {}
    while isinstance(found, list) or "pipeline" not in found:  # data sets that repeat or concatenate others
        found = found[0] if isinstance(found, list) else found.get("dataset") or found.get("datasets")
        if not found:
            found = {"pipeline": config.get("test_pipeline")}
    pipeline: list[dict[str, Any]] | None = found["pipeline"]
    if not pipeline:
        raise ValueError("preprocessing: the config has no test pipeline")
    return pipeline


def _steps(pipeline: Sequence[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each step with its type, including the steps inside others, such as MMDetection 2's MultiScaleFlipAug."""
    for step in pipeline:
        kind = str(step["type"]).rpartition(".")[2]
        yield kind, step
        if kind in ("MultiScaleFlipAug", "ProposalBroadcaster"):
            yield from _steps(step["transforms"])


def _step_settings(kind: str, step: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a step; refuse entries that `Preprocessing` cannot express."""
    given = {key: value for key, value in step.items() if value is not None}
    if kind in _WITHOUT_EFFECT:
        return {}
    if kind == "LoadImageFromFile":
        _require(kind, given, color_type="color", channel_order="bgr")
        if given.get("imdecode_backend") != "pillow":  # which decodes to the same bits
            _require(kind, given, imdecode_backend="cv2")
        return {"to_float32": True} if given.get("to_float32") else {}
    if kind == "MultiScaleFlipAug":
        _require(kind, given, scale_factor=1.0)
        return {"flip": given.get("flip", False), **_size(kind, given)}
    if kind in ("Resize", "RResize"):  # MMRotate's, which always keeps the ratio
        return _resize(given)
    if kind == "Normalize":
        return {"mean": step["mean"], "std": step["std"], "to_rgb": step.get("to_rgb", True)}
    if kind == "RandomCenterCropPad":
        return _center_pad(given)
    raise ValueError(f"preprocessing: step {kind} of the test pipeline is not supported")


def _pad(step: dict[str, Any], *, version_3: bool, normalized: bool) -> dict[str, Any]:
    """Return the settings of ``Pad``, which in MMDetection 3 comes before the normalization and counts as image."""
    given = {key: value for key, value in step.items() if value is not None}
    _require("Pad", given, padding_mode="constant")
    if unknown := set(given) - {"type", "size", "size_divisor", "pad_to_square", "pad_val", "padding_mode"}:
        raise ValueError(f"preprocessing: Pad with {', '.join(sorted(unknown))} is not supported, got {given}")
    value = _pad_value(given.get("pad_val", 0))
    if normalized and value:
        raise ValueError(f"preprocessing: Pad after Normalize is supported with zeros only, got {given}")
    divisor = given.get("size_divisor", 1)
    if normalized and not {"size", "pad_to_square"} & set(given):
        return {"size_divisor": divisor}
    size = tuple(given["size"]) if "size" in given else None
    if size is not None and not version_3:
        size = size[::-1]  # MMDetection 2 has the height first
    return {
        "padding": Padding(
            value=None if normalized else value,
            size=size,
            square=given.get("pad_to_square", False),
            size_divisor=divisor,
            in_image=version_3,
        )
    }


def _pad_value(value: Any) -> float:
    """Return the value of ``pad_val``, which must be the same in all channels."""
    values = value.get("img", 0) if isinstance(value, dict) else value
    distinct = set(values) if isinstance(values, (tuple, list)) else {values}
    if len(distinct) != 1:
        raise ValueError(f"preprocessing: pad_val must be the same for all channels, got {value}")
    return float(distinct.pop())


def _center_pad(given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of ``RandomCenterCropPad``, whose padding is `mean` before the normalization."""
    mode, bits = given.get("test_pad_mode") or ("", 0)
    if not given.get("test_mode") or mode != "logical_or":
        raise ValueError(f"preprocessing: RandomCenterCropPad is supported in test mode 'logical_or' only, got {given}")
    # The published configs have either 0 or the mean that the image is normalized with, which becomes 0.
    zeros = not any(given.get("mean") or [1])
    return {
        "pad_or": bits,
        "pad_add": given.get("test_pad_add_pix", 0),
        "padding": Padding(value=0) if zeros else None,
    }


def _resize(given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of ``Resize``."""
    _require("Resize", given, scale_factor=1.0, interpolation="bilinear", multiscale_mode="range")
    if "ratio_range" in given:
        raise ValueError("preprocessing: Resize with ratio_range is not supported")
    keep_ratio = given.get("keep_ratio", "scale" not in given)  # the default was True in MMDetection 2
    return {"keep_ratio": keep_ratio, "resize_backend": given.get("backend", "cv2"), **_size("Resize", given)}


def _require(kind: str, given: dict[str, Any], **supported: Any) -> None:
    """Refuse entries whose value is not the supported one."""
    for name, value in supported.items():
        if given.get(name, value) != value:
            raise ValueError(f"preprocessing: {kind} is supported with {name}={value!r} only, got {given[name]!r}")


def _size(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the setting for ``scale`` or ``img_scale``, which must be a single size."""
    scale = given.get("scale", given.get("img_scale"))
    if isinstance(scale, list) and len(scale) == 1:
        (scale,) = scale
    if scale is None:
        return {}
    if isinstance(scale, (tuple, list)) and len(scale) == 2 and all(isinstance(side, int) for side in scale):
        return {"size": tuple(scale)}
    raise ValueError(f"preprocessing: {kind} needs one size, (width, height), got {scale}")


def _data_preprocessor(step: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that MMDetection 3 keeps in the model's ``data_preprocessor``."""
    if not step:
        return {}
    settings: dict[str, Any] = {"to_rgb": bool(step.get("bgr_to_rgb") or step.get("rgb_to_bgr"))}
    if step.get("mean") is not None:
        settings |= {"mean": step["mean"], "std": step["std"], "divide": True}
    if step.get("pad_value"):
        raise ValueError(f"preprocessing: pad_value must be 0, got {step['pad_value']}")
    return {**settings, "size_divisor": step.get("pad_size_divisor", 1)}
