"""Features of rotated regions, each from the pyramid level that fits its size.

Source: MMRotate's ``RotatedSingleRoIExtractor``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mmort.detect.entries import PARTS, Schema, part, training_only
from mmort.detect.parts.roi_extractor import RoIExtractor
from mmort.torch import RiRoIAlignRotated, RoIAlignRotated


class RotatedRoILayer:
    """The settings of the RoIAlignRotated layers, one for each level."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        out_size: int | None = None
        output_size: int | None = None
        sample_num: int = 0
        sampling_ratio: int = 0
        aligned: bool = True
        clockwise: bool = False

        ignored: ClassVar = {"spatial_scale": "every level has its own"}

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        size = entries.output_size if entries.out_size is None else entries.out_size
        if size is None:
            raise ValueError("detect.build: roi_layer 'RoIAlignRotated' must have out_size")
        self.output_size = size

    def at_stride(self, stride: float) -> RoIAlignRotated:
        """Return the layer for a level with a stride."""
        return RoIAlignRotated(
            self.output_size,
            spatial_scale=1 / stride,
            sampling_ratio=self.entries.sample_num or self.entries.sampling_ratio,
            aligned=self.entries.aligned,
            clockwise=self.entries.clockwise,
        )


class OrientedRoILayer:
    """The settings of the RiRoIAlignRotated layers, one for each level."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        out_size: int
        num_samples: int = 0
        num_orientations: int = 8
        clockwise: bool = False

        ignored: ClassVar = {"spatial_scale": "every level has its own"}

    def __init__(self, entries: Entries) -> None:
        self.entries = entries

    def at_stride(self, stride: float) -> RiRoIAlignRotated:
        """Return the layer for a level with a stride."""
        return RiRoIAlignRotated(spatial_scale=1 / stride, **asdict(self.entries))


_ROI_LAYERS: dict[str, type[Any]] = {"RoIAlignRotated": RotatedRoILayer, "RiRoIAlignRotated": OrientedRoILayer}


@PARTS.register("RoI extractor", "RotatedSingleRoIExtractor")
class RotatedRoIExtractor(RoIExtractor):
    """RoIAlignRotated or RiRoIAlignRotated over the levels of a feature pyramid; its regions are [R, 6]."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RoIExtractor.Entries):
        roi_layer: RotatedRoILayer | OrientedRoILayer = part(  # type: ignore[assignment]
            "roi_layer", types=_ROI_LAYERS
        )

        ignored: ClassVar = {**RoIExtractor.Entries.ignored, **training_only("roi_scale_factor")}

    def levels(self, rois: Tensor, count: int) -> Tensor:
        """Return the level of each region by the square root of its area, [R], of `count`."""
        level = torch.floor(torch.log2(torch.sqrt(rois[:, 3] * rois[:, 4]) / self.finest_scale + 1e-6))
        return level.clamp(0, count - 1)
