"""The ``data_preprocessor`` of MMDetection 3 and its siblings: the part of the preprocessing that a model does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mmort.configs.schema import Config, Schema, plain_type, read_entries

_TYPES = (
    *("DetDataPreprocessor", "ImgDataPreprocessor", "BoxInstDataPreprocessor", "TrackDataPreprocessor"),
    *("YOLOv5DetDataPreprocessor", "PPYOLOEDetDataPreprocessor"),  # MMYOLO's
    "PoseDataPreprocessor",  # MMPose's
    *("TextDetDataPreprocessor", "TextRecogDataPreprocessor"),  # MMOCR's
)
_OF_SEGMENTATION, _OF_CLASSIFICATION = "SegDataPreProcessor", "ClsDataPreprocessor"


@dataclass(frozen=True, kw_only=True)
class DataPreprocessor:
    """Settings of a ``data_preprocessor``, for images.

    Attributes
    ----------
    mean, std : sequence of float or None
        Of each channel, in the network's order; or one number for all.
    swaps : bool
        Whether blue and red change places.
    pad_size_divisor : int or None
        Inputs are padded with zeros to a multiple of it.
    padding_size : (int, int) or None
        Width and height that smaller inputs are padded to.
    """

    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    swaps: bool = False
    pad_size_divisor: int | None = None
    padding_size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None):
            raise ValueError(
                f"preprocessing: data_preprocessor must have both mean and std or neither, got {self.mean}, {self.std}"
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, 3):
                raise ValueError(f"preprocessing: {name} of data_preprocessor must be 3 numbers or 1, got {values}")


@dataclass(frozen=True, kw_only=True)
class _Entries(Schema):
    """The entries that all of them have."""

    reader: ClassVar[str] = "preprocessing"

    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None

    def meaning(self) -> DataPreprocessor:
        """Return the settings."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class _OfDetection(_Entries):
    """The entries of MMDetection's."""

    bgr_to_rgb: bool | None = None
    rgb_to_bgr: bool | None = None
    pad_size_divisor: int | None = None
    pad_value: Any = 0

    ignored: ClassVar = {
        "batch_augments": "training only",
        "bottom_pixels_removed": "training only",
        "boxtype2tensor": "of annotations",
        "mask_pad_value": "of annotations",
        "mask_stride": "training only",
        "non_blocking": "how data go to a device",
        "pad_mask": "of annotations",
        "pad_seg": "of annotations",
        "pairwise_color_thresh": "training only",
        "pairwise_dilation": "training only",
        "pairwise_size": "training only",
        "seg_pad_value": "of annotations",
        "use_det_processor": "training only",
    }

    def meaning(self) -> DataPreprocessor:
        _require_zeros("pad_value", self.pad_value)
        swaps = _swaps(self.bgr_to_rgb, self.rgb_to_bgr)
        return DataPreprocessor(mean=self.mean, std=self.std, swaps=swaps, pad_size_divisor=self.pad_size_divisor)


@dataclass(frozen=True, kw_only=True)
class _TestPadding(Schema):
    """The entries of ``test_cfg`` of MMSegmentation's: how images are padded when they are tested."""

    reader: ClassVar[str] = "preprocessing"

    size: Sequence[int] | None = None
    size_divisor: int | None = None

    def __post_init__(self) -> None:
        if (self.size is None) == (self.size_divisor is None):
            raise ValueError("preprocessing: test_cfg of data_preprocessor must have either size or size_divisor")
        if self.size is not None and len(self.size) != 2:
            raise ValueError(
                f"preprocessing: size of data_preprocessor's test_cfg must be height and width, got {self.size}"
            )


@dataclass(frozen=True, kw_only=True)
class _OfSegmentation(_Entries):
    """The entries of MMSegmentation's, which pads images that are tested only as its ``test_cfg`` says."""

    bgr_to_rgb: bool = False
    rgb_to_bgr: bool = False
    pad_val: Any = 0
    test_cfg: Config | None = None

    ignored: ClassVar = {
        "batch_augments": "training only",
        "seg_pad_val": "of annotations",
        "size": "training only",
        "size_divisor": "training only",
    }

    def meaning(self) -> DataPreprocessor:
        swaps = _swaps(self.bgr_to_rgb, self.rgb_to_bgr)
        if not self.test_cfg:
            return DataPreprocessor(mean=self.mean, std=self.std, swaps=swaps)
        padding = read_entries("test_cfg of data_preprocessor", _TestPadding, self.test_cfg)
        _require_zeros("pad_val", self.pad_val)
        return DataPreprocessor(
            mean=self.mean,
            std=self.std,
            swaps=swaps,
            pad_size_divisor=padding.size_divisor,
            padding_size=None if padding.size is None else (padding.size[1], padding.size[0]),
        )


@dataclass(frozen=True, kw_only=True)
class _OfClassification(_Entries):
    """The entries of MMPretrain's."""

    to_rgb: bool = False
    pad_size_divisor: int = 1
    pad_value: Any = 0

    ignored: ClassVar = {
        "batch_augments": "training only",
        "num_classes": "of annotations",
        "to_onehot": "of annotations",
    }

    def meaning(self) -> DataPreprocessor:
        _require_zeros("pad_value", self.pad_value)
        divisor = None if self.pad_size_divisor == 1 else self.pad_size_divisor
        return DataPreprocessor(mean=self.mean, std=self.std, swaps=self.to_rgb, pad_size_divisor=divisor)


_SCHEMAS: dict[str, type[_Entries]] = {
    **dict.fromkeys(_TYPES, _OfDetection),
    _OF_SEGMENTATION: _OfSegmentation,
    _OF_CLASSIFICATION: _OfClassification,
}


def _swaps(bgr_to_rgb: bool | None, rgb_to_bgr: bool | None) -> bool:
    """Return whether blue and red change places."""
    if bgr_to_rgb and rgb_to_bgr:
        raise ValueError("preprocessing: data_preprocessor must not have both bgr_to_rgb and rgb_to_bgr")
    return bool(bgr_to_rgb or rgb_to_bgr)


def _require_zeros(name: str, value: Any) -> None:
    """Refuse padding with another value than 0."""
    if value:
        raise ValueError(f"preprocessing: {name} must be 0, got {value}")


def read_data_preprocessor(config: Any, scope: str | None = None) -> DataPreprocessor:
    """Read a ``data_preprocessor``, or that of the branches of a semi-supervised one.

    Parameters
    ----------
    config : dict
    scope : str, optional
        The config's ``default_scope``, by which one without a type is known.

    Raises
    ------
    ValueError
        If it is not supported.
    """
    if isinstance(config, dict) and isinstance(config.get("data_preprocessor"), dict):
        config = config["data_preprocessor"]
    default = _OF_CLASSIFICATION if scope == "mmpretrain" else _TYPES[0]
    kind = plain_type(config.get("type", default)) if isinstance(config, dict) else default
    if kind not in _SCHEMAS:
        raise ValueError(f"preprocessing: data_preprocessor {kind} is not supported; supported: {', '.join(_SCHEMAS)}")
    return read_entries("data_preprocessor", _SCHEMAS[kind], config).meaning()
