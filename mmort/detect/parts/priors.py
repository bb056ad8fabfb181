"""Priors: the anchors or points that boxes are regressed from, at every location of a feature map.

Priors of one level are ordered by row, then column, then anchor: as a head's output [N, A*k, h, w] is after
``permute(0, 2, 3, 1)``.  They are computed from the map's size in the forward pass, so that an exported model has them
for any size of the image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, as_many_as, at_least
from mmort.detect.parts.boxes import YXYX

_IGNORED = {"use_box_type": "a wrapper of MMDetection 3 around the same numbers"}


class Priors(nn.Module):
    """The priors of all levels.

    Attributes
    ----------
    strides : list of (float, float)
        Distance between locations, x and y, by level.
    num_base_priors : list of int
        Priors at one location, by level.
    """

    strides: list[tuple[float, float]]
    num_base_priors: list[int]

    def level(self, index: int, map: Tensor) -> Tensor:
        """Return the priors of a level whose map is `map` [N, C, h, w]: float32, [h*w*A, 4], for points [h*w, 2]."""
        raise NotImplementedError


class Anchors(Priors):
    """The same boxes around every location of a level, given as lists by level: strides (x, y) and boxes [A, 4].

    Attributes
    ----------
    last_pixel : int
        1 if boxes end at the coordinates of their last pixel, which are integers, as in MMDetection 1.
    """

    last_pixel: ClassVar[int] = 0

    def __init__(self, strides: Sequence[Any], boxes: Sequence[Tensor]) -> None:
        super().__init__()
        self.strides = [_pair(stride) for stride in strides]
        self.num_base_priors = [len(level_boxes) for level_boxes in boxes]
        for level, level_boxes in enumerate(boxes):
            self.register_buffer(f"boxes{level}", level_boxes, persistent=False)

    def level(self, index: int, map: Tensor) -> Tensor:
        """Return the anchors of a level whose feature map is `map` [N, C, h, w]: float32, [h*w*A, 4]."""
        corners = shifts(map, self.strides[index])  # [h, w, 2]
        corners = torch.cat([corners, corners], -1)[:, :, None]  # [h, w, 1, 4]
        boxes: Tensor = getattr(self, f"boxes{index}")  # [A, 4]
        return (corners + boxes).flatten(0, 2)


@PARTS.register("prior generator", "AnchorGenerator")
class AnchorGenerator(Anchors):
    """Anchors of some ratios (height by width) and scales; MMDetection's generator."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        strides: Sequence[Any]
        ratios: Sequence[float]
        scales: Sequence[float] | None = None
        base_sizes: Sequence[float] | None = as_many_as("strides", default=None)
        scale_major: bool = True
        octave_base_scale: float | None = at_least(0, default=None)
        scales_per_octave: int | None = None
        centers: Sequence[tuple[float, float]] | None = as_many_as("strides", default=None)
        center_offset: float = 0.0

        ignored: ClassVar = _IGNORED

    def __init__(self, entries: Entries) -> None:
        scales = entries.scales
        if scales is None:
            base, count = entries.octave_base_scale, entries.scales_per_octave
            if base is None or count is None:
                raise ValueError(
                    "detect.build: anchor_generator must have 'scales', or 'octave_base_scale' and 'scales_per_octave'"
                )
            scales = [2 ** (octave / count) * base for octave in range(count)]
        sizes = entries.base_sizes
        if sizes is None:
            sizes = [min(_pair(stride)) for stride in entries.strides]
        centres = entries.centers
        if centres is None:
            centres = [(entries.center_offset * (size - self.last_pixel),) * 2 for size in sizes]
        super().__init__(
            entries.strides,
            [
                boxes_around(centre, scaled_sizes(size, entries.ratios, scales, entries.scale_major), self.last_pixel)
                for size, centre in zip(sizes, centres, strict=True)
            ],
        )
        self.center_offset = entries.center_offset


@PARTS.register("prior generator", "LegacyAnchorGenerator")
class LegacyAnchorGenerator(AnchorGenerator):
    """The anchors of models that were trained with MMDetection 1."""

    last_pixel = 1


