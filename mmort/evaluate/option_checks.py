"""Checks of options of COCO's and VOC's metrics, which come from configs and command lines and may be anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from types import NoneType
from typing import Any

_LISTS = {"iou_thrs", "proposal_nums", "metric_items"}


def option_values(schema: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as the arguments of their dataclass; None is the default, and a single value a list of it.

    Raises
    ------
    ValueError
        If the dataclass does not have an option, or a flag is no bool.
    """
    known = [field.name for field in dataclasses.fields(schema)]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(f"evaluate: unknown option {', '.join(unknown)}; options: {', '.join(known)}")
    for field in dataclasses.fields(schema):
        value = options.get(field.name)
        if isinstance(field.default, bool) and not isinstance(value, (bool, NoneType)):
            raise ValueError(f"evaluate: {field.name} must be True or False, got {value!r}")
    return {
        name: [value] if name in _LISTS and isinstance(value, (str, int, float)) else value
        for name, value in options.items()
        if value is not None
    }


def check_numbers(iou_thrs: Sequence[float], proposal_nums: Sequence[int]) -> None:
    """Refuse thresholds and numbers of detections for which nothing can be computed."""
    if not len(iou_thrs) or not all(isinstance(value, Real) and 0 < value <= 1 for value in iou_thrs):
        raise ValueError(f"evaluate: iou_thrs must be above 0 and at most 1, got {iou_thrs}")
    if not len(proposal_nums) or not all(isinstance(number, Integral) and number > 0 for number in proposal_nums):
        raise ValueError(f"evaluate: proposal_nums must be positive integers, got {proposal_nums}")
