"""The steps of a test pipeline, MMDetection 2's or 3's, in their order; each is read by its schema."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mmort.configs.schema import Config, Schema, at_least, only, plain_type, read_entries

COLOR_TYPES = "color", "color_ignore_orientation", "grayscale", "unchanged"
"""Channels that may be read of a file."""


@dataclass(frozen=True, kw_only=True)
class Step(Schema):
    """Base of the steps."""

    reader: ClassVar[str] = "preprocessing"

    def require(self, kind: str, **supported: Any) -> None:
        """Refuse entries whose value is not the supported one."""
        for name, value in supported.items():
            actual = getattr(self, name)
            if actual is not None and actual != value:
                raise ValueError(f"preprocessing: {kind} is supported with {name}={value!r} only, got {actual!r}")


@dataclass(frozen=True, kw_only=True)
class Load(Step):
    """``LoadImageFromFile``, or ``LoadImageFromNDArray`` in its place; Pillow decodes to the same bits as OpenCV."""

    to_float32: bool = False
    color_type: str | None = None
    channel_order: str | None = None
    imdecode_backend: str | None = None

    ignored: ClassVar = {
        "backend_args": "where files are stored",
        "file_client_args": "where files are stored",
        "ignore_empty": "a file that is missing is an error",
    }

    def __post_init__(self) -> None:
        self.require("LoadImageFromFile", channel_order="bgr")
        if self.color_type not in (None, *COLOR_TYPES):
            raise ValueError(
                f"preprocessing: LoadImageFromFile is supported with color_type {', '.join(map(repr, COLOR_TYPES))} "
                f"only, got {self.color_type!r}"
            )
        if self.imdecode_backend != "pillow" or self.color_type not in (None, "color"):
            self.require("LoadImageFromFile", imdecode_backend="cv2")


def require_interpolation(kind: str, interpolation: str | None) -> None:
    """Refuse an interpolation that images are not resized by."""
    if interpolation not in (None, "bilinear", "bicubic"):
        raise ValueError(
            f"preprocessing: {kind} is supported with interpolation='bilinear' or 'bicubic' only, got {interpolation!r}"
        )


@dataclass(frozen=True, kw_only=True)
class Resize(Step):
    """``Resize``, or ``RResize`` of MMRotate.

    Attributes
    ----------
    size : (int, int) or None
        Width and height; None keeps the image's.
    """

    scale: Any = None
    img_scale: Any = None
    scale_factor: Any = None
    keep_ratio: bool | None = None
    backend: str = "cv2"
    interpolation: str | None = None
    multiscale_mode: str | None = None
    ratio_range: Any = None
    override: bool = False

    ignored: ClassVar = {
        "bbox_clip_border": "of annotations",
        "clip_object_border": "of annotations",
    }

    @classmethod
    def respelled(cls, name: str, config: Config) -> Config:
        """Return a config in which `keep_ratio` is not None: that is no default, but false."""
        return {**config, "keep_ratio": False} if config.get("keep_ratio", False) is None else config

    def __post_init__(self) -> None:
        self.require("Resize", scale_factor=1.0, multiscale_mode="range", override=False)
        require_interpolation("Resize", self.interpolation)
        if self.ratio_range is not None:
            raise ValueError("preprocessing: Resize with ratio_range is not supported")

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height of the step's own scale."""
        return size_of("Resize", self.img_scale if self.scale is None else self.scale)


@dataclass(frozen=True, kw_only=True)
class FixScaleResize(Resize):
    """``FixScaleResize``, which rounds sizes down."""


@dataclass(frozen=True, kw_only=True)
class RescaleToHeight(Step):
    """``RescaleToHeight`` of MMOCR, for images of words."""

    height: int = at_least(1)
    min_width: int | None = None
    max_width: int | None = None
    width_divisor: int = at_least(1, default=1)
    resize_type: str = only("Resize")
    keep_ratio: bool = only(False)
    backend: str = "cv2"
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        require_interpolation("RescaleToHeight", self.interpolation)


@dataclass(frozen=True, kw_only=True)
class PadToWidth(Step):
    """``PadToWidth`` of MMOCR.

    Attributes
    ----------
    pad : Pad
    """

    width: int = at_least(1)
    pad_cfg: Config | None = None

    @property
    def pad(self) -> Pad:
        """The padding of an image of this height."""
        return read_entries("pad_cfg of PadToWidth", Pad, {"type": "Pad", **(self.pad_cfg or {})})


