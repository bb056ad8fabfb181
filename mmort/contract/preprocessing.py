"""From an image to a detector's input, bit for bit as MMDetection's test pipeline and other exporters do it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mmort.configs.layout import DetectorConfig
from mmort.contract import pipeline_settings
from mmort.contract.line_height import LineHeight
from mmort.contract.padding import Padding, multiple, positive_size
from mmort.images import IN_COLOR, ColorType, ResizeBackend, as_channels, look_up, resize
from mmort.images.resampling import Interpolation
from mmort.limits import MAX_PADDED_PIXELS, MAX_PADDING_RATIO, MAX_RESIZED_PIXELS

Rounding = Literal["nearest", "down", "truncate"]
"""How the sides of a resized image become integers."""

WORDS: dict[str, tuple[str, ...]] = {
    "resize_backend": get_args(ResizeBackend),
    "interpolation": get_args(Interpolation),
    "rounding": get_args(Rounding),
    "color_type": get_args(ColorType),
}
"""The values of `Preprocessing`'s fields that are words."""

FLAGS = (
    *("to_rgb", "keep_ratio", "to_float32", "divide", "flip", "turn_boxes", "turn_size", "clip_boxes"),
    *("inclusive_boxes", "by_ratio", "enlarges"),
)
"""Its fields that are true or false."""

LARGEST, SMALLEST_STD = 1e30, 1e-8
"""Bounds of `mean` and `std`, within which inputs are finite in float32."""


