"""Errors for arguments named or ordered as in torchvision, numpy or MMCV before 1.x: each gives the name used here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

RENAMED = {
    "iou_thr": "iou_threshold",
    "score_thr": "score_threshold",
    "max_per_img": "max_num",
    "out_size": "output_size",
    "sample_num": "sampling_ratio",
    "deformable_groups": "deform_groups",
}
"""Names that arguments had in MMCV before 1.x."""

ELSEWHERE = {
    "axis": ("dim", "as in torch"),
    "boxes": ("rois", "as in MMCV"),
    "iou_threshold": ("nms_cfg", "for which a number may stand"),
}
"""Names that arguments have in numpy and torchvision, with the name here and what to know of it."""

_MODULATED = "it has neither a bias nor a mask, unlike torchvision's; modulated_deform_conv2d has both"


def refuse_other_names(function: str, names: Iterable[str], parameters: Iterable[str]) -> None:
    """Raise TypeError if a name is that of a parameter elsewhere, and says what it is here."""
    known = set(parameters)
    for name in names:
        if RENAMED.get(name) in known:
            raise TypeError(f"{function}: {name} was renamed {RENAMED[name]} in MMCV 1.x") from None
        here, remark = ELSEWHERE.get(name, ("", ""))
        if here in known:
            raise TypeError(f"{function}: {name} is called {here}, {remark}") from None
        if name in ("bias", "mask") and function == "deform_conv2d":
            raise TypeError(f"deform_conv2d: {_MODULATED}") from None


def refuse_other_values(function: str, name: str, value: Any) -> None:
    """Raise TypeError if a value is what torchvision takes at this position."""
    if function == "deform_conv2d" and name == "stride" and getattr(value, "ndim", 0) > 0:
        raise TypeError(f"deform_conv2d: {_MODULATED}")
    if name == "rois" and isinstance(value, (list, tuple)) and any(getattr(boxes, "ndim", 0) == 2 for boxes in value):
        raise TypeError(
            f"{function}: rois must be one array [K, 5] of rows (batch index, x1, y1, x2, y2), got a list of "
            f"{len(value)} arrays of boxes, as torchvision takes it; put the image's index before each of its boxes"
        )


def explains_other_names(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that is called otherwise elsewhere; only a call that fails costs time."""
    name_of_function = function.__qualname__.removesuffix(".__init__")  # or the name of a layer
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError):
            refuse_other_names(name_of_function, kwargs.keys() - set(parameters), parameters)
            for name, value in {**dict(zip(parameters, args, strict=False)), **kwargs}.items():
                refuse_other_values(name_of_function, name, value)
            raise

    return call