@PARTS.register("prior generator", "YXYXAnchorGenerator")
class YXYXAnchorGenerator(AnchorGenerator):
    """Anchors y1, x1, y2, x2, ordered by scale first whatever `scale_major` is, as in MMDetection's EfficientDet."""

    def __init__(self, entries: AnchorGenerator.Entries) -> None:
        super().__init__(replace(entries, scale_major=False))

    def level(self, index: int, map: Tensor) -> Tensor:
        """Return the anchors of a level whose feature map is `map` [N, C, h, w]: float32, [h*w*A, 4]."""
        return super().level(index, map)[:, YXYX]


@PARTS.register("prior generator", "SSDAnchorGenerator")
class SSDAnchorGenerator(Anchors):
    """SSD's anchors, around the middle of each location; MMDetection's generator.

    Sizes come from `min_sizes` and `max_sizes` by level, or from `basesize_ratio_range` and `input_size`.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        strides: Sequence[Any]
        ratios: Sequence[Sequence[float]] = as_many_as("strides")
        min_sizes: Sequence[float] | None = as_many_as("strides", default=None)
        max_sizes: Sequence[float] | None = as_many_as("strides", default=None)
        basesize_ratio_range: tuple[float, float] = (0.15, 0.9)
        input_size: int = 300
        scale_major: bool = True

        ignored: ClassVar = _IGNORED

    def __init__(self, entries: Entries) -> None:
        min_sizes, max_sizes = entries.min_sizes, entries.max_sizes
        if min_sizes is None or max_sizes is None:
            min_sizes, max_sizes = _ssd_sizes(entries.basesize_ratio_range, entries.input_size, len(entries.strides))
        boxes = []
        for stride, ratios, min_size, max_size in zip(
            entries.strides, entries.ratios, min_sizes, max_sizes, strict=True
        ):
            level_ratios = [1.0, *(value for ratio in ratios for value in (1 / ratio, ratio))]
            sizes = scaled_sizes(min_size, level_ratios, [1.0, math.sqrt(max_size / min_size)], entries.scale_major)
            # Each ratio once, and the larger square right after the smaller.
            count = len(level_ratios)
            chosen = sizes[[0, count, *range(1, count)]]
            boxes.append(boxes_around(_middle(stride, self.last_pixel), chosen, self.last_pixel))
        super().__init__(entries.strides, boxes)


@PARTS.register("prior generator", "LegacySSDAnchorGenerator")
class LegacySSDAnchorGenerator(SSDAnchorGenerator):
    """SSD's anchors in models that were trained with MMDetection 1."""

    last_pixel = 1


@PARTS.register("prior generator", "YOLOAnchorGenerator")
class YOLOAnchorGenerator(Anchors):
    """Anchors of given sizes (width, height), around the middle of each location; MMDetection's generator."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        strides: Sequence[Any]
        base_sizes: Sequence[Sequence[Any]] = as_many_as("strides")

        ignored: ClassVar = _IGNORED

    def __init__(self, entries: Entries) -> None:
        super().__init__(
            entries.strides,
            [
                boxes_around(_middle(stride), torch.tensor([_pair(size) for size in sizes], dtype=torch.float32))
                for stride, sizes in zip(entries.strides, entries.base_sizes, strict=True)
            ],
        )


class Points(Priors):
    """A point in every location, by default its middle, for detectors without anchors."""

    def __init__(self, strides: Sequence[Any], offset: float = 0.5) -> None:
        super().__init__()
        self.strides, self.offset = [_pair(stride) for stride in strides], offset
        self.num_base_priors = [1] * len(strides)

    def level(self, index: int, map: Tensor) -> Tensor:
        """Return x, y of the points of a level whose feature map is `map` [N, C, h, w]: float32, [h*w, 2]."""
        return shifts(map, self.strides[index], self.offset).flatten(0, 1)


class Centres(Priors):
    """The centres of anchors, one in every location."""

    def __init__(self, anchors: Priors) -> None:
        super().__init__()
        if any(count != 1 for count in anchors.num_base_priors):
            raise ValueError(
                f"detect.build: anchor_generator must have one anchor in a location, got {anchors.num_base_priors}"
            )
        self.anchors, self.strides, self.num_base_priors = anchors, anchors.strides, anchors.num_base_priors

    def level(self, index: int, map: Tensor) -> Tensor:
        """Return x, y of the anchors' centres, float32, [h*w, 2]."""
        boxes = self.anchors.level(index, map)
        return (boxes[:, :2] + boxes[:, 2:]) / 2


