"""MMDetection 3's ``data_preprocessor``: the part of the preprocessing that its model does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mmort.configs.schema import Schema, plain_type, read_entries

_TYPES = (
    *("DetDataPreprocessor", "ImgDataPreprocessor", "BoxInstDataPreprocessor", "TrackDataPreprocessor"),
    *("YOLOv5DetDataPreprocessor", "PPYOLOEDetDataPreprocessor"),  # MMYOLO's
)


@dataclass(frozen=True, kw_only=True)
class DataPreprocessor(Schema):
    """The entries of ``data_preprocessor``."""

    reader: ClassVar[str] = "preprocessing"

    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
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

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None):
            raise ValueError(
                f"preprocessing: data_preprocessor must have both mean and std or neither, got {self.mean}, {self.std}"
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, 3):
                raise ValueError(f"preprocessing: {name} of data_preprocessor must be 3 numbers or 1, got {values}")
        if self.bgr_to_rgb and self.rgb_to_bgr:
            raise ValueError("preprocessing: data_preprocessor must not have both bgr_to_rgb and rgb_to_bgr")
        if self.pad_value:
            raise ValueError(f"preprocessing: pad_value must be 0, got {self.pad_value}")

    @property
    def swaps(self) -> bool:
        """Whether blue and red change places."""
        return bool(self.bgr_to_rgb or self.rgb_to_bgr)


def read_data_preprocessor(config: Any) -> DataPreprocessor:
    """Read a ``data_preprocessor``, or that of the branches of a semi-supervised one.

    Raises
    ------
    ValueError
        If it is not supported.
    """
    if isinstance(config, dict) and isinstance(config.get("data_preprocessor"), dict):
        config = config["data_preprocessor"]
    kind = plain_type(config.get("type", _TYPES[0])) if isinstance(config, dict) else _TYPES[0]
    if kind not in _TYPES:
        raise ValueError(f"preprocessing: data_preprocessor {kind} is not supported; supported: {', '.join(_TYPES)}")
    return read_entries("data_preprocessor", DataPreprocessor, config)