@dataclass(frozen=True)
class Prepared:
    """A preprocessed image.

    Attributes
    ----------
    input : ndarray of float32, (C, H, W)
        The network's input, padded.
    ori_shape, img_shape, pad_shape : (int, int)
        Height and width of the original image, of the resized image, and of the padded one, which are H and W.
    scale_factor : ndarray of float32, (4,)
        Divide boxes (x1, y1, x2, y2) of the resized image by it to get boxes of the original.
    offset : (int, int)
        Row and column of `input` at which the resized image starts: (0, 0) unless it is padded on all sides.
    turn_boxes, clip_boxes, inclusive_boxes : bool
        See `Preprocessing`.
    box_offset : (float, float), optional
        Row and column at which the image starts for boxes, if another than `offset`.
    """

    input: NDArray[np.float32]
    ori_shape: tuple[int, int]
    img_shape: tuple[int, int]
    pad_shape: tuple[int, int]
    scale_factor: NDArray[np.float32]
    offset: tuple[int, int]
    turn_boxes: bool = False
    clip_boxes: bool = False
    inclusive_boxes: bool = False
    box_offset: tuple[float, float] | None = None

    @property
    def border(self) -> tuple[int, int, int, int]:
        """MMDetection's ``border``: first and last row, first and last column of the resized image in `input`."""
        (top, left), (height, width) = self.offset, self.img_shape
        return top, top + height, left, left + width

    def boxes_in_image(self, boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        """Map boxes (N, 4) of `input`, x1, y1, x2, y2, to the original image."""
        top, left = self.offset if self.box_offset is None else self.box_offset
        mapped: NDArray[np.float32] = (boxes - np.array([left, top, left, top], np.float32)) / self.scale_factor
        if self.inclusive_boxes:
            mapped[:, 2:] += 1
        if self.clip_boxes:
            mapped = np.clip(mapped, np.float32(0), np.array(self.ori_shape[::-1] * 2, np.float32))
        return mapped

    def keypoints_in_image(self, keypoints: NDArray[np.float32]) -> NDArray[np.float32]:
        """Map keypoints (N, P, 3) of `input`, x, y, score, to the original image."""
        points = self.boxes_in_image(keypoints[..., [0, 1, 0, 1]].reshape(-1, 4))[:, :2]
        return np.concatenate([points.reshape(*keypoints.shape[:2], 2), keypoints[..., 2:]], axis=2)

    def rotated_boxes_in_image(self, boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        """Map rotated boxes (N, 5) of `input`, centre x, y, width, height, angle, to the original image.

        Boxes stay rectangles, so that they fit if the aspect ratio is kept, which it is but for rounding.
        """
        top, left = self.offset
        mapped = boxes.copy()
        mapped[:, :4] = (boxes[:, :4] - np.array([left, top, 0, 0], np.float32)) / self.scale_factor
        if self.turn_boxes:
            x, y = 1 / self.scale_factor[:2]
            cosine, sine = np.cos(boxes[:, 4]), np.sin(boxes[:, 4])
            mapped[:, 2] = boxes[:, 2] * np.hypot(x * cosine, y * sine)
            mapped[:, 3] = boxes[:, 3] * np.hypot(x * sine, y * cosine)
            mapped[:, 4] = np.arctan2(x * sine, y * cosine)
        return mapped


@dataclass(frozen=True)
class Preprocessing:
    """The preprocessing of images for a network; call it with an image.

    It resizes, pads as `padding` says, subtracts `mean`, divides by `std`, and pads with zeros.

    Parameters
    ----------
    mean, std : tuple of float
        By channel, in the network's order of channels; there are three unless `color_type` is another.
    to_rgb : bool, default False
        Whether the network takes red, green, blue.  Otherwise it takes blue, green, red.
    size : (int, int), optional
        Width and height to resize to.  By default images keep their size.
    keep_ratio : bool, default True
        Keep the aspect ratio: resize to fit `size` in either orientation, the longer side into the larger number and
        the shorter side into the smaller.  Otherwise resize to exactly `size`.
    turn_size : bool, default True
        With `keep_ratio`, whether the larger number of `size` is for the longer side of the image, as above.  Otherwise
        the width is for the width, as YOLOX and ultralytics have it.
    rounding : {"nearest", "down", "truncate"}, default "nearest"
        With `keep_ratio`, what becomes of fractions of pixels.  "nearest": MMDetection rounds halves up, and
        ultralytics, without `turn_size`, to even numbers.  "down": YOLOX rounds both sides down, and transformers, with
        `turn_size`, the longer one.  "truncate": MMDetection's ``FixScaleResize`` rounds both sides down.
    size_divisor : int, default 1
        Pad on the right and at the bottom to a multiple of this.
    pad_or, pad_add : int, default 0
        If `pad_or` is not 0, pad on all sides instead, to ``(height | pad_or) + pad_add`` and the same for the width,
        as CornerNet and CenterNet do.
    padding : Padding, optional
        The padding before the one with zeros; with `pad_or`, only its value is used.
    resize_backend : {"cv2", "pillow", "torchvision"}, default "cv2"
        Whose results resizing gives: those of OpenCV or Pillow, which MMDetection's configs name, or those of
        torchvision with antialiasing, as in transformers' image processors.  They differ.  With `to_float32`,
        torchvision interpolates floats from 0 to 1 without antialiasing, bilinearly, as in RF-DETR.
    interpolation : {"bilinear", "bicubic", "area"}, default "bilinear"
        How to resize.  "area", of OpenCV alone, averages the pixels of an image that becomes smaller, as MMYOLO does;
        one that becomes larger is resized bilinearly.
    to_float32 : bool, default False
        Do not round the resized image to integers.
    divide : bool, default False
        Divide by `std`, as MMDetection 3 does.  Otherwise multiply by ``1 / std``; a bit of the result may differ.
        The factor is a float64, as in MMDetection 2, or a float32 if `resize_backend` is "torchvision".
    flip : bool, default False
        Whether the config also detects in the mirrored image and merges both results, which is left to the caller.
    turn_boxes : bool, default False
        Whether rotated boxes turn where the original image has other proportions than the resized one, as in MMRotate
        1.  Otherwise their angle stays, and their width is scaled as x is, as in MMRotate 0.
    clip_boxes : bool, default False
        Whether boxes are clipped to the original image, where the file does not do so itself.
    inclusive_boxes : bool, default False
        Whether boxes of the network end with their last pixel, as GLIP's do: they then get one of the original image
        more.
    color_type : {"color", "color_ignore_orientation", "grayscale", "unchanged"}, default "color"
        What of an image is taken: blue, green and red; one channel; or all its channels, in their own dtype.
    side_divisor : int, default 1
        Round the sides of the resized image down to multiples of this, as YOLOS of transformers does.
    by_ratio : bool, default False
        Whether boxes are mapped to the original image by the ratio that it should have been resized by, as in YOLOX
        and YOLOv5, rather than by that of its sides in whole pixels; with `padding` on all sides, half pixels count.
        `keep_ratio` is true then, and `turn_size` false.
    enlarges : bool, default True
        Whether images that are smaller than `size` become as large; false with `keep_ratio`, without `turn_size` only.
    edge : int, optional
        Resize the shorter side to this many pixels and the longer one by the same factor, rounded down, as
        ``ResizeEdge`` of MMPretrain does.  There is no `size` then.
    crop : (int, int), optional
        Width and height of the part in the middle of the resized image that the network sees; `edge` or `size` must be
        at least as large.
    crop_padding : int, optional
        Before it is resized to `size`, a square, the image is cut to a square in its middle: the share
        ``size / (size + crop_padding)`` of its shorter side, as ``EfficientNetCenterCrop`` of MMPretrain does.
    line : LineHeight, optional
        Resize images of words to one height, as ``RescaleToHeight`` of MMOCR does.  There is no `size` or `edge` then.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.predict import Preprocessing
    >>> prepare = Preprocessing(size=(1333, 800), size_divisor=32)
    >>> image = prepare(np.zeros((480, 640, 3), np.uint8))
    >>> image.img_shape, image.input.shape, image.scale_factor.tolist()
    ((800, 1067), (3, 800, 1088), [1.6671874523162842, 1.6666666269302368, 1.6671874523162842, 1.6666666269302368])
    """

    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    to_rgb: bool = False
    size: tuple[int, int] | None = None
    keep_ratio: bool = True
    size_divisor: int = 1
    pad_or: int = 0
    pad_add: int = 0
    padding: Padding | None = None
    resize_backend: ResizeBackend = "cv2"
    interpolation: Interpolation = "bilinear"
    to_float32: bool = False
    divide: bool = False
    flip: bool = False
    turn_boxes: bool = False
    turn_size: bool = True
    rounding: Rounding = "nearest"
    clip_boxes: bool = False
    inclusive_boxes: bool = False
    color_type: ColorType = "color"
    side_divisor: int = 1
    by_ratio: bool = False
    enlarges: bool = True
    edge: int | None = None
    crop: tuple[int, int] | None = None
    crop_padding: int | None = None
    line: LineHeight | None = None

    def __post_init__(self) -> None:
        channels = {"grayscale": 1, **dict.fromkeys(IN_COLOR, 3)}.get(self.color_type, np.size(self.mean))
        for name in ("mean", "std"):
            values = tuple(np.ravel(getattr(self, name)).tolist())
            is_finite = all(abs(value) <= sys.float_info.max for value in values)  # integers may be larger, too
            if len(values) != channels or not is_finite or (name == "std" and not all(values)):
                nonzero = ", none of which is 0" * (name == "std")
                raise ValueError(f"preprocessing: {name} must be {channels} numbers{nonzero}, got {values}")
            low = SMALLEST_STD if name == "std" else 0
            if not all(low <= abs(value) <= LARGEST for value in values):
                raise ValueError(f"preprocessing: {name} must be from {low:g} to {LARGEST:g}, got {values}")
            object.__setattr__(self, name, tuple(map(float, values)))
        if self.size is not None:
            object.__setattr__(self, "size", positive_size("size", self.size))
        if self.line is not None and (self.size is not None or self.edge is not None):
            raise ValueError(
                f"preprocessing: line must be without size and edge, got {self.line}, {self.size} and {self.edge}"
            )
        self._check_crop()
        if self.pad_or < 0:
            raise ValueError(f"preprocessing: pad_or must not be negative, got {self.pad_or}")
        if self.size_divisor < 1:
            raise ValueError(f"preprocessing: size_divisor must be positive, got {self.size_divisor}")
        if self.side_divisor < 1:
            raise ValueError(f"preprocessing: side_divisor must be positive, got {self.side_divisor}")
        if self.by_ratio and (self.size is None or not self.keep_ratio or self.turn_size or self.turn_boxes):
            raise ValueError("preprocessing: by_ratio must come with size, keep_ratio, no turn_size and no turn_boxes")
        if not self.enlarges and (self.size is None or not self.keep_ratio or self.turn_size):
            raise ValueError("preprocessing: enlarges must be true without size, keep_ratio and no turn_size")
        for name in FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"preprocessing: {name} must be True or False, got {getattr(self, name)!r}")
        for name, words in WORDS.items():
            if getattr(self, name) not in words:
                choices = ", ".join(map(repr, words[:-1])) + f" or {words[-1]!r}"
                raise ValueError(f"preprocessing: {name} must be {choices}, got {getattr(self, name)!r}")
        if self.color_type not in IN_COLOR and self.resize_backend != "cv2":
            raise ValueError(
                f"preprocessing: resize_backend must be 'cv2' with color_type {self.color_type!r}, got "
                f"{self.resize_backend!r}"
            )
        if self.to_rgb and channels != 3:
            raise ValueError(f"preprocessing: to_rgb must be False with {channels} channels")
        value = self.padding.value if self.padding is not None else None
        if isinstance(value, tuple) and len(value) != channels:
            raise ValueError(f"preprocessing: padding.value must be a number or {channels} numbers, got {value}")
        if self.resize_backend != "cv2" and self.interpolation == "area":
            raise ValueError(
                f"preprocessing: resize_backend must be 'cv2' with interpolation 'area', got {self.resize_backend!r}"
            )
        if self.resize_backend == "pillow" and self.to_float32:
            raise ValueError("preprocessing: resize_backend must not be 'pillow', which resizes uint8, with to_float32")
        if self._unit != 1 and self.interpolation != "bilinear":
            raise ValueError(
                "preprocessing: interpolation must be 'bilinear' with to_float32 and resize_backend 'torchvision', got "
                f"{self.interpolation!r}"
            )

    def _check_crop(self) -> None:
        """Refuse an edge or a crop that does not suit the size."""
        if self.edge is not None and (self.size is not None or self.edge < 1):
            raise ValueError(f"preprocessing: edge must be positive, without size, got {self.edge} and {self.size}")
        if self.crop_padding is not None and (
            self.crop_padding < 0 or self.size is None or self.size[0] != self.size[1] or self.keep_ratio
        ):
            raise ValueError(
                "preprocessing: crop_padding must not be negative, with a square size without keep_ratio, got "
                f"{self.crop_padding} and {self.size}"
            )
        if self.crop is None:
            return
        object.__setattr__(self, "crop", positive_size("crop", self.crop))
        exact = None if self.size is None or self.keep_ratio else self.size
        resized = (self.edge, self.edge) if self.edge is not None else exact
        if resized is None or self.crop[0] > resized[0] or self.crop[1] > resized[1]:
            raise ValueError(
                f"preprocessing: crop must be at most edge, or size without keep_ratio, got {self.crop}, {self.edge} "
                f"and {self.size}"
            )

    @classmethod
    def from_config(
        cls, config: dict[str, Any], *, clip_boxes: bool = False, inclusive_boxes: bool = False
    ) -> Preprocessing:
        """Return the settings of a config's test pipeline, MMDetection 2 or 3.

        Parameters
        ----------
        config : dict
            As `mmort.configs.read_config` returns it.
        clip_boxes, inclusive_boxes : bool, default False
            These settings, which depend on the detector and not on the pipeline; `box_settings` has them.

        Raises
        ------
        ValueError
            If the config has no test pipeline, or a step that is not supported; the message names it.
        """
        try:
            stated = pipeline_settings.settings_of(DetectorConfig(config))
            settings = cls(**stated, clip_boxes=clip_boxes, inclusive_boxes=inclusive_boxes)
            if settings.size is not None and settings.size[0] * settings.size[1] > MAX_RESIZED_PIXELS:
                raise ValueError(
                    f"preprocessing: the config's test pipeline must resize to at most {MAX_RESIZED_PIXELS} pixels, "
                    f"got {settings.size[0]} x {settings.size[1]}"
                )
            return settings
        except (AttributeError, OverflowError, TypeError) as error:  # of values that are no numbers, or no dicts
            raise ValueError(
                f"preprocessing: the config's test pipeline has an entry of another type: {error}"
            ) from None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Preprocessing:
        """Return the settings that `to_dict` returned.

        Raises
        ------
        ValueError
            If there is an unknown entry: a later mmort may have written it, and without it inputs would differ.
        """
        require_fields("preprocessing", values, cls)
        parts: dict[str, Any] = {}
        for name, kind in (("padding", Padding), ("line", LineHeight)):
            if values.get(name) is not None:
                require_fields(f"preprocessing.{name}", values[name], kind)
                parts[name] = kind(**values[name])
        return cls(**{**values, **parts})

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as numbers, lists and a dict, ready for JSON; those that few files need only if set."""
        values = asdict(self, dict_factory=lambda items: {name: _plain(value) for name, value in items})
        if values["padding"] is not None:
            values["padding"] = _without_rare(values["padding"], _RARE_PADDING)
        return _without_rare(values, _RARE)

    @property
    def box_settings(self) -> dict[str, bool]:
        """The settings that depend on the detector and not on the pipeline, as arguments of `from_config`."""
        return {"clip_boxes": self.clip_boxes, "inclusive_boxes": self.inclusive_boxes}

    @property
    def channels(self) -> int:
        """The channels of images and inputs."""
        return len(self.mean)

    def __call__(self, image: NDArray[Any] | str | os.PathLike[str], mirrored: bool = False) -> Prepared:
        """Preprocess an image; resizing it, or reading a file, needs OpenCV (or `resize_backend`).

        Parameters
        ----------
        image : ndarray of uint8, (H, W, 3), or path
            Blue, green, red, as OpenCV reads files.  Grey arrays, (H, W) or (H, W, 1), and those with alpha, (H, W, 4),
            are taken as files are: grey is repeated, and alpha is left out.  With another `color_type`, arrays are as
            `mmort.images.as_channels` takes them.
        mirrored : bool, default False
            Exchange left and right when the image is resized.

        Raises
        ------
        ValueError
            If `image` is not of this shape and dtype, the file cannot be decoded, or the resized or the padded image
            has more pixels than the limits, as that of a line of pixels may.
        TypeError
            If `image` is neither an array nor a path.
        OSError
            If the file cannot be opened.
        """
        image = as_channels("preprocessing", image, self.color_type)
        if image.shape[2] != self.channels:
            raise ValueError(f"preprocessing: image must have {self.channels} channels, got {image.shape[2]}")
        height, width = image.shape[:2]
        size = self.resized_size(width, height)
        if self.edge is not None and size[0] * size[1] > max(MAX_RESIZED_PIXELS, height * width):
            raise ValueError(
                f"preprocessing: edge={self.edge} makes {size[1]} x {size[0]} pixels of {height} x {width}, which is "
                f"more than the limit, {MAX_RESIZED_PIXELS} pixels or as many as before"
            )
        pixels: NDArray[Any] = image.astype(np.float32) / self._unit if self.to_float32 else image
        pixels = pixels if self.crop_padding is None else self._middle(pixels, self.crop_padding)
        resized = resize(pixels, *size, self.resize_backend, self.interpolation)
        return self.finish(resized[:, ::-1] if mirrored else resized, (height, width))

    def _middle(self, image: NDArray[Any], crop_padding: int) -> NDArray[Any]:
        """Return the square in the middle of an image, of the share of its shorter side that `crop_padding` means."""
        assert self.size is not None
        height, width = image.shape[:2]
        side = self.size[0] / (self.size[0] + crop_padding) * min(height, width)
        left, top = (max(0, round((length - side) / 2)) for length in (width, height))
        return image[top : int(top + side - 1) + 1, left : int(left + side - 1) + 1]

    def resized_size(self, width: int, height: int) -> tuple[int, int]:
        """Return the width and height to which an image of the given width and height is resized."""
        if self.line is not None:
            return self.line.size(width, height)
        if self.edge is not None:
            if width < height:
                return self.edge, int(self.edge * height / width)
            return int(self.edge * width / height), self.edge
        if self.size is None:
            return width, height
        if not self.keep_ratio:
            return self.size
        if not self.turn_size:
            scale = min(self.size[0] / width, self.size[1] / height)
            scale = scale if self.enlarges else min(scale, 1.0)
            rounded = round if self.rounding == "nearest" else int
            return max(1, rounded(width * scale)), max(1, rounded(height * scale))
        if self.rounding == "down":
            sides = _fit_short_side(width, height, *sorted(self.size))
            width, height = (side - side % self.side_divisor for side in sides)
            return max(1, width), max(1, height)
        scale = min(max(self.size) / max(width, height), min(self.size) / min(width, height))
        half = 0.0 if self.rounding == "truncate" else 0.5
        return max(1, int(width * scale + half)), max(1, int(height * scale + half))

    @property
    def is_centred(self) -> bool:
        """Whether images are padded on all sides."""
        return bool(self.pad_or) or (self.padding is not None and self.padding.centred)

    @property
    def fixed_shape(self) -> tuple[int, int] | None:
        """Height and width of the input if they are the same for all images; None if they differ."""
        shapes = self._extreme_shapes()
        return shapes.pop() if len(shapes) == 1 else None

    @property
    def largest_shape(self) -> tuple[int, int] | None:
        """Height and width of the smallest input that holds any image; None if images keep their size."""
        shapes = self._extreme_shapes()
        if not shapes:
            return None
        heights, widths = zip(*shapes, strict=True)
        return max(heights), max(widths)

    def _extreme_shapes(self) -> set[tuple[int, int]]:
        """Return the heights and widths of inputs for images of all proportions; none if images keep their size."""
        if self.crop is not None:
            return {self._pad_shape(*self._canvas_shape(*self.crop[::-1]))}
        if self.line is not None:
            if self.line.widest is None:
                return set()
            widths = self.line.narrowest, self.line.widest
            return {self._pad_shape(*self._canvas_shape(self.line.height, width)) for width in widths}
        if self.size is None:
            padded_to = self.padding.size if self.padding is not None else None
            return set() if padded_to is None else {self._pad_shape(*self._canvas_shape(*padded_to[::-1]))}
        short, long = sorted(self.size)
        width, height = self.size
        if not self.keep_ratio:
            resized = {(height, width)}
        elif self.turn_size:
            resized = {(1, long), (short, long), (short, short), (long, short), (long, 1)}
        else:
            resized = {(1, width), (height, width), (height, 1)} | (set() if self.enlarges else {(1, 1)})
        return {self._pad_shape(*self._canvas_shape(*shape)) for shape in resized}

    def _canvas_shape(self, height: int, width: int, original: tuple[int, int] | None = None) -> tuple[int, int]:
        """Return the height and width that `padding` or `pad_or` makes of those of a resized image."""
        if self.pad_or:
            return (height | self.pad_or) + self.pad_add, (width | self.pad_or) + self.pad_add
        return (self.padding or Padding()).shape(height, width, original)

    def _pad_shape(self, height: int, width: int) -> tuple[int, int]:
        """Return a height and width as multiples of `size_divisor`."""
        return multiple(height, self.size_divisor), multiple(width, self.size_divisor)

    def finish(self, resized: NDArray[Any], ori_shape: tuple[int, int]) -> Prepared:
        """Normalize and pad an image that has been resized already, with any library.

        Parameters
        ----------
        resized : ndarray of uint8 or float32, (h, w, C)
            Blue, green, red; or the channels that `color_type` says.  Floats are from 0 to 1 if torchvision resizes.
        ori_shape : (int, int)
            Height and width of the original image.
        """
        scale = np.array([resized.shape[1] / ori_shape[1], resized.shape[0] / ori_shape[0]] * 2, np.float32)
        resized = self._cropped(resized)
        height, width = resized.shape[:2]
        padding = self.padding or Padding()
        shape, offset = self._canvas_shape(height, width, ori_shape), padding.offset(height, width, ori_shape)
        if self.pad_or:
            offset = shape[0] // 2 - height // 2, shape[1] // 2 - width // 2
        pad_shape = self._pad_shape(*shape)
        if pad_shape[0] * pad_shape[1] > max(MAX_PADDED_PIXELS, MAX_PADDING_RATIO * height * width):
            raise ValueError(
                f"preprocessing: padding makes {pad_shape[0]} x {pad_shape[1]} pixels of {height} x {width}, which is "
                f"more than the limit, {MAX_PADDED_PIXELS} pixels or twice as many as before"
            )
        canvas = np.zeros((self.channels, *pad_shape), np.float32)
        for channel, plane in enumerate(canvas):
            if padding.value is not None:
                value = np.broadcast_to(np.asarray(padding.value, np.float32), self.channels)[self._source(channel)]
                plane[: shape[0], : shape[1]] = self._normalized(value / self._unit, channel)
            source = resized[:, :, self._source(channel)]
            target = plane[offset[0] : offset[0] + height, offset[1] : offset[1] + width]
            if resized.dtype == np.uint8:  # looked up, which takes a tenth of the time
                look_up(self._levels[channel], source, target)
            else:
                target[:] = self._normalized(source, channel)
        box_offset = padding.box_offset(height, width, ori_shape)
        if self.by_ratio:
            assert self.size is not None
            ratio = min(self.size[0] / ori_shape[1], self.size[1] / ori_shape[0])
            scale = np.array([ratio] * 4, np.float32)
            if padding.centred:
                box_offset = (shape[0] - ori_shape[0] * ratio) / 2, (shape[1] - ori_shape[1] * ratio) / 2
        img_shape = shape if padding.in_image else (height, width)
        return Prepared(
            canvas,
            ori_shape,
            img_shape,
            pad_shape,
            scale,
            offset,
            self.turn_boxes,
            self.clip_boxes,
            self.inclusive_boxes,
            box_offset,
        )

    def _cropped(self, resized: NDArray[Any]) -> NDArray[Any]:
        """Return the part in the middle of a resized image."""
        if self.crop is None:
            return resized
        width, height = self.crop
        top, left = (
            max(0, round((side - crop) / 2)) for side, crop in zip(resized.shape, (height, width), strict=False)
        )
        return resized[top : top + height, left : left + width]

    def batch(self, images: Sequence[Prepared]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Stack preprocessed images of any sizes, padded with zeros to the largest height and width.

        Returns
        -------
        input : ndarray of float32, (N, C, H, W)
        img_shape : ndarray of int64, (N, 2)
            Height and width of each image.
        """
        if not images:
            raise ValueError("preprocessing: images must not be empty")
        img_shape = np.array([image.img_shape for image in images], np.int64)
        shapes = {image.pad_shape for image in images}
        if len(shapes) == 1:
            return np.stack([image.input for image in images]) if len(images) > 1 else images[0].input[None], img_shape
        inputs = np.zeros((len(images), self.channels, *np.max(list(shapes), axis=0)), np.float32)
        for canvas, image in zip(inputs, images, strict=True):
            canvas[:, : image.pad_shape[0], : image.pad_shape[1]] = image.input
        return inputs, img_shape

    @property
    def _unit(self) -> np.float32:
        """The divisor of levels before they are resized: torchvision's floats are from 0 to 1."""
        return np.float32(255 if self.to_float32 and self.resize_backend == "torchvision" else 1)

    def _source(self, channel: int) -> int:
        """Return the index in blue, green, red of one of the network's channels."""
        return 2 - channel if self.to_rgb else channel

    @cached_property
    def _levels(self) -> NDArray[np.float32]:
        """The normalized values of the 256 levels of each channel, (C, 256)."""
        levels = np.arange(256, dtype=np.float32) / self._unit
        return np.stack([self._normalized(levels, channel) for channel in range(self.channels)])

    def _normalized(self, values: NDArray[Any], channel: int) -> NDArray[np.float32]:
        """Subtract the mean and divide by the standard deviation of a channel, from levels in `_unit`."""
        # mean and std are float32 first, the difference too, and the result is rounded once: MMDetection's bits.
        unit = float(self._unit)
        mean, std = np.float32(self.mean[channel] / unit), np.float32(self.std[channel] / unit)
        difference = values - mean
        factor: np.floating[Any] = 1 / np.float64(std)
        if self.resize_backend == "torchvision":  # torch multiplies by a float32
            factor = np.float32(factor)
        normalized: NDArray[Any] = difference / std if self.divide else difference * factor
        return normalized.astype(np.float32)


def _fit_short_side(width: int, height: int, short: int, long: int) -> tuple[int, int]:
    """Return the width and height that transformers resizes an image to, for ``shortest_edge`` and ``longest_edge``."""
    side: float = short
    if max(width, height) / min(width, height) * short > long:
        side = long * min(width, height) / max(width, height)
    resized_short = max(1, round(side))
    if min(width, height) == resized_short:
        return width, height
    resized_long = max(1, int(side * max(width, height) / min(width, height)))
    return (resized_short, resized_long) if width < height else (resized_long, resized_short)


def require_fields(name: str, values: dict[str, Any], settings: type[Any]) -> None:
    """Refuse entries that are not fields of `settings`, a dataclass."""
    known = [field.name for field in fields(settings)]
    if unknown := [key for key in values if key not in known]:
        raise ValueError(f"{name} has no entry {', '.join(unknown)}; its entries: {', '.join(known)}")


_RARE = {
    "color_type": "color",
    "side_divisor": 1,
    "by_ratio": False,
    "enlarges": True,
    "edge": None,
    "crop": None,
    "crop_padding": None,
    "line": None,
}
_RARE_PADDING = {"half_pixels": False, "long_side": None, "margin": 0.0}
"""Settings, and those of the padding, that programs in other languages do not know, with their defaults."""


def _without_rare(values: dict[str, Any], rare: dict[str, Any]) -> dict[str, Any]:
    """Return settings without those that have the defaults of rare ones."""
    return {name: value for name, value in values.items() if name not in rare or value != rare[name]}


def _plain(value: Any) -> Any:
    """Return a tuple as a list."""
    return list(value) if isinstance(value, tuple) else value
