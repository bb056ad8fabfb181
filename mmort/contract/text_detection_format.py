"""How the map of probabilities that a text detection's file gives becomes polygons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from mmort.contract.format import Format

Shape = Literal["poly", "quad"]
"""The shape of a text: its outline, or the smallest rectangle around it, which may be turned."""

SHAPES: tuple[str, ...] = get_args(Shape)


@dataclass(frozen=True)
class TextDetectionFormat(Format):
    """How regions of a map become polygons, as MMOCR's ``DBPostprocessor`` has it.

    Parameters
    ----------
    shape : {"poly", "quad"}, default "poly"
    threshold : float, default 0.3
        Pixels with a higher probability belong to a text.
    min_score : float, default 0.3
        Regions with a lower mean probability are left out.
    min_width : float, default 5
        Rectangles whose shorter side has fewer pixels of the input are left out.
    unclip_ratio : float, default 1.5
        Regions are smaller than their texts, and grow by their area times this by their circumference.
    epsilon_ratio : float, default 0.01
        How far the outline of a region may be from its pixels, as a share of its circumference.
    max_candidates : int, default 3000
        Regions after this many and one are left out.
    """

    shape: Shape = "poly"
    threshold: float = 0.3
    min_score: float = 0.3
    min_width: float = 5.0
    unclip_ratio: float = 1.5
    epsilon_ratio: float = 0.01
    max_candidates: int = 3000