@dataclass(frozen=True, kw_only=True)
class ResizeEdge(Step):
    """``ResizeEdge`` of MMPretrain: the shorter side gets a length."""

    scale: int
    edge: str = "short"
    backend: str = "cv2"
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        self.require("ResizeEdge", edge="short")
        require_interpolation("ResizeEdge", self.interpolation)


@dataclass(frozen=True, kw_only=True)
class CenterCrop(Step):
    """``CenterCrop`` of MMCV.

    Attributes
    ----------
    size : (int, int)
        Width and height.
    """

    crop_size: Any
    auto_pad: bool = False
    pad_cfg: Any = None

    ignored: ClassVar = {"clip_object_border": "of annotations"}

    def __post_init__(self) -> None:
        self.require("CenterCrop", auto_pad=False)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the part that is left."""
        size = size_of("CenterCrop", self.crop_size)
        if size is None:
            raise ValueError("preprocessing: CenterCrop needs crop_size, got None")
        return size


@dataclass(frozen=True, kw_only=True)
class EfficientNetCenterCrop(Step):
    """``EfficientNetCenterCrop`` of MMPretrain: a square in the middle of the image, which is resized then."""

    crop_size: int = at_least(1)
    crop_padding: int = at_least(0, default=32)
    interpolation: str = "bicubic"
    backend: str = "cv2"

    def __post_init__(self) -> None:
        require_interpolation("EfficientNetCenterCrop", self.interpolation)


@dataclass(frozen=True, kw_only=True)
class BoxCenterScale(Step):
    """``GetBBoxCenterScale`` of MMPose: by how much the part that is cut out is larger than the box."""

    padding: float = at_least(0, default=1.25)


@dataclass(frozen=True, kw_only=True)
class TopdownAffine(Step):
    """``TopdownAffine`` of MMPose: the part of an image around a box, resized."""

    input_size: Any
    use_udp: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the result."""
        size = size_of("TopdownAffine", self.input_size)
        if size is None:
            raise ValueError("preprocessing: TopdownAffine needs input_size, got None")
        return size


@dataclass(frozen=True, kw_only=True)
class FixShapeResize(Step):
    """``FixShapeResize``, which resizes to exactly its size."""

    width: int = at_least(1)
    height: int = at_least(1)
    keep_ratio: bool = only(False)
    backend: str = "cv2"
    interpolation: str = "bilinear"

    ignored: ClassVar = {"clip_object_border": "of annotations", "pad_val": "nothing is padded"}

    def __post_init__(self) -> None:
        require_interpolation("FixShapeResize", self.interpolation)


@dataclass(frozen=True, kw_only=True)
class KeepRatioResize(Step):
    """``YOLOv5KeepRatioResize`` of MMYOLO, which averages the pixels of a larger image."""

    scale: Any
    keep_ratio: bool = only(True)
    backend: str = only("cv2")

    ignored: ClassVar = {"clip_object_border": "of annotations", "interpolation": "MMYOLO does not read it"}

    @property
    def side(self) -> int:
        """The longer side of resized images."""
        return _side_of("YOLOv5KeepRatioResize", self.scale)


