"""From a picture to a detector's input: the test pipeline of a config, as MMDetection runs it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import cv2
except ModuleNotFoundError:
    raise ImportError("mmort.detect needs OpenCV, which is not installed: pip install 'mmort[detect]'") from None

Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Prepared:
    """An image made ready.

    Attributes
    ----------
    input : ndarray of float32, [3, H, W]
        For the network, padded.
    ori_shape, img_shape, pad_shape : (int, int)
        Height and width: of the picture, resized, and padded, which are H and W.
    scale_factor : ndarray of float32, [4]
        What boxes (x1, y1, x2, y2) of the resized image are divided by, to be boxes of the picture.
    offset : (int, int)
        Row and column of `input` where the resized image begins: not 0, 0 for CornerNet alone.
    """

    input: NDArray[np.float32]
    ori_shape: tuple[int, int]
    img_shape: tuple[int, int]
    pad_shape: tuple[int, int]
    scale_factor: NDArray[np.float32]
    offset: tuple[int, int]

    @property
    def border(self) -> tuple[int, int, int, int]:
        """MMDetection's ``border``: the rows and columns of `input` where the resized image begins and ends."""
        (top, left), (height, width) = self.offset, self.img_shape
        return top, top + height, left, left + width


@dataclass(frozen=True)
class Preprocessing:
    """What is done to a picture before a network sees it; call it with one.

    Resize (bilinear), subtract `mean`, multiply by ``1 / std``, pad with zeros.

    Parameters
    ----------
    mean, std : (float, float, float)
        In the order of the network's channels.
    to_rgb : bool
        Whether the network's channels are red, green, blue.  They are blue, green, red else.
    size : (int, int), optional
        Width and height to resize to.  By default pictures are not resized.
    keep_ratio : bool
        Resize to fit in `size`, either way round: the longer side into the larger number, the shorter one into the
        smaller.  Else to exactly `size`.
    size_divisor : int
        Pad right and below, to the next height and width that this divides.
    pad_or : int
        CornerNet's way instead, unless 0: pad all around, to ``height | pad_or`` and ``width | pad_or``.
    flip : bool
        The config asks for the mirrored picture too, and both results in one.  Left to the caller.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.detect.preprocessing import Preprocessing
    >>> prepare = Preprocessing(size=(1333, 800), size_divisor=32)
    >>> image = prepare(np.zeros((480, 640, 3), np.uint8))
    >>> image.img_shape, image.input.shape, image.scale_factor.tolist()
    ((800, 1067), (3, 800, 1088), [1.6671874523162842, 1.6666666269302368, 1.6671874523162842, 1.6666666269302368])
    """

    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    to_rgb: bool = False
    size: tuple[int, int] | None = None
    keep_ratio: bool = True
    size_divisor: int = 1
    pad_or: int = 0
    flip: bool = False

    def __post_init__(self) -> None:  # noqa: D105
        for name in ("mean", "std"):
            values = tuple(getattr(self, name))
            if len(values) != 3 or not all(np.isfinite(values)) or (name == "std" and not all(values)):
                raise ValueError(f"preprocessing: {name} must be 3 numbers, got {values}")
            object.__setattr__(self, name, tuple(map(float, values)))
        if self.size is not None:
            width, height = map(int, self.size)
            if min(width, height) < 1:
                raise ValueError(f"preprocessing: size must be positive, got {self.size}")
            object.__setattr__(self, "size", (width, height))
        if self.size_divisor < 1 or self.pad_or < 0:
            raise ValueError(f"preprocessing: cannot pad by {self.size_divisor} or {self.pad_or}")

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Preprocessing:
        """Return what a config's test pipeline does, of MMDetection 2 or 3.

        Raises
        ------
        ValueError
            If there is none, or one with a step that is not here; the text names it.
        """
        values: dict[str, Any] = {}
        for kind, step in _steps(_pipeline(config)):
            values |= _meaning(kind, step)
        values |= _data_preprocessor(config["model"].get("data_preprocessor") or config.get("data_preprocessor") or {})
        return cls(**values)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Preprocessing:
        """Return what `to_dict` has written down; unknown entries are ignored."""
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as numbers and lists, fit for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def __call__(self, image: Image | str | os.PathLike[str]) -> Prepared:
        """Prepare a picture.

        Parameters
        ----------
        image : ndarray of uint8, [H, W, 3], or path
            Blue, green, red, as OpenCV reads files.

        Raises
        ------
        ValueError
            If it is no picture.
        OSError
            If the file cannot be opened.
        """
        if isinstance(image, (str, os.PathLike)):
            image = read_image(image)
        elif image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
            raise ValueError(f"preprocessing: image must be [H, W, 3] of uint8, got {[*image.shape]} of {image.dtype}")
        height, width = image.shape[:2]
        new_width, new_height = self._resized(width, height)
        if (new_width, new_height) != (width, height):
            image = cv2.resize(image, (new_width, new_height), interpolation=cv2.INTER_LINEAR)  # type: ignore[assignment]
        scale = np.array([new_width / width, new_height / height] * 2, np.float32)
        channels = image[:, :, ::-1] if self.to_rgb else image
        # mean and std are float32 first, the difference too, and the product is rounded once: MMDetection's bits.
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        normal = ((channels - mean) * (1 / std.astype(np.float64))).astype(np.float32)
        shape = new_height, new_width
        pad_shape = self._padded(new_height), self._padded(new_width)
        offset = (0, 0)
        if self.pad_or:
            offset = pad_shape[0] // 2 - new_height // 2, pad_shape[1] // 2 - new_width // 2
        canvas = _place(normal.transpose(2, 0, 1), pad_shape, offset)
        return Prepared(canvas, (height, width), shape, pad_shape, scale, offset)

    def batch(self, images: Sequence[Prepared]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Stack prepared images of any sizes, with zeros right and below, up to the size of the largest.

        Returns
        -------
        input : ndarray of float32, [N, 3, H, W]
        img_shape : ndarray of int64, [N, 2]
            Each image's own height and width.
        """
        if not images:
            raise ValueError("preprocessing: a batch needs an image")
        shape = max(image.pad_shape[0] for image in images), max(image.pad_shape[1] for image in images)
        inputs = np.stack([_place(image.input, shape, (0, 0)) for image in images])
        return inputs, np.array([image.img_shape for image in images], np.int64)

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        if self.size is None:
            return width, height
        if not self.keep_ratio:
            return self.size
        scale = min(max(self.size) / max(width, height), min(self.size) / min(width, height))
        return max(1, int(width * scale + 0.5)), max(1, int(height * scale + 0.5))

    def _padded(self, length: int) -> int:
        return length | self.pad_or if self.pad_or else -(-length // self.size_divisor) * self.size_divisor


def read_image(path: str | os.PathLike[str]) -> Image:
    """Read a picture: [H, W, 3] of uint8; blue, green, red; turned upright if the file says how.

    Raises
    ------
    ValueError
        If it is no picture that OpenCV reads.
    OSError
        If the file cannot be opened.
    """
    data = np.frombuffer(Path(path).read_bytes(), np.uint8)
    try:
        image = cv2.imdecode(data, cv2.IMREAD_COLOR) if data.size else None
    except cv2.error:  # what it thinks too large, among others
        image = None
    if image is None:
        raise ValueError(f"{path}: is no picture that can be read")
    return image  # type: ignore[return-value]


def _place(image: NDArray[np.float32], shape: tuple[int, int], offset: tuple[int, int]) -> NDArray[np.float32]:
    canvas = np.zeros((3, *shape), np.float32)
    (top, left), (height, width) = offset, image.shape[1:]
    canvas[:, top : top + height, left : left + width] = image
    return canvas


def _pipeline(config: dict[str, Any]) -> list[dict[str, Any]]:
    data = config.get("data") or {}
    loader = config.get("test_dataloader") or {}
    found: Any = data.get("test") or loader.get("dataset") or {}
    while isinstance(found, list) or "pipeline" not in found:  # inside what repeats or joins data sets
        found = found[0] if isinstance(found, list) else found.get("dataset") or found.get("datasets")
        if not found:
            found = {"pipeline": config.get("test_pipeline")}
    pipeline: list[dict[str, Any]] | None = found["pipeline"]
    if not pipeline:
        raise ValueError("preprocessing: the config has no test pipeline")
    return pipeline


def _steps(pipeline: Sequence[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the steps with their types, those of MMDetection 2's MultiScaleFlipAug among them."""
    for step in pipeline:
        kind = str(step["type"]).rpartition(".")[2]
        if kind == "MultiScaleFlipAug":
            yield kind, step
            yield from _steps(step["transforms"])
        else:
            yield kind, step


_NOTHING = (
    "Collect",
    "DefaultFormatBundle",
    "ImageToTensor",
    "LoadAnnotations",
    "PackDetInputs",
    "RandomFlip",
    "ToTensor",
    "Transpose",
)
"""Steps that change nothing here: packing, and flips that only MultiScaleFlipAug's ``flip`` turns on."""


def _meaning(kind: str, step: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that a step stands for; refuse what they cannot say."""
    given = {key: value for key, value in step.items() if value is not None}
    if kind in _NOTHING:
        return {}
    if kind == "LoadImageFromFile":
        _only(kind, given, color_type="color", imdecode_backend="cv2", channel_order="bgr")
        return {}
    if kind == "MultiScaleFlipAug":
        _only(kind, given, scale_factor=1.0)
        return {"flip": given.get("flip", False), **_size(kind, given)}
    if kind == "Resize":
        _only(kind, given, scale_factor=1.0, interpolation="bilinear", backend="cv2", multiscale_mode="range")
        if "ratio_range" in given:
            raise ValueError(f"preprocessing: {kind} with ratio_range is not supported")
        keep_ratio = given.get("keep_ratio", "scale" not in given)  # the default was True in MMDetection 2
        return {"keep_ratio": keep_ratio, **_size(kind, given)}
    if kind == "Normalize":
        return {"mean": step["mean"], "std": step["std"], "to_rgb": step.get("to_rgb", True)}
    if kind == "Pad":
        value = given.get("pad_val", 0)
        if set(given) - {"type", "size_divisor", "pad_val"} or any(
            value.values() if isinstance(value, dict) else [value]
        ):
            raise ValueError(f"preprocessing: Pad is supported with size_divisor and zeros only, got {given}")
        return {"size_divisor": step.get("size_divisor") or 1}
    if kind == "RandomCenterCropPad":
        mode, number = step.get("test_pad_mode") or ("", 0)
        if not step.get("test_mode") or mode != "logical_or" or step.get("test_pad_add_pix"):
            raise ValueError(
                f"preprocessing: RandomCenterCropPad is supported in test mode 'logical_or' only, got {given}"
            )
        return {"pad_or": number}
    raise ValueError(f"preprocessing: step {kind} of the test pipeline is not supported")


def _only(kind: str, given: dict[str, Any], **values: Any) -> None:
    for name, value in values.items():
        if given.get(name, value) != value:
            raise ValueError(f"preprocessing: {kind} is supported with {name}={value!r} only, got {given[name]!r}")


def _size(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    scale = given.get("scale", given.get("img_scale"))
    if isinstance(scale, list) and len(scale) == 1:
        (scale,) = scale
    if scale is None:
        return {}
    if isinstance(scale, (tuple, list)) and len(scale) == 2 and all(isinstance(side, int) for side in scale):
        return {"size": tuple(scale)}
    raise ValueError(f"preprocessing: {kind} needs one size, two numbers, got {scale}")


def _data_preprocessor(step: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that MMDetection 3 keeps with the model."""
    if not step:
        return {}
    values: dict[str, Any] = {"to_rgb": bool(step.get("bgr_to_rgb") or step.get("rgb_to_bgr"))}
    if step.get("mean") is not None:
        values |= {"mean": step["mean"], "std": step["std"]}
    if step.get("pad_value"):
        raise ValueError(f"preprocessing: pad_value must be 0, got {step['pad_value']}")
    return {**values, "size_divisor": step.get("pad_size_divisor", 1)}