@PARTS.register("prior generator", "MlvlPointGenerator")
class PointGenerator(Points):
    """Points that a config describes; MMDetection's ``MlvlPointGenerator``."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        strides: Sequence[Any]
        offset: float = 0.5

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries.strides, entries.offset)


def shifts(map: Tensor, stride: tuple[float, float], offset: float = 0) -> Tensor:
    """Return x, y of the locations of a map [N, C, h, w]: (index + offset) * stride, float32, [h, w, 2]."""
    height, width = map.shape[-2:]
    x = (torch.arange(width, device=map.device).float() + offset) * stride[0]
    y = (torch.arange(height, device=map.device).float() + offset) * stride[1]
    return torch.stack([x.expand(height, width), y[:, None].expand(height, width)], -1)


def boxes_around(centre: tuple[float, float], sizes: Tensor, last_pixel: int = 0) -> Tensor:
    """Return the boxes of `sizes` [A, 2] (width, height) around a point, [A, 4]; see `Anchors` for `last_pixel`."""
    middle, half = torch.tensor(centre, dtype=torch.float32), 0.5 * (sizes - last_pixel)
    boxes = torch.cat([middle - half, middle + half], 1)
    return boxes.round() if last_pixel else boxes


def scaled_sizes(size: float, ratios: Sequence[float], scales: Sequence[float], scale_major: bool) -> Tensor:
    """Return widths and heights of anchors, [ratios * scales, 2], float32; `scale_major`: the scales vary fastest."""
    roots = torch.tensor(ratios, dtype=torch.float32).sqrt()
    factors = torch.stack([1 / roots, roots], -1)  # [ratios, 2]
    growth = torch.tensor(scales, dtype=torch.float32)[:, None]  # [scales, 1]
    if scale_major:
        return (size * factors[:, None] * growth).flatten(0, 1)
    return (size * growth[:, None] * factors).flatten(0, 1)


_SSD_FIRST_PERCENTS = {(300, 0.15): (7, 15), (300, 0.2): (10, 20), (512, 0.1): (4, 10), (512, 0.15): (7, 15)}
"""By input size and start of the range: smallest and largest size on the first level, in percent of the input."""


def _ssd_sizes(ratio_range: tuple[float, float], input_size: int, levels: int) -> tuple[list[int], list[int]]:
    """Return the smallest and largest sizes of anchors by level."""
    first = _SSD_FIRST_PERCENTS.get((input_size, ratio_range[0]))
    if first is None:
        raise ValueError(
            "detect.build: anchor_generator's input_size and basesize_ratio_range[0] must be one of "
            f"{', '.join(map(str, _SSD_FIRST_PERCENTS))}, got {(input_size, ratio_range[0])}"
        )
    low, high = int(ratio_range[0] * 100), int(ratio_range[1] * 100)
    step = (high - low) // (levels - 2)
    percents = [first, *((percent, percent + step) for percent in range(low, high + 1, step))]
    min_sizes, max_sizes = (
        [int(input_size * percent / 100) for percent in side] for side in zip(*percents, strict=True)
    )
    return min_sizes, max_sizes


def _middle(stride: Any, last_pixel: int = 0) -> tuple[float, float]:
    """Return the middle of a location whose corner is 0, 0."""
    x, y = _pair(stride)
    return (x - last_pixel) / 2, (y - last_pixel) / 2


def _pair(value: Any) -> tuple[float, float]:
    """Return a pair as it is, and one number twice."""
    return (value, value) if isinstance(value, (int, float)) else (value[0], value[1])
