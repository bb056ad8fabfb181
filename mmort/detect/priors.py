"""Priors: the anchors that boxes are regressed from, for every place of a feature map.

Priors of one level are ordered by row, then column, then anchor: as a head's output [N, A*k, h, w] is after
``permute(0, 2, 3, 1)``.  They are made from the map's size in the forward pass, so an exported model has them for any
size of the image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmort.detect.detector import construct


def _pair(value: Any) -> tuple[float, float]:
    return (value, value) if isinstance(value, (int, float)) else (value[0], value[1])


def shifts(map: Tensor, stride: tuple[float, float], offset: float = 0) -> Tensor:
    """Return x, y of the places of a feature map [N, C, h, w]: (index + offset) * stride, float32, [h, w, 2]."""
    height, width = map.shape[-2:]
    x = (torch.arange(width, device=map.device).float() + offset) * stride[0]
    y = (torch.arange(height, device=map.device).float() + offset) * stride[1]
    return torch.stack([x.expand(height, width), y[:, None].expand(height, width)], -1)


def boxes_around(centre: tuple[float, float], sizes: Tensor) -> Tensor:
    """Return the boxes of `sizes` [A, 2] (width, height) around a point, [A, 4]."""
    middle = torch.tensor(centre, dtype=torch.float32)
    return torch.cat([middle - 0.5 * sizes, middle + 0.5 * sizes], 1)


class Anchors(nn.Module):
    """The same boxes around every place of a level, given as lists by level: strides (x, y) and boxes [A, 4].

    Attributes
    ----------
    strides : list of (float, float)
        Distance between places, x and y, by level.
    num_base_priors : list of int
        Anchors at one place, by level.
    """

    def __init__(self, strides: Sequence[Any], boxes: Sequence[Tensor]) -> None:
        super().__init__()
        self.strides = [_pair(stride) for stride in strides]
        self.num_base_priors = [len(each) for each in boxes]
        for level, each in enumerate(boxes):
            self.register_buffer(f"boxes{level}", each, persistent=False)

    def level(self, index: int, map: Tensor) -> Tensor:
        """Return the priors of a level whose feature map is `map` [N, C, h, w]: float32, [h*w*A, 4]."""
        places = shifts(map, self.strides[index])  # [h, w, 2]
        places = torch.cat([places, places], -1)[:, :, None]  # [h, w, 1, 4]
        boxes: Tensor = getattr(self, f"boxes{index}")  # [A, 4]
        return (places + boxes).flatten(0, 2)


class AnchorGenerator(Anchors):
    """Anchors of some ratios (height by width) and scales; MMDetection's of that name."""

    def __init__(
        self,
        strides: Sequence[Any],
        ratios: Sequence[float],
        scales: Sequence[float] | None = None,
        base_sizes: Sequence[float] | None = None,
        scale_major: bool = True,
        octave_base_scale: float | None = None,
        scales_per_octave: int | None = None,
        centers: Sequence[tuple[float, float]] | None = None,
        center_offset: float = 0.0,
    ) -> None:
        if scales is None:
            if octave_base_scale is None or scales_per_octave is None:
                raise ValueError(
                    "detect.build: anchor_generator must have 'scales', or 'octave_base_scale' and 'scales_per_octave'"
                )
            scales = [2 ** (i / scales_per_octave) * octave_base_scale for i in range(scales_per_octave)]
        sizes = [min(_pair(stride)) for stride in strides] if base_sizes is None else base_sizes
        middles = [(center_offset * size, center_offset * size) for size in sizes] if centers is None else centers
        super().__init__(
            strides,
            [
                boxes_around(middle, scaled_sizes(size, ratios, scales, scale_major))
                for size, middle in zip(sizes, middles, strict=True)
            ],
        )


def scaled_sizes(size: float, ratios: Sequence[float], scales: Sequence[float], scale_major: bool) -> Tensor:
    """Return widths and heights of anchors, [ratios * scales, 2], float32; `scale_major`: the scales vary fastest."""
    roots = torch.tensor(ratios, dtype=torch.float32).sqrt()
    factors = torch.stack([1 / roots, roots], -1)  # [ratios, 2]
    growth = torch.tensor(scales, dtype=torch.float32)[:, None]  # [scales, 1]
    if scale_major:
        return (size * factors[:, None] * growth).flatten(0, 1)
    return (size * growth[:, None] * factors).flatten(0, 1)