@dataclass(frozen=True, kw_only=True)
class LetterResize(Step):
    """``LetterResize`` of MMYOLO: the image in the middle of a canvas."""

    scale: Any
    pad_val: Config | None = None
    use_mini_pad: bool = False
    stretch_only: bool = only(False)
    allow_scale_up: bool = True
    half_pad_param: bool = False
    backend: str = only("cv2")
    interpolation: str = only("bilinear")

    ignored: ClassVar = {"clip_object_border": "of annotations", "keep_ratio": "MMYOLO does not read it"}

    MINI_PAD: ClassVar = 32
    """The number of pixels that divides padded sides with `use_mini_pad`."""

    def __post_init__(self) -> None:
        if self.use_mini_pad and any(side % self.MINI_PAD for side in self.size):
            raise ValueError(
                f"preprocessing: LetterResize with use_mini_pad must have a scale of multiples of {self.MINI_PAD}, got "
                f"{self.scale}"
            )

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the canvas."""
        size = size_of("LetterResize", self.scale)
        assert size is not None
        return size

    @property
    def side(self) -> int:
        """The side of the square canvas."""
        return _side_of("LetterResize", self.scale)


@dataclass(frozen=True, kw_only=True)
class BatchShapes(Step):
    """``batch_shapes_cfg`` of MMYOLO's data sets: the canvas of `LetterResize` has an image's proportions."""

    types: ClassVar = ("BatchShapePolicy",)

    batch_size: int = at_least(1, default=32)
    img_size: int = at_least(1, default=640)
    size_divisor: int = at_least(1, default=32)
    extra_pad_ratio: float = at_least(0, default=0.5)


@dataclass(frozen=True, kw_only=True)
class Pad(Step):
    """``Pad``."""

    size: Sequence[int] | None = None
    size_divisor: int | None = None
    pad_to_square: bool = False
    pad_val: Any = 0
    padding_mode: str | None = None

    def __post_init__(self) -> None:
        self.require("Pad", padding_mode="constant")


@dataclass(frozen=True, kw_only=True)
class CenterPad(Step):
    """``RandomCenterCropPad`` in test mode, which pads all sides."""

    test_mode: bool = False
    test_pad_mode: Sequence[Any] | None = None
    test_pad_add_pix: int = 0
    mean: Sequence[float]
    to_rgb: bool = False

    ignored: ClassVar = {
        "bbox_clip_border": "of annotations",
        "border": "training only",
        "crop_size": "training only",
        "ratios": "training only",
        "std": "MMDetection does not read it either",
    }

    def __post_init__(self) -> None:
        mode = self.test_pad_mode
        if not self.test_mode or mode is None or len(mode) != 2 or mode[0] != "logical_or":
            raise ValueError(
                "preprocessing: RandomCenterCropPad is supported in test mode 'logical_or' only, got "
                f"test_mode={self.test_mode}, test_pad_mode={mode}"
            )

    @property
    def pad_or(self) -> int:
        """The number that the sides are combined with, bit by bit."""
        assert self.test_pad_mode is not None
        return int(self.test_pad_mode[1])

    @property
    def value(self) -> tuple[float, float, float]:
        """Of blue, green and red."""
        values = tuple(self.mean)
        if len(values) != 3:
            raise ValueError(f"preprocessing: mean of RandomCenterCropPad must be 3 numbers, got {values}")
        first, second, third = values[::-1] if self.to_rgb else values
        return float(first), float(second), float(third)


@dataclass(frozen=True, kw_only=True)
class Normalize(Step):
    """``Normalize``; mean and deviation are in the order of channels that `to_rgb` makes."""

    mean: Sequence[float]
    std: Sequence[float]
    to_rgb: bool = True


@dataclass(frozen=True, kw_only=True)
class Flip(Step):
    """``RandomFlip``, or ``RRandomFlip`` of MMRotate; inside MultiScaleFlipAug that step decides."""

    prob: Any = None
    flip_ratio: Any = None

    ignored: ClassVar = {
        "direction": "there is no flip",
        "swap_seg_labels": "of annotations",
        "version": "of annotations",
    }

    def check_never(self) -> None:
        """Refuse a step that may mirror the image."""
        for name in ("prob", "flip_ratio"):
            share = getattr(self, name)
            if any(share) if isinstance(share, (tuple, list)) else share:
                raise ValueError(f"preprocessing: RandomFlip is supported with {name}=0 only, got {share}")


@dataclass(frozen=True, kw_only=True)
class FlipAug(Step):
    """``MultiScaleFlipAug`` of MMDetection 2."""

    transforms: Sequence[Config]
    img_scale: Any = None
    scale_factor: Any = None
    flip: bool = False
    flip_direction: Any = None

    def __post_init__(self) -> None:
        self.require("MultiScaleFlipAug", scale_factor=1.0)
        if self.flip and self.flip_direction not in (None, "horizontal", ["horizontal"]):
            raise ValueError(
                "preprocessing: MultiScaleFlipAug is supported with flip_direction='horizontal' only, got "
                f"{self.flip_direction!r}"
            )


@dataclass(frozen=True, kw_only=True)
class Proposals(Step):
    """``ProposalBroadcaster``, whose steps change proposals with the image."""

    transforms: Sequence[Config]


@dataclass(frozen=True, kw_only=True)
class Broadcast(Step):
    """``TransformBroadcaster``, whose steps change each image of a video; here there is one."""

    transforms: Sequence[Config]

    ignored: ClassVar = {"share_random_params": "nothing is random"}


_ANNOTATIONS = (
    *("backend_args", "box_type", "denorm_bbox", "file_client_args", "ignore_index", "imdecode_backend", "poly2mask"),
    *("reduce_zero_label", "with_bbox", "with_keypoints", "with_label", "with_mask", "with_seg"),
)
_WITHOUT_EFFECT: dict[str, tuple[str, ...]] = {
    "Collect": ("keys", "meta_keys", "meta_name"),
    "ConvertBoxType": ("box_type_mapping",),
    "ConvertMask2BoxType": ("box_type", "keep_mask"),
    "DefaultFormatBundle": ("img_to_float", "pad_val"),
    "ImageToTensor": ("keys",),
    "FixInvalidPolygon": ("mode", "min_poly_points", "fix_from_bbox"),
    "LoadAnnotations": _ANNOTATIONS,
    "LoadOCRAnnotations": (*_ANNOTATIONS, "with_polygon", "with_text"),
    "LoadPanopticAnnotations": _ANNOTATIONS,
    "LoadProposals": ("num_max_proposals",),
    "LoadTextAnnotations": (),
    "LoadTrackAnnotations": _ANNOTATIONS,
    "PackDetInputs": ("keys", "meta_keys"),
    "PackInputs": ("algorithm_keys", "input_key", "meta_keys"),
    "PackPoseInputs": ("meta_keys", "pack_transformed"),
    "PackSegInputs": ("meta_keys",),
    "PackTextDetInputs": ("keys", "meta_keys"),
    "PackTextRecogInputs": ("keys", "meta_keys"),
    "PackTrackInputs": ("default_meta_keys", "meta_keys"),
    "ToDataContainer": ("fields",),
    "ToTensor": ("keys",),
}
"""Steps that pack or load annotations or proposals, with their entries."""


_STEPS: dict[str, type[Step]] = {
    "CenterCrop": CenterCrop,
    "EfficientNetCenterCrop": EfficientNetCenterCrop,
    "FixScaleResize": FixScaleResize,
    "FixShapeResize": FixShapeResize,
    "GetBBoxCenterScale": BoxCenterScale,
    "LetterResize": LetterResize,
    "LoadImage": Load,
    "LoadImageFromFile": Load,
    "LoadImageFromNDArray": Load,
    "MultiScaleFlipAug": FlipAug,
    "Normalize": Normalize,
    "Pad": Pad,
    "PadToWidth": PadToWidth,
    "ProposalBroadcaster": Proposals,
    "RRandomFlip": Flip,
    "RResize": Resize,
    "RandomCenterCropPad": CenterPad,
    "RandomFlip": Flip,
    "RescaleToHeight": RescaleToHeight,
    "Resize": Resize,
    "ResizeEdge": ResizeEdge,
    "TopdownAffine": TopdownAffine,
    "TransformBroadcaster": Broadcast,
    "YOLOv5KeepRatioResize": KeepRatioResize,
}


def register_step(name: str, like: str, ignored: Iterable[str] = ()) -> None:
    """Let a step of your own mean what a supported step means, such as one of a fork that packs other keys.

    Parameters
    ----------
    name : str
        The step's type in configs.
    like : str
        The supported step, whose entries it has.
    ignored : iterable of str, optional
        Further entries, which do not change the image.

    Raises
    ------
    ValueError
        If `name` is supported already, or `like` is not.

    Examples
    --------
    >>> from mmort.configs import register_step
    >>> register_step("PackInputsOfMyFork", like="PackDetInputs", ignored=["pack_depth"])
    """
    if name in _STEPS or name in _WITHOUT_EFFECT:
        raise ValueError(f"register_step: step {name} is supported already")
    if like in _WITHOUT_EFFECT:
        _WITHOUT_EFFECT[name] = (*_WITHOUT_EFFECT[like], *ignored)
    elif like in _STEPS:
        reasons = dict.fromkeys(ignored, "registered as without effect on the image")
        _STEPS[name] = type(name, (_STEPS[like],), {"ignored": {**_STEPS[like].ignored, **reasons}})
    else:
        raise ValueError(f"register_step: like must be one of {', '.join([*_STEPS, *_WITHOUT_EFFECT])}, got {like!r}")


@dataclass(frozen=True)
class TestPipeline:
    """A test pipeline.

    Attributes
    ----------
    steps : tuple of (str, Step)
        Type and entries of the steps that change the image, in their order.
    size : (int, int) or None
        Width and height that MultiScaleFlipAug gives to its resizing, the first of several.
    sizes : int
        How many sizes MultiScaleFlipAug detects at.
    flip : bool
        Whether MultiScaleFlipAug also detects in the mirrored image.
    """

    __test__ = False  # not pytest's

    steps: tuple[tuple[str, Step], ...]
    size: tuple[int, int] | None = None
    sizes: int = 1
    flip: bool = False


def read_steps(pipeline: Any) -> TestPipeline:
    """Read the steps of a test pipeline.

    Raises
    ------
    ValueError
        If it is not a list of dicts, a step is not supported or has an entry that is not; the message names it.
    """
    steps, augs = [], []
    for kind, step, inside in _flattened(pipeline, False):
        if isinstance(step, FlipAug):
            augs.append(step)
        elif isinstance(step, Flip):
            if not inside:
                step.check_never()
        else:
            steps.append((kind, step))
    if len(augs) > 1:
        raise ValueError("preprocessing: a test pipeline with two steps MultiScaleFlipAug is not supported")
    scale, sizes = (augs[0].img_scale if augs else None), 1
    if isinstance(scale, (list, tuple)) and scale and all(isinstance(size, (list, tuple)) for size in scale):
        scale, sizes = scale[0], len({size_of("MultiScaleFlipAug", size) for size in scale})
    return TestPipeline(tuple(steps), size_of("MultiScaleFlipAug", scale), sizes, any(aug.flip for aug in augs))


def _flattened(pipeline: Any, inside: bool) -> Iterator[tuple[str, Step, bool]]:
    """Yield type and entries of each step, and whether it is inside MultiScaleFlipAug, with steps inside others."""
    if not isinstance(pipeline, (list, tuple)):
        raise ValueError(f"preprocessing: a test pipeline must be a list of steps, got {type(pipeline).__name__}")
    for config in pipeline:
        if not isinstance(config, dict) or "type" not in config:
            raise ValueError(f"preprocessing: a step of the test pipeline has no entry 'type', got {config!r}")
        kind = plain_type(config["type"])
        if kind in _WITHOUT_EFFECT:
            read_entries(f"step {kind} of the test pipeline", _schema_without_effect(kind), config)
            continue
        if kind not in _STEPS:
            raise ValueError(f"preprocessing: step {kind} of the test pipeline is not supported")
        step = read_entries(f"step {kind} of the test pipeline", _STEPS[kind], config)
        yield kind, step, inside
        if isinstance(step, (Broadcast, FlipAug, Proposals)):
            yield from _flattened(step.transforms, inside or isinstance(step, FlipAug))


def _schema_without_effect(kind: str) -> type[Step]:
    """Return the schema of a step that does not change the image."""
    names = dict.fromkeys(_WITHOUT_EFFECT[kind], "of annotations or of what is packed")
    return type(kind, (Step,), {"ignored": names})


def padding_value(kind: str, pad_val: Any, channels: int, *, version_3: bool) -> tuple[float, ...]:
    """Return the value of each channel of a ``pad_val``: of blue, green and red.

    A number is that of the first alone, as OpenCV takes it, except for the integers of MMDetection 3.
    """
    values = pad_val.get("img", 0) if isinstance(pad_val, dict) else pad_val
    if isinstance(values, (int, float)):
        further_value = values if version_3 and isinstance(values, int) else 0
        values = (values, *(further_value,) * (channels - 1))
    if not isinstance(values, (tuple, list)) or len(values) != channels or not all(map(_is_finite, values)):
        raise ValueError(f"preprocessing: pad_val of {kind} must be 1 or {channels} finite numbers, got {pad_val}")
    return tuple(map(float, values))


def _is_finite(value: Any) -> bool:
    """Return whether a value is a number that a float can be."""
    return isinstance(value, (int, float)) and abs(value) <= sys.float_info.max


def _side_of(kind: str, scale: Any) -> int:
    """Return the side of a ``scale`` that must be a square."""
    size = size_of(kind, scale)
    if size is None or size[0] != size[1]:
        raise ValueError(
            f"preprocessing: {kind} before or after another resizing must have a square scale, got {scale}"
        )
    return size[0]


def size_of(kind: str, scale: Any) -> tuple[int, int] | None:
    """Return a ``scale`` or ``img_scale``, which must be a single size, as width and height."""
    if isinstance(scale, list) and len(scale) == 1:
        (scale,) = scale
    if scale is None:
        return None
    if type(scale) is int:
        return scale, scale
    if isinstance(scale, (tuple, list)) and len(scale) == 2 and all(type(side) is int for side in scale):
        return scale[0], scale[1]
    raise ValueError(f"preprocessing: {kind} needs one size, (width, height), got {scale}")