class SSDAnchorGenerator(Anchors):
    """SSD's anchors, around the middle of each place; MMDetection's of that name.

    Sizes come from `min_sizes` and `max_sizes` by level, or from `basesize_ratio_range` and `input_size`.
    """

    def __init__(
        self,
        strides: Sequence[Any],
        ratios: Sequence[Sequence[float]],
        min_sizes: Sequence[float] | None = None,
        max_sizes: Sequence[float] | None = None,
        basesize_ratio_range: tuple[float, float] = (0.15, 0.9),
        input_size: int = 300,
        scale_major: bool = True,
    ) -> None:
        if min_sizes is None or max_sizes is None:
            min_sizes, max_sizes = _ssd_sizes(basesize_ratio_range, input_size, len(strides))
        boxes = []
        for stride, others, smallest, largest in zip(strides, ratios, min_sizes, max_sizes, strict=True):
            level_ratios = [1.0, *(value for ratio in others for value in (1 / ratio, ratio))]
            sizes = scaled_sizes(smallest, level_ratios, [1.0, math.sqrt(largest / smallest)], scale_major)
            # Each ratio once, and the larger square behind the first.
            count = len(level_ratios)
            chosen = sizes[[0, count, *range(1, count)]]
            boxes.append(boxes_around(_middle(stride), chosen))
        super().__init__(strides, boxes)


_SSD_SMALLEST = {(300, 0.15): (7, 15), (300, 0.2): (10, 20), (512, 0.1): (4, 10), (512, 0.15): (7, 15)}
"""By input size and start of the range: the sizes on the first level, in percent of the input."""


def _ssd_sizes(ratio_range: tuple[float, float], input_size: int, levels: int) -> tuple[list[int], list[int]]:
    """Return the smallest and largest sizes of anchors by level."""
    first = _SSD_SMALLEST.get((input_size, ratio_range[0]))
    if first is None:
        raise ValueError(
            "detect.build: anchor_generator's input_size and basesize_ratio_range[0] must be one of "
            f"{', '.join(map(str, _SSD_SMALLEST))}, got {(input_size, ratio_range[0])}"
        )
    low, high = int(ratio_range[0] * 100), int(ratio_range[1] * 100)
    step = (high - low) // (levels - 2)
    percents = [first, *((percent, percent + step) for percent in range(low, high + 1, step))]
    return [int(input_size * least / 100) for least, _ in percents], [
        int(input_size * most / 100) for _, most in percents
    ]


class YOLOAnchorGenerator(Anchors):
    """Anchors of given sizes (width, height), around the middle of each place; MMDetection's of that name."""

    def __init__(self, strides: Sequence[Any], base_sizes: Sequence[Sequence[Any]]) -> None:
        super().__init__(
            strides,
            [
                boxes_around(_middle(stride), torch.tensor([_pair(size) for size in sizes], dtype=torch.float32))
                for stride, sizes in zip(strides, base_sizes, strict=True)
            ],
        )


def _middle(stride: Any) -> tuple[float, float]:
    x, y = _pair(stride)
    return x / 2, y / 2


class Points(nn.Module):
    """The middle of every place, for detectors without anchors; MMDetection's ``MlvlPointGenerator``."""

    def __init__(self, strides: Sequence[Any]) -> None:
        super().__init__()
        self.strides = [_pair(stride) for stride in strides]
        self.num_base_priors = [1] * len(strides)

    def level(self, index: int, map: Tensor) -> Tensor:
        """Return x, y of the places of a level whose feature map is `map` [N, C, h, w]: float32, [h*w, 2]."""
        return shifts(map, self.strides[index], 0.5).flatten(0, 1)


_PRIORS: dict[str, Any] = {
    "AnchorGenerator": AnchorGenerator,
    "SSDAnchorGenerator": SSDAnchorGenerator,
    "YOLOAnchorGenerator": YOLOAnchorGenerator,
}


def build_priors(config: dict[str, Any]) -> Any:
    """Build ``anchor_generator``: a module with ``level(index, map)``, ``strides`` and ``num_base_priors``."""
    return construct("prior generator", config, _PRIORS)
